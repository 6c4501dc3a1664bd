"""Scan planning: from a snapshot's manifests to one task per data file, with the delete files that apply to it.

    manifests ──partition summaries──▶ entries ──partition, statistics──▶ data files ──delete index──▶ tasks

Data manifests and their entries are pruned by the filter: manifests one by one with PyIceberg's evaluator, entries in columns
(file_filter.py), some MiB of manifests at a time. Of delete manifests only those are left out whose partition summaries cannot match or
which are older than all data: a delete file's own statistics say nothing about the rows that it deletes, and its data file is looked up in
an index (`DeleteIndex`), not through the partition alone. Planning is always done here, never by a catalog server, whose answer would
hold no key metadata.

A planned task knows its entry in the columns of the manifests, and makes the data file's object when that is asked for. A data file may be
split into parts, so that several tasks read it. Each part is a range of stored bytes, and has the row groups that begin in it:

    file      | row group 0 | row group 1 | row group 2 | row group 3 | footer |
    offsets   4             a             b             c                      the manifest's split_offsets
    parts     [0 ─────────────────────────b) [b ───────────────────── length)

The ranges cover the file without a gap, and a row group begins in exactly one of them, whatever offsets the manifest names: offsets that
are not those of the row groups make parts of uneven size, and cannot lose or repeat a row.

Which delete files apply to which data file:

    kind              data file's sequence number    matched by
    deletion vector   <= the vector's                referenced_data_file; it replaces every position delete of its data file
    position deletes  <= the delete file's           referenced_data_file, else one path in the bounds of file_path, else the partition
    equality deletes  <  the delete file's           the partition; a delete file of an unpartitioned spec applies to every partition

Raises FormatError for two deletion vectors of one data file, a vector that names no data file, and deletes of an unknown kind.

Iceberg table spec, "Scan Planning", "Manifests" (split_offsets), "Deletion Vectors", "Delete Formats".
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Self, TypeAlias

import numpy as np
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import manifest_evaluator, residual_evaluator_of
from pyiceberg.io import FileIO
from pyiceberg.manifest import INITIAL_SEQUENCE_NUMBER, DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import ALWAYS_TRUE, FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import EMPTY_DICT, KeyDefaultDict, Properties, Record
from pyiceberg.utils.properties import property_as_bool

from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.files.encrypting_file_io import read_restrictions_of
from tablecrypt.keys.column_keys import told_until
from tablecrypt.manifests import EncryptedManifestFile
from tablecrypt.manifests.avro_columns import Mask
from tablecrypt.manifests.entries import Column, Entries, read_in_columns
from tablecrypt.manifests.records import EncryptedDataFile, in_literals, is_deletion_vector, partition_values
from tablecrypt.table.metadata import EncryptedSnapshot
from tablecrypt.table.planning.file_filter import FileFilter
from tablecrypt.table.restrictions.read_restrictions import plannable

FILE_PATH_FIELD_ID: Final = 2147483546
_Partition: TypeAlias = tuple[int, tuple[Hashable, ...]]


class EncryptedFileScanTask(FileScanTask):
    """PyIceberg's task for one data file, with the file's data sequence number: rows that were never rewritten inherit it.

    Attributes:
        data_sequence_number: null for a file of version 1.
        part: which part of the file is read, None for all of it.
        entry: where the file's entry is, of a task that was planned.
    """

    data_sequence_number: int | None
    part: FilePart | None
    entry: tuple[Entries, int] | None = None

    def __init__(
        self,
        data_file: DataFile,
        delete_files: set[DataFile] | None = None,
        residual: BooleanExpression = ALWAYS_TRUE,
        data_sequence_number: int | None = None,
        part: FilePart | None = None,
    ) -> None:
        super().__init__(data_file, delete_files, residual)
        self.data_sequence_number = data_sequence_number
        self.part = part

    def __getattr__(self, name: str) -> object:
        """Make what a planned task has not made yet."""
        make = _MADE_LATER.get(name)
        if make is None or self.entry is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        entries, row = self.entry
        made = make(entries, row)
        setattr(self, name, made)

        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EncryptedFileScanTask) and self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def planned(cls, entry: tuple[Entries, int], residual: BooleanExpression) -> Self:
        """Return the task of an entry."""
        task = cls.__new__(cls)
        task.entry = entry
        task.residual = residual
        return task

    @property
    def planned_entry(self) -> tuple[Entries, int]:
        """The columns of a planned task's entry. ValueError for a task that was made otherwise."""
        if self.entry is None:
            raise ValueError("the task was not planned")
        return self.entry

    @property
    def size(self) -> int:
        """Stored bytes of the data file, or of the part of it, that are read."""
        return int(self.file.file_size_in_bytes) if self.part is None else self.part.size

    def split(self, size: int) -> list[EncryptedFileScanTask]:
        """Return tasks for parts of the file, of about `size` bytes; this task alone where the file is not longer or cannot be cut."""
        parts = parts_of(self.file, size)
        # The planned task stays as it is, with its entry in the columns and no object of its file.
        if len(parts) == 1:
            return [self]
        return [EncryptedFileScanTask(self.file, self.delete_files, self.residual, self.data_sequence_number, part) for part in parts]

    def _values(self) -> tuple[object, ...]:
        return self.file, self.delete_files, self.residual, self.data_sequence_number, self.part


