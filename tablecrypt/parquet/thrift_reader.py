"""Reading Thrift's compact protocol (layout: tablecrypt.parquet.thrift), strictly and within bounds.

Refused with FormatError: a field twice, a number longer than it needs to be, structs nested deeper than MAX_DEPTH, and a length that
reaches past the end, so that no count makes anything larger than the input. CutShortError, its subclass, says that the bytes ended: with
more of them the struct may be whole.
"""

from __future__ import annotations

from typing import Final

from tablecrypt.errors import FormatError
from tablecrypt.parquet.thrift import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    LONG_LIST,
    MAP,
    SET,
    STOP,
    STRUCT,
    TRUE,
    Field,
    Shape,
    Struct,
)

MAX_DEPTH: Final = 32

_MAX_FIELD_ID: Final = 2**15 - 1
_LIMITS: Final = {I16: 2**15, I32: 2**31, I64: 2**63}


class CutShortError(FormatError):
    """The bytes end inside the struct."""


def decode(data: bytes, shape: Shape) -> Struct:
    """Read a struct that `data` holds and nothing else. FormatError otherwise."""
    struct, end = decode_at(data, shape)
    if end != len(data):
        raise FormatError(f"a struct of {end} bytes is followed by {len(data) - end} bytes that do not belong to it")
    return struct


def decode_padded(data: bytes | bytearray, shape: Shape) -> Struct:
    """Read a struct that was sealed. Bytes may follow it: parquet-java seals its whole buffer, which may be longer than the struct."""
    return decode_at(bytes(data), shape)[0]


def unpadded(data: bytes | bytearray) -> bytes:
    """The bytes of the struct alone, of a sealed one that bytes may follow."""
    encoded = bytes(data)
    reader = Reader(encoded)
    reader.skip(STRUCT, 0)
    return encoded[: reader.position]


def decode_at(data: bytes, shape: Shape, start: int = 0) -> tuple[Struct, int]:
    """Read a struct at `start`; returns it and where it ends."""
    reader = Reader(data, start)
    return reader.read_struct(shape, 0), reader.position


def decode_binaries(data: bytes) -> list[bytes]:
    """Read a list of binaries, such as a column's path."""
    return Reader(data).read_binaries()


class Reader:
    """Reads values one after the other."""

    __slots__ = ("_data", "_end", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self._end = len(data)
        self.position = position

    def read_byte(self) -> int:
        try:
            byte = self._data[self.position]
        except IndexError:
            raise CutShortError(f"a struct is cut short after {self._end} bytes") from None
        self.position += 1
        return byte

    def take(self, length: int) -> bytes:
        start, self.position = self.position, self.position + length
        if self.position > self._end:
            raise CutShortError(f"a value of {length} bytes at byte {start} reaches past the end, byte {self._end}")
        return self._data[start : self.position]

    def read_varint(self) -> int:
        byte = self.read_byte()
        if byte < 0x80:
            return byte
        value, shift = byte & 0x7F, 7
        while byte & 0x80:
            byte = self.read_byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if value >= 2**64 or shift > 70:
                raise FormatError("a number has more than 64 bits")
            if byte == 0:
                raise FormatError("a number is written longer than it needs to be")
        return value

    def read_integer(self, kind: int) -> int:
        zigzag = self.read_varint()
        value = (zigzag >> 1) ^ -(zigzag & 1)
        limit = _LIMITS[kind]
        if not -limit <= value < limit:
            raise FormatError(f"{value} does not fit Thrift kind {kind}")
        return value

    def read_struct(self, shape: Shape, depth: int) -> Struct:
        fields: dict[int, Field] = {}
        field_id = 0
        while (header := self.read_byte()) != STOP:
            field_id, kind = self.read_field_id(header, field_id), header & 0x0F
            if field_id in fields:
                raise FormatError(f"field {field_id} is there twice")
            fields[field_id] = Field(kind, self._read_field(kind, shape.get(field_id), depth + 1))
        return Struct(fields)

    def read_field_id(self, header: int, previous: int) -> int:
        """The id that a field header gives."""
        delta = header >> 4
        field_id = previous + delta if delta else self.read_integer(I16)
        if not 0 < field_id <= _MAX_FIELD_ID:
            raise FormatError(f"{field_id} is no id of a field")
        return field_id

    def read_binaries(self) -> list[bytes]:
        count, kind = self._read_list_header()
        if kind != BINARY:
            raise FormatError(f"a list holds Thrift kind {kind} where it should hold binaries")
        return [self.take(self.read_varint()) for _ in range(count)]

    def skip(self, kind: int, depth: int) -> None:
        """Step over a value of a field, checking that it is well formed."""
        if kind in (TRUE, FALSE):
            return
        if kind == BYTE:
            self.read_byte()
        elif kind in _LIMITS:
            self.read_integer(kind)
        elif kind == DOUBLE:
            self.take(8)
        elif kind == BINARY:
            self.take(self.read_varint())
        elif kind in (LIST, SET):
            self._skip_list(depth)
        elif kind == MAP:
            self._skip_map(depth)
        elif kind == STRUCT:
            self._skip_struct(depth)
        else:
            raise FormatError(f"{kind} is no Thrift kind")

    def _read_field(self, kind: int, shape: Shape | None, depth: int) -> bool | int | bytes | Struct | list[Struct]:
        if kind in _LIMITS:
            return self.read_integer(kind)
        if kind == BINARY:
            return self.take(self.read_varint())
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == STRUCT and shape is not None:
            return self.read_struct(shape, _checked(depth))
        start = self.position
        if kind == LIST and shape is not None:
            count, element = self._read_list_header()
            if element == STRUCT:
                return [self.read_struct(shape, _checked(depth)) for _ in range(count)]
            self.position = start
        self.skip(kind, depth)
        return self._data[start : self.position]

    def _read_list_header(self) -> tuple[int, int]:
        header = self.read_byte()
        count, kind = header >> 4, header & 0x0F
        if count == LONG_LIST:
            count = self.read_varint()
            if count < LONG_LIST:
                raise FormatError("the length of a list is written longer than it needs to be")
        # No element takes less than a byte.
        if count > self._end - self.position:
            raise CutShortError(f"a list of {count} elements is followed by {self._end - self.position} bytes")
        return count, kind

    def _skip_element(self, kind: int, depth: int) -> None:
        if kind in (TRUE, FALSE):
            self.read_byte()
        else:
            self.skip(kind, depth)

    def _skip_list(self, depth: int) -> None:
        count, kind = self._read_list_header()
        for _ in range(count):
            self._skip_element(kind, _checked(depth + 1))

    def _skip_map(self, depth: int) -> None:
        count = self.read_varint()
        if count == 0:
            return
        kinds = self.read_byte()
        if count > self._end - self.position:
            raise CutShortError(f"a map of {count} pairs is followed by {self._end - self.position} bytes")
        for _ in range(count):
            self._skip_element(kinds >> 4, _checked(depth + 1))
            self._skip_element(kinds & 0x0F, depth + 1)

    def _skip_struct(self, depth: int) -> None:
        _checked(depth)
        field_id = 0
        while (header := self.read_byte()) != STOP:
            field_id = self.read_field_id(header, field_id)
            self.skip(header & 0x0F, depth + 1)


def _checked(depth: int) -> int:
    if depth > MAX_DEPTH:
        raise FormatError(f"structs are nested more than {MAX_DEPTH} deep")
    return depth
