"""The part of Protocol Buffers' wire format that ORC's footers need: reading strictly, writing canonically.

    message = field ...
    field   = varint(number << 3 | wire type) | value
    value   = varint (wire type 0) | 8 bytes (1) | varint length, bytes (2) | 4 bytes (5)
    varint  = 7 bits a byte, the lowest first, the top bit set on all but the last; at most 64 bits

Fields keep their order, and fields of unknown numbers are kept as they are, so that what this library does not interpret (statistics,
encodings, type attributes) passes through untouched. Written fields are sorted by number, those of one number in the order given.
A parsed field takes some 50 times its two smallest bytes, so that a message of more than MAX_FIELDS is refused.

Raises FormatError. Specification: Protocol Buffers, "Encoding".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tablecrypt._bytes import ByteReader, varint, write_varint
from tablecrypt.errors import FormatError

Field = tuple[int, int, int | bytes]
"""Field number, wire type and value."""

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5

MAX_FIELDS: Final = 2**20

_FIXED_LENGTHS: Final = {FIXED64: 8, FIXED32: 4}


class Message:
    """The fields of one message. `what` names it in errors."""

    __slots__ = ("_what", "fields")

    def __init__(self, fields: list[Field], what: str) -> None:
        self.fields = fields
        self._what = what

    @classmethod
    def parse(cls, data: bytes, what: str) -> Message:
        return cls(_parse_fields(data, what), what)

    def integer(self, number: int, default: int = 0) -> int:
        value = self.optional_integer(number)
        return default if value is None else value

    def optional_integer(self, number: int) -> int | None:
        """Return the field's value, the last one if it is there more than once."""
        found = None
        for field in self.fields:
            if field[0] == number:
                found = self._as_integer(field)
        return found

    def integers(self, number: int) -> list[int]:
        """Return a repeated number, packed or not."""
        values: list[int] = []
        for field in self.fields:
            if field[0] != number:
                continue
            if isinstance(field[2], bytes) and field[1] == BYTES:
                values += _parse_varints(field[2], self._what)
            else:
                values.append(self._as_integer(field))

        return values

    def optional_blob(self, number: int) -> bytes | None:
        blobs = self.blobs(number)
        return blobs[-1] if blobs else None

    def blob(self, number: int) -> bytes:
        return self.optional_blob(number) or b""

    def blobs(self, number: int) -> list[bytes]:
        """Return a repeated field of bytes, text or messages."""
        values: list[bytes] = []
        for field in self.fields:
            if field[0] == number:
                if not isinstance(field[2], bytes) or field[1] != BYTES:
                    raise FormatError(f"{self._what}: field {number} has wire type {field[1]}, not {BYTES}")
                values.append(field[2])

        return values

    def texts(self, number: int) -> list[str]:
        try:
            return [blob.decode("utf-8") for blob in self.blobs(number)]
        except UnicodeDecodeError as error:
            raise FormatError(f"{self._what}: field {number} is not UTF-8") from error

    def messages(self, number: int) -> list[Message]:
        return [Message.parse(blob, f"{self._what}, field {number}") for blob in self.blobs(number)]

    def without(self, *numbers: int) -> list[Field]:
        return [field for field in self.fields if field[0] not in numbers]

    def _as_integer(self, field: Field) -> int:
        if not isinstance(field[2], int) or field[1] != VARINT:
            raise FormatError(f"{self._what}: field {field[0]} has wire type {field[1]}, not {VARINT}")
        return field[2]


def integer_field(number: int, value: int) -> Field:
    """A number, or an enumeration's value."""
    return (number, VARINT, value)


def blob_field(number: int, value: bytes) -> Field:
    """Bytes, UTF-8 text, or an encoded message."""
    return (number, BYTES, value)


def packed_field(number: int, values: Iterable[int]) -> Field:
    """A repeated number in its packed form."""
    return (number, BYTES, b"".join(map(varint, values)))


def encode(fields: Iterable[Field]) -> bytes:
    """Encode a message."""
    encoded = bytearray()
    for number, wire, value in sorted(fields, key=lambda field: field[0]):
        write_varint(encoded, number << 3 | wire)
        if isinstance(value, int):
            write_varint(encoded, value)
            continue

        if wire == BYTES:
            write_varint(encoded, len(value))
        encoded += value

    return bytes(encoded)


def _parse_fields(data: bytes, what: str) -> list[Field]:
    reader = ByteReader(data, what)
    fields: list[Field] = []
    while reader.left:
        tag = reader.varint()
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise FormatError(f"{what}: a field of number 0")
        if len(fields) == MAX_FIELDS:
            raise FormatError(f"{what} has more than {MAX_FIELDS} fields")

        if wire == VARINT:
            fields.append((number, wire, reader.varint()))
        elif wire == BYTES:
            fields.append((number, wire, reader.take(reader.varint())))
        elif wire in _FIXED_LENGTHS:
            fields.append((number, wire, reader.take(_FIXED_LENGTHS[wire])))
        else:
            # Wire types 3 and 4 open groups, which state no length. Passed through unread they could hold anything.
            raise FormatError(f"{what}: field {number} has wire type {wire}, which ORC does not use")

    return fields


def _parse_varints(data: bytes, what: str) -> list[int]:
    reader = ByteReader(data, what)
    values: list[int] = []
    while reader.left:
        values.append(reader.varint())
    return values
