"""Thrift's compact protocol, as much of it as finding and patching the modules of a Parquet file takes.

    struct   = field, field, … | 0x00
    field    = id delta (upper 4 bits, 1 to 15) and kind (lower 4) | value
               or 0 and kind | id (zigzag varint) | value
    kinds    1 true and 2 false (no value)  3 byte  4, 5, 6 i16, i32, i64 (zigzag varint)  7 double (8 bytes)  8 binary (varint, bytes)
             9 list, 10 set: count (upper 4 bits, 15: a varint follows) and kind of the elements | elements
             11 map (varint; if not 0: kinds of keys and values | pairs)  12 struct

A Shape says which nested structs, or lists of structs, are decoded. Everything else that has a structure is stepped over, checked for being
well formed, and kept as the bytes it was: statistics, key-value metadata and whatever the format adds later come out as they went in.

FormatError says that a struct lacks a field that it needs.

Reading is strict and within bounds. Each function takes the bytes and where in them a value begins, and returns what it read and where the
value ends. Most of a footer is only stepped over, to find the few parts that a reader asked for: that is what these loops are kept short
for. Refused with FormatError: a field twice in a struct that is decoded, a number longer than it needs to be, structs nested deeper than
MAX_DEPTH, more structs in a list than there are bytes for, and a length that reaches past the end, so that no count makes anything larger
than the input. CutShortError, its subclass, says that the bytes ended: with more of them the struct may be whole.

Specification: Apache Thrift, "Thrift Compact protocol encoding".
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Self, Union

from tablecrypt._bytes import read_varint, write_varint, zigzag
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

STOP: Final = 0
LONG_LIST: Final = 15
"""Instead of a count in the header of a list: the count follows."""

Shape = Mapping[int, "Shape | None"]
"""Ids of the fields to decode, each with the shape of the struct there (or of each struct of the list there)."""

DEFERRED: Final = None
"""Instead of a shape: separate the structs of the list and keep each as its bytes, to be decoded when it is needed."""

Value = Union[bool, int, bytes, "Struct", list["Struct"], list[bytes]]
FLAT: Final[Shape] = {}


class Number(int):
    """The id of a field that holds a number, and of which kind. Thrift in C++ passes over a field of another kind: it is not there."""

    kind: int

    def __new__(cls, field_id: int, kind: int) -> Self:
        """Make the id."""
        number = super().__new__(cls, field_id)
        number.kind = kind
        return number


@dataclass(slots=True)
class Field:
    """The kind of a value and the value; bytes as stored for what was not decoded."""

    kind: int
    value: Value


class Struct:
    """Fields by their ids. What a getter cannot find, or finds of another kind, is a FormatError."""

    __slots__ = ("fields",)

    def __init__(self, fields: dict[int, Field] | None = None) -> None:
        self.fields = {} if fields is None else fields

    def __contains__(self, field_id: int) -> bool:
        return field_id in self.fields

    def integer(self, field_id: Number) -> int:
        """An i16, i32 or i64: that which the field is of."""
        value = self._value(field_id, int, field_id.kind)
        assert isinstance(value, int)
        return value

    def optional_integer(self, field_id: Number) -> int | None:
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

    def stored_list(self, field_id: int) -> bytes:
        """A list that was not decoded, as bytes."""
        value = self._value(field_id, bytes, LIST)
        assert isinstance(value, bytes)
        return value

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

    def deferred_structs(self, field_id: int) -> list[bytes]:
        """A list whose structs are DEFERRED."""
        value = self._value(field_id, list)
        assert isinstance(value, list)
        return value

    def set(self, field_id: int, kind: int, value: Value) -> None:
        """Give a field a value, whether it is there or not."""
        self.fields[field_id] = Field(kind, value)

    def remove(self, *field_ids: int) -> None:
        for field_id in field_ids:
            self.fields.pop(field_id, None)

    def copy(self, without: tuple[int, ...] = ()) -> Struct:
        """The same fields in another struct; their values are shared."""
        return Struct({key: field for key, field in self.fields.items() if key not in without})

    def beyond(self, field_ids: Collection[int]) -> tuple[int, ...]:
        """The ids of the fields that are not among these."""
        return tuple(key for key in self.fields if key not in field_ids)

    def encode(self) -> bytes:
        out = bytearray()
        _write_struct(out, self)
        return bytes(out)

    def _value(self, field_id: int, python_type: type, kind: int | None = None) -> object:
        field = self.fields.get(field_id)
        if field is None:
            raise FormatError(f"field {field_id} is missing")
        # Not isinstance: a bool is an int in Python, and must not pass for a number.
        if type(field.value) is not python_type or (kind is not None and field.kind != kind):
            raise FormatError(f"field {field_id} is of Thrift kind {field.kind}, which it cannot be")
        return field.value


def write_integer(out: bytearray, value: int) -> None:
    """A zigzag varint."""
    write_varint(out, zigzag(value))


def encode_binaries(values: list[bytes]) -> bytes:
    """The value of a field that is a list of binaries."""
    out = bytearray()
    _write_list_header(out, len(values), BINARY)
    for value in values:
        write_varint(out, len(value))
        out += value
    return bytes(out)


def _write_list_header(out: bytearray, count: int, kind: int) -> None:
    if count < LONG_LIST:
        out.append(count << 4 | kind)
        return
    out.append(LONG_LIST << 4 | kind)
    write_varint(out, count)


def _write_struct(out: bytearray, struct: Struct) -> None:
    previous = 0
    # As other writers order them: FileCryptoMetaData has to come out byte by byte as it was read (footer.py).
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

    out.append(STOP)


def _write_value(out: bytearray, field: Field) -> None:
    value = field.value
    # Before int, of which bool is a subclass. The kind of the field says the value.
    if isinstance(value, bool):
        return

    if isinstance(value, int):
        write_integer(out, value)
    elif isinstance(value, Struct):
        _write_struct(out, value)
    elif isinstance(value, list):
        _write_list_header(out, len(value), STRUCT)
        for struct in value:
            if isinstance(struct, bytes):
                out += struct
            else:
                _write_struct(out, struct)
    else:
        # Bytes of any other kind were not decoded, and have their lengths in them.
        if field.kind == BINARY:
            write_varint(out, len(value))
        out += value


MAX_DEPTH: Final = 32
LEAST_STRUCT: Final = 3
"""Bytes of the shortest struct in a list of Parquet's: each has a required field, which takes two bytes, and an end. Held of lists of
more than FEW_STRUCTS, whose empty ones would take much memory."""
FEW_STRUCTS: Final = 1024

_MAX_FIELD_ID: Final = 2**15 - 1
_BITS: Final = {I16: 16, I32: 32, I64: 64}


def _headers(*kinds: int) -> bytes:
    """A set of regular expressions: the header of a field of one of these kinds whose id is at most 8 above the one before."""
    return b"[" + b"".join(rb"\x%02x" % (delta << 4 | kind) for delta in range(1, 9) for kind in kinds) + b"]"


_MANY: Final = b"*+" if sys.version_info >= (3, 11, 5) else b"*"
"""In a regular expression: all fields that follow each other. A field does not begin as what follows them does, so none is ever given
back, and the possessive form saves what that would take. Before Python 3.11.5 it loses its place (gh-106052)."""

_PAST_THE_END: Final = (IndexError, OverflowError)
"""What a place behind the last byte raises; the second of a regular expression, for one that is no index of anything."""
_LONG: Final = rb"(?:[\x00-\x7f]|[\x80-\xff]{1,8}[\x01-\x7f]|[\x80-\xff]{9}\x01)"
_INT: Final = rb"(?:[\x00-\x7f]|[\x80-\xff]{1,3}[\x01-\x7f]|[\x80-\xff]{4}[\x01-\x0f])"
_NUMBER: Final = rb"%s%s|%s%s|%s" % (_headers(I64), _LONG, _headers(I32), _INT, _headers(TRUE, FALSE))
"""A field whose value is an integer or a bool, as it may be written."""
_SHORT: Final = rb"(?:%s)" % b"|".join(rb"\x%02x.{%d}" % (length, length) for length in range(32))
"""A binary of fewer than 32 bytes."""


def _lists(kind: int, element: bytes, most: int = 4) -> bytes:
    """A regular expression: a list of at most so many elements of this kind."""
    return b"|".join(rb"\x%02x(?:%s){%d}" % (count << 4 | kind, element, count) for count in range(most + 1))


def _structs(fields: bytes) -> bytes:
    return rb"(?:%s)%s\x00" % (fields, _MANY)


_NUMBERS: Final = rb"%s|%s(?:%s|%s)" % (_NUMBER, _headers(LIST), _lists(I64, _LONG), _lists(I32, _INT))
_VALUES: Final = rb"%s|%s%s|%s%s" % (_NUMBERS, _headers(BINARY), _SHORT, _headers(STRUCT), _structs(_NUMBERS))
"""A field such as statistics have: numbers, lists of them, short binaries, and structs of numbers."""
_LISTS: Final = rb"%s(?:%s|%s)" % (_headers(LIST), _lists(STRUCT, _structs(_NUMBER)), _lists(BINARY, _SHORT, 1))
_SHALLOW: Final = re.compile(rb"(?:%s|%s%s|%s)%s" % (_VALUES, _headers(STRUCT), _structs(_VALUES), _LISTS, _MANY), re.DOTALL).match
"""Fields one after the other that hold little and are not deep. Most of a footer is such fields, and most of it is only stepped over: all
that describes a chunk of a column is one step. What is longer or deeper is left to the functions below."""
_SHALLOW_DEPTH: Final = 2
"""How many structs inside each other these fields may hold."""


class CutShortError(FormatError):
    """The bytes end inside the struct."""


class Located(NamedTuple):
    """The value of a field: its kind, and from where to where it is stored."""

    kind: int
    start: int
    end: int


def decode(data: bytes, shape: Shape) -> Struct:
    """Read a struct that `data` holds and nothing else. FormatError otherwise."""
    struct, end = decode_at(data, shape)
    if end != len(data):
        raise FormatError(f"a struct of {end} bytes is followed by {len(data) - end} bytes that do not belong to it")
    return struct


def structs_of(struct: Struct, field_id: int) -> list[Struct]:
    """Return a list of structs that a reader steps over; none where it is not there."""
    if field_id not in struct:
        return []
    return decode(Struct({field_id: struct.fields[field_id]}).encode(), {field_id: FLAT}).structs(field_id)


def decode_padded(data: bytes | bytearray, shape: Shape) -> Struct:
    """Read a struct that was encrypted. Bytes may follow it: parquet-java encrypts its whole buffer, which may be longer."""
    return decode_at(bytes(data), shape)[0]


def unpadded(data: bytes | bytearray) -> bytes:
    """The bytes of the struct alone, of an encrypted one that bytes may follow."""
    encoded = bytes(data)
    try:
        return encoded[: _end_of_struct(encoded, 0, 0)]
    except _PAST_THE_END:
        raise _cut_short(encoded) from None


def decode_at(data: bytes, shape: Shape) -> tuple[Struct, int]:
    """Read the struct with which bytes begin; returns it and where it ends."""
    try:
        return _read_struct(data, 0, shape, 0)
    except _PAST_THE_END:
        raise _cut_short(data) from None


def decode_binaries(data: bytes) -> list[bytes]:
    """Read a list of binaries, such as a column's path."""
    try:
        values, end = _read_binaries(data)
    except _PAST_THE_END:
        raise _cut_short(data) from None

    if end > len(data):
        raise _cut_short(data)

    return values


