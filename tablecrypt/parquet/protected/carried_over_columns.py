"""A file again under another DEK, its hidden columns carried over as they are: for somebody who may not use their column keys.

    old    PARE | placeholders, columns under the old DEK | hidden columns | indexes | footer under the old DEK
    new    PARE | placeholders, columns under the new DEK | hidden columns | indexes | footer under the new DEK      everything where it was

A hidden column is bound to the file's AAD prefix and aad_file_unique, and its metadata, which only its key opens, says where it lies. So
the new file has both of the old one's, and each module is as long as it was. The bytes of hidden columns are copied and not authenticated:
whoever has their keys does that by reading them, in the new file as in the old.

The same with some rows blanked, in which the columns under the DEK then hold nothing:

    old      PARE | placeholders, columns | hidden columns | footer
    new      PARE | zeros                 | hidden columns | placeholders, columns, blanked, under the new DEK | footer under the new DEK

Decoded and encoded again are all columns but error placeholders, which hold no values, one column of one row group at a time. They get the
statistics of what they hold now, and no page index or bloom filter. The schema, the row groups and the rows in them are as they were.
A reader takes a row group's bytes for its own where their middle lies (parquet-java), from its first page on: so a row group says the
length of the columns at its start, without that of hidden columns, which lie elsewhere.

Raises TamperedFileError where a module does not authenticate or modules lie over one another; FormatError where one would not be as long
as it was, or for a column that Arrow writes otherwise than the file has it.

Specification: Apache Parquet, "Parquet Modular Encryption", sections 4.4 and 5; parquet.thrift, RowGroup.
"""

from __future__ import annotations

import itertools
import secrets
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError, TamperedFileError
from tablecrypt.parquet import thrift
from tablecrypt.parquet.chunk_modules import read_bloom_filter, read_index, read_pages
from tablecrypt.parquet.file_keys import FileKeys
from tablecrypt.parquet.footer import PLAIN_MAGIC, described, plain_end, write_footer
from tablecrypt.parquet.layout import Chunk, Span
from tablecrypt.parquet.modules import ModuleCipher, ModuleType
from tablecrypt.parquet.protected.hidden_arrays import blanked_column, written_as
from tablecrypt.parquet.protected.hidden_column_rewriting import decoded_columns, footer_of, without_notes, without_order
from tablecrypt.parquet.protected.hidden_columns import around_fields, without_hidden_columns
from tablecrypt.parquet.protected.placeholders import is_error_placeholder
from tablecrypt.parquet.protected.protected_layout import ProtectedLayout
from tablecrypt.parquet.storage import Sink, Source, source_of
from tablecrypt.parquet.structs import ColumnChunk, ColumnMetaData, FileMetaData, PhysicalType, RowGroup
from tablecrypt.parquet.thrift import Struct
from tablecrypt.parquet.writing import FileEncryption, PlacedChunk, write_pages

_PIECE: Final = 4 * 1024 * 1024
_FLOATS: Final = frozenset({PhysicalType.FLOAT, PhysicalType.DOUBLE})


def reencrypt_beside_hidden_columns(source: object, sink: object, old: StandardKeyMetadata, new: StandardKeyMetadata, location: str) -> int:
    """Write a file under another DEK, with its hidden columns as they are. Returns its length in bytes, which is the old one's.

    Args:
        source: a seekable binary file with the old one.
        sink: a binary file that is open for writing.
        old: of the old file.
        new: another DEK, and the same AAD prefix.
        location: names the old file in errors.

    Raises: the errors that the module lists, and ConfigurationError for another AAD prefix.
    """
    _check_prefix(old, new, location)
    layout, out = ProtectedLayout(source_of(source, location), old), Sink(sink)
    read, footer, cipher = layout.file.source, layout.file.footer, layout.cipher(new.encryption_key)
    hidden_leaves = {hidden.ordinal for hidden in layout.hidden_leaves}
    modules = [
        module for chunk in layout.file.chunks() if chunk.ordinals.column not in hidden_leaves for module in _modules(chunk, cipher, out)
    ]

    for module in sorted(modules, key=lambda module: module.span.start):
        _copy(read, out, module.span.start)
        module.write()
        # Where a hidden column lies is in metadata that only its key opens, so that nothing behind this may move.
        if out.position != module.span.end:
            raise FormatError(f"{location}: {module.what} has another length when it is encrypted again; compact the file instead")

    _copy(read, out, footer.start)
    write_footer(out, without_hidden_columns(layout.file.metadata), layout.algorithm, cipher, None, plaintext=False)

    return out.position


