"""The layout of a Parquet file: which column chunks there are, where their modules lie, and under which key.

    FileLayout ── RowGroupLayout ── Chunk ─┬─ pages      one span, walked by tablecrypt.parquet.chunk_modules
                                           ├─ column index, offset index, bloom filter: a span or an offset each
                                           └─ cipher     None: the chunk is in the clear

The footer names every place, and is authenticated before this is built. A chunk is decoded when it is first asked for, so that a reader of
few columns is spared the others. The metadata of a column with a key of its own is encrypted once more; that is decrypted when it is first
asked for, so that a reader of other columns needs no key for it.

All offsets are bytes from the start of the file; those outside of it are refused before anything is read.

A column's path are the names from a top-level column down to a leaf, and each leaf has a chunk in every row group:

    schema    root (2 children) | a | l (1) | list (1) | element        a node after its parent, depth first
    paths     ("a",), ("l", "list", "element")

All columns of a table's file are encrypted with the file's one key (`check_one_key`). An Iceberg manifest has room for one key per data
file. Parquet Modular Encryption could give a column a key of its own, or leave it in the clear. Neither is read from a table: Arrow would
read the column in the clear without authenticating it, and while it looks at the statistics of a column whose key it lacks, it ends the
process.

Each column chunk says in the authenticated footer which key it has. All chunks are asked, and nothing else of them is decoded, which
reading a few columns of a wide file would wait for. What other bytes look like never counts: a name or a statistic can hold any.

What a footer says is kept in the process under the SHA-256 of its plaintext. A scan decrypts and authenticates the footer as it is then,
and looks into it again only where it is another one.

    a chunk's field 8, as it is stored     0c | 1c 00 | 00     the struct's field 1, an empty struct: the footer's key
                                           0c | 2c … | 00      its field 2, a struct: a key of the column's own
                                           not there           the column is in the clear

Raises TamperedFileError, KeyMismatchError, FormatError, KeyNotFoundError, and PlaintextRefusedError for a column in the clear where
`strict` keys forbid it. FormatError also for a schema that is no tree, and for names that are not UTF-8.

Specification: Apache Parquet, "Parquet Modular Encryption", sections 5.2 and 5.3; parquet.thrift, SchemaElement, path_in_schema and
ColumnCryptoMetaData.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from tablecrypt.errors import ConfigurationError, FormatError, KeyNotFoundError, TamperedFileError
from tablecrypt.parquet import thrift
from tablecrypt.parquet.columns_apart import ENTRY, with_columns_apart
from tablecrypt.parquet.file_keys import FileKeys, required_keys
from tablecrypt.parquet.footer import MAGIC_LENGTH, FileCiphers, StoredFooter, described, read_footer
from tablecrypt.parquet.modules import ModuleCipher, ModuleOrdinals, ModuleType, check_stated, module_length
from tablecrypt.parquet.storage import Source
from tablecrypt.parquet.structs import (
    ARROW_SCHEMA,
    COLUMN_CHUNK_SHAPE,
    ColumnChunk,
    ColumnCryptoMetaData,
    ColumnMetaData,
    EncryptionWithColumnKey,
    FileMetaData,
    KeyValue,
    RowGroup,
    SchemaElement,
)
from tablecrypt.parquet.thrift import FLAT, Number, Struct


def decode_path(stored: bytes) -> tuple[str, ...]:
    """Read a path_in_schema, a list as it is stored."""
    return tuple(_name(part) for part in thrift.decode_binaries(stored))


def leaf_paths(elements: list[Struct]) -> list[tuple[str, ...]]:
    """The paths of the leaf columns in a schema (SchemaElements), in their order: as many as each row group has column chunks."""
    paths: list[tuple[str, ...]] = []
    # The groups that are not complete: the name of each, and how many children are still to come. The root has no part in paths.
    groups: list[tuple[str, int]] = []
    for element in elements:
        name = _name(element.binary(SchemaElement.NAME))
        children = element.optional_integer(SchemaElement.NUM_CHILDREN) or 0
        if not groups and paths:
            raise FormatError("it has nodes outside of its root")
        if children > 0:
            groups.append((name, children))
            continue

        paths.append((*(group for group, _ in groups[1:]), name))

        while groups:
            group, left = groups.pop()
            if left > 1:
                groups.append((group, left - 1))
                break

    return paths


def _name(encoded: bytes) -> str:
    try:
        return encoded.decode("utf-8")
    except UnicodeDecodeError:
        raise FormatError("a column's name is not UTF-8") from None


@dataclass(frozen=True, slots=True)
class Span:
    """`length` bytes from `start` on."""

    start: int
    length: int

    @property
    def end(self) -> int:
        return self.start + self.length


class Chunk:
    """One column's data in one row group.

    Attributes:
        struct: the ColumnChunk.
        path: of the column in the schema; of a column with a key of its own this is authentic, but its metadata may not be decrypted yet.
        ordinals: its row group and column.
        key_metadata: what the file stores with the key of this column alone.
    """

    def __init__(self, struct: Struct, row_group: int, column: int, file: FileLayout) -> None:
        self.struct = struct
        self._file = file
        self.location = file.location
        self.source = file.source
        if ColumnChunk.FILE_PATH in struct:
            raise FormatError("its data is in another file, which modular encryption does not allow")

        self._crypto = struct.optional_struct(ColumnChunk.CRYPTO_METADATA)
        self._own_key = None if self._crypto is None else _own_key(self._crypto)
        self.path = self._read_path()
        self.ordinals = ModuleOrdinals(row_group, column, ".".join(self.path))
        # Whoever has the footer's key alone could say other values' bounds, another codec or another end of the pages.
        if self.has_own_key and ColumnChunk.ENCRYPTED_COLUMN_METADATA not in struct:
            raise TamperedFileError(self.location, f"the metadata of {self.ordinals} is not encrypted with the key of its column")

    @property
    def is_encrypted(self) -> bool:
        return self._crypto is not None

    @property
    def has_own_key(self) -> bool:
        """Whether it is encrypted with another key than the footer's."""
        return self._own_key is not None

    @property
    def key_metadata(self) -> bytes | None:
        return None if self._own_key is None else self._own_key.optional_binary(EncryptionWithColumnKey.KEY_METADATA)

    @cached_property
    def cipher(self) -> ModuleCipher | None:
        """None for a chunk in the clear."""
        ciphers = self._file.ciphers
        if self._crypto is None:
            # Nothing authenticates a column in the clear, so the keys decide whether it is read, never the file.
            if ciphers is not None:
                ciphers.accept_plain(self.path)
            return None
        if ciphers is None and self._file.footer.algorithm is None:
            raise FormatError(f"{self.location}: column {self.ordinals.path} says it is encrypted, in a file that says it is not")
        if ciphers is None:
            raise KeyNotFoundError(f"{self.location}: column {self.ordinals.path} is encrypted, and no keys were given")

        return ciphers.footer if self._own_key is None else ciphers.column(self.path, self.key_metadata)

    @cached_property
    def metadata(self) -> Struct:
        """The ColumnMetaData with its statistics, decrypted if it is encrypted."""
        encrypted = self.struct.optional_binary(ColumnChunk.ENCRYPTED_COLUMN_METADATA)
        cipher = self.cipher
        if encrypted is None or cipher is None:
            return self._visible_metadata()

        what = self.ordinals.describe(ModuleType.COLUMN_METADATA)
        if module_length(encrypted, len(encrypted), what, self.location) != len(encrypted):
            raise TamperedFileError(self.location, f"{what} is followed by bytes that do not belong to it")

        decrypted = cipher.decrypt(self.ordinals.suffix(ModuleType.COLUMN_METADATA), memoryview(encrypted), what)

        with described(self.location, what):
            metadata = thrift.decode_padded(decrypted, FLAT)
            path = decode_path(metadata.stored_list(ColumnMetaData.PATH_IN_SCHEMA))
            # The key was found by the path in the footer, so the metadata has to be of that column.
            if path != self.path:
                raise FormatError(f"it is of column {'.'.join(path)}")

        return metadata

    @property
    def pages(self) -> Span:
        """Where the pages lie, one after the other."""
        return self._pages[0]

    @property
    def has_dictionary(self) -> bool:
        """Whether the first page is a dictionary."""
        return self._pages[1]

    @cached_property
    def _pages(self) -> tuple[Span, bool]:
        return self.pages_by(self.metadata)

    def pages_by(self, metadata: Struct) -> tuple[Span, bool]:
        """Where the pages lie by that metadata, and whether the first is a dictionary. Offset 0 is for none, of either kind."""
        with described(self.location, f"the metadata of {self.ordinals}"):
            start = metadata.integer(ColumnMetaData.DATA_PAGE_OFFSET)
            dictionary = metadata.optional_integer(ColumnMetaData.DICTIONARY_PAGE_OFFSET) or 0
            length = metadata.integer(ColumnMetaData.TOTAL_COMPRESSED_SIZE)
            values = metadata.integer(ColumnMetaData.NUM_VALUES)

        # Of a row group without rows, Arrow writes no pages.
        if not length and not values:
            return Span(MAGIC_LENGTH, 0), False

        has_dictionary = dictionary > 0 and (dictionary < start or start == 0)
        span = Span(dictionary if has_dictionary else start, length)
        return self._file.checked(span, f"the pages of {self.ordinals}"), has_dictionary

    @property
    def column_index(self) -> Span | None:
        return self._index(ColumnChunk.COLUMN_INDEX_OFFSET, ColumnChunk.COLUMN_INDEX_LENGTH, ModuleType.COLUMN_INDEX)

    @property
    def offset_index(self) -> Span | None:
        return self._index(ColumnChunk.OFFSET_INDEX_OFFSET, ColumnChunk.OFFSET_INDEX_LENGTH, ModuleType.OFFSET_INDEX)

    @property
    def bloom_filter(self) -> Span | None:
        """Header and bitset."""
        return self.bloom_filter_by(self.metadata)

    def bloom_filter_by(self, metadata: Struct) -> Span | None:
        """Header and bitset by that metadata. Where it has no length, the span reaches to the footer: the header tells the bitset's."""
        with described(self.location, f"the metadata of {self.ordinals}"):
            start = metadata.optional_integer(ColumnMetaData.BLOOM_FILTER_OFFSET)
            length = metadata.optional_integer(ColumnMetaData.BLOOM_FILTER_LENGTH)
        if not start:
            return None

        span = Span(start, self._file.footer.start - start if length is None else length)
        return self._file.checked(span, f"the bloom filter of {self.ordinals}")

    @property
    def bloom_filter_has_length(self) -> bool:
        return ColumnMetaData.BLOOM_FILTER_LENGTH in self.metadata

    def read_metadata_in_the_clear(self) -> Struct | None:
        """The ColumnMetaData in the footer, which of an encrypted column lacks statistics; None where only the encrypted one is stored."""
        return self.struct.optional_struct(ColumnChunk.META_DATA)

    def _index(self, offset_field: Number, length_field: Number, module_type: ModuleType) -> Span | None:
        what = self.ordinals.describe(module_type)
        with described(self.location, what):
            start, length = self.struct.optional_integer(offset_field), self.struct.optional_integer(length_field)
        if not start or not length:
            return None
        return self._file.checked(Span(start, length), what)

    def _visible_metadata(self) -> Struct:
        with described(self.location, f"the footer, at {self.ordinals}"):
            return self.struct.struct(ColumnChunk.META_DATA)

    def _read_path(self) -> tuple[str, ...]:
        if self._own_key is not None:
            return decode_path(self._own_key.stored_list(EncryptionWithColumnKey.PATH_IN_SCHEMA))
        return decode_path(self.struct.struct(ColumnChunk.META_DATA).stored_list(ColumnMetaData.PATH_IN_SCHEMA))


