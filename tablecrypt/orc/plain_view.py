"""An encrypted ORC file seen as a plain one: pyarrow.orc reads it like any other, and only what it reads is fetched and decrypted.

No value is decoded and no stream copied: the view is a list of segments (view_layout.py), each either bytes made for it or a stream in the
file with the key and IV that open it. AES-CTR can begin anywhere, so a read of any range costs just that range. Streams of LZO files are
decompressed too, chunk by chunk (expanded_stream.py).

The one thing looked at beforehand are lengths (lengths.py), since pyarrow's decoder believes them: of lists, maps and texts, when the first
of a stream of them is read.

Raises FormatError for footers and lengths that do not fit the file. What the store raises passes through.
"""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from collections.abc import Set

from tablecrypt.orc.column_keys import ColumnKeys
from tablecrypt.orc.lengths import MAX_BYTES, MAX_ELEMENTS, check_lengths
from tablecrypt.orc.messages import StreamKind
from tablecrypt.orc.segments import MadeBytes
from tablecrypt.orc.source import Source
from tablecrypt.orc.tail import Tail
from tablecrypt.orc.view_layout import ViewLayout, ViewSegment


class PlainView(io.RawIOBase):
    """A readable, seekable file of plain ORC over an encrypted one. Not safe for several threads at once.

    Args:
        tail: the encrypted file's.
        source: its bytes.
        keys: its local keys.
        columns: those that are going to be read.
        owners: for each column to decrypt the number of its variant.
    """

    def __init__(self, tail: Tail, source: Source, keys: ColumnKeys, columns: Set[int], owners: dict[int, int]) -> None:
        super().__init__()
        self._source = source
        self._position = 0
        self._tail = tail
        self._checked: set[int] = set()
        self.failure: BaseException | None = None
        self._segments = ViewLayout(tail, source, keys, columns, owners).build()
        self._starts = [segment.start for segment in self._segments]
        self._length = self._segments[-1].start + self._segments[-1].length

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._length}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._length - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        try:
            data = self._read_range(self._position, wanted)
        except BaseException as failure:
            # The ORC reader below turns whatever comes out of here into its own error: the caller asks for this one.
            self.failure = failure
            raise
        self._position += len(data)
        return data

    def _read_range(self, position: int, length: int) -> bytes:
        parts: list[bytes] = []
        index = bisect_right(self._starts, position) - 1
        while length > 0:
            segment = self._segments[index]
            begin = position - segment.start
            taken = min(length, segment.length - begin)
            if taken > 0:
                self._check_lengths(segment)
                parts.append(segment.read(self._source, begin, taken))
            position += taken
            length -= taken
            index += 1
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _check_lengths(self, segment: ViewSegment) -> None:
        """Check a stream of lengths as a whole when the first of it is read."""
        if isinstance(segment, MadeBytes) or segment.placed.stream.kind != StreamKind.LENGTH or segment.start in self._checked:
            return
        column = self._tail.schema[segment.placed.stream.column]
        what = f"{self._tail.location}: the lengths of column {self._tail.schema.name_of(column.id)!r}"
        lengths = self._tail.compression.decompress(segment.read(self._source, 0, segment.length), what)
        check_lengths(lengths, segment.encoding_version, MAX_ELEMENTS if column.children else MAX_BYTES, what)
        self._checked.add(segment.start)
