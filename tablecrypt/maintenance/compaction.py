"""Compaction: many short data files become few of the right size, and their deletes are applied. The rows stay what they are.

    plan      scan tasks of one snapshot ─▶ groups of files of one partition (see compaction_plan.py)
    rewrite   each group on a thread here or on an executor of a Spark cluster (`rewrite_group`):
              decrypted, deletes applied, in order or sorted, with _row_id and _last_updated_sequence_number
    commit    new files in place of the old ones, one snapshot of operation "replace" (see table/replace_files.py)

Rows that others add meanwhile are kept: the commit is tried again on top of theirs. A file that others removed while it was rewritten, or
deleted rows of, is a conflict: nothing of that commit lands, and its new files are deleted.

Time travel to earlier snapshots reads the old files until those snapshots expire.

Work and result of a group are entries as table/file_entries.py has them, without the keys, which travel beside them. A group that fails
deletes the files that it has written.

What rewrites groups hands their new files to `add`, and calls `finish` at the end, or `abandon` when rewriting failed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, cast, runtime_checkable

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import ALWAYS_TRUE, Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from tablecrypt.arguments import checked_arguments
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, refuse_restricted
from tablecrypt.maintenance._file_rewrite import commit_replacement, done_files, new_files, opened
from tablecrypt.maintenance.compaction_plan import (
    DELETE_RATIO,
    MIN_INPUT_FILES,
    CompactionRules,
    FileGroup,
    dangling_deletes,
    files_with_deletes,
    plan_groups,
)
from tablecrypt.maintenance.operation import (
    OperationResult,
    Progress,
    ProgressListener,
    checked_condition,
    no_progress,
    reload,
    require_encrypted,
)
from tablecrypt.maintenance.runner import FileDone, FileWork, Runner, runner_or_threads
from tablecrypt.maintenance.sorting import SortColumn, SortKey, ZOrder, names_in, order_id_of, sort_keys, sorted_rows
from tablecrypt.manifests.records import DATA_FILE_POSITIONS, EncryptedDataFile, key_metadata_of, refuse_another_name, with_key
from tablecrypt.printable import bytes_shown, counted, shown
from tablecrypt.table.datasets.castable import cast_batch
from tablecrypt.table.deletes import check_rows
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.lineage import with_lineage
from tablecrypt.table.metadata import EncryptedTableMetadata, check_types
from tablecrypt.table.parquet_options import target_file_size as target_file_size_of
from tablecrypt.table.parquet_options import with_target_file_size
from tablecrypt.table.planning import EncryptedFileScanTask, FileCondition, PlanCounts
from tablecrypt.table.protection.exposed_values import ShownPartitions, check_sort_columns
from tablecrypt.table.protection.policy import check_size
from tablecrypt.table.protection.writing import WrittenUnder
from tablecrypt.table.reader import READ_AHEAD, ReadOptions, TaskReader, prefetched
from tablecrypt.table.replace_files import EncryptedRewrite, RewrittenFiles
from tablecrypt.table.table import EncryptedTable, check_branch
from tablecrypt.table.table_files import (
    NOT_COMMITTED,
    FreshKeys,
    ReportedFiles,
    RunNames,
    TableFileIO,
    delete_files,
    folders_written,
    live_files,
    name_of,
)
from tablecrypt.table.write import write_data_files

OPERATION: Final = "compact"
_EVERY_FILE: Final = FileCondition(ALWAYS_TRUE)
_WORKERS: Final = 2
_QUEUE_LENGTH: Final = 4


@dataclass(frozen=True)
class Compacted(OperationResult):
    """What a compaction did, or with dry_run would do.

    Attributes:
        groups: how many groups of files were rewritten.
        rewritten_files, rewritten_bytes: the data files that went, and their stored bytes.
        added_files, added_bytes: the data files that came.
        removed_delete_files: how many delete files had nothing left to delete.
        left_with_deletes: how many of the files that `where` selects have deletes and were left: `apply_deletes` rewrites them.
        snapshot_ids: the snapshots that were committed, in order.
        conflicts: with `partial_progress`, why commits were given up: the files of these are as they were.
    """

    groups: int
    rewritten_files: int
    rewritten_bytes: int
    added_files: int = 0
    added_bytes: int = 0
    removed_delete_files: int = field(default=0, metadata=shown("delete files that nothing needs any more", "count"))
    left_with_deletes: int = field(
        default=0, metadata=shown("files with deletes left as they are, below the delete ratio (--apply-deletes rewrites them)", "count")
    )
    snapshot_ids: tuple[int, ...] = field(default=(), metadata=shown("new snapshots"))
    conflicts: tuple[str, ...] = field(default=(), metadata=shown("files left as they were, since others committed first", is_whole=True))

    def summary(self) -> str:
        """Return what was done in one sentence."""
        if not self.rewritten_files and not self.added_files:
            return f"Nothing in {self.table} {self._did('was', 'is')} worth rewriting."
        files = f"{counted(self.rewritten_files, 'data file', 'data files')} of {self.table} ({bytes_shown(self.rewritten_bytes)})"
        if self.dry_run:
            return f"Would rewrite {files}, in {counted(self.groups, 'group', 'groups')}."
        return f"Rewrote {files} as {self.added_files:,} ({bytes_shown(self.added_bytes)})."


@checked_arguments(but=("where", "sort_by"))
def compact(
    table: Table,
    where: str | BooleanExpression | FileCondition | None = None,
    *,
    target_file_size: int | None = None,
    min_input_files: int = MIN_INPUT_FILES,
    delete_ratio: float = DELETE_RATIO,
    rewrite_all: bool = False,
    apply_deletes: bool = False,
    delete_files: int | None = None,
    sort_by: str | SortColumn | ZOrder | Sequence[str | SortColumn | ZOrder] = (),
    partial_progress: int | None = None,
    branch: str = MAIN_BRANCH,
    progress: ProgressListener = no_progress,
    dry_run: bool = False,
    runner: Runner | None = None,
    workers: int | None = None,
) -> Compacted:
    """Rewrite an encrypted table's short files, and those with many deletes, into files of the right size.

    Files with few deletes, and few short files, stay as they are: see `apply_deletes`, `delete_ratio` and `min_input_files`.

    Args:
        table: an encrypted table. It is refreshed.
        where: only files that may hold matching rows are looked at; by default all.
        target_file_size: stored bytes of a new file; by default write.target-file-size-bytes.
        min_input_files: how many files of a partition are worth rewriting because they are short.
        delete_ratio: from which part of its rows on, marked as deleted, a file is rewritten for that alone.
        delete_files: from how many delete files on a file is rewritten for these alone; a deletion vector is one.
        rewrite_all: whether to rewrite every file that `where` leaves.
        apply_deletes: whether to rewrite also every file of these that has any deletes (deletion vectors, position or equality deletes),
            and to let go of delete files that have nothing left to delete.
        sort_by: columns to order rows by: names, which mean ascending with nulls last, or `SortColumn`; or a `ZOrder`. A worker sorts each
            group in its memory; a `SortingRunner` orders the rows of each partition over all of its new files.
        partial_progress: commit after every so many groups; by default once, at the end. Not with `sort_by` on a `SortingRunner`.
        branch: the branch whose files are rewritten.
        progress: called as data files are done.
        dry_run: whether to plan only.
        runner: runs the work on files, such as `tablecrypt.spark.SparkRunner(spark)`; by default threads here do.
        workers: how many groups at once, without `runner`; by default one for each core.

    Raises:
        ConfigurationError: the table is not encrypted, or an argument cannot be used, such as a protected column in `sort_by`.
        ValidationException: others removed files, or rows from them, while they were rewritten. Nothing was committed, and nothing is left.
            With `partial_progress` it is in the result instead, and other groups are committed.
        CommitFailedException: other writers committed first, several times in a row. Likewise.
        FormatError: manifests name one file in two ways. Likewise.
        TamperedFileError, KeyNotFoundError, KmsError: a file does not open. What was not committed before is deleted.
    """
    runner = runner_or_threads(runner, workers)
    order = sort_keys(sort_by)
    sorter = runner if order and isinstance(runner, SortingRunner) else None
    if sorter is not None and partial_progress is not None:
        raise ConfigurationError("partial_progress commits group by group, and sort_by orders rows across groups: leave one of them out")

    size = target_file_size_of(table.metadata.properties) if target_file_size is None else target_file_size
    check_size(
        TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, {**table.metadata.properties, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES: size}
    )
    rules = CompactionRules(size, min_input_files, delete_ratio, rewrite_all, apply_deletes, delete_files)
    compaction = Compaction.plan(table, where, branch, rules, order, partial_progress)
    if dry_run:
        return compaction.result(dry_run)

    if not compaction.groups:
        done = compaction.finish()
    else:
        done = compaction.run(runner, progress) if sorter is None else sorter.rewrite_in_order(compaction, progress)
    # The caller's next change would meet the files that were replaced here, and take them for another writer's.
    table.refresh()

    return done


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
        selected: of these, those that `where` leaves.
        groups: what is to be rewritten.
        unused_deletes: delete files of that snapshot that apply to none of its data files, and are to go too.
        data_key_length: bytes of the new DEKs; None for what the table's properties say.
    """

    table: EncryptedTable
    branch: str
    snapshot: Snapshot | None
    tasks: list[EncryptedFileScanTask]
    selected: list[EncryptedFileScanTask] = field(default_factory=list)
    groups: list[FileGroup] = field(default_factory=list)
    unused_deletes: frozenset[DataFile] = frozenset()
    sort_by: tuple[SortKey, ...] = ()
    groups_per_commit: int | None = None
    data_key_length: int | None = None
    _pending: Rewritten = field(default_factory=Rewritten)
    _committed: Rewritten = field(default_factory=Rewritten)
    _snapshot_ids: list[int] = field(default_factory=list)
    _conflicts: list[str] = field(default_factory=list)
    _written_under: WrittenUnder = field(init=False)

    def __post_init__(self) -> None:
        self._written_under = WrittenUnder.of(self.table.metadata)

    @classmethod
    def plan(
        cls,
        table: Table,
        where: str | BooleanExpression | FileCondition | None,
        branch: str,
        rules: CompactionRules,
        sort_by: Sequence[SortKey] = (),
        groups_per_commit: int | None = None,
    ) -> Compaction:
        """Load the table again and plan; arguments and errors are those of `compact`."""
        require_encrypted(table)
        if groups_per_commit is not None and groups_per_commit < 1:
            raise ConfigurationError(f"partial_progress is {groups_per_commit}; it must be 1 or more groups")

        current = reload(table)
        refuse_restricted(current.io, "compact")
        check_sort_columns(current.metadata, names_in(sort_by))
        unknown = [name for name in names_in(sort_by) if name not in {column.name for column in current.schema().fields}]
        if unknown:
            raise ConfigurationError(f"sort_by names {', '.join(map(repr, unknown))}, which {name_of(table)} does not have as columns")

        check_branch(current, branch)
        condition = None if where is None else checked_condition(current, where)
        if branch not in current.metadata.refs:
            return cls(current, branch, None, [])

        check_types(current.metadata, current.metadata.refs[branch].snapshot_id)
        tasks = scan_tasks(current, branch)
        selected = tasks if condition is None else _chosen(tasks, scan_tasks(current, branch, condition))
        snapshot = current.metadata.snapshot_by_name(branch)
        unused = unused_deletes(current, snapshot, tasks) if rules.apply_deletes else frozenset()
        groups = plan_groups(selected, rules, ShownPartitions.of(current.metadata).columns)

        return cls(current, branch, snapshot, tasks, selected, groups, unused, tuple(sort_by), groups_per_commit)

    def run(self, runner: Runner, progress: ProgressListener) -> Compacted:
        """Rewrite every group by a runner and commit."""
        metadata = self.table.metadata
        codec = FileEntryCodec(metadata)
        key_length = self.data_key_length or self._io.manager.data_key_length
        names = RunNames()
        reported = ReportedFiles(names, folders_written(metadata))
        facts = RewriteFacts(metadata.without_history().model_dump_json(), key_length, names, self.sort_by)
        works = [group_work(codec, group) for group in self.groups]
        done, total = 0, sum(len(group.tasks) for group in self.groups)

        def written() -> Generator[tuple[FileGroup, list[EncryptedDataFile]], None, None]:
            for index, each in runner.run(self.table, partial(rewrite_group, facts), works):
                group, files = self.groups[index], new_files(codec, each)
                first = group.tasks[0].file.file_path
                for file in files:
                    reported.check(file.file_path, f"the worker of the group of {first}")
                check_rows([group.live_rows], files, first)
                yield group, files

        try:
            # Before they are added: what is added is committed, or deleted after an error.
            for group, files in opened(runner, self._io, written()):
                self.add([group], files)
                done += len(group.tasks)
                progress(Progress(OPERATION, done, total, "files"))
        except BaseException:
            self.abandon()
            raise

        return self.finish()

    def add(self, groups: Sequence[FileGroup], files: Sequence[DataFile]) -> None:
        """Add the new files that hold the rows of some groups, and commit where it is time."""
        order_id = order_id_of(self.table.metadata, self.sort_by)
        for file in files if order_id is not None else ():
            file[DATA_FILE_POSITIONS["sort_order_id"]] = order_id
        self._pending.add(Rewritten(list(groups), list(files)))
        if self.groups_per_commit is not None and len(self._pending.groups) >= self.groups_per_commit:
            self._commit()

    def finish(self) -> Compacted:
        """Commit what is left and return what was done."""
        if self._pending.groups or (self.unused_deletes and not self._committed.groups):
            self._commit()
        return self.result(dry_run=False)

    def abandon(self) -> None:
        """Delete new files that were not committed."""
        self._delete(self._take_pending())

    def result(self, dry_run: bool) -> Compacted:
        """Return what was done so far, or what is planned."""
        rewritten = Rewritten(self.groups) if dry_run else self._committed
        return Compacted(
            name_of(self.table),
            dry_run,
            groups=len(rewritten.groups),
            rewritten_files=len(rewritten.replaced),
            rewritten_bytes=sum(group.size for group in rewritten.groups),
            added_files=len(rewritten.files),
            added_bytes=sum(int(file.file_size_in_bytes) for file in rewritten.files),
            removed_delete_files=len(self._dangling(rewritten.replaced)) if dry_run or self._snapshot_ids else 0,
            left_with_deletes=len(files_with_deletes(self.selected, rewritten.groups)),
            snapshot_ids=tuple(self._snapshot_ids),
            conflicts=tuple(self._conflicts),
        )

    @property
    def _io(self) -> TableFileIO:
        return self.table.io

    def _dangling(self, replaced: Iterable[EncryptedFileScanTask]) -> frozenset[DataFile]:
        return self.unused_deletes | dangling_deletes(self.tasks, replaced)

    def _take_pending(self) -> Rewritten:
        pending, self._pending = self._pending, Rewritten()
        return pending

    def _delete(self, rewritten: Rewritten) -> None:
        delete_files(self._io, rewritten.files)

    def _commit(self) -> None:
        """Commit what is pending. Its files are deleted only where it is certain that nothing was committed."""
        rewritten = self._take_pending()
        try:
            self._snapshot_ids.append(self._commit_files(rewritten))
        except NOT_COMMITTED as error:
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
            self._dangling([*self._committed.replaced, *rewritten.replaced]),
            cast("int", snapshot.sequence_number),
            snapshot.snapshot_id,
            self._written_under,
            frozenset(file.file_path for file in self._committed.files),
        )
        return commit_replacement(self.table, self.branch, EncryptedRewrite, rewritten=change).snapshot_id


