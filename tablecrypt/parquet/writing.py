"""Writing encrypted Parquet files: Arrow tables in every mode, and files that exist, again under keys or in the clear.

    rows → pyarrow makes a plaintext file of one row group, in memory → its modules are encrypted and go to the sink

No plaintext reaches storage, and no more of it is in memory than one row group. pyarrow's options mean what they mean there; bloom filters,
which pyarrow does not write into encrypted files, are encrypted like everything else.

A file that exists is written again module by module; no value of it is decompressed or decoded:

    encrypt     plaintext → encrypted
    decrypt     encrypted → plaintext; of a file that `encrypt` made from one of pyarrow's, the same bytes as before
    reencrypt   encrypted → encrypted under other keys, another algorithm or AAD prefix

    source                        new file
    magic                         magic
    pages of each chunk     →     pages of each chunk, in the order of row groups and columns
    bloom filters           →     bloom filters
    column indexes          →     column indexes, as they are
    offset indexes          →     offset indexes, with the new offsets and sizes of pages
    footer                  →     footer, with the new offsets and sizes

The row groups of several sources follow one another, each with its bloom filters and indexes behind it.

A module is decrypted (and so authenticated, in AES_GCM_CTR_V1 but for the bodies of pages), then encrypted and written. In memory are one
piece of a chunk (see tablecrypt.parquet.chunk_modules), one page, one index or bloom filter, and the footer.

The uncompressed sizes in the footer count the headers as they are stored, as other writers do, so they change by what the headers change.

Which cipher encrypts each column, and what the footer says about it:

                                  encrypted footer                      plaintext footer
    column under the footer key   meta_data, crypto: footer key         stripped meta_data, crypto: footer key, encrypted metadata
    column with its own key       crypto: column key, encrypted metadata   stripped meta_data, crypto: column key, encrypted metadata
    column in the clear           meta_data                             meta_data

"Stripped" is without statistics, size statistics, encoding statistics, key-value metadata and bloom filter: only what an older reader
needs to step over the column. Other readers expect the encrypted metadata beside a plaintext footer under either key.

A sink that is a path is written only when all went well; in a file object an error leaves a part that no reader takes for a Parquet file.

Raises ConfigurationError for options that encryption excludes or pyarrow refuses, or that name a column the file does not have, for keys
that cannot be used, for rows that pyarrow cannot write, and for what encryption has no space for.
For a file that is read: TamperedFileError, KeyMismatchError where a key decrypts nothing of it, PlaintextRefusedError, FormatError and
KeyNotFoundError.

Specification: Apache Parquet, "Parquet Modular Encryption", sections 5.2 to 5.5.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tablecrypt._arrow_types import refusals_of_writers
from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.parquet import thrift
from tablecrypt.parquet.chunk_modules import Page, read_bloom_filter, read_index, read_pages
from tablecrypt.parquet.columns_apart import ENTRY
from tablecrypt.parquet.file_keys import FOOTER_KEY_NAME, EncryptingKey, FileKeys, required_keys
from tablecrypt.parquet.footer import ENCRYPTED_MAGIC, PLAIN_MAGIC, Algorithm, described, write_footer
from tablecrypt.parquet.layout import Chunk, FileLayout, Span, encrypted_layout, may_hold_columns_apart, plain_layout
from tablecrypt.parquet.modules import ModuleCipher, ModuleOrdinals, ModuleType
from tablecrypt.parquet.storage import Sink, open_sink, open_source
from tablecrypt.parquet.structs import (
    BLOOM_FILTER,
    ENCRYPTION_IN_FOOTER,
    OFFSET_INDEX_SHAPE,
    ColumnChunk,
    ColumnCryptoMetaData,
    ColumnMetaData,
    EncryptionWithColumnKey,
    FileMetaData,
    OffsetIndex,
    PageLocation,
    RowGroup,
)
from tablecrypt.parquet.thrift import Struct
from tablecrypt.setting_kinds import did_you_mean, question

if TYPE_CHECKING:
    from typing_extensions import Buffer

Random = Callable[[int], bytes]
FILE_UNIQUE_LENGTH: Final = 8
ROW_GROUP_SIZE: Final = 1024 * 1024
"""Rows in a row group, where the caller does not say: as many as pyarrow puts there."""
_EXCLUDED: Final = {
    "encryption_properties": "the keys say how the file is encrypted",
    "metadata_collector": "the metadata of the file is encrypted with it",
    "filesystem": "give a URI or an open file as the sink",
}
_AT_LEAST_1: Final = ("max_rows_per_page", "write_batch_size")
"""Options of pyarrow's: below 1 it writes without end, or ends the process."""
_BY_COLUMN: Final = (
    *("use_dictionary", "write_statistics", "use_byte_stream_split", "column_encoding", "bloom_filter_options"),
    *("compression", "compression_level"),
)
"""Options of pyarrow's that may be a list of columns, or a dict by column. It says nothing of names that no column has."""
STRIPPED: Final = (
    ColumnMetaData.KEY_VALUE_METADATA,
    ColumnMetaData.STATISTICS,
    ColumnMetaData.ENCODING_STATS,
    *BLOOM_FILTER,
    ColumnMetaData.SIZE_STATISTICS,
    ColumnMetaData.GEOSPATIAL_STATISTICS,
)
_OF_THE_OLD_FILE_IN_METADATA: Final = (ColumnMetaData.INDEX_PAGE_OFFSET, ColumnMetaData.DICTIONARY_PAGE_OFFSET, *BLOOM_FILTER)


