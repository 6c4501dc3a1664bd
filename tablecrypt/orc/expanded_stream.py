"""A stream of LZO chunks as the plain view has it: of the same contents, in chunks that are not compressed.

    in the file    header | LZO        header | LZO     header | original
    in the view    header | original   header | original   header | original

pyarrow has an LZO decoder of its own, which is never given a chunk: it takes literals from behind the end of a chunk that does not have
them, and two kinds of matches, which Java's writer leaves out, for each other.

What the chunks hold is known only when they are opened, and places in the view must be known beforehand. So a stream is opened twice, when
it gets its place and when it is read; only where its chunks begin stays in memory.

Raises FormatError for chunks that cannot be opened, and MissingExtraError.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from tablecrypt.orc.compression import Compression, original_chunk
from tablecrypt.orc.segments import StreamBytes
from tablecrypt.orc.source import Source
from tablecrypt.orc.stream_places import PlacedStream


class ExpandedStream:
    """The stream `stored`, with what it holds behind `start` in the view. `what` names it in errors."""

    def __init__(self, stored: StreamBytes, source: Source, compression: Compression, what: str) -> None:
        self.start = stored.start
        self._stored = stored
        self._compression = compression
        self._what = what
        # Arrays, since a stream can be of chunks that hold nothing.
        self._stored_ends = array("Q", [0])
        self._ends = array("Q", [0])
        for end, contents in compression.open_chunks(stored.read(source, 0, stored.length), what):
            self._stored_ends.append(end)
            self._ends.append(self._ends[-1] + len(original_chunk(contents)))

    @property
    def length(self) -> int:
        return self._ends[-1]

    @property
    def placed(self) -> PlacedStream:
        return self._stored.placed

    @property
    def encoding_version(self) -> int:
        return self._stored.encoding_version

    def read(self, source: Source, begin: int, length: int) -> bytes:
        """Return `length` bytes from `begin` on, at least one."""
        first = bisect_right(self._ends, begin) - 1
        last = bisect_right(self._ends, begin + length - 1)
        stored = self._stored.read(source, self._stored_ends[first], self._stored_ends[last] - self._stored_ends[first])
        opened = b"".join(original_chunk(contents) for _, contents in self._compression.open_chunks(stored, self._what))
        return opened[begin - self._ends[first] :][:length]