def scan_tasks(table: EncryptedTable, branch: str, condition: FileCondition = _EVERY_FILE) -> list[EncryptedFileScanTask]:
    """Plan the scan of a branch, files without rows included."""
    scan = table.scan(condition.row_filter, options={"include_empty_files": "true"}).use_ref(branch)
    return scan.counted_tasks(PlanCounts(), condition.of_partitions)


def unused_deletes(table: EncryptedTable, snapshot: Snapshot | None, tasks: Iterable[EncryptedFileScanTask]) -> frozenset[DataFile]:
    """Return the delete files of a snapshot that apply to none of its data files.

    Args:
        table: the table.
        snapshot: the snapshot; None for a branch without one.
        tasks: all scan tasks of it.
    """
    used = {EncryptedDataFile.of(file) for task in tasks for file in task.delete_files}
    return frozenset(set(map(EncryptedDataFile.of, live_files(snapshot, table.io, ManifestContent.DELETES))) - used)


def _chosen(tasks: list[EncryptedFileScanTask], matching: list[EncryptedFileScanTask]) -> list[EncryptedFileScanTask]:
    paths = {task.file.file_path for task in matching}
    return [task for task in tasks if task.file.file_path in paths]


@runtime_checkable
class SortingRunner(Runner, Protocol):
    """A runner that orders rows across groups, where one worker orders those of its group."""

    def rewrite_in_order(self, compaction: Compaction, progress: ProgressListener) -> Compacted:
        """Rewrite all groups of a compaction, the rows of each partition in the order that it asks for, and commit."""
        ...