def blank_rows_beside_hidden_columns(
    source: object, sink: object, old: StandardKeyMetadata, new: StandardKeyMetadata, positions: Iterable[int], location: str
) -> tuple[pq.FileMetaData, int]:
    """Write a file under another DEK, with its hidden columns as they are and nothing in the other columns of some rows.

    At these rows a column holds null, or the empty value of its type where it is required: zero, no characters, no elements. Structs
    around a protected column stay null or not, since its hidden column says the same.

    Args:
        source: a seekable binary file with the old one.
        sink: a binary file that is open for writing.
        old: of the old file.
        new: another DEK, and the same AAD prefix.
        positions: of the rows in the file, from 0.
        location: names the old file in errors.

    Returns:
        pyarrow's metadata of the columns without the hidden columns, for the statistics of a manifest, and the new file's length in bytes.

    Raises: the errors that the module lists, and ConfigurationError for another AAD prefix or the same DEK, and for positions that the
        file does not have.
    """
    _check_prefix(old, new, location)
    if new.encryption_key == old.encryption_key:
        raise ConfigurationError(f"{location}: rows are blanked under another DEK than the file's")
    blanking = _Blanking(ProtectedLayout(source_of(source, location), old), Sink(sink), new, positions)
    return blanking.write()


def _check_prefix(old: StandardKeyMetadata, new: StandardKeyMetadata, location: str) -> None:
    if new.aad_prefix != old.aad_prefix:
        raise ConfigurationError(f"{location}: hidden columns that are carried over need the AAD prefix that the file has")


class _Blanking:
    """Blanks rows of one file.

    Args:
        old: the file.
        out: takes the new one.
        new: its key metadata.
        positions: of the rows.
    """

    def __init__(self, old: ProtectedLayout, out: Sink, new: StandardKeyMetadata, positions: Iterable[int]) -> None:
        self._old = old
        self._out = out
        self._location = old.file.location
        keys = FileKeys.of_table_file(new)
        self._encryption = FileEncryption(keys, self._location, secrets.token_bytes, old.algorithm.aad_file_unique)
        self._around = around_fields(old.schema, {hidden.field_id for hidden in old.hidden_leaves})
        hidden_leaves = {hidden.ordinal for hidden in old.hidden_leaves}
        self._shown = [ordinal for ordinal in range(len(old.leaves)) if ordinal not in hidden_leaves]
        self._groups = old.file.metadata.structs(FileMetaData.ROW_GROUPS)
        with described(self._location, "the footer"):
            self._rows = old.file.metadata.integer(FileMetaData.NUM_ROWS)
            lengths = [group.integer(RowGroup.NUM_ROWS) for group in self._groups]
        self._positions = sorted(set(positions))
        if self._positions and not 0 <= self._positions[0] <= self._positions[-1] < self._rows:
            raise ConfigurationError(f"{self._location}: has {self._rows} rows, and not all of the positions that are to be blanked")

        self._starts = [0, *itertools.accumulate(lengths)]

    def write(self) -> tuple[pq.FileMetaData, int]:
        self._carry_over()
        groups, shown = zip(*(self._row_group(number) for number in range(len(self._groups))), strict=True) if self._groups else ((), ())
        # A file that an early build protected has its first writer's notes still, and they may tell of the rows that are blanked.
        metadata = without_notes(self._old.file.metadata)
        metadata.set(FileMetaData.ROW_GROUPS, thrift.LIST, list(groups))
        self._encryption.write_footer(self._out, without_hidden_columns(metadata))
        return self._shown_alone(list(shown)), self._out.position

    def _carry_over(self) -> None:
        """Write what is not known to be another column's, with zeros between, up to the end of the last hidden column."""
        shown = set(self._shown)
        chunks = [chunk for chunk in self._old.file.chunks() if chunk.ordinals.column in shown]
        left_out = sorted((span for chunk in chunks for span in _spans(chunk)), key=lambda span: span.start)
        at, end = 0, self._old.file.footer.start

        for span in [*left_out, Span(end, 0)]:
            if span.start < at:
                raise TamperedFileError(self._location, f"bytes {span.start} to {at} belong to two modules")

            if span.start > at:
                # Zeros in place of what is left out: hidden columns keep their offsets, which this user cannot change.
                self._out.write(bytes(at - self._out.position))
                _copy(self._old.file.source, self._out, span.start)

            at = span.end

    def _row_group(self, number: int) -> tuple[Struct, Struct]:
        """Write the columns of a row group. Returns it as the footer has it, and with these columns alone, in the clear."""
        group, chunks, start = self._groups[number], self._old.file.row_groups[number], self._out.position
        tops: dict[str, list[int]] = defaultdict(list)
        for ordinal in self._shown:
            tops[self._old.leaves[ordinal].path[0]].append(ordinal)
        encoded, in_the_clear, growth = list(chunks.encoded), [], 0

        for top, ordinals in tops.items():
            for ordinal, placed in self._placed(number, top, ordinals):
                cipher = self._encryption.cipher(placed.path)
                new = write_pages(self._out, cipher, placed, chunks[ordinal].ordinals)
                plain = new.struct.copy()
                plain.set(ColumnChunk.META_DATA, thrift.STRUCT, new.metadata)
                in_the_clear.append(plain)
                self._encryption.put_metadata(new.struct, new.metadata, new.ordinals, new.path)
                encoded[ordinal] = new.struct.encode()
                size = ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE
                growth += new.metadata.integer(size) - chunks[ordinal].metadata.integer(size)

        # Blanked rows are where they were, which need not be where the order of the others would have them.
        copy = without_order(group)
        copy.set(RowGroup.COLUMNS, thrift.LIST, encoded)
        copy.set(RowGroup.TOTAL_BYTE_SIZE, thrift.I64, group.integer(RowGroup.TOTAL_BYTE_SIZE) + growth)
        copy.set(RowGroup.FILE_OFFSET, thrift.I64, start)
        copy.set(RowGroup.TOTAL_COMPRESSED_SIZE, thrift.I64, self._out.position - start)
        alone = copy.copy()
        alone.set(RowGroup.COLUMNS, thrift.LIST, in_the_clear)

        return copy, alone

    def _placed(self, number: int, top: str, ordinals: Sequence[int]) -> Iterator[tuple[int, PlacedChunk]]:
        """Yield what the new file has of the columns below a top-level one, in their order."""
        chunks = self._old.file.row_groups[number]
        placeholders = {hidden.placeholder for hidden in self._old.hidden_leaves}
        as_they_are = {each for each in ordinals if each in placeholders and is_error_placeholder(chunks[each].metadata)}
        decoded = [each for each in ordinals if each not in as_they_are]
        blanked = iter(self._blanked(number, top, decoded) if decoded else ())
        for ordinal in ordinals:
            chunk = chunks[ordinal]
            yield ordinal, PlacedChunk(chunk, chunk.path) if ordinal in as_they_are else next(blanked)

    def _blanked(self, number: int, top: str, ordinals: Sequence[int]) -> list[PlacedChunk]:
        first, end = self._starts[number], self._starts[number + 1]
        here = [each - first for each in self._positions[bisect_left(self._positions, first) : bisect_left(self._positions, end)]]
        table = decoded_columns(self._old, self._groups[number], self._old.file.row_groups[number], top, ordinals)
        column = blanked_column(table.schema.field(0), table.column(0), here, self._around)
        blanked = pa.Table.from_arrays([column], schema=table.schema)
        leaves = [self._old.leaves[each] for each in ordinals]
        # Arrow's dictionaries hold one NaN for all.
        has_dictionaries = _FLOATS.isdisjoint(leaf.physical_type for leaf in leaves)
        chunks = written_as(leaves, blanked, self._location, compression="zstd", use_dictionary=has_dictionaries)
        return [PlacedChunk(chunk, leaf.path) for chunk, leaf in zip(chunks, leaves, strict=True)]

    def _shown_alone(self, groups: list[Struct]) -> pq.FileMetaData:
        """Return the new footer without the hidden columns, in the clear."""
        metadata = footer_of(self._old, self._shown)
        metadata.set(FileMetaData.ROW_GROUPS, thrift.LIST, groups)
        return pq.read_metadata(pa.BufferReader(PLAIN_MAGIC + plain_end(metadata)))


