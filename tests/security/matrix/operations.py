"""Every operation that changes a table, as data: what it calls of the public surface, and which rows it leaves.

A name of the surface that is in no operation and not in READS fails a test: whoever adds an operation adds its cells.
"""

from __future__ import annotations

import datetime as dt
import inspect
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.table.update.snapshot import ExpireSnapshots, ManageSnapshots
from pyiceberg.table.update.sorting import UpdateSortOrder
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.table.update.statistics import UpdateStatistics
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DecimalType, LongType, NestedField, StringType

from tablecrypt import maintenance as m
from tablecrypt.table.snapshots import EncryptedUpdateSnapshot
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.transaction import EncryptedTransaction
from tests.security.matrix.people import Rows, Value, person
from tests.support.moved_names import MOVES, Step, take
from tests.support.protected_tables import SSN

NEW: Final = 10
"""The id of a row that an operation adds."""
LATER: Final = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
Leaves = Callable[[Rows, Value], Rows]


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes:
        group: of operations, the row of the page.
        name: of this one.
        calls: names of the public surface that it is there for.
        run: does it with a transaction, or with a table where it is no part of one. The other argument is ssn and note of a row to write.
        is_staged: whether it is part of a transaction.
        repeats: whether rows are there twice after it, so that nobody means well by it.
        leaves: the rows of the main branch after it; None where somebody who may do it takes the table or its values away.
        shows: whether whoever holds the column's key ends or weakens the protection by it.
    """

    group: str
    name: str
    calls: tuple[str, ...]
    run: Callable[[Any, Value], object]
    is_staged: bool = True
    repeats: bool = False
    leaves: Leaves | None = lambda rows, _: rows
    shows: bool = False


def _rows(number: int, value: Value) -> pa.Table:
    return person(number, str(value[0]), str(value[1]))


def _whole(to: EncryptedTransaction, number: int, value: Value) -> pa.Table:
    """A row with all columns of the table."""
    return pa.Table.from_pylist([{"id": number, "ssn": value[0], "note": value[1]}], schema=to._table.schema().as_arrow())


def _adds(rows: Rows, value: Value) -> Rows:
    return {**rows, NEW: value}


def _without(*numbers: int) -> Leaves:
    return lambda rows, _: {number: value for number, value in rows.items() if number not in numbers}


def _stream(rows: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())


def _copy_on_write(to: EncryptedTransaction, _: Value) -> None:
    to.set_properties({"write.delete.mode": "copy-on-write"})
    to.delete("id = 1")


def _again(kind: str) -> Callable[[EncryptedTransaction, Value], None]:
    """Take the table's own data files out, or add them once more, as whoever makes a snapshot by hand does it."""

    def run(to: EncryptedTransaction, _: Value) -> None:
        files = [task.file for task in to._table.scan("id >= 3").plan_files() if task.file.spec_id == to._table.spec().spec_id]
        with getattr(to.update_snapshot(), kind)() as producer:
            for file in files:
                if kind == "overwrite":
                    producer.delete_data_file(file)
                else:
                    producer.append_data_file(file)

    return run


def _emptied(to: EncryptedTransaction, _: Value) -> None:
    with to.update_snapshot().delete() as producer:
        producer.delete_by_predicate(AlwaysTrue())


def _a_file(to: EncryptedTransaction) -> str:
    return next(iter(to._table.scan().plan_files())).file.file_path


def _replace(to: EncryptedTransaction, value: Value) -> None:
    """What REPLACE TABLE AS SELECT stages."""
    files = to._write(_rows(NEW, value), uuid.UUID(int=9), "main")
    with to.update_snapshot().replacement() as producer:
        for file in files:
            producer.append_data_file(file)


