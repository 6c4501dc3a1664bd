"""The deleted rows of one data file, as positions in it, from a deletion vector or from position delete files."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc


class DeletedPositions:
    """Sorted, distinct positions (from 0) of deleted rows."""

    def __init__(self, positions: array[int]) -> None:
        self._positions = positions

    @classmethod
    def of_arrow(cls, parts: Iterable[pa.ChunkedArray]) -> DeletedPositions:
        """Merge positions (int64) in any order, with repetitions."""
        merged = pc.unique(pa.chunked_array([chunk for part in parts for chunk in part.chunks], type=pa.int64()))
        ordered = merged.take(pc.sort_indices(merged))
        return cls(array("q", memoryview(ordered.buffers()[1]).cast("q")[: len(ordered)]) if len(ordered) else array("q"))

    def __len__(self) -> int:
        return len(self._positions)

    def __iter__(self) -> Iterator[int]:
        return iter(self._positions)

    def last(self) -> int:
        """Return the greatest position; -1 if there is none."""
        return self._positions[-1] if self._positions else -1

    def living(self, positions: pa.Array) -> pa.Array | None:
        """Return a mask of the rows that are not deleted, for ascending positions of rows. None: none of them is deleted."""
        if not len(positions) or not self._positions:
            return None
        begin = bisect_left(self._positions, positions[0].as_py())
        end = bisect_left(self._positions, positions[-1].as_py() + 1)
        if begin == end:
            return None
        deleted = pa.Array.from_buffers(pa.int64(), end - begin, [None, pa.py_buffer(self._positions[begin:end])])
        return pc.invert(pc.is_in(positions, value_set=deleted))
