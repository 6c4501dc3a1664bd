"""Thrift's compact protocol, as much of it as finding and patching the modules of a Parquet file takes.

    struct   = field, field, … | 0x00
    field    = id delta (upper 4 bits, 1 to 15) and kind (lower 4) | value
               or 0 and kind | id (zigzag varint) | value
    kinds    1 true and 2 false (no value)  3 byte  4, 5, 6 i16, i32, i64 (zigzag varint)  7 double (8 bytes)  8 binary (varint, bytes)
             9 list, 10 set: count (upper 4 bits, 15: a varint follows) and kind of the elements | elements
             11 map (varint; if not 0: kinds of keys and values | pairs)  12 struct

A Shape says which nested structs, or lists of structs, are opened. Everything else that has a structure is stepped over, checked for being
well formed, and kept as the bytes it was: statistics, schemas and whatever the format adds later come out as they went in.

Reading is strict: a field twice, a number longer than it needs to be, nesting deeper than MAX_DEPTH, or a length that reaches past the end
is a FormatError, so that no count makes anything larger than the input. CutShortError, its subclass, says that the bytes ended: with more
of them the struct may be whole.

Specification: Apache Thrift, "Thrift Compact protocol encoding"; Apache Parquet, parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tablecrypt.errors import FormatError

TRUE: Final = 1
FALSE: Final = 2
BYTE: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
MAP: Final = 11
STRUCT: Final = 12

MAX_DEPTH: Final = 32

Shape = Mapping[int, "Shape"]
"""Ids of the fields to open, each with the shape of the struct there (or of each struct of the list there)."""

_STOP: Final = 0
_LONG_LIST: Final = 15
_MAX_FIELD_ID: Final = 2**15 - 1
_LIMITS: Final = {I16: 2**15, I32: 2**31, I64: 2**63}


class CutShortError(FormatError):
    """The bytes end inside the struct."""


@dataclass(slots=True)
class Field:
    """The kind of a value and the value: bool, int, bytes, Struct or a list of Structs; bytes as stored for what was not opened."""

    kind: int
    value: bool | int | bytes | Struct | list[Struct]


class Struct:
    """Fields by their ids. What a getter cannot find, or finds of another kind, is a FormatError."""

    __slots__ = ("fields",)

    def __init__(self, fields: dict[int, Field] | None = None) -> None:
        self.fields = {} if fields is None else fields

    def __contains__(self, field_id: int) -> bool:
        return field_id in self.fields

    def integer(self, field_id: int) -> int:
        """An i16, i32 or i64."""
        value = self._value(field_id, int)
        assert isinstance(value, int)
        return value

    def optional_integer(self, field_id: int) -> int | None:
        return self.integer(field_id) if field_id in self.fields else None

    def flag(self, field_id: int) -> bool:
        """A bool; False when it is not there."""
        if field_id not in self.fields:
            return False
        value = self._value(field_id, bool)
        return value is True

    def binary(self, field_id: int) -> bytes:
        value = self._value(field_id, bytes, BINARY)
        assert isinstance(value, bytes)
        return value

    def optional_binary(self, field_id: int) -> bytes | None:
        return self.binary(field_id) if field_id in self.fields else None

    def binaries(self, field_id: int) -> list[bytes]:
        """A list of binaries, such as a column's path."""
        value = self._value(field_id, bytes, LIST)
        assert isinstance(value, bytes)
        return Reader(value).read_binaries()

    def struct(self, field_id: int) -> Struct:
        value = self._value(field_id, Struct)
        assert isinstance(value, Struct)
        return value

    def optional_struct(self, field_id: int) -> Struct | None:
        return self.struct(field_id) if field_id in self.fields else None

    def structs(self, field_id: int) -> list[Struct]:
        value = self._value(field_id, list)
        assert isinstance(value, list)
        return value

    def set(self, field_id: int, kind: int, value: int | bytes | Struct | list[Struct]) -> None:
        """Give a field a value, whether it is there or not."""
        self.fields[field_id] = Field(kind, value)

    def remove(self, *field_ids: int) -> None:
        for field_id in field_ids:
            self.fields.pop(field_id, None)

    def copy(self, without: tuple[int, ...] = ()) -> Struct:
        """The same fields in another struct; their values are shared."""
        return Struct({key: field for key, field in self.fields.items() if key not in without})

    def encode(self) -> bytes:
        out = bytearray()
        _write_struct(out, self)
        return bytes(out)

    def _value(self, field_id: int, python_type: type, kind: int | None = None) -> object:
        field = self.fields.get(field_id)
        if field is None:
            raise FormatError(f"field {field_id} is missing")
        if type(field.value) is not python_type or (kind is not None and field.kind != kind):
            raise FormatError(f"field {field_id} is of Thrift kind {field.kind}, which it cannot be")
        return field.value


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


class Reader:
    """Reads values one after the other."""

    __slots__ = ("_data", "_end", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self._end = len(data)
        self.position = position

    def read_byte(self) -> int:
        if self.position >= self._end:
            raise CutShortError(f"a struct is cut short after {self._end} bytes")
        byte = self._data[self.position]
        self.position += 1
        return byte

    def take(self, length: int) -> bytes:
        start, self.position = self.position, self.position + length
        if self.position > self._end:
            raise CutShortError(f"a value of {length} bytes at byte {start} reaches past the end, byte {self._end}")
        return self._data[start : self.position]

    def read_varint(self) -> int:
        byte = self.read_byte()
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
        while (header := self.read_byte()) != _STOP:
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
        if count == _LONG_LIST:
            count = self.read_varint()
            if count < _LONG_LIST:
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
        while (header := self.read_byte()) != _STOP:
            field_id = self.read_field_id(header, field_id)
            self.skip(header & 0x0F, depth + 1)


def _checked(depth: int) -> int:
    if depth > MAX_DEPTH:
        raise FormatError(f"structs are nested more than {MAX_DEPTH} deep")
    return depth


def write_varint(out: bytearray, value: int) -> None:
    """Seven bits a byte, least significant first."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_integer(out: bytearray, value: int) -> None:
    """A zigzag varint."""
    write_varint(out, (value << 1) ^ (value >> 63))


def encode_binaries(values: list[bytes]) -> bytes:
    """The value of a field that is a list of binaries."""
    out = bytearray()
    _write_list_header(out, len(values), BINARY)
    for value in values:
        write_varint(out, len(value))
        out += value
    return bytes(out)


def _write_list_header(out: bytearray, count: int, kind: int) -> None:
    if count < _LONG_LIST:
        out.append(count << 4 | kind)
        return
    out.append(_LONG_LIST << 4 | kind)
    write_varint(out, count)


def _write_struct(out: bytearray, struct: Struct) -> None:
    previous = 0
    for field_id in sorted(struct.fields):
        field = struct.fields[field_id]
        delta = field_id - previous
        if delta <= 15:
            out.append(delta << 4 | field.kind)
        else:
            out.append(field.kind)
            write_integer(out, field_id)
        previous = field_id
        _write_value(out, field)
    out.append(_STOP)


def _write_value(out: bytearray, field: Field) -> None:
    value = field.value
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        write_integer(out, value)
    elif isinstance(value, Struct):
        _write_struct(out, value)
    elif isinstance(value, list):
        _write_list_header(out, len(value), STRUCT)
        for struct in value:
            _write_struct(out, struct)
    else:
        if field.kind == BINARY:
            write_varint(out, len(value))
        out += value