_ROWS: Final = (
    Operation("rows", "append", ("append",), lambda to, value: to.append(_rows(NEW, value)), leaves=_adds),
    Operation("rows", "append a stream", ("append",), lambda to, value: to.append(_stream(_rows(NEW, value))), leaves=_adds),
    Operation("rows", "append to a branch", ("append",), lambda to, value: to.append(_rows(NEW, value), branch="side")),
    Operation("rows", "append and stage", ("append",), lambda to, value: to.append(_rows(NEW, value), branch=None)),
    Operation("rows", "overwrite", ("overwrite",), lambda to, value: to.overwrite(_rows(NEW, value)), leaves=lambda _, new: {NEW: new}),
    Operation(
        *("rows", "overwrite some", ("overwrite",), lambda to, value: to.overwrite(_rows(NEW, value), "id = 1")),
        leaves=lambda rows, value: _adds(_without(1)(rows, value), value),
    ),
    Operation(
        *("rows", "overwrite partitions", ("dynamic_partition_overwrite",)),
        lambda to, value: to.dynamic_partition_overwrite(_rows(3, value)),
        leaves=lambda rows, value: {**rows, 3: value},
    ),
    Operation("rows", "delete", ("delete", "row_delta"), lambda to, _: to.delete("id = 1"), leaves=_without(1)),
    Operation("rows", "delete and write again", ("delete",), _copy_on_write, leaves=_without(1)),
    Operation("rows", "delete all", ("delete",), lambda to, _: to.delete("id >= 0"), leaves=lambda _, __: {}),
    Operation("rows", "delete by the column", ("delete",), lambda to, _: to.delete("ssn = 'SSN-CANARY-1'"), leaves=_without(1)),
    Operation(
        *("rows", "upsert", ("upsert",), lambda to, value: to.upsert(_whole(to, 1, value), ["id"])),
        leaves=lambda rows, value: {**rows, 1: value},
    ),
    Operation("rows", "add files", ("add_files",), lambda to, _: to.add_files([_a_file(to)], check_duplicate_files=False)),
    Operation("rows", "own files once more", ("fast_append",), _again("fast_append"), repeats=True),
    Operation("rows", "own files once more, merged", ("merge_append",), _again("merge_append"), repeats=True),
    Operation("rows", "take own files out", ("overwrite", "update_snapshot"), _again("overwrite"), leaves=_without(3, 4)),
    Operation("rows", "take all files out", ("delete", "update_snapshot"), _emptied, leaves=lambda _, __: {}),
    Operation(*("rows", "replace the table", ("replacement",), _replace), leaves=lambda _, value: {NEW: value}),
)


def _schema(change: Callable[[UpdateSchema], object], **options: bool) -> Callable[[EncryptedTransaction, Value], None]:
    def run(to: EncryptedTransaction, _: Value) -> None:
        with to.update_schema(**options) as update:
            change(update)

    return run


def _columns(name: str, calls: str, change: Callable[[UpdateSchema], object], **options: bool) -> Operation:
    return Operation("columns", name, (calls, "update_schema"), _schema(change, **options))


def _taken(to: EncryptedTransaction, _: Value, steps: Sequence[Step]) -> None:
    take(to, steps)


_COLUMNS: Final = (
    _columns("add one", "add_column", lambda change: change.add_column("more", StringType(), default_value="none")),
    _columns("add one of a struct", "add_column", lambda change: change.add_column(("person", "nick"), StringType())),
    _columns("rename the column", "rename_column", lambda change: change.rename_column("ssn", "social")),
    _columns("rename another", "rename_column", lambda change: change.rename_column("note", "remark")),
    _columns("drop the column", "delete_column", lambda change: change.delete_column("ssn")),
    _columns("drop another", "delete_column", lambda change: change.delete_column("note")),
    _columns("move the column first", "move_first", lambda change: change.move_first("ssn")),
    _columns("move it behind", "move_after", lambda change: change.move_after("ssn", "note")),
    _columns("move it before", "move_before", lambda change: change.move_before("note", "ssn")),
    _columns("widen a protected one", "update_column", lambda change: change.update_column("salary", DecimalType(12, 2))),
    _columns("comment the column", "update_column", lambda change: change.update_column("ssn", doc="a number #fin")),
    _columns(
        *("require the column", "update_column", lambda change: change.update_column("ssn", required=True)), allow_incompatible_changes=True
    ),
    _columns("make it optional", "make_column_optional", lambda change: change.make_column_optional("ssn")),
    _columns("set a default", "set_default_value", lambda change: change.set_default_value("ssn", "SSN-DEFAULT")),
    _columns("identify rows by the column", "set_identifier_fields", lambda change: change.set_identifier_fields("ssn")),
    _columns(
        *("take another schema's columns", "union_by_name"),
        lambda change: change.union_by_name(Schema(NestedField(1, "ssn", StringType()), NestedField(2, "other", LongType()))),
    ),
    *(Operation("columns", f"name taken: {name}", ("update_schema",), partial(_taken, steps=steps)) for name, steps in MOVES.items()),
)


