"""The fields of Parquet's structures that say where modules lie and how they are encrypted.

    FileMetaData ── row_groups ── RowGroup ── columns ── ColumnChunk ─┬─ meta_data ── ColumnMetaData
         │                                                            ├─ crypto_metadata ── ColumnCryptoMetaData
         │                                                            └─ encrypted_column_metadata (an encrypted ColumnMetaData)
         └─ encryption_algorithm ── EncryptionAlgorithm (only beside a plaintext footer; else in FileCryptoMetaData)

Each class holds the field ids of one structure; the shapes say what thrift.py decodes. All other fields pass through as bytes, but where
a file gets protected columns: then only fields that the specification has (`SPECIFIED`) go into the new footer, its schema apart.

Specification: Apache Parquet, parquet.thrift.
"""

from __future__ import annotations

from typing import Final

from tablecrypt.parquet.thrift import DEFERRED, FLAT, I16, I32, I64, Number, Shape


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
    SPECIFIED: Final = frozenset(range(1, 10))


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

    INT96: Final = 3
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


ARROW_SCHEMA: Final = b"ARROW:schema"
"""The key under which Arrow's writer notes the types of its columns: a schema in Arrow's IPC format, in Base64."""


class RowGroup:
    """Column chunks of the same rows. Offsets and sizes are bytes."""

    COLUMNS: Final = 1
    TOTAL_BYTE_SIZE: Final = Number(2, I64)
    NUM_ROWS: Final = Number(3, I64)
    SORTING_COLUMNS: Final = 4
    FILE_OFFSET: Final = Number(5, I64)
    TOTAL_COMPRESSED_SIZE: Final = Number(6, I64)
    ORDINAL: Final = Number(7, I16)
    SPECIFIED: Final = frozenset(range(1, 8))


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
    SPECIFIED: Final = frozenset(range(1, 18))


ENCRYPTION_IN_FOOTER: Final = (FileMetaData.ENCRYPTION_ALGORITHM, FileMetaData.FOOTER_SIGNING_KEY_METADATA)
INDEXES_AND_ENCRYPTION: Final = (
    ColumnChunk.OFFSET_INDEX_OFFSET,
    ColumnChunk.OFFSET_INDEX_LENGTH,
    ColumnChunk.COLUMN_INDEX_OFFSET,
    ColumnChunk.COLUMN_INDEX_LENGTH,
    ColumnChunk.CRYPTO_METADATA,
    ColumnChunk.ENCRYPTED_COLUMN_METADATA,
)
"""Fields of a ColumnChunk that are about the file in which it is."""
BLOOM_FILTER: Final = (ColumnMetaData.BLOOM_FILTER_OFFSET, ColumnMetaData.BLOOM_FILTER_LENGTH)


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