def decode_integer(data: bytes, value: Located) -> int:
    """Read the i16, i32 or i64 that was located."""
    return _read_integer(data, value.start, value.kind)[0]


def locate_fields(data: bytes) -> tuple[dict[int, Located], int]:
    """Find the value of each field of the struct that `data` begins with, by field id, and where the struct ends."""
    try:
        return _locate_fields(data)
    except _PAST_THE_END:
        raise _cut_short(data) from None


def stored_values(data: bytes, path: tuple[int, ...]) -> list[bytes]:
    """Return a field of each struct in lists of structs, as it is stored; b"" of a struct without it.

    Args:
        data: a struct.
        path: ids of fields: of a list of structs, of a list of structs in each of these, and so on; the last is that of the field.
    """
    values: list[bytes] = []
    try:
        _collect_values(data, 0, path, values, 0)
    except _PAST_THE_END:
        raise _cut_short(data) from None
    return values


def _collect_values(data: bytes, at: int, path: tuple[int, ...], values: list[bytes], depth: int) -> int:
    """Append the values in the struct that begins there; return where it ends."""
    _check_depth(depth)
    field_id, value, seen = 0, b"", False
    while (header := data[at]) != STOP:
        field_id, start = _read_field_id(data, at, field_id)
        if field_id != path[0]:
            at = _end_of_value(data, start, header & 0x0F, depth)
            continue
        # Arrow's Thrift takes the last of two, which need not be the one that was checked here.
        if seen:
            raise FormatError(f"field {field_id} is there twice")

        seen = True

        if len(path) == 1:
            at = _end_of_value(data, start, header & 0x0F, depth)
            value = data[start:at]
        else:
            at = _collect_of_list(data, start, header & 0x0F, path[1:], values, depth + 1)

    if len(path) == 1:
        values.append(value)
    return at + 1


