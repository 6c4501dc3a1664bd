"""What a scan reads: one task for each data file, or for each part of one.

A planned task knows its entry in the columns of the manifests, and makes the data file's object when that is asked for.

A data file may be split into parts, so that several tasks read it. Each part is a range of stored bytes, and has the row groups that begin
in it:

    file      | row group 0 | row group 1 | row group 2 | row group 3 | footer |
    offsets   4             a             b             c                      the manifest's split_offsets
    parts     [0 ─────────────────────────b) [b ───────────────────── length)

The ranges cover the file without a gap, and a row group begins in exactly one of them, whatever offsets the manifest names: offsets that
are not those of the row groups make parts of uneven size, and cannot lose or repeat a row.

Iceberg table spec, "Manifests" (split_offsets).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import ALWAYS_TRUE, FileScanTask

from tablecrypt.manifests.entries import Entries
from tablecrypt.manifests.entry_columns import Column


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