_MADE_LATER: Final[Mapping[str, Callable[[Entries, int], object]]] = {
    "file": Entries.file,
    "delete_files": lambda entries, row: set(),
    "data_sequence_number": lambda entries, row: entries.number(Column.SEQUENCE_NUMBER, row),
    "part": lambda entries, row: None,
}


@dataclass(frozen=True)
class FilePart:
    """Stored bytes from `start` to before `end`."""

    start: int
    end: int

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and self.start <= offset < self.end

    @property
    def size(self) -> int:
        """How many stored bytes it has."""
        return self.end - self.start


def parts_of(file: DataFile, size: int) -> list[FilePart]:
    """Return the parts of a data file, of at least `size` bytes each but the last; one where it cannot be cut."""
    length = int(file.file_size_in_bytes)
    if file.file_format != FileFormat.PARQUET or length <= size:
        return [FilePart(0, length)]
    cuts = _cuts(file.split_offsets or (), length, size)
    return [FilePart(start, end) for start, end in zip([0, *cuts], [*cuts, length], strict=True)]


def _cuts(offsets: Sequence[int], length: int, size: int) -> list[int]:
    cuts: list[int] = []
    begun = 0
    for offset in sorted(offsets)[1:]:
        # Offsets come from the manifest's writer: one beyond the file would make a part of no rows.
        if begun + size <= offset < length:
            cuts.append(offset)
            begun = offset

    return cuts


@dataclass
class PlanCounts:
    """What planning a scan looked at, and what it left out, as Iceberg counts it.

    Attributes:
        data_manifests, delete_manifests: those of the snapshot.
        read_data_manifests, read_delete_manifests: those that were read. The others were skipped by their partition summaries or age.
        listed_data_files: the live ones of the manifests that were read; a scan's tasks are some of them.
        position_delete_files: of the delete manifests that were read, deletion vectors among them.
        equality_delete_files: likewise.
    """

    data_manifests: int = 0
    delete_manifests: int = 0
    read_data_manifests: int = 0
    read_delete_manifests: int = 0
    listed_data_files: int = 0
    position_delete_files: int = 0
    equality_delete_files: int = 0

    def add_manifests(self, listed: Iterable[ManifestFile], read: Iterable[ManifestFile]) -> None:
        """Take in a snapshot's manifests, and those of them that are read."""
        of_listed, of_read = [each.content for each in listed], [each.content for each in read]
        self.data_manifests += of_listed.count(ManifestContent.DATA)
        self.delete_manifests += of_listed.count(ManifestContent.DELETES)
        self.read_data_manifests += of_read.count(ManifestContent.DATA)
        self.read_delete_manifests += of_read.count(ManifestContent.DELETES)

    def add_delete_file(self, file: DataFile) -> None:
        """Take in a delete file."""
        if file.content == DataFileContent.EQUALITY_DELETES:
            self.equality_delete_files += 1
        else:
            self.position_delete_files += 1