def _spec(change: Callable[[UpdateSpec], object]) -> Callable[[EncryptedTransaction, Value], None]:
    def run(to: EncryptedTransaction, _: Value) -> None:
        with to.update_spec() as update:
            change(update)

    return run


def _order(change: Callable[[UpdateSortOrder], object]) -> Callable[[EncryptedTransaction, Value], None]:
    def run(to: EncryptedTransaction, _: Value) -> None:
        with to.update_sort_order() as update:
            change(update)

    return run


_IDENTITY: Final[IdentityTransform[Any]] = IdentityTransform()
_LAYOUT: Final = (
    Operation("layout", "partition by the column", ("add_identity", "update_spec"), _spec(lambda spec: spec.add_identity("ssn"))),
    Operation("layout", "in buckets by the column", ("add_field",), _spec(lambda spec: spec.add_field("ssn", BucketTransform(4), "b"))),
    Operation("layout", "partition by another", ("add_identity",), _spec(lambda spec: spec.add_identity("note"))),
    Operation("layout", "partition by none", ("remove_field",), _spec(lambda spec: spec.remove_field("id"))),
    Operation("layout", "rename a partition", ("rename_field",), _spec(lambda spec: spec.rename_field("id", "ssn"))),
    Operation("layout", "sort by the column", ("asc", "update_sort_order"), _order(lambda order: order.asc("ssn", _IDENTITY))),
    Operation("layout", "sort by another", ("desc",), _order(lambda order: order.desc("note", _IDENTITY, NullOrder.NULLS_LAST))),
    Operation("layout", "move the table", ("update_location",), lambda to, _: to.update_location(f"{to._table.location()}-elsewhere")),
    Operation("layout", "upgrade the format", ("upgrade_table_version",), lambda to, _: to.upgrade_table_version(3)),
)


def _sets(name: str, properties: Mapping[str, str], shows: bool = False, group: str = "properties") -> Operation:
    return Operation(group, name, ("set_properties",), lambda to, _: to.set_properties(dict(properties)), shows=shows)


def _declares(name: str, properties: Mapping[str, str], shows: bool = False) -> Operation:
    return _sets(name, {f"encryption.{key}": value for key, value in properties.items()}, shows, "protection")


_MAPPING: Final = '[{"field-id": 6, "names": ["ssn"]}, {"field-id": 2, "names": ["note"]}, {"field-id": 1, "names": ["id"]}]'
_PROPERTIES: Final = (
    _sets("comment", {"comment": "theirs"}),
    Operation("properties", "remove the comment", ("remove_properties",), lambda to, _: to.remove_properties("comment")),
    _sets("another name mapping", {"schema.name-mapping.default": _MAPPING}),
    _sets("Parquet for other engines", {"write.format.default": "parquet"}),
    _sets("no guard", {"encryption.column-guard": "false"}),
    _sets("few rows together", {"write.parquet.row-group-limit": "1"}),
    _sets("statistics of every column", {"write.metadata.metrics.default": "full", "write.metadata.metrics.column.ssn": "full"}),
    _sets("no compression", {"write.parquet.compression-codec": "uncompressed", "write.parquet.dict-size-bytes": "1"}),
    _sets("data elsewhere", {"write.data.path": "file:///tmp/elsewhere"}),
    _sets("another master key", {"encryption.key-id": "fin"}),
    _sets("deletion is off", {"gc.enabled": "false"}),
)
_PROTECTION: Final = (
    _declares("declare another column", {"column-keys": "pii: ssn, person.email, note; fin: salary"}),
    _declares("declare another column under a key of one's own", {"column-keys": "pii: ssn, person.email; fin: salary, note"}),
    _declares("undeclare the column", {"column-keys": "pii: person.email; fin: salary"}, shows=True),
    _declares("undeclare all", {"column-keys": ""}, shows=True),
    _declares("another master key for the column", {"column-keys": "fin: ssn, salary; pii: person.email"}, shows=True),
    _declares("the table's key for the column", {"column-keys": "orders: ssn; pii: person.email; fin: salary"}),
    _declares("a mask that shows values", {"column-mask.ssn": "truncate(64)"}, shows=True),
    _declares("a mask that hides more", {"column-mask.ssn": "null"}),
    _declares("no value at all", {"column-mask.ssn": "error"}),
    _declares("hashes", {"column-mask.ssn": "hash"}),
    _declares("a tag's key", {"column-tags": "pii: fin"}),
    _declares("key by hand", {f"column.{SSN}.key-id": "fin"}),
    _declares("since by hand", {f"column.{SSN}.since": "9"}),
    Operation(
        *("protection", "remove the declaration", ("remove_properties",), lambda to, _: to.remove_properties("encryption.column-keys")),
        shows=True,
    ),
    Operation(
        *("protection", "remove it by hand", ("remove_properties",)), lambda to, _: to.remove_properties(f"encryption.column.{SSN}.key-id")
    ),
    Operation("protection", "rotate column KEKs", ("rotate_column_keks",), lambda to, _: m.rotate_column_keks(to), False),
    Operation("protection", "rewrap column KEKs", ("rewrap_column_keks",), lambda to, _: m.rewrap_column_keks(to), False),
    Operation("protection", "shred the column", ("shred_column",), lambda to, _: m.shred_column(to, "ssn"), False, leaves=None),
)