@dataclass(frozen=True)
class RewriteFacts:
    """What all groups of a compaction share.

    Attributes:
        metadata_json: the table's, without history.
        data_key_length: bytes of the new DEKs.
        names: of the new files.
        sort_by: what to order the rows of each group by.
    """

    metadata_json: str
    data_key_length: int
    names: RunNames
    sort_by: tuple[SortKey, ...] = ()


@dataclass(frozen=True)
class GroupWork:
    """A group as it travels: its scan tasks without keys, where a new file ends, and how many rows are left, if that is known."""

    entries: bytes
    roll_size: int
    live_rows: int | None


def group_work(codec: FileEntryCodec, group: FileGroup) -> FileWork[GroupWork]:
    """Return the work of a group, its keys apart."""
    without_keys = [
        EncryptedFileScanTask(
            with_key(task.file, None), {with_key(file, None) for file in task.delete_files}, data_sequence_number=task.data_sequence_number
        )
        for task in group.tasks
    ]
    keys = tuple(key_metadata_of(file) for file in _files_in_order(group.tasks))
    return FileWork(GroupWork(codec.encode_tasks(without_keys), group.roll_size, group.live_rows), keys, group.size)


def rewrite_group(facts: RewriteFacts, io: EncryptingFileIO, work: GroupWork, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[bytes]:
    """Rewrite a group; the result is the entries of the new files, without keys.

    Raises:
        FormatError: the files do not hold as many live rows as their manifests say.
    """
    metadata = EncryptedTableMetadata.model_validate_json(facts.metadata_json)
    codec = FileEntryCodec(metadata)
    tasks = _with_keys(codec.decode_tasks(work.entries), keys)
    rows = _sorted(_rows(metadata, io, tasks), facts.sort_by)
    rolling = with_target_file_size(metadata, work.roll_size)
    files = write_data_files(rolling, rows, io, FreshKeys(facts.data_key_length), facts.names.new_uuid())

    try:
        check_rows([work.live_rows], files, tasks[0].file.file_path)
    except FormatError:
        delete_files(io, files)
        raise

    return done_files(codec, files)


def _rows(metadata: EncryptedTableMetadata, io: EncryptingFileIO, tasks: Sequence[EncryptedFileScanTask]) -> pa.RecordBatchReader:
    projected = with_lineage(metadata.schema())
    reader = TaskReader(metadata, io, projected, ALWAYS_TRUE, ReadOptions(read_ahead=READ_AHEAD))
    schema = schema_to_pyarrow(projected, include_field_ids=False)

    def batches() -> Iterator[pa.RecordBatch]:
        for rows in prefetched(reader.sources(tasks), _WORKERS, _QUEUE_LENGTH):
            yield cast_batch(rows, schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _sorted(rows: pa.RecordBatchReader, sort_by: Sequence[SortKey]) -> pa.RecordBatchReader:
    # As a stream, so that new files end by their stored bytes, as those do by which a later compaction finds them too short.
    return sorted_rows(rows, sort_by) if sort_by else rows


def _with_keys(tasks: Sequence[EncryptedFileScanTask], keys: Iterable[StandardKeyMetadata]) -> list[EncryptedFileScanTask]:
    files = _files_in_order(tasks)
    keyed = {file: with_key(file, key) for file, key in zip(files, keys, strict=True)}
    return [
        EncryptedFileScanTask(
            keyed[EncryptedDataFile.of(task.file)],
            {keyed[EncryptedDataFile.of(file)] for file in task.delete_files},
            data_sequence_number=task.data_sequence_number,
        )
        for task in tasks
    ]


def _files_in_order(tasks: Iterable[EncryptedFileScanTask]) -> list[EncryptedDataFile]:
    """Return all data and delete files once each, in an order that is the same in every process."""
    files: dict[EncryptedDataFile, EncryptedDataFile] = {}
    for file in (EncryptedDataFile.of(each) for task in tasks for each in (task.file, *task.delete_files)):
        # Taken for one file, a delete file that is a data file too would delete nothing.
        refuse_another_name(files.setdefault(file, file), file)
    return sorted(files, key=lambda file: (file.file_path, file.content_offset or 0))