def listed_manifests(snapshot: Snapshot, io: FileIO) -> list[ManifestFile]:
    """Return the manifests of a snapshot, to plan a scan with them. A list that this process has read before is not read again.

    Raises:
        TablecryptError: whatever reading a manifest list raises.
    """
    return snapshot.manifests_to_plan(io) if isinstance(snapshot, EncryptedSnapshot) else snapshot.manifests(io)


class ScanPlanner:
    """Plans scans of one table with one filter.

    Args:
        table_metadata: the schema and partition specs to evaluate the filter with.
        io: the table's EncryptingFileIO; manifests open with the keys that their manifest list gave them.
        row_filter: rows to look for. Where the catalog's server has a column masked that it looks at, it rules out no file.
        options: PyIceberg's scan options; `include_empty_files` is known.
        of_partitions: by the spec's id, a filter of partition values that has to match besides.
    """

    def __init__(
        self,
        table_metadata: TableMetadata,
        io: FileIO,
        row_filter: BooleanExpression = ALWAYS_TRUE,
        case_sensitive: bool = True,
        options: Properties = EMPTY_DICT,
        of_partitions: Mapping[int, BooleanExpression] = EMPTY_DICT,
    ) -> None:
        self.table_metadata = table_metadata
        self.io = io
        restrictions = read_restrictions_of(io)
        if restrictions is not None:
            row_filter = plannable(restrictions, row_filter, table_metadata.schema(), case_sensitive)
        self.row_filter = row_filter
        self.case_sensitive = case_sensitive
        self._of_partitions = of_partitions
        self._schema = table_metadata.schema()
        self._specs = table_metadata.specs()
        self._include_empty_files = property_as_bool(options, "include_empty_files", False)

    @cached_property
    def _file_filter(self) -> FileFilter:
        return FileFilter(
            self._schema,
            self._specs,
            self.row_filter,
            self.case_sensitive,
            self._include_empty_files,
            self._of_partitions,
            told_until(self.table_metadata.properties, self._schema),
        )

    def plan_files(
        self, manifests: Iterable[ManifestFile], entry_filter: Callable[[Entries], Mask] | None = None
    ) -> list[EncryptedFileScanTask]:
        """Return the tasks of all data files that may hold matching rows.

        Args:
            manifests: data and delete manifests of one snapshot.
            entry_filter: a further condition on data files; says of each entry whether it holds.

        Raises:
            PlaintextRefusedError: a file that is to be read has no key metadata.
            FormatError: delete files that contradict each other.
            TablecryptError: whatever reading a manifest raises.
            ValueError, TypeError: the filter does not fit the schema.
        """
        return [task for tasks in self.planned_batches(manifests, entry_filter) for task in tasks]

    def planned_batches(
        self,
        manifests: Iterable[ManifestFile],
        entry_filter: Callable[[Entries], Mask] | None = None,
        counts: PlanCounts | None = None,
    ) -> Iterator[list[EncryptedFileScanTask]]:
        """Yield what `plan_files` returns, batch by batch as manifests are read: in memory are one batch and what the manifest cache keeps.

        Arguments and errors are those of `plan_files`, and `counts` takes what planning looks at. An error may come after batches of other
        manifests.
        """
        listed = list(manifests)
        for manifest in listed:
            # Bounds are compared by this schema, whichever snapshot's manifests they stand in.
            if isinstance(manifest, EncryptedManifestFile):
                manifest.read_with(self._schema.schema_id)
        try:
            yield from self._planned(listed, entry_filter, counts or PlanCounts())
        except (ValueError, TypeError):
            # Maybe the filter is wrong, and maybe the schema that it is to fit was edited.
            self._check_newest_headers(listed, set())
            raise

    def may_match(self, tasks: Sequence[EncryptedFileScanTask]) -> list[bool]:
        """Say of each task that was planned, with whatever filter, whether its file may hold matching rows."""
        # Tasks of one batch of manifests share their columns: the filter is evaluated once for all of them.
        rows: dict[int, tuple[Entries, list[tuple[int, int]]]] = {}
        for number, task in enumerate(tasks):
            entries, row = task.planned_entry
            rows.setdefault(id(entries), (entries, []))[1].append((number, row))
        matches = [False] * len(tasks)

        for entries, placed in rows.values():
            matching = np.zeros(len(entries), np.bool_)
            matching[self._file_filter.matching(entries)] = True
            for number, row in placed:
                matches[number] = bool(matching[row])

        return matches

    def _planned(
        self, manifests: list[ManifestFile], entry_filter: Callable[[Entries], Mask] | None, counts: PlanCounts
    ) -> Iterator[list[EncryptedFileScanTask]]:
        file_filter = self._file_filter
        matching = self._matching_manifests(manifests)
        data = [manifest for manifest in matching if manifest.content == ManifestContent.DATA]
        deletes = _not_older_than(data, matching)
        counts.add_manifests(manifests, [*data, *deletes])
        index = self._delete_index(deletes, counts)
        residuals = _Residuals(self.row_filter, self._residual)

        for entries in read_in_columns(self.io, data):
            counts.listed_data_files += len(entries)
            rows = file_filter.matching(entries)
            if entry_filter is not None:
                rows = rows[entry_filter(entries)[rows]]
            yield _tasks(entries.only(rows), index, residuals)

    def _matching_manifests(self, listed: list[ManifestFile]) -> list[EncryptedManifestFile]:
        evaluators: Mapping[int, Callable[[ManifestFile], bool]] = KeyDefaultDict(self._manifest_evaluator)
        # Comes first: an edit that removes a spec must be refused and not leave the files of that spec out.
        self._check_specs_exist(listed)
        matching = [manifest for manifest in listed if self._may_match(manifest, evaluators)]
        if len(matching) < len(listed):
            self._check_newest_headers(listed, {manifest.manifest_path for manifest in matching})
        return [
            EncryptedManifestFile.of(manifest) if not isinstance(manifest, EncryptedManifestFile) else manifest for manifest in matching
        ]

    def _may_match(self, manifest: ManifestFile, evaluators: Mapping[int, Callable[[ManifestFile], bool]]) -> bool:
        may_match = evaluators[manifest.partition_spec_id]
        try:
            return may_match(manifest)
        except (struct.error, ValueError, TypeError, LookupError, OverflowError) as error:
            # A spec that is not the one of the manifest gives its bounds other types. Its authenticated header says which one is.
            if isinstance(manifest, EncryptedManifestFile):
                manifest.check_header(self.io)
            what = f"its bounds of partition values cannot be read by partition spec {manifest.partition_spec_id}: {error}"
            raise FormatError(f"{manifest.manifest_path}: {what}") from error

    def _check_specs_exist(self, manifests: list[ManifestFile]) -> None:
        for manifest in manifests:
            if manifest.partition_spec_id not in self._specs:
                what = f"was written with partition spec {manifest.partition_spec_id}, which the table metadata does not have"
                raise TamperedFileError(manifest.manifest_path, what)

    def _check_newest_headers(self, manifests: list[ManifestFile], read_anyway: set[str]) -> None:
        """Compare the newest manifest of each spec with the metadata, by which others have just been left out without being read."""
        newest: dict[int, ManifestFile] = {}
        for manifest in manifests:
            known = newest.get(manifest.partition_spec_id)
            if known is None or (manifest.sequence_number or 0) > (known.sequence_number or 0):
                newest[manifest.partition_spec_id] = manifest

        for manifest in newest.values():
            if isinstance(manifest, EncryptedManifestFile) and manifest.manifest_path not in read_anyway:
                manifest.check_header(self.io)

    def _delete_index(self, manifests: list[EncryptedManifestFile], counts: PlanCounts) -> DeleteIndex:
        index = DeleteIndex(spec_id for spec_id, spec in self._specs.items() if spec.is_unpartitioned())
        for entries in read_in_columns(self.io, manifests):
            for row in range(len(entries)):
                entry = entries.entry(row)
                index.add(entry)
                counts.add_delete_file(entry.data_file)
        return index

    def _manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:
        return manifest_evaluator(self._specs[spec_id], self._schema, self._file_filter.partition_filters[spec_id], self.case_sensitive)

    def _residual(self, spec_id: int, partition: Record) -> BooleanExpression:
        if self._file_filter.is_overflowed(spec_id, partition):
            return self.row_filter

        evaluator = residual_evaluator_of(
            spec=self._file_filter.telling_specs[spec_id], expr=self.row_filter, case_sensitive=self.case_sensitive, schema=self._schema
        )
        try:
            return evaluator.residual_for(in_literals(partition))
        except OverflowError:
            # As in the filter of partitions (file_filter.py).
            return self.row_filter
        except TypeError:
            # PyIceberg compares a partition's null by < and >, which Python cannot: so all of the filter is left to look at.
            if None in partition_values(partition):
                return self.row_filter
            raise