def _oldest(table: Table) -> int:
    return table.metadata.snapshots[0].snapshot_id


def _manages(change: Callable[[ManageSnapshots, EncryptedTable], ManageSnapshots]) -> Callable[[EncryptedTable, Value], None]:
    return lambda table, _: change(table.manage_snapshots(), table).commit()


def _refs(name: str, calls: str, change: Callable[[ManageSnapshots, EncryptedTable], ManageSnapshots], leaves: Leaves) -> Operation:
    return Operation("snapshots", name, (calls, "manage_snapshots"), _manages(change), False, leaves=leaves)


def _same(rows: Rows, _: Value) -> Rows:
    return rows


def _first(rows: Rows, _: Value) -> Rows:
    """The rows of the first snapshot: the scene's first append."""
    return {number: rows.get(number) or (f"SSN-CANARY-{number}", f"note {number}") for number in (1, 2, 5)}


def _of_branch(rows: Rows, _: Value) -> Rows:
    return {number: rows.get(number) or (f"SSN-CANARY-{number}", f"note {number}") for number in (1, 2, 6)}


_SNAPSHOTS: Final = (
    _refs("make a branch", "create_branch", lambda change, table: change.create_branch(_oldest(table), "theirs"), _same),
    _refs("make a tag", "create_tag", lambda change, table: change.create_tag(_oldest(table), "theirs"), _same),
    _refs("remove the branch", "remove_branch", lambda change, _: change.remove_branch("side"), _same),
    _refs("remove the tag", "remove_tag", lambda change, _: change.remove_tag("closed"), _same),
    _refs("roll back", "rollback_to_snapshot", lambda change, table: change.rollback_to_snapshot(_oldest(table)), _first),
    _refs(
        *("roll back in time", "rollback_to_timestamp"),
        lambda change, table: change.rollback_to_timestamp(table.metadata.snapshots[0].timestamp_ms + 1),
        _first,
    ),
    _refs("go to the branch", "set_current_snapshot", lambda change, _: change.set_current_snapshot(ref_name="side"), _of_branch),
    Operation(
        *("snapshots", "statistics", ("set_statistics", "update_statistics")), lambda to, _: _set_statistics(to.update_statistics(), to)
    ),
    Operation("snapshots", "no statistics", ("remove_statistics",), lambda to, _: _unset_statistics(to.update_statistics(), to)),
    Operation(
        *("snapshots", "expire one", ("by_id",)),
        lambda table, _: table.maintenance.expire_snapshots().by_id(_between(table)).commit(),
        False,
    ),
    Operation(
        *("snapshots", "expire some", ("by_ids",)),
        lambda table, _: table.maintenance.expire_snapshots().by_ids([_between(table)]).commit(),
        False,
    ),
    Operation(
        *("snapshots", "expire old ones", ("older_than",)),
        lambda table, _: table.maintenance.expire_snapshots().older_than(dt.datetime(2100, 1, 1)).commit(),
        False,
    ),
)


def _between(table: EncryptedTable) -> int:
    """A snapshot that no branch or tag points to."""
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    return next(each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id not in heads)


