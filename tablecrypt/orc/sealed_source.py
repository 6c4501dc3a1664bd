"""A file whose every byte is checked against its manifest entry before anybody sees it.

Raises TamperedFileError when the file is longer or shorter than it was sealed, or a block of it is not what it was.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final

from cryptography.hazmat.primitives.constant_time import bytes_eq

from tablecrypt.errors import TamperedFileError
from tablecrypt.orc.manifest import BLOCK_LENGTH, ManifestEntry
from tablecrypt.orc.source import Source

CACHED_BLOCKS: Final = 64


class SealedSource:
    """Reads whole blocks, checks them, and keeps the last few: streams are read in pieces that do not end at blocks."""

    def __init__(self, source: Source, entry: ManifestEntry) -> None:
        if source.length != entry.length:
            raise TamperedFileError(source.location, f"has {source.length} bytes, but its manifest says {entry.length}")
        self.location = source.location
        self.length = source.length
        self._source = source
        self._entry = entry
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def read_at(self, offset: int, length: int) -> bytes:
        if length <= 0 or offset + length > self.length:
            return self._source.read_at(offset, length)
        first, last = offset // BLOCK_LENGTH, (offset + length - 1) // BLOCK_LENGTH
        data = b"".join(self._block(number) for number in range(first, last + 1))
        begin = offset - first * BLOCK_LENGTH
        return data[begin : begin + length]

    def _block(self, number: int) -> bytes:
        if number in self._blocks:
            self._blocks.move_to_end(number)
            return self._blocks[number]
        start = number * BLOCK_LENGTH
        block = self._source.read_at(start, min(BLOCK_LENGTH, self.length - start))
        if not bytes_eq(hashlib.sha256(block).digest(), self._entry.digest_of(number)):
            raise TamperedFileError(self.location, f"bytes {start} to {start + len(block)} are not those that were sealed")
        self._blocks[number] = block
        if len(self._blocks) > CACHED_BLOCKS:
            self._blocks.popitem(last=False)
        return block
