"""Which files of a table a share names: those of which every row may be given away.

    file                                                       what becomes of it
    partition or bounds prove that all rows match              shared, with its deletion vector
    they do not prove it                                       refused: rows are never withheld by a filter that a reader applies
    position or equality deletes apply to it                   refused: such a delete file may be about other files too
    it holds a protected column in the clear                   refused: `reencrypt` brings it in line
    its partition shows a protected column                     refused, likewise

A file's DEK opens all of it but its hidden columns. So what a partner can read is what the files hold: columns that were dropped since,
rows that a deletion vector marks, and the masks that files keep of protected columns. A plan counts them, for the result to say so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile, ManifestEntry
from pyiceberg.schema import Schema, prune_columns

from tablecrypt.errors import ConfigurationError
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.keys.nested_columns import covering
from tablecrypt.maintenance.columns.footers import inspect_footers
from tablecrypt.maintenance.runner import Runner
from tablecrypt.printable import counted
from tablecrypt.table._pyiceberg.whole_files import WholeFiles
from tablecrypt.table.filters import fitted, with_sql_null_semantics
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.planning import EncryptedFileScanTask, ScanPlanner
from tablecrypt.table.protection.exposed_values import ShownPartitions
from tablecrypt.table.protection.policy import has_column_keys
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import is_deletion_vector, name_of


@dataclass(frozen=True)
class SharePlan:
    """What of a table is shared.

    Attributes:
        table: as it was loaded.
        metadata: the table's, with the schema of the snapshot as the current one.
        snapshot: of the table, from which the files are.
        schema: the share's: without protected columns.
        tasks: the shared files with their deletion vectors.
        protected: ids of the protected columns, which are not shared.
        withheld: their names.
        masked: names of those of which files keep masked values.
        dropped: names of columns that the table has had, and files may hold still.
    """

    table: EncryptedTable
    metadata: EncryptedTableMetadata
    snapshot: EncryptedSnapshot
    schema: Schema
    tasks: tuple[EncryptedFileScanTask, ...]
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
        """How many rows a reader of the share sees."""
        return sum(task.file.record_count for task in self.tasks) - self.deleted_rows

    @property
    def size(self) -> int:
        """Stored bytes of the shared data files."""
        return sum(task.size for task in self.tasks)

    @property
    def locations(self) -> list[str]:
        """Where the shared data files are."""
        return [task.file.file_path for task in self.tasks]


def plan_share(table: EncryptedTable, row_filter: BooleanExpression, snapshot_id: int | None, runner: Runner) -> SharePlan:
    """Plan which files of a table a share names.

    Args:
        table: as it was loaded.
        row_filter: unbound; which rows are shared.
        snapshot_id: from which snapshot; None for the current one.
        runner: reads footers, where columns are protected.

    Raises:
        ConfigurationError: there is no such snapshot, no file matches, or a file that holds matching rows cannot be shared as it is.
    """
    metadata, snapshot = _state(table, snapshot_id)
    strict = with_sql_null_semantics(fitted(row_filter, metadata.schema()), metadata.schema())
    tasks = ScanPlanner(metadata, table.io, strict).plan_files(snapshot.manifests(table.io))
    if not tasks:
        raise ConfigurationError(f"{name_of(table)}: no file of snapshot {snapshot.snapshot_id} holds rows that match: nothing to share")

    whole = WholeFiles(metadata.schema(), strict)
    _refuse(
        table,
        [task.file for task in tasks if not whole.has(task)],
        len(tasks),
        "hold other rows too, as far as partitions and bounds tell, and a file is shared as a whole or not at all. Share by the columns "
        "that the table is partitioned by, or sort the table by the filter's columns (compact --sort-by) first",
    )
    _refuse(
        table,
        [task.file for task in tasks if not all(is_deletion_vector(file) for file in task.delete_files)],
        len(tasks),
        "have position or equality deletes, which may be about files that are not shared. Apply them first (compact --apply-deletes)",
    )

    plan = SharePlan(table, metadata, snapshot, metadata.schema(), tuple(tasks), dropped=_dropped(metadata))
    return _without_protected(plan, runner) if has_column_keys(table.metadata) else plan


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


def _refuse(table: EncryptedTable, files: Collection[DataFile], of: int, what: str) -> None:
    """Refuse to share some of the files, if there are any."""
    if files:
        first = next(iter(files)).file_path
        raise ConfigurationError(
            f"{name_of(table)}: {counted(len(files), 'file', 'files')} of {of:,} with matching rows (the first is {first}) {what}. "
            "Nothing was shared"
        )


def _without_protected(plan: SharePlan, runner: Runner) -> SharePlan:
    """Return the plan without the protected columns: under the share's schema nobody looks for them."""
    table, schema = plan.table, plan.metadata.schema()
    protected = _protected(table.metadata)
    stored = inspect_footers(table, [task.file for task in plan.tasks], runner)
    partitions = ShownPartitions.of(table.metadata)
    # A file from before the declaration, or one that another engine wrote: its DEK opens the column.
    _refuse(
        table,
        [task.file for task in plan.tasks if protected & stored[task.file.file_path].columns - stored[task.file.file_path].protected],
        len(plan.tasks),
        "hold a protected column in the clear, so that it cannot be withheld. Bring them in line first (reencrypt --out-of-line)",
    )
    _refuse(
        table,
        [task.file for task in plan.tasks if partitions.column(task.file.spec_id, task.file.file_path) is not None],
        len(plan.tasks),
        "are of partitions that show a protected column. Bring them in line first (reencrypt --out-of-line)",
    )

    return replace(
        plan,
        schema=_pruned(schema, covering(dict.fromkeys(protected), schema)),
        protected=protected,
        withheld=_names(schema, protected),
        masked=_names(schema, {field_id for each in stored.values() for field_id in each.masked}),
    )


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
    kept = prune_columns(schema, {field_id for field_id in schema.field_ids if field_id not in hidden}, select_full_types=False)
    wrong = {each.field_id for each in kept.fields if not set(hidden).isdisjoint(Schema(each).field_ids)}
    fields = [each for each in kept.fields if each.field_id not in wrong]
    if not fields:
        raise ConfigurationError("every column of the table is protected, so that a share would have none")
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)