def _set_statistics(update: UpdateStatistics, to: EncryptedTransaction) -> None:
    table = to._table
    file = StatisticsFile(
        snapshot_id=_oldest(table),
        statistics_path=f"{table.location()}/metadata/statistics.puffin",
        file_size_in_bytes=1,
        file_footer_size_in_bytes=1,
        blob_metadata=[],
    )
    with update as change:
        change.set_statistics(file)


def _unset_statistics(update: UpdateStatistics, to: EncryptedTransaction) -> None:
    with update as change:
        change.remove_statistics(_oldest(to._table))


def _maintains(name: str, calls: str, run: Callable[[EncryptedTable], object], leaves: Leaves | None = _same) -> Operation:
    return Operation("maintenance", name, (calls,), lambda table, _: run(table), False, leaves=leaves)


def _shared_and_ended(table: EncryptedTable) -> None:
    m.share(table, "fin", f"{table.location()}-ended-share", rewrite=True)
    for share in m.shares(table).shares:
        m.unshare(table, share.share_uuid)


_MAINTENANCE: Final = (
    _maintains("compact", "compact", lambda table: m.compact(table, rewrite_all=True, workers=1)),
    _maintains("compact by parts", "compact", lambda table: m.compact(table, rewrite_all=True, partial_progress=1, workers=1)),
    _maintains("compact, sorted", "compact", lambda table: m.compact(table, rewrite_all=True, sort_by="note", workers=1)),
    _maintains("compact, sorted by the column", "compact", lambda table: m.compact(table, rewrite_all=True, sort_by="ssn", workers=1)),
    _maintains("reencrypt", "reencrypt", lambda table: m.reencrypt(table, workers=1)),
    _maintains("reencrypt what is out of line", "reencrypt", lambda table: m.reencrypt(table, out_of_line=True, workers=1)),
    _maintains("reencrypt the branch", "reencrypt", lambda table: m.reencrypt(table, branch="side", workers=1)),
    _maintains("rotate the KEK", "rotate_kek", m.rotate_kek),
    _maintains("rewrap", "rewrap", m.rewrap),
    _maintains("prune keys", "prune_keys", m.prune_keys),
    _maintains("rescue", "rescue", m.rescue),
    _maintains("relocate", "relocate", lambda table: m.relocate(table, f"{table.location()}-copy", register_as="db.copy", workers=1)),
    _maintains("share", "share", lambda table: m.share(table, "fin", f"{table.location()}-share", rewrite=True)),
    _maintains(
        *("share with the column", "share"),
        lambda table: m.share(table, "fin", f"{table.location()}-share-with-column", rewrite=True, columns={"ssn": "pii"}),
    ),
    _maintains("share, list and end it", "unshare", _shared_and_ended),
    _maintains("migrate", "migrate", lambda table: m.migrate(table, "orders", workers=1)),
    _maintains("erase", "erase", lambda table: m.erase(table, "id = 1", workers=1), _without(1)),
    _maintains("erase by the column", "erase", lambda table: m.erase(table, "ssn = 'SSN-CANARY-1'", workers=1), _without(1)),
    _maintains("shred old snapshots", "shred", lambda table: m.shred(table, all_but_heads=True)),
    _maintains("shred all", "shred", lambda table: m.shred(table, whole_table="db.people"), None),
    _maintains("remove orphans", "remove_orphan_files", lambda table: m.remove_orphan_files(table, LATER, dry_run=False)),
    _maintains(
        *("remove orphans that the caller names", "remove_orphan_files"),
        lambda table: m.remove_orphan_files(table, LATER, delete_below=[table.location()], dry_run=False),
    ),
    _maintains("on every table", "on_tables", lambda table: m.on_tables(table.catalog, m.rotate_kek)),
)


def _in_catalog(name: str, calls: str, run: Callable[[Any], object], leaves: Leaves | None = _same) -> Operation:
    return Operation("catalog", name, (calls,), lambda table, _: run(table), False, leaves=leaves)


