"""Which delete files apply to which data file.

    kind              data file's sequence number    matched by
    deletion vector   <= the vector's                referenced_data_file; it replaces every position delete of its data file
    position deletes  <= the delete file's           referenced_data_file, else one path in the bounds of file_path, else the partition
    equality deletes  <  the delete file's           the partition; a delete file of an unpartitioned spec applies to every partition

Raises FormatError for two deletion vectors of one data file, a vector that names no data file, and deletes of an unknown kind.

Iceberg table spec, "Scan Planning", "Deletion Vectors", "Delete Formats".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pyiceberg.manifest import INITIAL_SEQUENCE_NUMBER, DataFile, DataFileContent, ManifestEntry

from tablecrypt.errors import FormatError
from tablecrypt.manifests.records import EncryptedDataFile, partition_values
from tablecrypt.table.table_files import is_deletion_vector

FILE_PATH_FIELD_ID: Final = 2147483546
_Partition: TypeAlias = tuple[int, tuple[Hashable, ...]]


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
