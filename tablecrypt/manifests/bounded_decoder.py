"""PyIceberg's compiled Avro decoder, kept inside its bytes.

That decoder believes every length: one that is too great makes it copy memory behind the buffer or end the process, and a negative one
moves it back. Here each length and count is compared with what is left before the compiled method that uses it runs. Numbers need no check
of their own: the bytes are followed by as many zero bytes again and some more, which end a number, and the position is checked after each
record.

Raises FormatError, without a place: the caller knows the file.
"""

from __future__ import annotations

from typing import Final, cast

from pyiceberg.avro.decoder import BinaryDecoder, new_decoder

from tablecrypt.errors import FormatError

# Longer than the longest number and value of fixed length a record may hold (a double, a UUID, a decimal), whatever the bytes' length.
_MIN_PADDING: Final = 64


class _BoundedDecoder:
    """Decodes `data`. What needs no check is the compiled decoder's own method."""

    def __init__(self, data: bytes) -> None:
        compiled = new_decoder(data + bytes(len(data) + _MIN_PADDING))
        self._length = len(data)
        self._read, self._read_ints, self._skip = compiled.read, compiled.read_ints, compiled.skip
        self.tell, self.read_int, self.skip_int = compiled.tell, compiled.read_int, compiled.skip_int
        self.read_boolean, self.skip_boolean = compiled.read_boolean, compiled.skip_boolean
        self.read_float, self.skip_float = compiled.read_float, compiled.skip_float
        self.read_double, self.skip_double = compiled.read_double, compiled.skip_double

    def read(self, n: int) -> bytes:
        self._check(n)
        return self._read(n)

    def read_bytes(self) -> bytes:
        return self.read(self.read_int())

    def read_utf8(self) -> str:
        return self.read(self.read_int()).decode()

    def read_ints(self, count: int) -> tuple[int, ...]:
        self._check(count)
        return self._read_ints(count)

    def read_int_bytes_dict(self, count: int, dest: dict[int, bytes]) -> None:
        self._check(count)
        # The statistics of a data file's columns: most of a manifest, so nothing is looked up twice.
        read, read_int, tell, length = self._read, self.read_int, self.tell, self._length
        for _ in range(count):
            key, size = read_int(), read_int()
            if not 0 <= size <= length - tell():
                self._check(size)
            dest[key] = read(size)

    def skip(self, n: int) -> None:
        self._check(n)
        self._skip(n)

    def skip_bytes(self) -> None:
        self.skip(self.read_int())

    def skip_utf8(self) -> None:
        self.skip(self.read_int())

    def _check(self, wanted: int) -> None:
        left = self._length - self.tell()
        if not 0 <= wanted <= left:
            raise FormatError(f"asks for {wanted} bytes or values where {left} bytes are left")


def bounded_decoder(data: bytes) -> BinaryDecoder:
    """Return a decoder of `data` that reads nothing else."""
    return cast("BinaryDecoder", _BoundedDecoder(data))
