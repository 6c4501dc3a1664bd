"""Thrift's compact protocol, as much of it as finding and patching the modules of a Parquet file takes.

    struct   = field, field, … | 0x00
    field    = id delta (upper 4 bits, 1 to 15) and kind (lower 4) | value
               or 0 and kind | id (zigzag varint) | value
    kinds    1 true and 2 false (no value)  3 byte  4, 5, 6 i16, i32, i64 (zigzag varint)  7 double (8 bytes)  8 binary (varint, bytes)
             9 list, 10 set: count (upper 4 bits, 15: a varint follows) and kind of the elements | elements
             11 map (varint; if not 0: kinds of keys and values | pairs)  12 struct

A Shape says which nested structs, or lists of structs, are decoded. Everything else that has a structure is stepped over, checked for being
well formed, and kept as the bytes it was: statistics, key-value metadata and whatever the format adds later come out as they went in.

Structs are held and written here, and read by tablecrypt.parquet.thrift_reader. FormatError says that a struct lacks a field that it needs.

The fields of Parquet's structures that say where modules lie and how they are encrypted:

    FileMetaData ── row_groups ── RowGroup ── columns ── ColumnChunk ─┬─ meta_data ── ColumnMetaData
         │                                                            ├─ crypto_metadata ── ColumnCryptoMetaData
         │                                                            └─ encrypted_column_metadata (an encrypted ColumnMetaData)
         └─ encryption_algorithm ── EncryptionAlgorithm (only beside a plaintext footer; else in FileCryptoMetaData)

Each class holds the field ids of one structure; the shapes say what a parser decodes. All other fields pass through as bytes.

Specification: Apache Thrift, "Thrift Compact protocol encoding"; Apache Parquet, parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self, Union

from tablecrypt._bytes import write_varint, zigzag
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


class FileMetaData:
    """The footer."""

    VERSION: Final = Number(1, I32)
    SCHEMA: Final = 2
    NUM_ROWS: Final = Number(3, I64)
    ROW_GROUPS: Final = 4
    KEY_VALUE_METADATA: Final = 5
    COLUMN_ORDERS: Final = 7
    ENCRYPTION_ALGORITHM: Final = 8
    FOOTER_SIGNING_KEY_METADATA: Final = 9


class SchemaElement:
    """A node of the schema, which is a tree written depth first."""

    TYPE: Final = Number(1, I32)
    TYPE_LENGTH: Final = Number(2, I32)
    REPETITION_TYPE: Final = Number(3, I32)
    NAME: Final = 4
    NUM_CHILDREN: Final = Number(5, I32)
    CONVERTED_TYPE: Final = Number(6, I32)
    SCALE: Final = Number(7, I32)
    PRECISION: Final = Number(8, I32)
    FIELD_ID: Final = Number(9, I32)
    LOGICAL_TYPE: Final = 10


class PhysicalType:
    """Values of SchemaElement.TYPE and ColumnMetaData.TYPE."""

    FLOAT: Final = 4
    DOUBLE: Final = 5
    FIXED_LENGTH: Final = 7


class Repetition:
    """Values of SchemaElement.REPETITION_TYPE."""

    REQUIRED: Final = 0
    OPTIONAL: Final = 1
    REPEATED: Final = 2


class LogicalType:
    """What the values of a column mean: one of these, each a struct."""

    STRING: Final = 1
    DECIMAL: Final = 5
    DATE: Final = 6
    TIME: Final = 7
    TIMESTAMP: Final = 8
    INTEGER: Final = 10
    UNKNOWN: Final = 11
    UUID: Final = 14


class DecimalType:
    """The details of LogicalType.DECIMAL."""

    SCALE: Final = Number(1, I32)
    PRECISION: Final = Number(2, I32)


class TimeType:
    """The details of LogicalType.TIME and LogicalType.TIMESTAMP."""

    IS_ADJUSTED_TO_UTC: Final = 1
    UNIT: Final = 2


class IntegerType:
    """The details of LogicalType.INTEGER."""

    BIT_WIDTH: Final = 1
    IS_SIGNED: Final = 2


class KeyValue:
    """An entry of FileMetaData.KEY_VALUE_METADATA."""

    KEY: Final = 1
    VALUE: Final = 2


class RowGroup:
    """Column chunks of the same rows. Offsets and sizes are bytes."""

    COLUMNS: Final = 1
    TOTAL_BYTE_SIZE: Final = Number(2, I64)
    NUM_ROWS: Final = Number(3, I64)
    SORTING_COLUMNS: Final = 4
    FILE_OFFSET: Final = Number(5, I64)
    TOTAL_COMPRESSED_SIZE: Final = Number(6, I64)
    ORDINAL: Final = Number(7, I16)


class ColumnChunk:
    """Where one column's data of a row group is, and how it is encrypted."""

    FILE_PATH: Final = 1
    FILE_OFFSET: Final = Number(2, I64)
    META_DATA: Final = 3
    OFFSET_INDEX_OFFSET: Final = Number(4, I64)
    OFFSET_INDEX_LENGTH: Final = Number(5, I32)
    COLUMN_INDEX_OFFSET: Final = Number(6, I64)
    COLUMN_INDEX_LENGTH: Final = Number(7, I32)
    CRYPTO_METADATA: Final = 8
    ENCRYPTED_COLUMN_METADATA: Final = 9


