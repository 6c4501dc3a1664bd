"""Which data files a compaction rewrites, and which of them together. Pure: scan tasks and sizes in, groups out.

    of each partition, the files that are not as they should be:
        shorter than 75 % of the target, or longer than 180 %
        with deletes: 30 % of the rows or more are marked, or nobody knows how many (equality deletes, position deletes of a partition)
    packed, in the order in which they were written, into groups of about the target ─▶ one new file each
    with `apply_deletes`, the other files that have any deletes: packed in the same way, without the files around them

A partition is worth it when it has `min_input_files` such files, or more of them than fit into one, or a file that is so long or has so
many deletes. A file that would be alone in its group and is merely short stays as it is.

Sizes are stored bytes. What a partition is follows the spec that the files were written under; new files follow the current one. Files of
specs that show values of protected columns are packed together, whatever their partitions are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.utils.bin_packing import PackingIterator

from tablecrypt.errors import ConfigurationError
from tablecrypt.manifests.records import EncryptedDataFile, partition_values
from tablecrypt.table.deletes import live_rows
from tablecrypt.table.planning import EncryptedFileScanTask

MIN_INPUT_FILES: Final = 5
DELETE_RATIO: Final = 0.3

_MOST_BYTES: Final = 2**63 - 1
_SHORT: Final = 0.75
_LONG: Final = 1.8
_SPARE: Final = 1.25
"""A file may become so much longer than its share of the group before the next one is begun, so that no short one is left over."""


@dataclass(frozen=True)
class CompactionRules:
    """What is rewritten.

    Attributes:
        target_file_size: stored bytes that a new file should have.
        min_input_files: how many files of a partition are worth rewriting because they are short.
        delete_ratio: from which part of its rows on, marked as deleted, a file is rewritten, above 0 to 1.
        rewrite_all: whether every file is rewritten, however it is.
        apply_deletes: whether every file with deletes is rewritten, however few they are.
        delete_files: how many delete files make a file worth rewriting; None where their number does not count.
    """

    target_file_size: int
    min_input_files: int = MIN_INPUT_FILES
    delete_ratio: float = DELETE_RATIO
    rewrite_all: bool = False
    apply_deletes: bool = False
    delete_files: int | None = None

    def __post_init__(self) -> None:
        """Raise ConfigurationError for a number out of range."""
        if not 1 <= self.target_file_size <= _MOST_BYTES:
            raise ConfigurationError(f"target_file_size is {self.target_file_size}; it must be a number of bytes from 1 to {_MOST_BYTES}")
        if self.min_input_files < 1:
            raise ConfigurationError(f"min_input_files is {self.min_input_files}; it must be 1 or more")
        if not 0 < self.delete_ratio <= 1:
            raise ConfigurationError(f"delete_ratio is {self.delete_ratio}; it must be above 0 and at most 1")
        if self.delete_files is not None and self.delete_files < 1:
            raise ConfigurationError(f"delete_files is {self.delete_files}; it must be 1 or more")

    def is_short(self, file: DataFile) -> bool:
        """Whether a file is shorter than it should be."""
        return file.file_size_in_bytes < _SHORT * self.target_file_size

    def is_long(self, file: DataFile) -> bool:
        """Whether a file is longer than it should be."""
        return file.file_size_in_bytes > _LONG * self.target_file_size

    def has_many_deletes(self, task: EncryptedFileScanTask) -> bool:
        """Whether so many of a file's rows are deleted that it is rewritten for that alone."""
        if self.delete_files is not None and len(task.delete_files) >= self.delete_files:
            return True

        marked = 0
        for file in task.delete_files:
            if not _is_about_one_file(file):
                return True
            marked += file.record_count

        return marked >= max(1, self.delete_ratio * task.file.record_count)


@dataclass(frozen=True)
class FileGroup:
    """Data files that are rewritten together: of one partition, or of specs that show values of protected columns.

    Attributes:
        tasks: in the order in which their rows are written.
        new_files: how many files they should become.
        roll_size: stored bytes at which the next new file is begun.
    """

    tasks: tuple[EncryptedFileScanTask, ...]
    new_files: int
    roll_size: int

    @property
    def size(self) -> int:
        """Stored bytes of the data files."""
        return sum(int(task.file.file_size_in_bytes) for task in self.tasks)

    @property
    def live_rows(self) -> int | None:
        """How many rows are left when the deletes are applied; None if only applying them can tell."""
        return live_rows(self.tasks)