class _Residuals:
    """What is left of the filter in each partition, worked out once per partition."""

    def __init__(self, row_filter: BooleanExpression, residual: Callable[[int, Record], BooleanExpression]) -> None:
        self._matches_all = isinstance(row_filter, AlwaysTrue)
        self._residual = residual

    def of(self, entries: Entries) -> list[BooleanExpression]:
        """Return what is left of it for each entry."""
        if self._matches_all:
            return [ALWAYS_TRUE] * len(entries)
        partitions, places = entries.partitions()
        residuals = [self._residual(spec_id, partition) for spec_id, partition in partitions]
        return [residuals[place] for place in places]


def _tasks(entries: Entries, index: DeleteIndex, residuals: _Residuals) -> list[EncryptedFileScanTask]:
    planned = EncryptedFileScanTask.planned
    tasks = [planned((entries, row), residual) for row, residual in enumerate(residuals.of(entries))]
    if index:
        for task in tasks:
            task.delete_files = index.deletes_of(task.file, task.data_sequence_number or INITIAL_SEQUENCE_NUMBER)
    return tasks


def _not_older_than(data: list[EncryptedManifestFile], manifests: list[EncryptedManifestFile]) -> list[EncryptedManifestFile]:
    """Return the delete manifests that are not older than all of the data."""
    oldest = min((manifest.min_sequence_number or INITIAL_SEQUENCE_NUMBER for manifest in data), default=INITIAL_SEQUENCE_NUMBER)
    return [
        manifest
        for manifest in manifests
        if manifest.content == ManifestContent.DELETES and (manifest.sequence_number or INITIAL_SEQUENCE_NUMBER) >= oldest
    ]


