"""What the planner holds between requests: open catalogs, tables as they were loaded, plans of scans, writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.sql.messages import Handles
from tablecrypt.spark.sql.scans.changes import with_change_columns
from tablecrypt.spark.sql.writes.write_audit_publish import AuditFirst
from tablecrypt.spark.tables import LocatedTable

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyarrow import RecordBatch

    from tablecrypt.spark.sql.scans.changes import SnapshotChange
    from tablecrypt.spark.sql.scans.plan import Plan
    from tablecrypt.spark.sql.staging import StagedTable
    from tablecrypt.spark.sql.writes.commits import OpenWrite
    from tablecrypt.spark.sql.writes.portable import WritingAttempt

_CATALOGS: Final = 10_000
_TABLES: Final = 1_000
_PLANS: Final = 1_000
_READERS: Final = 1_000
_WRITES: Final = 1_000
_ATTEMPTS: Final = 1_000
_STAGED: Final = 1_000


@dataclass(frozen=True)
class OpenCatalog:
    """A catalog of PyIceberg, and its name in Spark."""

    name: str
    catalog: Catalog


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

    @property
    def schema(self) -> Schema:
        """The table's schema; that of the snapshot where a snapshot or tag was asked for; with the columns of changes where they are."""
        metadata = self.located.table.metadata
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
        self.located.check_branch(self.branch)
        self.audit_first.check(self.branch, is_stream=is_stream, makes_table=self.staged is not None)


@dataclass
class Planner:
    """The state of the process."""

    catalogs: Handles[OpenCatalog] = field(default_factory=lambda: Handles(_CATALOGS))
    tables: Handles[LoadedTable] = field(default_factory=lambda: Handles(_TABLES))
    plans: Handles[Plan] = field(default_factory=lambda: Handles(_PLANS))
    readers: Handles[Generator[RecordBatch]] = field(default_factory=lambda: Handles(_READERS))
    writes: Handles[OpenWrite] = field(default_factory=lambda: Handles(_WRITES))
    attempts: Handles[WritingAttempt] = field(default_factory=lambda: Handles(_ATTEMPTS))
    staged: Handles[StagedTable] = field(default_factory=lambda: Handles(_STAGED))

    def abandon_writes(self) -> None:
        """Delete the files of writes, attempts at tasks and staged tables that nobody will commit any more."""
        for attempt in self.attempts.pop_all():
            attempt.stop(keep=False)
        for write in self.writes.pop_all():
            write.remove_files_except(())
        for staged in self.staged.pop_all():
            staged.abort()
