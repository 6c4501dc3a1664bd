"""What the planner holds between requests: open catalogs, tables as they were loaded, plans of scans, writes.

Each is kept under a random handle that the driver's or an executor's JVM names:

    add ─▶ handle            values[handle]            pop(handle), the end that its owner asks for
     └── one too many: the value that was used longest ago is given up

A value that is given up is ended: a write or a staged table deletes its files, a read stops. It must not be dropped without a word, since
files would stay and rows end early. So its handle is remembered, and a later request for it gets an error that says so. Files that
tasks put there in the meantime go when the owner asks for the end, which it does after the last of its tasks.

Tables and plans hold nothing outside of memory, and no owner says when it needs them no longer: the oldest go all the time. Of these only
the handle is remembered, and no warning is logged.

The newest is not refused in place of the oldest: what crashed queries left open would soon refuse everybody.
"""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.sql.scans.changes import with_change_columns
from tablecrypt.spark.sql.writes.write_audit_publish import AuditFirst
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.table.protection.policy import check_names_in
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

_HANDLE_LENGTH: Final = 16
_REMEMBERED: Final = 1_000
"""How many values are remembered that were given up."""
_FORGOTTEN: Final = "the planner was restarted, or no longer has the plan of this query: run the query again"

T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """How many of each the planner keeps; `Handles` says what becomes of the next one."""

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

        schema = next((schema for schema in metadata.schemas if schema.schema_id == snapshot.schema_id), metadata.schema())
        check_names_in(metadata, snapshot, schema)

        return schema

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


class Handles(Generic[T]):
    """Values that later requests refer to, at most `most` of them.

    Args:
        what: they are, for errors.
        most: how many are kept.
        end: frees what a value holds outside of this object; may be called again. None where it holds nothing there.
        lost: what became of a value that was given up, for errors.
    """

    def __init__(self, what: str, most: int, end: Callable[[T], None] | None = None, lost: str = "nothing was changed") -> None:
        self._what = what
        self._most = most
        self._end = end
        self._lost = lost
        self._values: OrderedDict[str, T] = OrderedDict()
        self._given_up: OrderedDict[str, T | None] = OrderedDict()
        self._lock = Lock()

    def add(self, value: T) -> str:
        """Keep a value and return its handle. Where that is one too many, the value that was used longest ago is given up."""
        # Random and not counted: a handle from before the planner's restart must not name a newer value.
        handle = secrets.token_hex(_HANDLE_LENGTH)
        with self._lock:
            self._values[handle] = value
            given_up = dict(self._values.popitem(last=False) for _ in range(len(self._values) - self._most))
            self._given_up.update(given_up if self._end is not None else dict.fromkeys(given_up))
            while len(self._given_up) > _REMEMBERED:
                self._given_up.popitem(last=False)

        # Outside of the lock: ending deletes files, while other requests look handles up.
        for each in given_up.values() if self._end is not None else ():
            logger.warning("%s", self._loss)
            self._ended(each)
        return handle

    def __getitem__(self, handle: str) -> T:
        """Return the value. ConfigurationError where it is not kept any more."""
        with self._lock:
            if handle in self._values:
                self._values.move_to_end(handle)
                return self._values[handle]
            raise ConfigurationError(self._loss if handle in self._given_up else _FORGOTTEN)

    def pop(self, handle: str) -> T:
        """Return the value and keep it no longer. ConfigurationError where it is not kept any more.

        A value that was given up is ended again: what its tasks left since then goes too.
        """
        with self._lock:
            if handle in self._values:
                return self._values.pop(handle)
            if handle not in self._given_up:
                raise ConfigurationError(_FORGOTTEN)
            value = self._given_up[handle]

        self._ended(value)
        raise ConfigurationError(self._loss)

    def end_all(self) -> None:
        """End all values, also those that were given up, and keep none of them."""
        with self._lock:
            values = [*self._given_up.values(), *self._values.values()]
            self._given_up.clear()
            self._values.clear()
        for value in values:
            self._ended(value)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def _loss(self) -> str:
        return (
            f"the planner gave up this {self._what}, because {self._most:,} newer ones are open: {self._lost}. Run the statement again, "
            "with fewer at the same time"
        )

    def _ended(self, value: T | None) -> None:
        if value is None or self._end is None:
            return

        try:
            self._end(value)
        except Exception as error:  # noqa: BLE001  whoever asks here is not the value's owner, and has to go on
            logger.warning("a %s was not ended as a whole: %s", self._what, type(error).__name__)