class FileEncryption:
    """The protection of one new file. `FileEncryption(None, …)` leaves all of it in the clear.

    Args:
        keys: what each column is encrypted with.
        location: names the file in errors.
        random: gives aad_file_unique and nonces.
        aad_file_unique: where another writer has chosen it already.
    """

    def __init__(self, keys: FileKeys | None, location: str, random: Callable[[int], bytes], aad_file_unique: bytes | None = None) -> None:
        self._keys = keys
        self._location = location
        self._random = random
        self._ciphers: dict[str, ModuleCipher] = {}
        self._algorithm: Algorithm | None = None

        if keys is not None:
            stored_prefix = keys.aad_prefix if keys.store_aad_prefix else None
            supply = bool(keys.aad_prefix) and not keys.store_aad_prefix
            self._algorithm = Algorithm(keys.ctr, aad_file_unique or random(FILE_UNIQUE_LENGTH), stored_prefix, supply)
            self._footer_cipher: ModuleCipher | None = self._cipher(EncryptingKey(keys.required_footer_key(), FOOTER_KEY_NAME, True))
        else:
            self._footer_cipher = None

    @property
    def is_encrypted(self) -> bool:
        return self._keys is not None

    @property
    def magic(self) -> bytes:
        """The first bytes of the file."""
        return PLAIN_MAGIC if self._keys is None or self._keys.plaintext_footer else ENCRYPTED_MAGIC

    def check_columns(self, paths: list[tuple[str, ...]]) -> None:
        """ConfigurationError for keys of columns that the file does not have."""
        if self._keys is not None:
            self._keys.check_columns(paths)

    def cipher(self, path: tuple[str, ...]) -> ModuleCipher | None:
        """What encrypts the modules of a column; None: they stay in the clear."""
        column_key = self._column_key(path)
        return None if column_key is None else self._cipher(column_key)

    def put_metadata(self, chunk: Struct, metadata: Struct, ordinals: ModuleOrdinals, path: tuple[str, ...]) -> None:
        """Put the metadata of a column into its ColumnChunk, as the table above says."""
        column_key = self._column_key(path)
        if column_key is None or self._keys is None:
            chunk.set(ColumnChunk.META_DATA, thrift.STRUCT, metadata)
            return

        chunk.set(ColumnChunk.CRYPTO_METADATA, thrift.STRUCT, _crypto_metadata(column_key, metadata))
        if column_key.is_footer_key and not self._keys.plaintext_footer:
            chunk.set(ColumnChunk.META_DATA, thrift.STRUCT, metadata)
            return

        encrypted = self._cipher(column_key).encrypt(ordinals.suffix(ModuleType.COLUMN_METADATA), metadata.encode())
        chunk.set(ColumnChunk.ENCRYPTED_COLUMN_METADATA, thrift.BINARY, bytes(encrypted))
        # Statistics in the clear would tell the least and the greatest value of an encrypted column.
        if self._keys.plaintext_footer:
            chunk.set(ColumnChunk.META_DATA, thrift.STRUCT, metadata.copy(without=STRIPPED))

    def write_footer(self, sink: Sink, metadata: Struct) -> None:
        """Write all that follows the last module of a column."""
        key_metadata = None if self._keys is None else self._keys.footer_key_metadata
        in_the_clear = self._keys is None or self._keys.plaintext_footer
        write_footer(sink, metadata, self._algorithm, self._footer_cipher, key_metadata, in_the_clear)

    def _column_key(self, path: tuple[str, ...]) -> EncryptingKey | None:
        return None if self._keys is None else self._keys.column_key(path)

    def _cipher(self, column_key: EncryptingKey) -> ModuleCipher:
        # Kept, since a cipher counts the nonces drawn under its key.
        cipher = self._ciphers.get(column_key.name)
        if cipher is None:
            assert self._keys is not None and self._algorithm is not None
            aad_base = self._keys.aad_prefix + self._algorithm.aad_file_unique
            cipher = ModuleCipher(column_key.key, column_key.name, aad_base, self._keys.ctr, self._location, self._random)
            self._ciphers[column_key.name] = cipher
        return cipher