def plan_groups(tasks: Iterable[EncryptedFileScanTask], rules: CompactionRules, mixed: Collection[int]) -> list[FileGroup]:
    """Return the groups that are worth rewriting, partition by partition.

    Args:
        tasks: of the files to choose from.
        rules: what is rewritten.
        mixed: partition specs whose files count as those of one partition. A new file of the rows of one partition would show that they
            have the same value of a protected column, and be of few rows where the partition is.
    """
    looked_at = list(tasks)
    candidates = [
        task
        for task in looked_at
        if rules.rewrite_all or rules.is_short(task.file) or rules.is_long(task.file) or rules.has_many_deletes(task)
    ]
    groups = [group for partition in _by_partition(candidates, mixed) for group in _groups(partition, rules)]
    if rules.apply_deletes:
        with_deletes = _by_partition(files_with_deletes(looked_at, groups), mixed)
        groups += [_group(packed, rules) for partition in with_deletes for packed in _packed(partition, rules)]
    return groups


def files_with_deletes(tasks: Iterable[EncryptedFileScanTask], groups: Iterable[FileGroup]) -> list[EncryptedFileScanTask]:
    """Return the tasks of files that have deletes and are in no group."""
    grouped = {task.file.file_path for group in groups for task in group.tasks}
    return [task for task in tasks if task.delete_files and task.file.file_path not in grouped]


def dangling_deletes(every: Iterable[EncryptedFileScanTask], replaced: Iterable[EncryptedFileScanTask]) -> frozenset[DataFile]:
    """Return the delete files that apply to replaced files and to no other file of the snapshot.

    Args:
        every: all scan tasks of the snapshot.
        replaced: those whose data files go.
    """
    gone = {task.file.file_path for task in replaced}
    needed = {EncryptedDataFile.of(file) for task in every if task.file.file_path not in gone for file in task.delete_files}
    return frozenset({EncryptedDataFile.of(file) for task in replaced for file in task.delete_files} - needed)


def _groups(candidates: list[EncryptedFileScanTask], rules: CompactionRules) -> list[FileGroup]:
    if not rules.rewrite_all and not _is_worth_it(candidates, rules):
        return []
    return [_group(tasks, rules) for tasks in _packed(candidates, rules) if rules.rewrite_all or _changes_something(tasks, rules)]


def _by_partition(tasks: Iterable[EncryptedFileScanTask], mixed: Collection[int]) -> list[list[EncryptedFileScanTask]]:
    partitions: dict[Hashable, list[EncryptedFileScanTask]] = defaultdict(list)
    for task in tasks:
        values = None if task.file.spec_id in mixed else (task.file.spec_id, partition_values(task.file.partition))
        partitions[values].append(task)
    return list(partitions.values())


def _packed(tasks: Iterable[EncryptedFileScanTask], rules: CompactionRules) -> Iterable[list[EncryptedFileScanTask]]:
    in_order = sorted(tasks, key=lambda task: (task.data_sequence_number or 0, task.file.file_path))
    return PackingIterator(in_order, rules.target_file_size, 1, lambda task: int(task.file.file_size_in_bytes))


def _is_worth_it(tasks: Sequence[EncryptedFileScanTask], rules: CompactionRules) -> bool:
    return (
        len(tasks) >= rules.min_input_files
        or (len(tasks) > 1 and sum(task.file.file_size_in_bytes for task in tasks) > rules.target_file_size)
        or any(rules.is_long(task.file) or rules.has_many_deletes(task) for task in tasks)
    )


def _changes_something(tasks: Sequence[EncryptedFileScanTask], rules: CompactionRules) -> bool:
    return len(tasks) > 1 or rules.is_long(tasks[0].file) or rules.has_many_deletes(tasks[0])


def _group(tasks: Sequence[EncryptedFileScanTask], rules: CompactionRules) -> FileGroup:
    size = sum(int(task.file.file_size_in_bytes) for task in tasks)
    files = max(1, round(size / rules.target_file_size))
    roll_size = _LONG * rules.target_file_size if files == 1 else _SPARE * size / files
    return FileGroup(tuple(tasks), files, min(int(roll_size), _MOST_BYTES))


def _is_about_one_file(file: DataFile) -> bool:
    return file.content == DataFileContent.POSITION_DELETES and EncryptedDataFile.of(file).referenced_data_file is not None
