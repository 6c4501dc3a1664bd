"""LZO chunks of ORC: how much a chunk holds is found out first, then the package lzallright decompresses it.

Nothing in LZO1X says how much a chunk holds, and each zero byte of a length stands for 255 bytes. So, unless a chunk is short, its
instructions are walked through before a byte is made of them, and what would be longer than the limit ends there.

    chunk = [first] instruction ... end
    first            18 to 255: that - 17 literals

    instruction      0000LLLL   behind no literals: 3 + L literals (L = 0: 15 + more)
                     0000DDSS   behind 1 to 3: match of 2 │ H       behind more: match of 3 │ H
                     0001HLLL   match of 2 + L (L = 0: 7 + more)  │ D, 2 bytes LE        the end: neither H nor D, but for its last 2 bits
                     001LLLLL   match of 2 + L (L = 0: 31 + more) │ D, 2 bytes LE
                     01LDDDSS   match of 3 + L │ H
                     1LLDDDSS   match of 5 + L │ H

    more = 00 ... and a byte that is not: 255 for each 00, and that byte
    S    = how many literals follow the match; where there is a D of 2 bytes, its last 2 bits
    H, D = how far back the match is: nothing to count

lzallright is safe Rust from 0.3 on; what it bound before reads behind a chunk that ends in zeros. Lengths are bytes.
Raises FormatError, and MissingExtraError where lzallright is not installed.

Specification: Linux kernel documentation, "LZO stream format as understood by Linux' LZO decompressor".
"""

from __future__ import annotations

from typing import Final

from tablecrypt.errors import FormatError, MissingExtraError

_FIRST_BASE: Final = 17
_LONG_MATCH: Final = 0x10
_MIDDLE_MATCH: Final = 0x20
_SHORT_MATCH: Final = 0x40
_SHORT_CHUNK: Final = 256 * 1024
"""ORC's default block size. Such a chunk is opened at once: it cannot hold more than 64 MiB, and walking takes 40 times as long."""
_MANY: Final = 4
"""From so many literals on it makes no difference how many they were."""


def decompress_lzo(chunk: bytes, limit: int, what: str) -> bytes:
    """Return what a chunk holds; `what` names it in errors. More than `limit` bytes are refused, or from a short chunk returned."""
    try:
        from lzallright import LZOCompressor, LZOError
    except ImportError as error:
        raise MissingExtraError(
            f'{what} is compressed with LZO, which needs the package lzallright: pip install "tablecrypt[lzo]"'
        ) from error
    length = limit if len(chunk) <= _SHORT_CHUNK else _Walk(chunk, limit, what).length()
    try:
        return LZOCompressor.decompress(chunk, length)
    except LZOError as error:
        raise FormatError(f"{what}: an LZO chunk cannot be decompressed") from error


class _Walk:
    """Goes through a chunk's instructions and adds up what they make."""

    def __init__(self, chunk: bytes, limit: int, what: str) -> None:
        self._chunk = chunk
        self._limit = limit
        self._what = what
        self._position = 0
        self._total = 0

    def length(self) -> int:
        """Return how many bytes the chunk holds."""
        literals: int | None = 0
        if self._chunk and self._chunk[0] > _FIRST_BASE:
            literals = self._literals(self._byte() - _FIRST_BASE)
        while literals is not None:
            literals = self._instruction(literals)
        return self._total

    def _instruction(self, behind: int) -> int | None:
        """Pass an instruction that stands behind so many literals; return how many it has itself, or None at the end."""
        first = self._byte()
        if first >= _SHORT_MATCH:
            self._add(5 + (first >> 5 & 3) if first >= 0x80 else 3 + (first >> 5 & 1))
        elif first >= _LONG_MATCH:
            return self._far_match(first)
        elif behind == 0:
            return self._literals(3 + self._counted(first, 15))
        else:
            self._add(3 if behind >= _MANY else 2)
        self._byte()
        return self._literals(first & 3)

    def _far_match(self, first: int) -> int | None:
        length = 2 + (self._counted(first & 31, 31) if first >= _MIDDLE_MATCH else self._counted(first & 7, 7))
        distance = self._byte() | self._byte() << 8
        if first < _MIDDLE_MATCH and not first & 8 and distance < 4:
            return None
        self._add(length)
        return self._literals(distance & 3)

    def _counted(self, stored: int, base: int) -> int:
        """Return a length that stands in an instruction, or behind it where that says 0."""
        if stored:
            return stored
        length = base
        while (more := self._byte()) == 0:
            length += 0xFF
            self._check(self._total + length)
        return length + more

    def _literals(self, count: int) -> int:
        self._position += count
        if self._position > len(self._chunk):
            raise FormatError(f"{self._what}: an LZO chunk ends inside its literals")
        self._add(count)
        return count

    def _byte(self) -> int:
        if self._position >= len(self._chunk):
            raise FormatError(f"{self._what}: an LZO chunk ends inside an instruction")
        self._position += 1
        return self._chunk[self._position - 1]

    def _add(self, count: int) -> None:
        self._total += count
        self._check(self._total)

    def _check(self, total: int) -> None:
        if total > self._limit:
            raise FormatError(f"{self._what}: a chunk holds {total} bytes or more, more than the file's block size of {self._limit}")