class RowGroupLayout:
    """The column chunks of a row group, by their ordinals.

    Attributes:
        encoded: each ColumnChunk as the footer holds it.
    """

    def __init__(self, encoded: list[bytes], row_group: int, file: FileLayout) -> None:
        self.encoded = encoded
        self._row_group = row_group
        self._file = file
        self._chunks: dict[int, Chunk] = {}

    def __len__(self) -> int:
        return len(self.encoded)

    def __iter__(self) -> Iterator[Chunk]:
        # All at once: decoding each chunk only when the modules of the one before are done takes half as long again.
        return iter([self[column] for column in range(len(self.encoded))])

    def __getitem__(self, column: int) -> Chunk:
        """The chunk, decoded. FormatError when it is malformed, or the row group has no such column."""
        chunk = self._chunks.get(column)
        if chunk is None:
            chunk = self._chunks[column] = self._decoded(column)
        return chunk

    def _decoded(self, column: int) -> Chunk:
        with described(self._file.location, f"column chunk {column} of row group {self._row_group}"):
            if column >= len(self.encoded):
                raise FormatError(f"it is not there: the row group has {len(self.encoded)} columns")
            return Chunk(thrift.decode(self.encoded[column], COLUMN_CHUNK_SHAPE), self._row_group, column, self._file)