def _collect_of_list(data: bytes, at: int, kind: int, path: tuple[int, ...], values: list[bytes], depth: int) -> int:
    if kind != LIST:
        raise FormatError(f"Thrift kind {kind} is there, where a list of structs should be")

    count, element, at = _read_list_header(data, at)
    if element != STRUCT:
        raise FormatError(f"a list holds Thrift kind {element} where it should hold structs")

    for _ in range(count):
        at = _collect_values(data, at, path, values, depth)
    return at


def _cut_short(data: bytes) -> CutShortError:
    """The end is not checked byte by byte: a struct is whole when its last byte is there. What is missing raises one of _PAST_THE_END."""
    return CutShortError(f"it is cut short: it reaches past the end, byte {len(data)}")


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _too_deep()


def _too_deep() -> FormatError:
    return FormatError(f"structs are nested more than {MAX_DEPTH} deep")


def _read_integer(data: bytes, at: int, kind: int) -> tuple[int, int]:
    zigzag, at = read_varint(data, at)
    value = (zigzag >> 1) ^ -(zigzag & 1)
    # Thrift in C++ cuts such a number to its width, and would read another one.
    if zigzag >> _BITS[kind]:
        raise FormatError(f"{value} does not fit Thrift kind {kind}")
    return value, at


def _read_field_id(data: bytes, at: int, previous: int) -> tuple[int, int]:
    """The id of the field whose header is there, and where its value begins."""
    delta = data[at] >> 4
    field_id, at = (previous + delta, at + 1) if delta else _read_integer(data, at + 1, I16)
    # Thrift in C++ keeps ids in 16 bits, where a larger one would become another field's.
    if not 0 < field_id <= _MAX_FIELD_ID:
        raise FormatError(f"{field_id} is not a field id")
    return field_id, at