def _spans(chunk: Chunk) -> Iterator[Span]:
    """Yield where the modules of a chunk lie."""
    yield chunk.pages
    yield from (span for span in (chunk.column_index, chunk.offset_index) if span is not None)
    found = read_bloom_filter(chunk)
    if found is not None:
        yield from (found.header_span, found.bitset_span)


@dataclass(frozen=True)
class _Module:
    """Modules that follow one another in the old file, and what writes them into the new one."""

    span: Span
    what: str
    write: Callable[[], None]


def _modules(chunk: Chunk, cipher: ModuleCipher, out: Sink) -> Iterator[_Module]:
    yield _Module(chunk.pages, f"a page of {chunk.ordinals}", partial(_write_pages, chunk, cipher, out))
    for module_type, span in ((ModuleType.COLUMN_INDEX, chunk.column_index), (ModuleType.OFFSET_INDEX, chunk.offset_index)):
        if span is not None:
            what = chunk.ordinals.describe(module_type)
            yield _Module(span, what, partial(_write_index, chunk, span, module_type, cipher, out))

    found = read_bloom_filter(chunk)

    if found is not None:
        for module_type, span, plaintext in (
            (ModuleType.BLOOM_FILTER_HEADER, found.header_span, found.header),
            (ModuleType.BLOOM_FILTER_BITSET, found.bitset_span, found.bitset),
        ):
            encrypted = cipher.encrypt(chunk.ordinals.suffix(module_type), plaintext)
            yield _Module(span, chunk.ordinals.describe(module_type), partial(out.write, encrypted))


def _write_pages(chunk: Chunk, cipher: ModuleCipher, out: Sink) -> None:
    for page in read_pages(chunk):
        body = cipher.encrypt_page(chunk.ordinals.suffix(page.body_type, page.number), page.body)
        out.write(cipher.encrypt(chunk.ordinals.suffix(page.header_type, page.number), page.header.of_body(body)))
        out.write(body)


def _write_index(chunk: Chunk, span: Span, module_type: ModuleType, cipher: ModuleCipher, out: Sink) -> None:
    out.write(cipher.encrypt(chunk.ordinals.suffix(module_type), read_index(chunk, span, module_type)))


def _copy(source: Source, out: Sink, end: int) -> None:
    """Copy what lies before a position and has not been written."""
    if out.position > end:
        raise TamperedFileError(source.location, f"bytes {end} to {out.position} belong to two modules")
    while out.position < end:
        out.write(source.read_at(out.position, min(_PIECE, end - out.position)))