class FileLayout:
    """A Parquet file, its footer decrypted. In a plaintext file, and with keys=None, `ciphers` is None.

    Args:
        source: the file.
        footer: its end.
        ciphers: decrypt its modules. None for a plaintext file, or for a plaintext footer without keys: then nothing is authenticated.
    """

    def __init__(self, source: Source, footer: StoredFooter, ciphers: FileCiphers | None) -> None:
        self.source = source
        self.location = source.location
        self.footer = footer
        self.ciphers = ciphers
        stored = footer.open(None if ciphers is None else ciphers.footer)
        with described(self.location, "the footer"):
            # Only an encrypted footer that is authentic has an entry that a writer of hidden columns has made.
            is_authentic = footer.is_encrypted and ciphers is not None
            self.metadata = with_columns_apart(stored) if is_authentic and may_hold_columns_apart(stored) else stored
            self.holds_columns_apart = self.metadata is not stored
            groups = self.metadata.structs(FileMetaData.ROW_GROUPS)
            self.row_groups = [self._row_group(group, number) for number, group in enumerate(groups)]

    def chunks(self) -> list[Chunk]:
        """Of all row groups, in their order."""
        return [chunk for chunks in self.row_groups for chunk in chunks]

    @property
    def rows(self) -> int:
        """How many rows the row groups have."""
        with described(self.location, "a row group in the footer"):
            return sum(group.integer(RowGroup.NUM_ROWS) for group in self.metadata.structs(FileMetaData.ROW_GROUPS))

    def leaf_paths(self) -> list[tuple[str, ...]]:
        """Of the leaf columns in the schema, in their order."""
        with described(self.location, "the schema in the footer"):
            return leaf_paths(self.metadata.structs(FileMetaData.SCHEMA))

    @property
    def notes_dictionaries(self) -> bool:
        """Whether the footer says that the file's writer had dictionaries, as Arrow's writers note it (dictionaries.py)."""
        with described(self.location, "the footer"):
            notes = thrift.structs_of(self.metadata, FileMetaData.KEY_VALUE_METADATA)
            values = [each.optional_binary(KeyValue.VALUE) for each in notes if each.binary(KeyValue.KEY) == ARROW_SCHEMA]
        return any(_describes_dictionaries(value or b"") for value in values)

    def leaves_of(self, columns: Set[str]) -> list[int]:
        """Ordinals of the leaf columns in these top-level ones."""
        return [ordinal for ordinal, path in enumerate(self.leaf_paths()) if path[0] in columns]

    def checked(self, span: Span, what: str) -> Span:
        """The same span. TamperedFileError when it is not between the first magic and the footer."""
        if span.start < MAGIC_LENGTH or span.length <= 0 or span.end > self.footer.start:
            raise TamperedFileError(
                self.location,
                f"{what}: bytes {span.start} to {span.end} are not between byte {MAGIC_LENGTH} and the footer at {self.footer.start}",
            )
        return span

    def _row_group(self, group: Struct, number: int) -> RowGroupLayout:
        # The AAD has the ordinal that the footer states (section 4.4). Where it states none, row groups count from 0.
        ordinal = group.optional_integer(RowGroup.ORDINAL) if self.footer.algorithm is not None else None
        row_group = number if ordinal is None else ordinal
        chunks = group.deferred_structs(RowGroup.COLUMNS)
        if self.footer.algorithm is not None:
            check_stated(row_group, "a row group with ordinal")
            check_stated(len(chunks) - 1, "a column with ordinal")
        return RowGroupLayout(chunks, row_group, self)


