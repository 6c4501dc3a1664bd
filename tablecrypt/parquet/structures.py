"""The fields of Parquet's Thrift structures that say where modules lie and how they are encrypted.

    FileMetaData ── row_groups ── RowGroup ── columns ── ColumnChunk ─┬─ meta_data ── ColumnMetaData
         │                                                            ├─ crypto_metadata ── ColumnCryptoMetaData
         │                                                            └─ encrypted_column_metadata (a sealed ColumnMetaData)
         └─ encryption_algorithm ── EncryptionAlgorithm (only beside a plaintext footer; else in FileCryptoMetaData)

Each class holds the field ids of one structure; the shapes say what a parser opens. All other fields pass through as bytes.

Specification: Apache Parquet, parquet.thrift.
"""

from __future__ import annotations

from typing import Final

from tablecrypt.parquet.thrift import APART, Shape


class FileMetaData:
    """The footer."""

    SCHEMA: Final = 2
    NUM_ROWS: Final = 3
    ROW_GROUPS: Final = 4
    ENCRYPTION_ALGORITHM: Final = 8
    FOOTER_SIGNING_KEY_METADATA: Final = 9


class SchemaElement:
    """A node of the schema, which is a tree written depth first."""

    NAME: Final = 4
    NUM_CHILDREN: Final = 5


class RowGroup:
    """Column chunks of the same rows. Offsets and sizes are bytes."""

    COLUMNS: Final = 1
    TOTAL_BYTE_SIZE: Final = 2
    NUM_ROWS: Final = 3
    FILE_OFFSET: Final = 5
    TOTAL_COMPRESSED_SIZE: Final = 6
    ORDINAL: Final = 7


class ColumnChunk:
    """Where one column's data of a row group is, and how it is encrypted."""

    FILE_PATH: Final = 1
    FILE_OFFSET: Final = 2
    META_DATA: Final = 3
    OFFSET_INDEX_OFFSET: Final = 4
    OFFSET_INDEX_LENGTH: Final = 5
    COLUMN_INDEX_OFFSET: Final = 6
    COLUMN_INDEX_LENGTH: Final = 7
    CRYPTO_METADATA: Final = 8
    ENCRYPTED_COLUMN_METADATA: Final = 9


class ColumnMetaData:
    """Sizes, offsets and statistics of a column chunk."""

    TYPE: Final = 1
    ENCODINGS: Final = 2
    PATH_IN_SCHEMA: Final = 3
    CODEC: Final = 4
    NUM_VALUES: Final = 5
    TOTAL_UNCOMPRESSED_SIZE: Final = 6
    TOTAL_COMPRESSED_SIZE: Final = 7
    KEY_VALUE_METADATA: Final = 8
    DATA_PAGE_OFFSET: Final = 9
    INDEX_PAGE_OFFSET: Final = 10
    DICTIONARY_PAGE_OFFSET: Final = 11
    STATISTICS: Final = 12
    ENCODING_STATS: Final = 13
    BLOOM_FILTER_OFFSET: Final = 14
    BLOOM_FILTER_LENGTH: Final = 15
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

    TYPE: Final = 1
    COMPRESSED_PAGE_SIZE: Final = 3
    CRC: Final = 4


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

    OFFSET: Final = 1
    COMPRESSED_PAGE_SIZE: Final = 2


class BloomFilterHeader:
    """What stands before the bitset of a bloom filter."""

    NUM_BYTES: Final = 1


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


FLAT: Final[Shape] = {}
ALGORITHM_SHAPE: Final[Shape] = {EncryptionAlgorithm.AES_GCM_V1: FLAT, EncryptionAlgorithm.AES_GCM_CTR_V1: FLAT}
FILE_CRYPTO_META_DATA_SHAPE: Final[Shape] = {FileCryptoMetaData.ENCRYPTION_ALGORITHM: ALGORITHM_SHAPE}
COLUMN_CHUNK_SHAPE: Final[Shape] = {
    ColumnChunk.META_DATA: FLAT,
    ColumnChunk.CRYPTO_METADATA: {ColumnCryptoMetaData.WITH_FOOTER_KEY: FLAT, ColumnCryptoMetaData.WITH_COLUMN_KEY: FLAT},
}
FILE_META_DATA_SHAPE: Final[Shape] = {
    FileMetaData.SCHEMA: FLAT,
    FileMetaData.ROW_GROUPS: {RowGroup.COLUMNS: APART},
    FileMetaData.ENCRYPTION_ALGORITHM: ALGORITHM_SHAPE,
}
FOOTER_CRYPTO_SHAPE: Final[Shape] = {FileMetaData.ENCRYPTION_ALGORITHM: ALGORITHM_SHAPE}
"""Of a footer that is not authenticated yet: only what authenticating it takes."""
OFFSET_INDEX_SHAPE: Final[Shape] = {OffsetIndex.PAGE_LOCATIONS: FLAT}