def _read_list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """How many elements there are, their kind, and where the first begins."""
    header = data[at]
    count, kind, at = header >> 4, header & 0x0F, at + 1
    if count == LONG_LIST:
        count, at = read_varint(data, at)
        if count < LONG_LIST:
            raise FormatError("the length of a list is written longer than it needs to be")

    # No element takes less than a byte.
    if count > len(data) - at:
        raise CutShortError(f"a list of {count} elements is followed by {len(data) - at} bytes")

    return count, kind, at


def _locate_fields(data: bytes) -> tuple[dict[int, Located], int]:
    found: dict[int, Located] = {}
    field_id, at = 0, 0
    while (header := data[at]) != STOP:
        field_id, start = _read_field_id(data, at, field_id)
        if field_id in found:
            raise FormatError(f"field {field_id} is there twice")
        kind = header & 0x0F
        at = _end_of_value(data, start, kind, 0)
        found[field_id] = Located(kind, start, at)

    return found, at + 1


def _read_binaries(data: bytes) -> tuple[list[bytes], int]:
    count, kind, at = _read_list_header(data, 0)
    if kind != BINARY:
        raise FormatError(f"a list holds Thrift kind {kind} where it should hold binaries")

    values = []
    for _ in range(count):
        length, start = read_varint(data, at)
        at = start + length
        values.append(data[start:at])

    return values, at


def _read_struct(data: bytes, at: int, shape: Shape, depth: int) -> tuple[Struct, int]:
    _check_depth(depth)
    fields: dict[int, Field] = {}
    field_id = 0

    while (header := data[at]) != STOP:
        field_id, at = _read_field_id(data, at, field_id)
        # Readers differ in which of two they take, and Arrow has to see what is checked here.
        if field_id in fields:
            raise FormatError(f"field {field_id} is there twice")

        kind = header & 0x0F
        if field_id in shape and kind in (STRUCT, LIST):
            value, at = _open(data, at, kind, shape[field_id], depth + 1)
        else:
            value, at = _read_value(data, at, kind, depth)

        fields[field_id] = Field(kind, value)

    return Struct(fields), at + 1