def _describes_dictionaries(note: bytes) -> bool:
    try:
        return any(map(has_dictionary, pa.ipc.read_schema(pa.py_buffer(base64.b64decode(note))).types))
    # Not what Arrow's writer has noted: then it says nothing of the file, as where there is no note.
    except (ValueError, OSError, pa.ArrowException):
        return False


def has_dictionary(kind: pa.DataType) -> bool:
    """Whether a type of Arrow's is a dictionary, or has one inside."""
    return bool(pa.types.is_dictionary(kind)) or any(has_dictionary(kind.field(at).type) for at in range(kind.num_fields))


def may_hold_columns_apart(footer: Struct) -> bool:
    """Whether the name of the entry for them is anywhere in a footer's key-value metadata; False is certain."""
    field = footer.fields.get(FileMetaData.KEY_VALUE_METADATA)
    return field is not None and isinstance(field.value, bytes) and ENTRY in field.value


def plain_layout(source: Source) -> FileLayout:
    """Open a plaintext file. ConfigurationError for an encrypted one."""
    footer = read_footer(source)
    if footer.algorithm is not None:
        raise ConfigurationError(f"{source.location}: is encrypted already; reencrypt it, or decrypt it first")
    return FileLayout(source, footer, None)


def encrypted_layout(source: Source, keys: FileKeys) -> FileLayout:
    """Open an encrypted file, its footer authenticated. PlaintextRefusedError for a plaintext one."""
    keys = required_keys(keys)
    # The length of a table's file is authentic, so a file of another length is refused before a byte of it is parsed.
    if keys.of_a_table:
        _check_length(source, keys)
    footer = read_footer(source, of_a_table=keys.of_a_table)
    layout = FileLayout(source, footer, FileCiphers(footer, keys))
    # Keys of the caller's are shown to be this file's first: otherwise their length says nothing about it.
    _check_length(source, keys)

    return layout


def _check_length(source: Source, keys: FileKeys) -> None:
    if keys.file_length is not None and source.length != keys.file_length:
        raise TamperedFileError(source.location, f"has {source.length} bytes, but its key metadata says {keys.file_length}")


def _own_key(crypto: Struct) -> Struct | None:
    if len(crypto.fields) != 1:
        raise FormatError("its crypto metadata names no key, or more than one")
    if ColumnCryptoMetaData.WITH_FOOTER_KEY in crypto:
        return None
    return crypto.struct(ColumnCryptoMetaData.WITH_COLUMN_KEY)