@dataclass
class _BySequence:
    """Delete files in order of their sequence number."""

    files: list[tuple[int, EncryptedDataFile]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def add(self, sequence_number: int, file: EncryptedDataFile) -> None:
        at = bisect_right(self.numbers, sequence_number)
        self.numbers.insert(at, sequence_number)
        self.files.insert(at, (sequence_number, file))

    def from_number(self, sequence_number: int) -> Iterable[EncryptedDataFile]:
        return (file for _, file in self.files[bisect_left(self.numbers, sequence_number) :])


class DeleteIndex:
    """The delete files of one snapshot.

    Args:
        unpartitioned_specs: ids of the table's partition specs that have no fields.
    """

    def __init__(self, unpartitioned_specs: Iterable[int]) -> None:
        self._unpartitioned_specs = frozenset(unpartitioned_specs)
        self._vectors: dict[str, tuple[int, EncryptedDataFile]] = {}
        self._positions_of_path: dict[str, _BySequence] = {}
        self._positions_of_partition: dict[_Partition, _BySequence] = {}
        self._equality_of_partition: dict[_Partition, _BySequence] = {}
        self._equality_everywhere = _BySequence()

    def add(self, entry: ManifestEntry) -> None:
        """Take in an entry of a delete manifest."""
        file, number = EncryptedDataFile.of(entry.data_file), sequence_number_of(entry)
        file.spec_id = entry.data_file.spec_id
        if is_deletion_vector(file):
            self._add_vector(file, number)
        elif file.content == DataFileContent.POSITION_DELETES:
            self._add_positions(file, number)
        elif file.content == DataFileContent.EQUALITY_DELETES:
            self._add_equality(file, number)
        else:
            raise FormatError(f"{file.file_path}: a delete manifest lists it with content {file.content!r}")

    def __bool__(self) -> bool:
        found = (self._vectors, self._positions_of_path, self._positions_of_partition, self._equality_of_partition)
        return any(found) or bool(self._equality_everywhere.files)

    def deletes_of(self, data_file: DataFile, sequence_number: int) -> set[DataFile]:
        """Return the delete files that apply to a data file."""
        deletes = set(self._equality_deletes(data_file, sequence_number))
        vector = self._vectors.get(data_file.file_path)
        if vector is not None and vector[0] >= sequence_number:
            return {vector[1], *deletes}
        return {*self._position_deletes(data_file, sequence_number), *deletes}

    def _add_vector(self, file: EncryptedDataFile, number: int) -> None:
        target = file.referenced_data_file
        if target is None:
            raise FormatError(f"{file.file_path}: a deletion vector names no data file")
        # Whichever of the two was taken, rows that the other one deletes would come back.
        if target in self._vectors:
            other = self._vectors[target][1].file_path
            raise FormatError(f"{target}: two deletion vectors apply to it, in {other} and {file.file_path}; one is allowed")

        self._vectors[target] = number, file

    def _add_positions(self, file: EncryptedDataFile, number: int) -> None:
        target = file.referenced_data_file or only_path(file)
        if target is not None:
            self._positions_of_path.setdefault(target, _BySequence()).add(number, file)
        else:
            self._positions_of_partition.setdefault(_partition(file), _BySequence()).add(number, file)

    def _add_equality(self, file: EncryptedDataFile, number: int) -> None:
        if file.spec_id in self._unpartitioned_specs:
            self._equality_everywhere.add(number, file)
        else:
            self._equality_of_partition.setdefault(_partition(file), _BySequence()).add(number, file)

    def _position_deletes(self, data_file: DataFile, sequence_number: int) -> Iterable[EncryptedDataFile]:
        if by_path := self._positions_of_path.get(data_file.file_path):
            yield from by_path.from_number(sequence_number)
        if self._positions_of_partition and (by_partition := self._positions_of_partition.get(_partition(data_file))):
            for file in by_partition.from_number(sequence_number):
                if _may_name(file, data_file.file_path):
                    yield file

    def _equality_deletes(self, data_file: DataFile, sequence_number: int) -> Iterable[EncryptedDataFile]:
        # Rows written together with an equality delete are not deleted by it: the next sequence number is the first that counts.
        yield from self._equality_everywhere.from_number(sequence_number + 1)
        if self._equality_of_partition and (by_partition := self._equality_of_partition.get(_partition(data_file))):
            yield from by_partition.from_number(sequence_number + 1)


def sequence_number_of(entry: ManifestEntry) -> int:
    """Return an entry's data sequence number; files of version 1 tables have none, and count as the oldest."""
    return entry.sequence_number or INITIAL_SEQUENCE_NUMBER


def _partition(file: DataFile) -> _Partition:
    return file.spec_id, partition_values(file.partition)


def _path_bounds(file: DataFile) -> tuple[bytes, bytes] | None:
    lower, upper = (file.lower_bounds or {}).get(FILE_PATH_FIELD_ID), (file.upper_bounds or {}).get(FILE_PATH_FIELD_ID)
    return None if lower is None or upper is None else (lower, upper)


def only_path(file: DataFile) -> str | None:
    """Return the data file that all of a delete file's rows name, if its bounds say that there is just one."""
    bounds = _path_bounds(file)
    if bounds is None or bounds[0] != bounds[1]:
        return None
    return bounds[0].decode("utf-8", errors="replace")


def _may_name(file: DataFile, path: str) -> bool:
    bounds = _path_bounds(file)
    return bounds is None or bounds[0] <= path.encode() <= bounds[1]
