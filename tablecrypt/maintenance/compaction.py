"""Compaction: many short data files become few of the right size, and their deletes are applied. The rows stay what they are.

    plan      scan tasks of one snapshot ─▶ groups of files of one partition (see compaction_plan.py)
    rewrite   each group on a thread here or on an executor of a Spark cluster (see _compaction_group.py)
    commit    new files in place of the old ones, one snapshot of operation "replace" (see table/replace_files.py)

Rows that others add meanwhile are kept: the commit is tried again on top of theirs. A file that others removed while it was rewritten, or
deleted rows of, is a conflict: nothing of that commit lands, and its new files are deleted.

Time travel to earlier snapshots reads the old files until those snapshots expire.

What rewrites groups hands their new files to `add`, and calls `finish` at the end, or `abandon` when rewriting failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, cast, runtime_checkable

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.table import ALWAYS_TRUE, Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot

from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance._compaction_group import RewriteFacts, group_work, new_files, rewrite_group
from tablecrypt.maintenance._tables import check_branch, checked_filter, encrypted_metadata_of, reload, require_encrypted, table_io
from tablecrypt.maintenance.compaction_plan import DELETE_RATIO, MIN_INPUT_FILES, CompactionRules, FileGroup, dangling_deletes, plan_groups
from tablecrypt.maintenance.progress import OperationResult, Progress, ProgressListener, no_progress
from tablecrypt.maintenance.runner import Runner, runner_or_threads
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.parquet_options import target_file_size as target_file_size_of
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.replace_files import EncryptedRewrite, RewrittenFiles
from tablecrypt.table.restrictions.read_restrictions import refuse_restricted
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO, delete_written

OPERATION: Final = "compact"
_NOT_COMMITTED: Final = (CommitFailedException, ValidationException)
"""What a commit raises when it is certain that nothing was committed."""


@dataclass(frozen=True)
class Compacted(OperationResult):
    """What a compaction did, or with dry_run would do.

    Attributes:
        groups: how many groups of files were rewritten.
        rewritten_files, rewritten_bytes: the data files that went, and their stored bytes.
        added_files, added_bytes: the data files that came.
        removed_delete_files: how many delete files had nothing left to delete.
        snapshot_ids: the snapshots that were committed, in order.
        conflicts: with `partial_progress`, why commits were given up: the files of these are as they were.
    """

    groups: int
    rewritten_files: int
    rewritten_bytes: int
    added_files: int = 0
    added_bytes: int = 0
    removed_delete_files: int = 0
    snapshot_ids: tuple[int, ...] = ()
    conflicts: tuple[str, ...] = ()


@checked_arguments(but=("where",))
def compact(
    table: Table,
    where: str | BooleanExpression | None = None,
    *,
    target_file_size: int | None = None,
    min_input_files: int = MIN_INPUT_FILES,
    delete_ratio: float = DELETE_RATIO,
    rewrite_all: bool = False,
    sort_by: Sequence[str] = (),
    partial_progress: int | None = None,
    branch: str = MAIN_BRANCH,
    progress: ProgressListener = no_progress,
    dry_run: bool = False,
    runner: Runner | None = None,
    workers: int | None = None,
) -> Compacted:
    """Rewrite an encrypted table's short files, and those with many deletes, into files of the right size.

    Args:
        table: an encrypted table; its current state is loaded again.
        where: only files that may hold matching rows are looked at; by default all.
        target_file_size: stored bytes of a new file; by default write.target-file-size-bytes.
        min_input_files: how many files of a partition are worth rewriting because they are short.
        delete_ratio: from which part of its rows on, marked as deleted, a file is rewritten for that alone.
        rewrite_all: whether to rewrite every file that `where` leaves.
        sort_by: columns to order rows by, ascending. A worker sorts each group in its memory; a `SortingRunner` orders the rows of each
            partition over all of its new files.
        partial_progress: commit after every so many groups; by default once, at the end. Not with `sort_by` on a `SortingRunner`.
        branch: the branch whose files are rewritten.
        progress: hears of the data files that are done.
        dry_run: whether to plan only.
        runner: runs the work on files, such as `tablecrypt.spark.SparkRunner(spark)`; by default threads here do.
        workers: how many groups at once, without `runner`; by default one for each core.

    Raises:
        ConfigurationError: the table is not encrypted, or an argument cannot be used.
        ValidationException: others removed files, or rows from them, while they were rewritten. Nothing was committed, and nothing is left.
            With `partial_progress` it is in the result instead, and other groups are committed.
        CommitFailedException: other writers were faster, again and again. Likewise.
        TamperedFileError, KeyNotFoundError, KmsError: a file does not open. What was not committed before is deleted.
    """
    runner = runner_or_threads(runner, workers)
    sorter = runner if sort_by and isinstance(runner, SortingRunner) else None
    if sorter is not None and partial_progress is not None:
        raise ConfigurationError("partial_progress commits group by group, and sort_by orders rows across groups: leave one of them out")
    size = target_file_size_of(table.metadata.properties) if target_file_size is None else target_file_size
    rules = CompactionRules(size, min_input_files, delete_ratio, rewrite_all)
    compaction = Compaction.plan(table, where, branch, rules, sort_by, partial_progress)
    if dry_run or not compaction.groups:
        return compaction.result(dry_run)
    return compaction.run(runner, progress) if sorter is None else sorter.rewrite_in_order(compaction, progress)


@dataclass
class Rewritten:
    """Groups, and the new files that hold their rows."""

    groups: list[FileGroup] = field(default_factory=list)
    files: list[DataFile] = field(default_factory=list)

    @property
    def replaced(self) -> list[EncryptedFileScanTask]:
        """Scan tasks of the old files."""
        return [task for group in self.groups for task in group.tasks]

    def add(self, other: Rewritten) -> None:
        """Add groups and their files."""
        self.groups += other.groups
        self.files += other.files


@dataclass
class Compaction:
    """One compaction of one branch.

    Attributes:
        table: as it was loaded for the plan; each commit brings it up to date.
        snapshot: the snapshot that was planned on; None for a branch without one.
        tasks: all scan tasks of that snapshot.
        groups: what is to be rewritten.
    """

    table: EncryptedTable
    branch: str
    snapshot: Snapshot | None
    tasks: list[EncryptedFileScanTask]
    groups: list[FileGroup]
    sort_by: tuple[str, ...] = ()
    groups_per_commit: int | None = None
    _pending: Rewritten = field(default_factory=Rewritten)
    _committed: Rewritten = field(default_factory=Rewritten)
    _snapshot_ids: list[int] = field(default_factory=list)
    _conflicts: list[str] = field(default_factory=list)

    @classmethod
    def plan(
        cls,
        table: Table,
        where: str | BooleanExpression | None,
        branch: str,
        rules: CompactionRules,
        sort_by: Sequence[str] = (),
        groups_per_commit: int | None = None,
    ) -> Compaction:
        """Load the table again and plan; arguments and errors are those of `compact`."""
        require_encrypted(table)
        if groups_per_commit is not None and groups_per_commit < 1:
            raise ConfigurationError(f"partial_progress is {groups_per_commit}; it must be 1 or more groups")
        current = reload(table)
        refuse_restricted(current.io, "compact")
        unknown = [name for name in sort_by if name not in {column.name for column in current.schema().fields}]
        if unknown:
            raise ConfigurationError(f"sort_by names {', '.join(unknown)}, which {'.'.join(table.name())} does not have as columns")
        check_branch(current, branch)
        row_filter = None if where is None else checked_filter(current, where)
        if branch not in current.metadata.refs:
            return cls(current, branch, None, [], [])
        tasks = _tasks(current, branch, ALWAYS_TRUE)
        wanted = tasks if row_filter is None else _chosen(tasks, _tasks(current, branch, row_filter))
        snapshot = current.metadata.snapshot_by_name(branch)
        return cls(current, branch, snapshot, tasks, plan_groups(wanted, rules), tuple(sort_by), groups_per_commit)

    def run(self, runner: Runner, progress: ProgressListener) -> Compacted:
        """Rewrite every group by a runner and commit."""
        metadata = encrypted_metadata_of(self.table)
        codec = FileEntryCodec(metadata)
        facts = RewriteFacts(metadata.without_history().model_dump_json(), self._io.manager.data_key_length, self.sort_by)
        works = [group_work(codec, group) for group in self.groups]
        done, total = 0, sum(len(group.tasks) for group in self.groups)
        try:
            for index, written in runner.run(self.table, partial(rewrite_group, facts), works):
                self.add([self.groups[index]], new_files(codec, written))
                done += len(self.groups[index].tasks)
                progress(Progress(OPERATION, done, total, "files"))
        except BaseException:
            self.abandon()
            raise
        return self.finish()

    def add(self, groups: Sequence[FileGroup], files: Sequence[DataFile]) -> None:
        """Add the new files that hold the rows of some groups, and commit where it is time."""
        self._pending.add(Rewritten(list(groups), list(files)))
        if self.groups_per_commit is not None and len(self._pending.groups) >= self.groups_per_commit:
            self._commit()

    def finish(self) -> Compacted:
        """Commit what is left and return what was done."""
        if self._pending.groups:
            self._commit()
        return self.result(dry_run=False)

    def abandon(self) -> None:
        """Delete new files that were not committed."""
        self._delete(self._take_pending())

    def result(self, dry_run: bool) -> Compacted:
        """Return what was done so far, or what is planned."""
        rewritten = Rewritten(self.groups) if dry_run else self._committed
        return Compacted(
            ".".join(self.table.name()),
            dry_run,
            groups=len(rewritten.groups),
            rewritten_files=len(rewritten.replaced),
            rewritten_bytes=sum(group.size for group in rewritten.groups),
            added_files=len(rewritten.files),
            added_bytes=sum(int(file.file_size_in_bytes) for file in rewritten.files),
            removed_delete_files=len(dangling_deletes(self.tasks, rewritten.replaced)),
            snapshot_ids=tuple(self._snapshot_ids),
            conflicts=tuple(self._conflicts),
        )

    @property
    def _io(self) -> TableFileIO:
        return table_io(self.table)

    def _take_pending(self) -> Rewritten:
        pending, self._pending = self._pending, Rewritten()
        return pending

    def _delete(self, rewritten: Rewritten) -> None:
        delete_written(self._io, [file.file_path for file in rewritten.files])

    def _commit(self) -> None:
        """Commit what is pending. Its files are deleted only where it is certain that nothing was committed."""
        rewritten = self._take_pending()
        try:
            self._snapshot_ids.append(self._commit_files(rewritten))
        except _NOT_COMMITTED as error:
            self._delete(rewritten)
            if self.groups_per_commit is None:
                raise
            self._conflicts.append(str(error))
            self.table.refresh()
        else:
            self._committed.add(rewritten)

    def _commit_files(self, rewritten: Rewritten) -> int:
        snapshot = cast("Snapshot", self.snapshot)
        change = RewrittenFiles(
            rewritten.replaced,
            rewritten.files,
            dangling_deletes(self.tasks, [*self._committed.replaced, *rewritten.replaced]),
            cast("int", snapshot.sequence_number),
            snapshot.snapshot_id,
        )
        transaction = self.table.transaction()
        with transaction:
            producer = transaction.update_snapshot({}, self.branch).producer(EncryptedRewrite, Operation.REPLACE, rewritten=change)
            producer.commit()
        return producer.snapshot_id


def _tasks(table: EncryptedTable, branch: str, row_filter: str | BooleanExpression) -> list[EncryptedFileScanTask]:
    scan = table.scan(row_filter=row_filter, options={"include_empty_files": "true"}).use_ref(branch)
    return cast("list[EncryptedFileScanTask]", list(scan.plan_files()))


def _chosen(tasks: list[EncryptedFileScanTask], matching: list[EncryptedFileScanTask]) -> list[EncryptedFileScanTask]:
    paths = {task.file.file_path for task in matching}
    return [task for task in tasks if task.file.file_path in paths]


@runtime_checkable
class SortingRunner(Runner, Protocol):
    """A runner that orders rows across groups, where one worker orders those of its group."""

    def rewrite_in_order(self, compaction: Compaction, progress: ProgressListener) -> Compacted:
        """Rewrite all groups of a compaction, the rows of each partition in the order that it asks for, and commit."""
        ...
