"""Which files of a table a share names: those of which every row may be given away.

    file                                                       what becomes of it
    partition or bounds prove that all rows match              shared, with its deletion vector
    they do not prove it                                       refused: rows are never withheld by a filter that a reader applies
    position or equality deletes apply to it                   refused: such a delete file may be about other files too
    it holds a protected column in the clear                   refused: its DEK opens the column
    its partition shows a protected column                     refused, likewise
    a column of it is not to leave                             refused, likewise

What is refused is written again where that was asked for: its matching rows, without what may not leave, into the share's folder.

A file's DEK opens all of it but its hidden columns, of which columns.py gives the DEKs of those that are named. So what a partner can read
is what the files hold: columns that were dropped since, rows that a deletion vector marks, and the masks that files keep of protected
columns. A plan counts them, for the result to say so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.manifest import ManifestEntry
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.types import ListType, MapType

from tablecrypt.errors import ConfigurationError
from tablecrypt.keys.column_keys import ColumnPolicy, told_until
from tablecrypt.keys.nested_columns import covering
from tablecrypt.maintenance.columns.footers import inspect_footers, may_have_hidden_columns
from tablecrypt.maintenance.runner import Runner
from tablecrypt.maintenance.sharing.columns import check_right, named_columns
from tablecrypt.manifests.records import is_deletion_vector
from tablecrypt.parquet.protected.protected_layout import StoredHiddenColumns
from tablecrypt.printable import counted
from tablecrypt.table._pyiceberg.whole_files import WholeFiles
from tablecrypt.table.filters import fitted, with_sql_null_semantics
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata, has_column_keys
from tablecrypt.table.planning import EncryptedFileScanTask, ScanPlanner
from tablecrypt.table.protection.authenticated import check_compared
from tablecrypt.table.protection.exposed_values import ShownPartitions
from tablecrypt.table.shares import SharedColumn
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import name_of


@dataclass(frozen=True)
class SharePlan:
    """What of a table is shared.

    Attributes:
        table: as it was loaded.
        metadata: the table's, with the schema of the snapshot as the current one.
        snapshot: of the table, from which the files are.
        schema: the share's: without protected columns that are not shared.
        tasks: the shared files with their deletion vectors.
        rewritten: files whose matching rows are written again.
        row_filter: what these rows match.
        columns: the protected columns that are shared.
        without: ids of the columns that may not leave, also where the table has dropped them: older files hold them still.
        with_statistics: whether the partner gets bounds and counts of the columns.
        stored: what the footers of shared files say of protected columns, by location.
        protected: ids of the protected columns that are not shared.
        withheld: names of these and of other columns that are left out.
        masked: names of those of which files keep masked values.
        dropped: names of columns that the table has had, and files may hold still.
    """

    table: EncryptedTable
    metadata: EncryptedTableMetadata
    snapshot: EncryptedSnapshot
    schema: Schema
    tasks: tuple[EncryptedFileScanTask, ...]
    rewritten: tuple[EncryptedFileScanTask, ...] = ()
    row_filter: BooleanExpression = ALWAYS_TRUE
    columns: tuple[SharedColumn, ...] = ()
    without: tuple[int, ...] = ()
    with_statistics: bool = True
    stored: Mapping[str, StoredHiddenColumns] = field(default_factory=dict)
    protected: frozenset[int] = frozenset()
    withheld: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    @cached_property
    def entries(self) -> list[ManifestEntry]:
        """The entries of the shared data files, with all that they inherit."""
        return [entries.entry(row) for entries, row in (task.planned_entry for task in self.tasks)]

    @property
    def with_vectors(self) -> list[EncryptedFileScanTask]:
        """The shared files that have rows which are marked as deleted."""
        return [task for task in self.tasks if task.delete_files]

    @property
    def deleted_rows(self) -> int:
        """How many rows of the shared files are marked as deleted, and stored still."""
        return sum(vector.record_count for task in self.with_vectors for vector in task.delete_files)

    @property
    def rows(self) -> int:
        """How many rows a reader sees of the files that are shared as they are."""
        return sum(task.file.record_count for task in self.tasks) - self.deleted_rows

    @property
    def size(self) -> int:
        """Stored bytes of the shared data files."""
        return sum(task.size for task in self.tasks)

    @property
    def locations(self) -> list[str]:
        """Where the shared data files are."""
        return [task.file.file_path for task in self.tasks]


@dataclass(frozen=True)
class RewriteChoice:
    """What may be written again.

    Attributes:
        is_allowed: whether files that cannot be shared as they are may be.
        without: names of columns that may not leave at all.
        left_out: field ids of those that the share has left out so far: an update that does not name them gives none of them.

    Raises:
        ConfigurationError: columns are left out, and nothing may be written again.
    """

    is_allowed: bool = False
    without: tuple[str, ...] = ()
    left_out: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.without and not self.is_allowed:
            raise ConfigurationError(
                f"{', '.join(map(repr, self.without))}: a file's key opens all of its columns, so that a column is left out only of files "
                "that are written again: set rewrite as well (--rewrite)"
            )


_AS_THEY_ARE: Final = RewriteChoice()


def plan_share(
    table: EncryptedTable,
    row_filter: BooleanExpression,
    snapshot_id: int | None,
    runner: Runner,
    rewriting: RewriteChoice = _AS_THEY_ARE,
    columns: Mapping[str, str] | Iterable[SharedColumn] = (),
) -> SharePlan:
    """Plan which files of a table a share names.

    Args:
        table: as it was loaded.
        row_filter: unbound; which rows are shared.
        snapshot_id: from which snapshot; None for the current one.
        runner: reads footers, where columns are protected.
        rewriting: what becomes of files that cannot be shared as they are.
        columns: the protected columns that are shared: by name, with the partner's master key; or as a share has them, of which those that
            the table has dropped go.

    Raises:
        ColumnKeyDeniedError: this user may not read one of these columns.
        ConfigurationError: there is no such snapshot or column, no file matches, or a file that holds matching rows cannot be shared as it
            is and is not to be written again.
    """
    metadata, snapshot = _state(table, snapshot_id)
    schema = metadata.schema()
    strict = with_sql_null_semantics(fitted(row_filter, schema), schema)
    check_compared(table.metadata, table.io, schema, extract_field_ids(bind(schema, strict, case_sensitive=True)))
    tasks = ScanPlanner(metadata, table.io, strict).plan_files(snapshot.manifests(table.io))
    if not tasks:
        raise ConfigurationError(f"{name_of(table)}: no file of snapshot {snapshot.snapshot_id} holds rows that match: nothing to share")

    protected = _protected(table.metadata)
    shared_columns = _shared_columns(table, schema, protected, columns)
    check_right(table, shared_columns)
    looked_at = [task.file for task in tasks if may_have_hidden_columns(task.file)] if has_column_keys(table.metadata) else []
    stored = inspect_footers(table, looked_at, runner) if looked_at else {}
    whole = WholeFiles(schema, strict, told_until=told_until(metadata.properties, schema))
    reasons = _reasons(whole, ShownPartitions.of(table.metadata), stored, protected, rewriting)
    refused = _refused(table, tasks, reasons, rewriting)

    withheld = protected - {each.field_id for each in shared_columns}
    without = {*rewriting.left_out, *_ids_of(table, schema, rewriting.without)}
    left_out = withheld | without & set(schema.field_ids)
    if wanted := [each.name for each in shared_columns if each.field_id in left_out]:
        raise ConfigurationError(
            f"column {wanted[0]!r} is to be shared and to be left out: name it once; a share that has left it out has to be made anew"
        )

    shared = tuple(task for task in tasks if task.file.file_path not in refused)
    return SharePlan(
        table,
        metadata,
        snapshot,
        _pruned(schema, covering(dict.fromkeys(left_out), schema)),
        shared,
        rewritten=tuple(refused.values()),
        row_filter=strict,
        columns=shared_columns,
        without=tuple(sorted(without)),
        stored=stored,
        protected=withheld,
        withheld=_names(schema, left_out),
        masked=_names(schema, _masked(stored, shared) & left_out),
        dropped=_dropped(metadata) if shared else (),
    )


def _reasons(
    whole: WholeFiles,
    partitions: ShownPartitions,
    stored: Mapping[str, StoredHiddenColumns],
    protected: frozenset[int],
    rewriting: RewriteChoice,
) -> Mapping[str, Callable[[EncryptedFileScanTask], bool]]:
    """Why a file cannot be shared as it is, with what to do, and of which files that is so."""
    return {
        "hold other rows too, as far as partitions and bounds tell, and a file is shared as a whole or not at all. Share by the columns "
        "that the table is partitioned by, or sort the table by the filter's columns (compact --sort-by) first": (
            lambda task: not whole.has(task)
        ),
        "have position or equality deletes, which may be about files that are not shared. Apply them first (compact --apply-deletes)": (
            lambda task: not all(is_deletion_vector(file) for file in task.delete_files)
        ),
        # A file from before the declaration, or one that another engine wrote: its DEK opens the column.
        "hold a protected column in the clear, so that it cannot be withheld. Bring them in line first (reencrypt --out-of-line)": (
            lambda task: _shows(stored.get(task.file.file_path), protected)
        ),
        "are of partitions that show a protected column. Bring them in line first (reencrypt --out-of-line)": (
            lambda task: partitions.column(task.file.spec_id, task.file.file_path) is not None
        ),
        "hold a column that is not to leave": lambda task: bool(rewriting.without or rewriting.left_out),
    }


def _refused(
    table: EncryptedTable,
    tasks: Sequence[EncryptedFileScanTask],
    reasons: Mapping[str, Callable[[EncryptedFileScanTask], bool]],
    rewriting: RewriteChoice,
) -> dict[str, EncryptedFileScanTask]:
    """Return the files that cannot be shared as they are, by location. ConfigurationError where they are not to be written again."""
    refused: dict[str, EncryptedFileScanTask] = {}
    for what, applies in reasons.items():
        found = [task for task in tasks if applies(task)]
        if found and not rewriting.is_allowed:
            raise _refusal(table, found, len(tasks), what)
        refused |= {task.file.file_path: task for task in found}

    return refused


def _state(table: EncryptedTable, snapshot_id: int | None) -> tuple[EncryptedTableMetadata, EncryptedSnapshot]:
    metadata = table.metadata
    snapshot = metadata.current_snapshot() if snapshot_id is None else metadata.snapshot_by_id(snapshot_id)
    if not isinstance(snapshot, EncryptedSnapshot):
        what = "rows" if snapshot_id is None else f"snapshot {snapshot_id}"
        raise ConfigurationError(f"{name_of(table)} has no {what} to share")

    # As time travel reads it. What has no snapshot id was asked for as the table is now.
    known = {schema.schema_id for schema in metadata.schemas}
    if snapshot_id is not None and snapshot.schema_id in known:
        metadata = metadata.model_copy(update={"current_schema_id": snapshot.schema_id})
    return metadata, snapshot


def _refusal(table: EncryptedTable, tasks: Sequence[EncryptedFileScanTask], of: int, what: str) -> ConfigurationError:
    """Return the error of files that cannot be shared as they are."""
    return ConfigurationError(
        f"{name_of(table)}: {counted(len(tasks), 'file', 'files')} of {of:,} with matching rows (the first is {tasks[0].file.file_path}) "
        f"{what}. Or have their matching rows written once into the share's folder: rewrite (--rewrite). Nothing was shared"
    )


def _shared_columns(
    table: EncryptedTable, schema: Schema, protected: frozenset[int], columns: Mapping[str, str] | Iterable[SharedColumn]
) -> tuple[SharedColumn, ...]:
    if isinstance(columns, Mapping):
        return named_columns(table, schema, protected, columns)
    names = {each: schema.find_column_name(each.field_id) for each in columns}
    return tuple(replace(each, name=name) for each, name in names.items() if name is not None)


def _masked(stored: Mapping[str, StoredHiddenColumns], tasks: Iterable[EncryptedFileScanTask]) -> set[int]:
    """The ids of the columns of which files hold masked values."""
    return {each for task in tasks if task.file.file_path in stored for each in stored[task.file.file_path].masked}


def _shows(stored: StoredHiddenColumns | None, protected: frozenset[int]) -> bool:
    # An Avro file has no column under a key of its own.
    return bool(protected if stored is None else protected & stored.columns - stored.protected)


def _ids_of(table: EncryptedTable, schema: Schema, columns: Iterable[str]) -> Iterator[int]:
    known = {each.name: each.field_id for each in schema.fields}
    for column in columns:
        if column not in known:
            raise ConfigurationError(f"{name_of(table)} has no column {column!r} to leave out; its columns are {', '.join(known)}")
        yield known[column]


def _protected(metadata: EncryptedTableMetadata) -> frozenset[int]:
    """The ids of the columns that are protected, and of those that files may have under a key of their own from before."""
    policy = ColumnPolicy.from_properties(metadata.properties)
    return frozenset({*policy.columns, *policy.former, *(entry.field_id for entry in metadata.key_ring.column_keys)})


def _dropped(metadata: EncryptedTableMetadata) -> tuple[str, ...]:
    """Return the names of columns that earlier schemas have, and that nothing keeps from a reader of files that hold them."""
    protected, current = dict.fromkeys(_protected(metadata)), metadata.schema()
    found: dict[int, str] = {}
    for schema in metadata.schemas:
        hidden = covering(protected, schema)
        found |= {each.field_id: each.name for each in schema.fields if each.field_id not in hidden}
    return tuple(name for field_id, name in sorted(found.items()) if current.find_column_name(field_id) is None)


def _names(schema: Schema, field_ids: Iterable[int]) -> tuple[str, ...]:
    names = (schema.find_column_name(field_id) for field_id in sorted(field_ids))
    return tuple(name for name in names if name is not None)


def _pruned(schema: Schema, hidden: Collection[int]) -> Schema:
    """Return a schema without columns. Where a list or a map would be left without its values, it goes as a whole."""
    # A list or a map is there with what is in it, and PyIceberg takes no choice of it by itself.
    chosen = {each for each in schema.field_ids if each not in hidden and not isinstance(schema.find_type(each), (ListType, MapType))}
    kept = prune_columns(schema, chosen, select_full_types=False)
    wrong = {each.field_id for each in kept.fields if not set(hidden).isdisjoint(Schema(each).field_ids)}
    fields = [each for each in kept.fields if each.field_id not in wrong]
    if not fields:
        raise ConfigurationError("every column of the table is protected or left out, so that a share would have none")
    identifiers = [each for each in schema.identifier_field_ids if each not in hidden]
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=identifiers)