def _open(data: bytes, at: int, kind: int, shape: Shape | None, depth: int) -> tuple[Value, int]:
    """Read a struct or a list of structs as its shape says; a list of anything else as its bytes."""
    if kind == STRUCT:
        return _read_struct(data, at, shape or {}, depth)

    count, element, first = _read_list_header(data, at)
    if element != STRUCT:
        return _read_value(data, at, kind, depth)
    if count > FEW_STRUCTS and count * LEAST_STRUCT > len(data) - first:
        raise CutShortError(f"a list of {count} structs is followed by {len(data) - first} bytes")

    return _list_structs(data, first, count, depth) if shape is None else _read_structs(data, first, count, shape, depth)


def _read_structs(data: bytes, at: int, count: int, shape: Shape, depth: int) -> tuple[list[Struct], int]:
    structs = []
    for _ in range(count):
        struct, at = _read_struct(data, at, shape, depth)
        structs.append(struct)
    return structs, at


def _list_structs(data: bytes, at: int, count: int, depth: int) -> tuple[list[bytes], int]:
    structs = []
    for _ in range(count):
        start, at = at, _end_of_struct(data, at, depth)
        structs.append(data[start:at])
    return structs, at


def _read_value(data: bytes, at: int, kind: int, depth: int) -> tuple[Value, int]:
    if kind in _BITS:
        return _read_integer(data, at, kind)
    if kind == BINARY:
        length, at = read_varint(data, at)
        return data[at : at + length], at + length
    if kind in (TRUE, FALSE):
        return kind == TRUE, at

    end = _end_of_value(data, at, kind, depth)

    return data[at:end], end


def _end_of_struct(data: bytes, at: int, depth: int) -> int:
    # The structs inside fields that are one step are not counted.
    if depth + _SHALLOW_DEPTH > MAX_DEPTH:
        raise _too_deep()

    while True:
        at = _SHALLOW(data, at).end()  # type: ignore[union-attr]  # no field at all is a match too
        header = data[at]
        if header == STOP:
            return at + 1
        start = at + 1 if header >> 4 else _read_integer(data, at + 1, I16)[1]
        at = _end_of_value(data, start, header & 0x0F, depth)


def _end_of_value(data: bytes, at: int, kind: int, depth: int) -> int:
    """Where the value of a field of a struct ends that is nested so deep."""
    if kind == BINARY:
        length, start = read_varint(data, at)
        return start + length
    if kind == STRUCT:
        return _end_of_struct(data, at, depth + 1)
    if kind in (LIST, SET):
        return _end_of_list(data, at, depth + 1)
    if kind in _BITS:
        return at + 1 if data[at] < 0x80 else _read_integer(data, at, kind)[1]
    if kind in (TRUE, FALSE):
        return at
    if kind == MAP:
        return _end_of_map(data, at, depth + 1)
    if kind == DOUBLE:
        return at + 8
    if kind == BYTE:
        return at + 1

    raise FormatError(f"{kind} is not a Thrift type")


def _end_of_element(data: bytes, at: int, kind: int, depth: int) -> int:
    # In a list a bool takes a byte; in a struct the header of its field says it.
    return at + 1 if kind in (TRUE, FALSE) else _end_of_value(data, at, kind, depth)


def _end_of_list(data: bytes, at: int, depth: int) -> int:
    # A list in a list costs a byte or two: without this bound a short footer would exhaust the stack.
    if depth > MAX_DEPTH:
        raise _too_deep()

    count, kind, at = _read_list_header(data, at)
    if kind == STRUCT:
        for _ in range(count):
            at = _end_of_struct(data, at, depth + 1)
        return at

    for _ in range(count):
        at = _end_of_element(data, at, kind, depth)
    return at


def _end_of_map(data: bytes, at: int, depth: int) -> int:
    _check_depth(depth)
    count, at = read_varint(data, at)
    # An empty map has no byte for its kinds.
    if count == 0:
        return at

    kinds = data[at]
    at += 1
    if count > len(data) - at:
        raise CutShortError(f"a map of {count} pairs is followed by {len(data) - at} bytes")

    for _ in range(count):
        at = _end_of_element(data, at, kinds >> 4, depth)
        at = _end_of_element(data, at, kinds & 0x0F, depth)
    return at