class ColumnMetaData:
    """Sizes, offsets and statistics of a column chunk."""

    TYPE: Final = Number(1, I32)
    ENCODINGS: Final = 2
    PATH_IN_SCHEMA: Final = 3
    CODEC: Final = Number(4, I32)
    NUM_VALUES: Final = Number(5, I64)
    TOTAL_UNCOMPRESSED_SIZE: Final = Number(6, I64)
    TOTAL_COMPRESSED_SIZE: Final = Number(7, I64)
    KEY_VALUE_METADATA: Final = 8
    DATA_PAGE_OFFSET: Final = Number(9, I64)
    INDEX_PAGE_OFFSET: Final = Number(10, I64)
    DICTIONARY_PAGE_OFFSET: Final = Number(11, I64)
    STATISTICS: Final = 12
    ENCODING_STATS: Final = 13
    BLOOM_FILTER_OFFSET: Final = Number(14, I64)
    BLOOM_FILTER_LENGTH: Final = Number(15, I32)
    SIZE_STATISTICS: Final = 16
    GEOSPATIAL_STATISTICS: Final = 17


class ColumnCryptoMetaData:
    """A union: under which key the column is encrypted."""

    WITH_FOOTER_KEY: Final = 1
    WITH_COLUMN_KEY: Final = 2


class EncryptionWithColumnKey:
    """The column's path, and what a key retriever needs."""

    PATH_IN_SCHEMA: Final = 1
    KEY_METADATA: Final = 2


class PageHeader:
    """What stands before each page. The sizes leave the header out; the compressed one includes the page's encryption."""

    TYPE: Final = Number(1, I32)
    COMPRESSED_PAGE_SIZE: Final = Number(3, I32)
    CRC: Final = Number(4, I32)
    DATA_PAGE_HEADER: Final = 5
    DATA_PAGE_HEADER_V2: Final = 8


class DataPageHeader:
    """Of a data page of version 1."""

    ENCODING: Final = Number(2, I32)
    STATISTICS: Final = 5


class DataPageHeaderV2:
    """Of a data page of version 2."""

    STATISTICS: Final = 8


class Encoding:
    """How the values of a page are encoded."""

    PLAIN: Final = 0
    RLE_DICTIONARY: Final = 8


class PageType:
    """Values of PageHeader.TYPE."""

    DATA: Final = 0
    INDEX: Final = 1
    DICTIONARY: Final = 2
    DATA_V2: Final = 3


class OffsetIndex:
    """Where each data page of a chunk is."""

    PAGE_LOCATIONS: Final = 1


class PageLocation:
    """One data page; the size includes its header."""

    OFFSET: Final = Number(1, I64)
    COMPRESSED_PAGE_SIZE: Final = Number(2, I32)


class BloomFilterHeader:
    """What stands before the bitset of a bloom filter."""

    NUM_BYTES: Final = Number(1, I32)


class EncryptionAlgorithm:
    """A union of two structs with the same fields."""

    AES_GCM_V1: Final = 1
    AES_GCM_CTR_V1: Final = 2


class AesGcmV1:
    """The fields of AesGcmV1 and AesGcmCtrV1."""

    AAD_PREFIX: Final = 1
    AAD_FILE_UNIQUE: Final = 2
    SUPPLY_AAD_PREFIX: Final = 3


class FileCryptoMetaData:
    """Stands in the clear before an encrypted footer."""

    ENCRYPTION_ALGORITHM: Final = 1
    KEY_METADATA: Final = 2
    OF_THE_EARLY_DRAFT: Final = (3, 4)
    """The offset of the footer, in the two forms of 2018; the specification has no such fields."""


ALGORITHM_SHAPE: Final[Shape] = {EncryptionAlgorithm.AES_GCM_V1: FLAT, EncryptionAlgorithm.AES_GCM_CTR_V1: FLAT}
FILE_CRYPTO_META_DATA_SHAPE: Final[Shape] = {FileCryptoMetaData.ENCRYPTION_ALGORITHM: ALGORITHM_SHAPE}
COLUMN_CHUNK_SHAPE: Final[Shape] = {
    ColumnChunk.META_DATA: FLAT,
    ColumnChunk.CRYPTO_METADATA: {ColumnCryptoMetaData.WITH_FOOTER_KEY: FLAT, ColumnCryptoMetaData.WITH_COLUMN_KEY: FLAT},
}
FILE_META_DATA_SHAPE: Final[Shape] = {
    FileMetaData.SCHEMA: FLAT,
    FileMetaData.ROW_GROUPS: {RowGroup.COLUMNS: DEFERRED},
    FileMetaData.ENCRYPTION_ALGORITHM: ALGORITHM_SHAPE,
}
FOOTER_CRYPTO_SHAPE: Final[Shape] = {FileMetaData.ENCRYPTION_ALGORITHM: ALGORITHM_SHAPE}
"""Of a footer that is not authenticated yet: only what authenticating it takes."""
LOGICAL_TYPE_SHAPE: Final[Shape] = {
    **dict.fromkeys(range(1, 32), FLAT),
    LogicalType.TIME: {TimeType.UNIT: dict.fromkeys(range(1, 4), FLAT)},
    LogicalType.TIMESTAMP: {TimeType.UNIT: dict.fromkeys(range(1, 4), FLAT)},
}
OFFSET_INDEX_SHAPE: Final[Shape] = {OffsetIndex.PAGE_LOCATIONS: FLAT}
