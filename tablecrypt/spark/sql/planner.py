"""What the planner holds between requests: open catalogs, tables as they were loaded, plans of scans, writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.sql.handles import Handles
from tablecrypt.spark.sql.scans.changes import with_change_columns
from tablecrypt.spark.sql.writes.write_audit_publish import AuditFirst
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.table.table import check_branch

if TYPE_CHECKING:
    from tablecrypt.spark.source.source_options import SourceOptions
    from tablecrypt.spark.sql.scans.changes import SnapshotChange
    from tablecrypt.spark.sql.scans.plan import ScanPlan
    from tablecrypt.spark.sql.scans.python_reads import TaskRows
    from tablecrypt.spark.sql.staging import StagedTable
    from tablecrypt.spark.sql.writes.commits import OpenWrite
    from tablecrypt.spark.sql.writes.copies import Copy
    from tablecrypt.spark.sql.writes.python_writes import WritingAttempt
    from tablecrypt.table.planning import EncryptedFileScanTask


@dataclass(frozen=True)
class Limits:
    """How many of each the planner keeps; handles.py says what becomes of the next one."""

    catalogs: int = 10_000
    tables: int = 1_000
    plans: int = 1_000
    readers: int = 1_000
    writes: int = 1_000
    attempts: int = 1_000
    staged: int = 1_000
    copies: int = 1_000


DEFAULT_LIMITS: Final = Limits()
_NOT_COMMITTED: Final = "its files are deleted, and nothing of it is committed"


@dataclass(frozen=True)
class OpenCatalog:
    """A catalog of PyIceberg, and its name in Spark."""

    name: str
    catalog: Catalog


@dataclass(frozen=True)
class Selection:
    """What a program, or options of format("tablecrypt"), choose of a table.

    Attributes:
        schema: the columns; None for all of the table, or of the snapshot that is read.
        tasks: the files, of one snapshot; None for all of the snapshot that is read.
        row_filter: Python keeps the rows that it matches alone.
        masked: see `EncryptedTable.scan`.
    """

    schema: Schema | None = None
    tasks: Sequence[EncryptedFileScanTask] | None = None
    row_filter: BooleanExpression = ALWAYS_TRUE
    masked: str | None = None


@dataclass(frozen=True)
class LoadedTable:
    """A table as one request loaded it.

    Attributes:
        located: the table.
        catalog_name: its catalog's name in Spark.
        branch: what is read is its head, and where writes go unless `audit_first` says otherwise.
        snapshot_id: what is read; None for a table without snapshots.
        is_writable: False where a snapshot or tag was asked for.
        staged: of a table that a statement is creating or replacing.
        selection: what is read of it.
        source: options of format("tablecrypt"), where it was loaded by them.
        changes: the snapshots whose changes are read in place of the table's rows; None where its rows are.
        audit_first: where the session keeps what it writes out of readers' sight.
    """

    located: LocatedTable
    catalog_name: str
    branch: str
    snapshot_id: int | None
    is_writable: bool
    staged: StagedTable | None = None
    audit_first: AuditFirst = field(default_factory=AuditFirst)
    changes: tuple[SnapshotChange, ...] | None = None
    selection: Selection = field(default_factory=Selection)
    source: SourceOptions | None = None

    @property
    def schema(self) -> Schema:
        """The table's schema; that of the snapshot where a snapshot or tag was asked for; with the columns of changes where they are; the
        columns that were chosen."""
        metadata = self.located.table.metadata
        if self.selection.schema is not None:
            return self.selection.schema
        if self.changes is not None:
            return with_change_columns(metadata.schema())

        snapshot = metadata.snapshot_by_id(self.snapshot_id) if self.snapshot_id is not None and not self.is_writable else None
        if snapshot is None or snapshot.schema_id is None:
            return metadata.schema()

        return next((schema for schema in metadata.schemas if schema.schema_id == snapshot.schema_id), metadata.schema())

    @property
    def target(self) -> str | None:
        """The branch that a write moves; None where it is a snapshot of no branch."""
        return None if self.audit_first.wap_id is not None else self.branch

    def check_writable(self, is_stream: bool = False) -> None:
        """Raise ConfigurationError for a snapshot, a tag, a branch that the table does not have, and as `AuditFirst.check`."""
        if not self.is_writable:
            raise ConfigurationError(
                f"{self.located.name} is read at a snapshot or tag, which cannot change: write to the table or a branch"
            )
        check_branch(self.located.table, self.branch)
        self.audit_first.check(self.branch, is_stream=is_stream, makes_table=self.staged is not None)


class Planner:
    """The state of the process."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.catalogs: Handles[OpenCatalog] = Handles("catalog", limits.catalogs)
        self.tables: Handles[LoadedTable] = Handles("table of a query", limits.tables)
        self.plans: Handles[ScanPlan] = Handles("plan of a scan", limits.plans)
        self.readers: Handles[TaskRows] = Handles("read of a file", limits.readers, lambda rows: rows.close(), "it gives no more rows")
        self.writes: Handles[OpenWrite] = Handles("write", limits.writes, lambda write: write.remove_files_except(()), _NOT_COMMITTED)
        self.attempts: Handles[WritingAttempt] = Handles(
            "attempt at a task", limits.attempts, lambda attempt: attempt.stop(keep=False), _NOT_COMMITTED
        )
        self.staged: Handles[StagedTable] = Handles("new table", limits.staged, lambda staged: staged.abort(), _NOT_COMMITTED)
        self.copies: Handles[Copy] = Handles("call that copies rows", limits.copies)

    def abandon_writes(self) -> None:
        """Delete the files of writes, attempts at tasks and staged tables that will not be committed any more."""
        for unfinished in (self.attempts, self.writes, self.staged):
            unfinished.end_all()