_IN_CATALOG: Final = (
    _in_catalog("rename the table", "rename_table", lambda table: table.catalog.rename_table("db.people", "db.folk"), None),
    _in_catalog("drop it", "drop_table", lambda table: table.catalog.drop_table("db.people"), None),
    _in_catalog("purge it", "purge_table", lambda table: table.catalog.purge_table("db.people"), None),
    _in_catalog("purge its files", "purge_files", lambda table: table.catalog.purge_files("db.people"), None),
    _in_catalog(*("register it twice", "register_table"), lambda table: table.catalog.register_table("db.twice", table.metadata_location)),
    _in_catalog("make it anew", "create_table", lambda table: table.catalog.create_table("db.people", table.schema())),
    _in_catalog(
        *("make it anew if it is not there", "create_table_if_not_exists"),
        lambda table: table.catalog.create_table_if_not_exists("db.people", table.schema()),
    ),
    _in_catalog(
        *("make it anew in a transaction", "create_table_transaction"),
        lambda table: table.catalog.create_table_transaction("db.people", table.schema()).commit_transaction(),
    ),
    _in_catalog("commit nothing", "commit_table", lambda table: table.catalog.commit_table(table, (), ())),
    _in_catalog("accept a rollback", "accept_rollback", lambda table: table.catalog.accept_rollback("db.people")),
    _in_catalog("forget the pin", "forget_pin", lambda table: table.catalog.forget_pin("db.people")),
)

OPERATIONS: Final = (*_ROWS, *_COLUMNS, *_LAYOUT, *_PROPERTIES, *_PROTECTION, *_SNAPSHOTS, *_MAINTENANCE, *_IN_CATALOG)

READS: Final = {
    "of a table": {"current_snapshot", "format_version", "history", "incremental_append_scan", "inspect", "last_partition_id"}
    | {"last_sequence_number", "location", "location_provider", "maintenance", "metadata", "metadata_location", "name", "name_mapping"}
    | {"properties", "refresh", "refs", "scan", "schema", "schemas", "snapshot_as_of_timestamp", "snapshot_by_id", "snapshot_by_name"}
    | {"snapshots", "sort_order", "sort_orders", "spec", "specs", "to_bodo", "to_daft", "to_polars"},
    "of a transaction": {"transaction", "commit_transaction", "commit", "apply", "append_producer", "applied", "belongs_to_attempt"}
    | {"check_each_base", "check_later_bases", "check_next_metadata", "check_staged", "encrypted_metadata", "following", "gives_up_on"}
    | {"new_scan", "refuse_rows_added_meanwhile"}
    | {"require_of_base"}
    | {"partition_predicate", "table", "table_io", "table_metadata", "case_sensitive", "assign_new_column_id", "is_first_snapshot"}
    | {"fast_or_merge_append", "new_snapshot", "producer", "stage_rows"},
    "of tablecrypt.maintenance": {"audit", "changes_since", "describe", "doctor", "doctor_without_catalog", "inspect", "list_tables"}
    | {"verify", "write_evidence", "shares"},
    "of a share that a partner has registered, in which he could as well register other metadata": {"accept_update"},
    "of a catalog": {"close", "identifier_to_database", "identifier_to_database_and_table", "identifier_to_tuple", "list_namespaces"}
    | {"list_tables", "list_views", "load_namespace_properties", "load_table", "load_view", "namespace_exists", "namespace_from"}
    | {"namespace_to_string", "properties", "supports_server_side_planning", "table_exists", "table_name_from", "view_exists", "name"},
    "of namespaces and views": {"create_namespace", "create_namespace_if_not_exists", "create_view", "drop_namespace", "drop_view"}
    | {"register_view", "update_namespace_properties"},
}
"""What changes no table, or is a part of an operation, and why it has no cell."""


def surface() -> set[str]:
    """Every public name of what changes a table."""
    owners = (EncryptedTable, EncryptedTransaction, ManageSnapshots, UpdateSchema, UpdateSpec, UpdateSortOrder, UpdateStatistics)
    of_classes = {name for owner in (*owners, ExpireSnapshots, EncryptedUpdateSnapshot, Catalog) for name in dir(owner) if name[0] != "_"}
    of_maintenance = {name for name in m.__all__ if inspect.isfunction(getattr(m, name))}
    return of_classes | of_maintenance | {"accept_rollback", "forget_pin", "purge_files"}


def unnamed() -> Iterator[str]:
    """What of the surface has neither a cell nor a reason for having none."""
    named = {name for operation in OPERATIONS for name in operation.calls} | set[str]().union(*READS.values())
    yield from sorted(surface() - named)


def stale_names() -> Iterator[str]:
    """What is named here and no longer part of the surface."""
    yield from sorted(set[str]().union(*READS.values(), *(set(operation.calls) for operation in OPERATIONS)) - surface())