def _crypto_metadata(column_key: EncryptingKey, metadata: Struct) -> Struct:
    crypto = Struct()
    if column_key.is_footer_key:
        crypto.set(ColumnCryptoMetaData.WITH_FOOTER_KEY, thrift.STRUCT, Struct())
        return crypto

    # A reader without the key knows the column by this path: the metadata, which has it too, is encrypted.
    own = Struct({EncryptionWithColumnKey.PATH_IN_SCHEMA: metadata.fields[ColumnMetaData.PATH_IN_SCHEMA]})
    if column_key.key_metadata is not None:
        own.set(EncryptionWithColumnKey.KEY_METADATA, thrift.BINARY, column_key.key_metadata)
    crypto.set(ColumnCryptoMetaData.WITH_COLUMN_KEY, thrift.STRUCT, own)

    return crypto


@dataclass(frozen=True, slots=True)
class PlacedChunk:
    """A chunk of a source, and what a new file has of it.

    Attributes:
        chunk: in its source.
        path: of the column that it becomes.
        pages: of the chunk, where they are to be written otherwise than the source has them.
        left_out: fields of its ColumnMetaData.
        is_hidden: whether the footer, which others open, says nothing of its length before compression.
        has_pages_alone: whether it has no bloom filter and no index, so that its source is needed no more once its pages are written.
    """

    chunk: Chunk
    path: tuple[str, ...]
    pages: Iterable[Page] | None = None
    left_out: tuple[int, ...] = ()
    has_pages_alone: bool = False
    is_hidden: bool = False


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A chunk whose pages are written; what comes after them is put into `struct` and `metadata`."""

    old: Chunk
    path: tuple[str, ...]
    ordinals: ModuleOrdinals
    struct: Struct
    metadata: Struct
    cipher: ModuleCipher | None
    data_pages: list[Span]

    def encrypted(self, module_type: ModuleType, plaintext: Buffer) -> Buffer:
        """A module as the new file stores it."""
        return plaintext if self.cipher is None else self.cipher.encrypt(self.ordinals.suffix(module_type), plaintext)


def write_pages(sink: Sink, cipher: ModuleCipher | None, placed: PlacedChunk, ordinals: ModuleOrdinals) -> NewChunk:
    """Write the pages of a chunk under another cipher, or in the clear without one.

    Args:
        sink: takes the pages, one after the other.
        cipher: encrypts them.
        placed: the chunk.
        ordinals: of the row group and column in the new file.
    """
    old = placed.chunk
    start, header_growth = sink.position, 0
    dictionary_offset: int | None = None
    data_pages: list[Span] = []

    # AES-GCM has authenticated a page before it is written, so that no damage is encrypted anew and authentic from then on.
    for page in read_pages(old) if placed.pages is None else placed.pages:
        span, header_length = _write_page(sink, page, ordinals, cipher)
        header_growth += header_length - page.header_span.length
        if page.is_dictionary:
            dictionary_offset = span.start
        else:
            data_pages.append(span)

    metadata = old.metadata.copy(without=(*_OF_THE_OLD_FILE_IN_METADATA, *placed.left_out))
    if placed.path != old.path:
        names = thrift.encode_binaries([name.encode() for name in placed.path])
        metadata.set(ColumnMetaData.PATH_IN_SCHEMA, thrift.LIST, names)
    with described(old.location, f"the metadata of {old.ordinals}"):
        if not data_pages and dictionary_offset is None and metadata.integer(ColumnMetaData.NUM_VALUES):
            raise FormatError("it has no pages")
        uncompressed = metadata.integer(ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE) + header_growth

    # A chunk may have a dictionary and no data page: 0 stands for none.
    metadata.set(ColumnMetaData.DATA_PAGE_OFFSET, thrift.I64, data_pages[0].start if data_pages else 0)
    metadata.set(ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE, thrift.I64, uncompressed)
    metadata.set(ColumnMetaData.TOTAL_COMPRESSED_SIZE, thrift.I64, sink.position - start)
    if dictionary_offset is not None:
        metadata.set(ColumnMetaData.DICTIONARY_PAGE_OFFSET, thrift.I64, dictionary_offset)
    # Nothing of the old one is about the new file; of a field that the specification does not have, nobody knows what it tells.
    struct = Struct()
    # parquet.thrift: deprecated, and 0 where the metadata is in the footer alone.
    struct.set(ColumnChunk.FILE_OFFSET, thrift.I64, 0)

    return NewChunk(old, placed.path, ordinals, struct, metadata, cipher, data_pages)


def _write_page(sink: Sink, page: Page, ordinals: ModuleOrdinals, cipher: ModuleCipher | None) -> tuple[Span, int]:
    """Write a page. Returns where it is, and how long its header is there."""
    start = sink.position
    if cipher is None:
        body = page.body
        header: Buffer = page.header.of_body(body)
    else:
        # The body first: the header says how long it is encrypted, and its checksum.
        body = cipher.encrypt_page(ordinals.suffix(page.body_type, page.number), page.body)
        header = cipher.encrypt(ordinals.suffix(page.header_type, page.number), page.header.of_body(body))

    sink.write(header)
    header_length = sink.position - start
    sink.write(body)

    return Span(start, sink.position - start), header_length


class ModularWriter:
    """Writes one new file. Add one source or several of one schema, then finish.

    Args:
        sink: where the bytes go.
        encryption: the protection of the new file.

    Attributes:
        group_starts: at which byte each row group begins.
    """

    def __init__(self, sink: Sink, encryption: FileEncryption) -> None:
        self._sink = sink
        self._encryption = encryption
        self._footer: Struct | None = None
        self._groups: list[Struct] = []
        self.group_starts: list[int] = []
        self._rows = 0
        self._sink.write(self._encryption.magic)

    def add(self, source: FileLayout) -> None:
        """Write the row groups of a file."""
        if self._footer is None:
            self.begin(source.metadata, source.leaf_paths())
        groups = zip(source.metadata.structs(FileMetaData.ROW_GROUPS), source.row_groups, strict=True)
        self.add_groups((group, [PlacedChunk(chunk, chunk.path) for chunk in chunks]) for group, chunks in groups)
        with described(source.location, "the footer"):
            self._rows += source.metadata.integer(FileMetaData.NUM_ROWS)

    def begin(self, footer: Struct, paths: list[tuple[str, ...]], rows: int = 0) -> None:
        """Say what the new footer has but row groups.

        Args:
            footer: a FileMetaData with the schema of the new file.
            paths: of its leaf columns.
            rows: how many rows `add_groups` is going to write.
        """
        # Before a page is written: a name that is misspelt would leave its column under the footer key.
        self._encryption.check_columns(paths)
        # Readers would take the user's own entry for hidden columns of the file.
        if self._encryption.is_encrypted and may_hold_columns_apart(footer):
            raise ConfigurationError(
                f"the key-value metadata names {ENTRY.decode()}, which files with protected columns alone may have: rename that entry"
            )
        self._footer = footer.copy(without=ENCRYPTION_IN_FOOTER)
        self._rows = rows

    def add_groups(self, groups: Iterable[tuple[Struct, Sequence[PlacedChunk]]]) -> None:
        """Write row groups, and behind them their bloom filters and indexes.

        Args:
            groups: the RowGroup of the source, and a chunk for each column of the new file, in their order.
        """
        every: list[NewChunk] = []
        for old_group, placed in groups:
            # No reader of encrypted files takes such a row group: its rows would be lost.
            if not placed:
                raise ConfigurationError("there are rows without columns, which no encrypted Parquet file holds: give at least one column")
            start = self._sink.position
            self.group_starts.append(start)
            chunks = [self._write_pages(each, column) for column, each in enumerate(placed)]
            self._groups.append(self._row_group(old_group, placed, chunks, Span(start, self._sink.position - start)))

            for each, chunk in zip(placed, chunks, strict=True):
                if each.has_pages_alone:
                    self._encryption.put_metadata(chunk.struct, chunk.metadata, chunk.ordinals, chunk.path)
                else:
                    every.append(chunk)

        for write in (self._bloom_filter, self._column_index, self._offset_index):
            for chunk in every:
                write(chunk)
        # Only now does the metadata say where the bloom filter is, and can be encrypted.
        for chunk in every:
            self._encryption.put_metadata(chunk.struct, chunk.metadata, chunk.ordinals, chunk.path)

    def finish(self, as_stored: Callable[[Struct], Struct] = lambda footer: footer) -> int:
        """Write the footer, as it is to be stored. Returns the length of the file in bytes."""
        if self._footer is None:
            raise ConfigurationError("nothing was added to the new Parquet file, so it has no schema")
        self._footer.set(FileMetaData.ROW_GROUPS, thrift.LIST, self._groups)
        self._footer.set(FileMetaData.NUM_ROWS, thrift.I64, self._rows)
        self._encryption.write_footer(self._sink, as_stored(self._footer))
        return self._sink.position

    def _write_pages(self, placed: PlacedChunk, column: int) -> NewChunk:
        ordinals = ModuleOrdinals(len(self._groups), column, ".".join(placed.path))
        return write_pages(self._sink, self._encryption.cipher(placed.path), placed, ordinals)

    def _row_group(self, old: Struct, placed: Sequence[PlacedChunk], chunks: list[NewChunk], span: Span) -> Struct:
        group = old.copy()
        group.set(RowGroup.COLUMNS, thrift.LIST, [chunk.struct for chunk in chunks])
        shown = [chunk for each, chunk in zip(placed, chunks, strict=True) if not each.is_hidden]
        # Every reader of the table opens the footer: how long hidden columns are before compression stays out of it.
        uncompressed = sum(chunk.metadata.integer(ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE) for chunk in shown)
        group.set(RowGroup.TOTAL_BYTE_SIZE, thrift.I64, uncompressed)
        group.set(RowGroup.FILE_OFFSET, thrift.I64, span.start)
        group.set(RowGroup.TOTAL_COMPRESSED_SIZE, thrift.I64, span.length)
        if self._encryption.is_encrypted:
            group.set(RowGroup.ORDINAL, thrift.I16, len(self._groups))
        else:
            group.remove(RowGroup.ORDINAL)

        return group

    def _bloom_filter(self, chunk: NewChunk) -> None:
        found = read_bloom_filter(chunk.old)
        if found is None:
            return

        start = self._sink.position
        self._sink.write(chunk.encrypted(ModuleType.BLOOM_FILTER_HEADER, found.header))
        self._sink.write(chunk.encrypted(ModuleType.BLOOM_FILTER_BITSET, found.bitset))
        chunk.metadata.set(ColumnMetaData.BLOOM_FILTER_OFFSET, thrift.I64, start)
        chunk.metadata.set(ColumnMetaData.BLOOM_FILTER_LENGTH, thrift.I32, self._sink.position - start)

    def _column_index(self, chunk: NewChunk) -> None:
        span = chunk.old.column_index
        if span is None:
            return

        index = read_index(chunk.old, span, ModuleType.COLUMN_INDEX)
        start = self._sink.position
        self._sink.write(chunk.encrypted(ModuleType.COLUMN_INDEX, index))
        chunk.struct.set(ColumnChunk.COLUMN_INDEX_OFFSET, thrift.I64, start)
        chunk.struct.set(ColumnChunk.COLUMN_INDEX_LENGTH, thrift.I32, self._sink.position - start)

    def _offset_index(self, chunk: NewChunk) -> None:
        span = chunk.old.offset_index
        if span is None:
            return

        index = self._moved_index(chunk, read_index(chunk.old, span, ModuleType.OFFSET_INDEX))
        start = self._sink.position
        self._sink.write(chunk.encrypted(ModuleType.OFFSET_INDEX, index))
        chunk.struct.set(ColumnChunk.OFFSET_INDEX_OFFSET, thrift.I64, start)
        chunk.struct.set(ColumnChunk.OFFSET_INDEX_LENGTH, thrift.I32, self._sink.position - start)

    def _moved_index(self, chunk: NewChunk, encoded: bytes) -> bytes:
        with described(chunk.old.location, chunk.old.ordinals.describe(ModuleType.OFFSET_INDEX)):
            index = thrift.decode(encoded, OFFSET_INDEX_SHAPE)
            locations = index.structs(OffsetIndex.PAGE_LOCATIONS)
            # An entry too many would keep a place of the old file.
            if len(locations) != len(chunk.data_pages):
                raise FormatError(f"it has {len(locations)} pages, and the chunk {len(chunk.data_pages)}")

        for location, page in zip(locations, chunk.data_pages, strict=True):
            location.set(PageLocation.OFFSET, thrift.I64, page.start)
            location.set(PageLocation.COMPRESSED_PAGE_SIZE, thrift.I32, page.length)
        return index.encode()


@checked_arguments(but=("keys",))
def encrypt(source: Any, sink: Any, keys: FileKeys, *, location: str | None = None, random: Random = secrets.token_bytes) -> int:
    """Encrypt a plaintext Parquet file. Returns the length of the encrypted file in bytes.

    Args:
        source: a path, URI, buffer or seekable binary file with plaintext Parquet.
        sink: a path, URI or binary file that is open for writing.
        keys: the keys to encrypt with; give each file its own keys or its own AAD prefix.
        location: names the source in errors.
        random: gives nonces and the random part of the AAD.

    Raises:
        ConfigurationError: there are no keys or they name columns that the file lacks, it is encrypted already, or has too many pages.
        FormatError: it is not a Parquet file that can be encrypted.
    """
    # `rewrite` takes None for a file in the clear: keys that were forgotten must not mean that.
    checked_keys = required_keys(keys)
    with open_source(source, location) as opened, open_sink(sink, source) as out:
        return rewrite(plain_layout(opened), out, checked_keys, random)


@checked_arguments(but=("keys",))
def decrypt(source: Any, sink: Any, keys: FileKeys, *, location: str | None = None) -> int:
    """Decrypt a Parquet file. Returns the length of the plaintext file in bytes. It needs all keys of the file.

    Every module is authenticated before it is written, except page bodies in AES_GCM_CTR_V1 and columns in the clear. Arguments and
    errors are those of `reencrypt`.
    """
    with open_source(source, location) as opened, open_sink(sink, source) as out:
        return rewrite(encrypted_layout(opened, keys), out, None, secrets.token_bytes)


@checked_arguments(but=("old", "new"))
def reencrypt(
    source: Any, sink: Any, old: FileKeys, new: FileKeys, *, location: str | None = None, random: Random = secrets.token_bytes
) -> int:
    """Encrypt a Parquet file again, under other keys, another algorithm or AAD prefix. Returns the length of the new file in bytes.

    Args:
        source: a path, URI, buffer or seekable binary file.
        sink: a path, URI or binary file that is open for writing.
        old: the keys of the source, for all of its columns.
        new: keys of the new file.
        location: names the source in errors.
        random: gives nonces and the random part of the AAD.

    Raises:
        TamperedFileError: a module does not authenticate, or the file is not what its footer says.
        KeyMismatchError: one of the old keys decrypts no module: it does not fit, or the file was changed.
        FormatError: the source is empty, or no Parquet file.
        PlaintextRefusedError: the source is plaintext.
        KeyNotFoundError: a key of the source is missing.
        ConfigurationError: there are no new keys, or they name columns that the file does not have.
    """
    # As in `encrypt`: None would write the new file in the clear.
    checked_keys = required_keys(new)
    with open_source(source, location) as opened, open_sink(sink, source) as out:
        return rewrite(encrypted_layout(opened, old), out, checked_keys, random)


def rewrite(layout: FileLayout, sink: Sink, keys: FileKeys | None, random: Random) -> int:
    """Write the file again with these keys, or in the clear without. Returns the length in bytes."""
    writer = ModularWriter(sink, FileEncryption(keys, layout.location, random))
    writer.add(layout)
    return writer.finish()


@checked_arguments(but=("keys",))
def write_table(table: pa.Table, sink: Any, keys: FileKeys, *, row_group_size: int = ROW_GROUP_SIZE, **options: Any) -> int:
    """Write a table as one encrypted Parquet file. Returns its length in bytes.

    Args:
        table: the rows.
        sink: a path, URI or binary file that is open for writing. A file appears at a path only if all went well.
        keys: the keys to encrypt with; give each file its own keys or its own AAD prefix.
        row_group_size: rows in a row group, at most.
        options: passed to pyarrow.parquet.ParquetWriter: compression, use_dictionary, write_page_index, bloom_filter_options, …

    Raises: the errors that the module lists.
    """
    with EncryptedParquetWriter(sink, table.schema, keys, **options) as writer:
        writer.write_table(table, row_group_size)
    return writer.file_length


class EncryptedParquetWriter:
    """Writes tables of one schema into one encrypted Parquet file. A context manager: if the block fails, no file appears at the path.

    Args:
        sink: a path, URI or binary file that is open for writing, which the caller closes.
        schema: the Arrow schema of every table written.
        keys: what to encrypt with.
        random: gives nonces and the random part of the AAD.
        options: passed to pyarrow.parquet.ParquetWriter.

    Raises: the errors that the module lists.
    """

    @checked_arguments(but=("keys",))
    def __init__(
        self, sink: Any, schema: pa.Schema, keys: FileKeys, *, random: Callable[[int], bytes] = secrets.token_bytes, **options: Any
    ) -> None:
        _check_options(options)
        # Arrow finds columns by their names when it reads the file.
        if len(set(schema.names)) != len(schema.names):
            raise ConfigurationError("an encrypted Parquet file needs a different name for every column")
        self.schema = schema
        self._options = options
        self._file_length: int | None = None
        self._closed = False
        self._broken = False
        # Options that pyarrow refuses and keys that name no column are found here, before anything is written.
        empty = self._plaintext(pa.Table.from_batches([], schema), None)
        _check_columns(options, empty)
        encryption = FileEncryption(required_keys(keys), "the new Parquet file", random)
        self._opened = open_sink(sink)
        self._sink = self._opened.__enter__()

        try:
            self._writer = ModularWriter(self._sink, encryption)
            # A file to which no rows are written has its schema from here.
            self._add(empty)
        # KeyboardInterrupt too: what is not whole must not get the name of the file.
        except BaseException as error:
            self._abandon(error)
            raise

    @property
    def file_length(self) -> int:
        """Bytes of the encrypted file. ConfigurationError before it is closed."""
        if self._file_length is None:
            raise ConfigurationError("the encrypted Parquet file is not finished, it has no length yet")
        return self._file_length

    def write_table(self, table: pa.Table, row_group_size: int = ROW_GROUP_SIZE) -> None:
        """Write a table in row groups of at most `row_group_size` rows. A table without rows makes no row group."""
        if row_group_size < 1:
            raise ConfigurationError(f"a row group cannot have {row_group_size} rows")
        if self._closed:
            raise ConfigurationError("the encrypted Parquet file is closed")
        if self._broken:
            raise OSError("an earlier write failed: nothing more can be written to the encrypted Parquet file")
        for start in range(0, table.num_rows, row_group_size):
            self._add(self._plaintext(table.slice(start, row_group_size), row_group_size))

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write a batch as a row group, or as several if it is very long."""
        self.write_table(pa.Table.from_batches([batch]))

    def close(self) -> None:
        """Write the footer. It may be called twice. OSError when an earlier write failed: the file is not whole."""
        if self._closed:
            return

        try:
            if self._broken:
                raise OSError("an earlier write failed: the encrypted Parquet file is incomplete")
            self._file_length = self._writer.finish()
        except BaseException as error:
            self._abandon(error)
            raise

        self._closed = True
        # Behind the footer: only now does the path get its file.
        self._opened.__exit__(None, None, None)

    def __enter__(self) -> EncryptedParquetWriter:
        return self

    def __exit__(self, exctype: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is None:
            self.close()
        elif not self._closed:
            self._abandon(error)

    def _plaintext(self, table: pa.Table, row_group_size: int | None) -> pa.Buffer:
        # pyarrow's Python takes no column keys together with an AAD prefix. So it writes in the clear, into memory alone.
        buffer = pa.BufferOutputStream()
        with refusals_of_writers("Parquet"), pq.ParquetWriter(buffer, self.schema, **self._options) as writer:
            if row_group_size is not None:
                writer.write_table(table, row_group_size=row_group_size)
        return buffer.getvalue()

    def _add(self, plaintext: pa.Buffer) -> None:
        try:
            with open_source(plaintext, "the new Parquet file") as source:
                self._writer.add(plain_layout(source))
        # Nobody knows what the sink took of a row group: a footer behind it would name places where other bytes are.
        except BaseException:
            self._broken = True
            raise

    def _abandon(self, error: BaseException) -> None:
        self._closed = True
        self._opened.__exit__(type(error), error, error.__traceback__)


def _check_options(options: dict[str, Any]) -> None:
    """Raise ConfigurationError for options that encryption excludes, and for values that pyarrow does not refuse as such."""
    for name, reason in _EXCLUDED.items():
        if options.get(name) is not None:
            raise ConfigurationError(f"an encrypted Parquet file cannot be written with {name}: {reason}")
    for name in _AT_LEAST_1:
        if isinstance(value := options.get(name), int) and value < 1:
            raise ConfigurationError(f"{name} is {value}; it must be at least 1")

    codec, flavor = options.get("compression"), options.get("flavor")
    if not isinstance(codec, str | dict | None):
        raise ConfigurationError(f"compression is {codec!r}; it must be the name of a codec, or a dict of such names by column")
    if flavor not in (None, "spark"):
        raise ConfigurationError(f"flavor is {flavor!r}; pyarrow knows 'spark' alone")


def _check_columns(options: dict[str, Any], file: pa.Buffer) -> None:
    """Raise ConfigurationError for an option that names a column which the file, given without rows, does not have."""
    schema = pq.ParquetFile(file).schema
    columns = [schema.column(number).path for number in range(len(schema))]
    for option in _BY_COLUMN:
        value = options.get(option)
        names = value if isinstance(value, Collection) and not isinstance(value, str) else ()
        unknown = next((str(name) for name in names if name not in columns), None)
        if unknown is not None:
            within = [path for path in columns if path.startswith(f"{unknown}.")]
            meant = question(within) if within else did_you_mean(unknown, columns)
            raise ConfigurationError(f"{option} names {unknown!r}, which is no column of the file{meant}")
