"""Parts of one data file, so that several tasks read it: each part is a range of stored bytes, and has the row groups that begin in it.

    file      | row group 0 | row group 1 | row group 2 | row group 3 | footer |
    offsets   4             a             b             c                      the manifest's split_offsets
    parts     [0 ─────────────────────────b) [b ───────────────────── length)

The ranges cover the file without a gap, and a row group begins in exactly one of them, whatever offsets the manifest names: offsets that
are not those of the row groups make parts of uneven size, and cannot lose or repeat a row.

Iceberg table spec, "Manifests" (split_offsets).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, FileFormat


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
        if begun + size <= offset < length:
            cuts.append(offset)
            begun = offset
    return cuts
