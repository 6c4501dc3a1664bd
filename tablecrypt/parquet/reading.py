"""Reading encrypted Parquet files into Arrow: whole, projected, filtered, or as a dataset.

    AES_GCM_V1, encrypted footer, only columns without keys of their own
                       pyarrow's C++ decrypts (tablecrypt.parquet.uniform)
    everything else    pyarrow reads a view of the file, which our modules decrypt (`PlaintextView`)

Which of the two it is, the authenticated footer says for the columns that are read. Either way columns and row groups that are not asked
for, or that the statistics rule out, are not fetched. No row is made from bytes that did not authenticate, but for columns that the file
leaves in the clear and for pages in AES_GCM_CTR_V1; `strict` keys refuse both.

The view is a plaintext file that is decrypted chunk by chunk, as it is read, and stored nowhere:

    encrypted file   PARE | chunk 0, encrypted        | chunk 1, encrypted   | indexes, bloom filters | footer, encrypted | length | PARE
    view             PAR1 | chunk 0        | zeros | chunk 1   | zeros | zeros                        | footer | length | PAR1

A chunk in the clear is never longer than it is encrypted, so it has the same place in both, and nothing but the footer has to be read
before the view can be. A read fetches the chunk in which it begins, authenticates all of its modules, and only then returns bytes of it;
what it asks for beyond that chunk is zeros. Projection and row-group pruning are the reader's doing: what it does not read is not fetched.

The view has no page indexes and no bloom filters. A column whose key is not there is locked: its chunks cannot be read, and raise the error
that says so. Of columns that were not asked for, the footer holds what it held, for a reader to step over: there is no chunk of them.

Raises TamperedFileError, PlaintextRefusedError, FormatError, KeyNotFoundError or KmsAccessDeniedError for a column whose key is not there,
ConfigurationError for a column or row group that the file does not have, or a filter that does not fit its columns or their values.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from tablecrypt._store_errors import is_store_error, reraise_naming
from tablecrypt.arguments import checked_arguments
from tablecrypt.crypto.aes_gcm import TAG_LENGTH
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, FormatError, KeyNotFoundError, KmsAccessDeniedError, TablecryptError, TamperedFileError
from tablecrypt.parquet import thrift
from tablecrypt.parquet.chunk_modules import decrypt_chunk
from tablecrypt.parquet.file_keys import FileKeys
from tablecrypt.parquet.footer import PLAIN_MAGIC, described, plain_end
from tablecrypt.parquet.layout import Chunk, FileLayout, RowGroupLayout, Span, encrypted_layout
from tablecrypt.parquet.storage import FileView, Source, await_release, open_source, source_of
from tablecrypt.parquet.structs import (
    BLOOM_FILTER,
    ENCRYPTION_IN_FOOTER,
    INDEXES_AND_ENCRYPTION,
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    RowGroup,
)
from tablecrypt.parquet.text_columns import without_views
from tablecrypt.parquet.thrift import Struct
from tablecrypt.parquet.uniform import UniformParquetFile
from tablecrypt.printable import one_line

_FOOTER_GUESS: Final = 64 * 1024
"""A reader that fetches so much of the end at once, to have the footer with it, meets zeros before the footer and no chunk."""
_BY_POSITION: Final = "FieldPath("
"""In the text of an expression that refers to a column by its position."""


@checked_arguments(but=("keys",))
def read_table(
    source: Any,
    keys: FileKeys,
    columns: list[str] | None = None,
    filters: pc.Expression | list[Any] | None = None,
    *,
    row_groups: list[int] | None = None,
    use_threads: bool = True,
    location: str | None = None,
) -> pa.Table:
    """Read an encrypted Parquet file as an Arrow table.

    Args:
        source: a path, URI, buffer or seekable binary file.
        keys: for the footer, and for the columns to read; see FileKeys.
        columns: names of columns; `s.a` for the field `a` of a struct `s`, all of which is read for it. None: all.
        filters: an Arrow expression, or tuples (column, operator, value) as pyarrow.parquet takes them: which rows to keep.
        row_groups: indexes of the row groups to read, in the order of the file; None reads all.
        use_threads: let pyarrow decode columns in parallel.
        location: names the file in errors.

    Raises: the errors that the module lists.
    """
    expression = _expression(filters)
    columns = None if columns is None else list(columns)  # pyarrow takes no tuple, which one name becomes
    with open_source(source, location) as opened:
        layout = encrypted_layout(opened, keys)
        schema = arrow_schema(layout)
        _check_selection(layout, schema, columns, row_groups)
        _check_filter(layout, schema, expression)
        needed = _needed(schema, columns, expression)

        def read(taken: list[str] | None, kept: pc.Expression | None) -> pa.Table:
            if layout.ciphers is not None and _is_uniform(layout, needed):
                return _uniform_file(opened, layout, layout.ciphers.footer_key, keys).read(taken, kept, row_groups, use_threads)

            view = PlaintextView(layout, needed)
            await_release(view)
            fragment = _fragment(view, layout.location)
            with _decoding(layout.location):
                chosen = fragment if row_groups is None else fragment.subset(row_group_ids=row_groups)
                return chosen.to_table(schema=schema, columns=taken, filter=kept, use_threads=use_threads)

        try:
            return read(columns, expression)
        except FormatError:
            if expression is None:
                raise
            # Arrow fails alike where bytes cannot be decoded and where a value does not suit the filter: such a file is whole without it.
            read(sorted(needed), None)
            raise ConfigurationError(
                f"{layout.location}: a value of the file does not suit the filter, as text does a cast to a number"
            ) from None


@checked_arguments(but=("keys",))
def dataset(sources: Any, keys: FileKeys) -> ds.Dataset:
    """Open an encrypted file, or several files under the same keys, as an Arrow dataset, which reads only what a scan needs.

    A file that is given as a path stays open as long as the dataset exists. A scan may leave out columns whose keys are missing; with them
    it fails. The schema is that of the first file. Errors are `read_table`'s.
    """
    files = sources if isinstance(sources, list) else [sources]
    if not files:
        raise ConfigurationError("a dataset has at least one file")
    layouts = [encrypted_layout(source_of(source), keys) for source in files]
    fragments = [_fragment(PlaintextView(layout), layout.location) for layout in layouts]
    return ds.FileSystemDataset(fragments, arrow_schema(layouts[0]), ds.ParquetFileFormat(), fs.LocalFileSystem())


@checked_arguments(but=("keys",))
def read_schema(source: Any, keys: FileKeys, *, location: str | None = None) -> pa.Schema:
    """Return the Arrow schema of an encrypted file. Only the footer is read."""
    with open_source(source, location) as opened:
        return arrow_schema(encrypted_layout(opened, keys))


def arrow_schema(layout: FileLayout) -> pa.Schema:
    """What pyarrow makes of the schema in the footer, but for views, which it can neither compare nor filter."""
    metadata = layout.metadata.copy(without=ENCRYPTION_IN_FOOTER)
    metadata.set(FileMetaData.ROW_GROUPS, thrift.LIST, [])
    metadata.set(FileMetaData.NUM_ROWS, thrift.I64, 0)
    with _decoding(layout.location):
        return without_views(pq.read_schema(pa.BufferReader(PLAIN_MAGIC + plain_end(metadata))))


def _is_uniform(layout: FileLayout, columns: Set[str]) -> bool:
    """Whether pyarrow's core can decrypt these top-level columns by the footer key, and authenticates all that it decrypts."""
    algorithm = layout.footer.algorithm
    if algorithm is None or algorithm.ctr or not layout.footer.is_encrypted:
        return False
    leaves = layout.leaves_of(columns)
    chunks = (group[column] for group in layout.row_groups for column in leaves)
    return all(chunk.is_encrypted and not chunk.has_own_key for chunk in chunks)


def _uniform_file(source: Source, layout: FileLayout, footer_key: Secret, keys: FileKeys) -> UniformParquetFile:
    """Open the file of that layout again, for pyarrow. TamperedFileError where storage gives another one now."""
    algorithm = layout.footer.algorithm
    stored_prefix = None if algorithm is None else algorithm.aad_prefix
    key_metadata = StandardKeyMetadata(footer_key, stored_prefix or keys.aad_prefix, keys.file_length)
    file = UniformParquetFile(source.file, key_metadata, layout.location, dictionary_columns=None, under_one_key=False)
    # Which column is under which key was decided by the first footer: another one would be read without that check.
    if file.footer_tag != layout.footer.stored[-TAG_LENGTH:]:
        raise TamperedFileError(layout.location, "was exchanged for another file while it was read")

    return file


def _fragment(view: PlaintextView, location: str) -> ds.ParquetFileFragment:
    # Without pre_buffer each read is of one column chunk, so none is decrypted only because it lies between two others.
    options = ds.ParquetFragmentScanOptions(pre_buffer=False)
    with _decoding(location):
        return ds.ParquetFileFormat(default_fragment_scan_options=options).make_fragment(pa.PythonFile(view, mode="r"))


def _check_selection(layout: FileLayout, schema: pa.Schema, columns: list[str] | None, row_groups: list[int] | None) -> None:
    for name in columns or ():
        if not _has_column(schema, name):
            raise ConfigurationError(f"{layout.location}: has no column {name!r}; its columns are {', '.join(schema.names)}")
    for index in row_groups or ():
        if not 0 <= index < len(layout.row_groups):
            raise ConfigurationError(f"{layout.location}: has no row group {index}; it has {len(layout.row_groups)}")


def _expression(filters: pc.Expression | list[Any] | None) -> pc.Expression | None:
    if filters is None or isinstance(filters, pc.Expression):
        return filters
    try:
        return pq.filters_to_expression(filters)
    except (OverflowError, TypeError, ValueError) as error:
        raise ConfigurationError(f"filters are an Arrow expression or tuples (column, operator, value): {error}") from None


def _check_filter(layout: FileLayout, schema: pa.Schema, expression: pc.Expression | None) -> None:
    if expression is None:
        return
    try:
        # Read too: that it says of each row whether to keep it shows only there.
        _bind(expression, schema).to_table()
    except pa.ArrowException as error:
        raise ConfigurationError(f"{layout.location}: the filter does not fit the columns of the file: {one_line(error)}") from None


def _bind(expression: pc.Expression, schema: pa.Schema) -> ds.Scanner:
    """Return a scan of no rows. An ArrowException when the expression cannot be evaluated on rows of that schema."""
    return ds.dataset(pa.Table.from_batches([], schema)).scanner(filter=expression)


def _has_column(schema: pa.Schema, name: str) -> bool:
    """Whether that is a column, or the dotted path of a field in structs."""
    if name in schema.names:
        return True

    top, *path = name.split(".")
    if top not in schema.names:
        return False

    inner = schema.field(top).type
    for step in path:
        if not pa.types.is_struct(inner) or inner.get_field_index(step) < 0:
            return False
        inner = inner.field(step).type

    return True


def _needed(schema: pa.Schema, columns: list[str] | None, expression: pc.Expression | None) -> set[str]:
    """The top-level columns that a read takes, those that only the filter looks at included: the keys of others are not asked for."""
    own = set(schema.names)
    if columns is None:
        return own

    chosen = {name if name in own else name.partition(".")[0] for name in columns}
    if expression is None:
        return chosen
    # Which columns it refers to by position nobody tells, and of one whose key it lacks Arrow waits for statistics without end.
    if _BY_POSITION in str(expression):
        return own

    return chosen | {name for name in own if _refers_to(expression, name, schema)}


def _refers_to(expression: pc.Expression, name: str, schema: pa.Schema) -> bool:
    """Whether the expression cannot do without that column. Arrow does not list the columns of an expression."""
    others = pa.schema([field for field in schema if field.name != name])
    try:
        _bind(expression, others)
    except pa.ArrowException:
        return True
    return False


@contextmanager
def _decoding(location: str) -> Iterator[None]:
    """Say which file it is whose authentic bytes pyarrow cannot decode."""
    try:
        yield
    except (OSError, pa.ArrowException, RuntimeError, UnicodeDecodeError) as error:
        # pyarrow passes on what our view raised. A store that fails says nothing of the bytes.
        if isinstance(error, TablecryptError):
            raise
        if is_store_error(error):
            reraise_naming(error, location)
        raise FormatError(f"{location}: cannot be decoded: {one_line(error)}") from error


@dataclass(frozen=True, slots=True)
class _Region:
    """Where in the view a chunk is; or why it cannot be there."""

    span: Span
    chunk: Chunk
    locked: TablecryptError | None


class PlaintextView(FileView):
    """A read-only, seekable binary file. Not for use by two threads at a time; pyarrow takes care of that.

    Args:
        layout: the encrypted file.
        columns: names of the top-level columns to decrypt; a reader can take no others. None: all whose keys can be had.
    """

    def __init__(self, layout: FileLayout, columns: Set[str] | None = None) -> None:
        self._layout = layout
        self._leaves = None if columns is None else layout.leaves_of(columns)
        super().__init__()
        # A reader that takes a chunk in pieces has it decrypted once.
        self._last: tuple[_Region, memoryview] | None = None
        self._regions: list[_Region] = []
        self._locked_end = layout.footer.start
        groups = [
            self._row_group(group, chunks)
            for group, chunks in zip(layout.metadata.structs(FileMetaData.ROW_GROUPS), layout.row_groups, strict=True)
        ]
        self._regions.sort(key=lambda region: region.span.start)
        self._starts = [region.span.start for region in self._regions]
        metadata = layout.metadata.copy(without=ENCRYPTION_IN_FOOTER)
        metadata.set(FileMetaData.ROW_GROUPS, thrift.LIST, groups)
        self._footer = plain_end(metadata)
        self._footer_start = self._locked_end + _FOOTER_GUESS

    def size(self) -> int:
        """Bytes of the view."""
        return self._footer_start + len(self._footer)

    def _read_at(self, offset: int, length: int) -> bytes | memoryview:
        at = bisect_right(self._starts, offset) - 1
        if at < 0 or offset >= self._regions[at].span.end:
            return self._read_around_chunks(offset, length)
        region = self._regions[at]
        if region.locked is not None:
            raise region.locked
        return self._read_chunk(region, offset - region.span.start, length)

    def _read_around_chunks(self, offset: int, length: int) -> bytes:
        head = PLAIN_MAGIC[offset : offset + length]
        end = self._footer[max(0, offset - self._footer_start) : max(0, offset + length - self._footer_start)]
        return head + bytes(length - len(head) - len(end)) + end

    def _read_chunk(self, region: _Region, skipped: int, length: int) -> bytes | memoryview:
        if self._last is None or self._last[0] is not region:
            self._last = (region, decrypt_chunk(region.chunk))
        decrypted = self._last[1][skipped : skipped + length]
        if decrypted.nbytes < length:
            return bytes(decrypted) + bytes(length - decrypted.nbytes)

        # A reader that has all of it does not come back, and plaintext is kept no longer.
        if decrypted.nbytes == region.span.length:
            self._last = None
        return decrypted

    def _row_group(self, group: Struct, chunks: RowGroupLayout) -> Struct:
        with described(self._layout.location, "a row group in the footer"):
            num_rows = group.integer(RowGroup.NUM_ROWS)
        encoded = list(chunks.encoded)
        for column in range(len(chunks)) if self._leaves is None else self._leaves:
            encoded[column] = self._chunk(chunks[column], num_rows).encode()
        copy = group.copy()
        copy.set(RowGroup.COLUMNS, thrift.LIST, encoded)

        return copy

    def _chunk(self, chunk: Chunk, num_rows: int) -> Struct:
        try:
            metadata, region = chunk.metadata.copy(without=BLOOM_FILTER), _Region(chunk.pages, chunk, None)
        except (KeyNotFoundError, KmsAccessDeniedError) as error:
            # The caller asked for this column. A view of all columns locks it instead.
            if self._leaves is not None:
                raise
            # Behind all chunks: where the true one lies is in metadata that is locked.
            span = Span(self._locked_end, 1)
            self._locked_end += span.length
            metadata, region = _locked_metadata(chunk, span, num_rows), _Region(span, chunk, error)

        self._regions.append(region)
        struct = chunk.struct.copy(without=INDEXES_AND_ENCRYPTION)
        struct.set(ColumnChunk.META_DATA, thrift.STRUCT, metadata)

        return struct


def _locked_metadata(chunk: Chunk, span: Span, num_values: int) -> Struct:
    """What makes a reader that wants the column read that span, and meet the error."""
    metadata = Struct()
    metadata.set(ColumnMetaData.TYPE, thrift.I32, 0)
    metadata.set(ColumnMetaData.ENCODINGS, thrift.LIST, thrift.encode_binaries([]))
    metadata.set(ColumnMetaData.PATH_IN_SCHEMA, thrift.LIST, thrift.encode_binaries([name.encode() for name in chunk.path]))
    metadata.set(ColumnMetaData.CODEC, thrift.I32, 0)
    metadata.set(ColumnMetaData.NUM_VALUES, thrift.I64, num_values)
    metadata.set(ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE, thrift.I64, span.length)
    metadata.set(ColumnMetaData.TOTAL_COMPRESSED_SIZE, thrift.I64, span.length)
    metadata.set(ColumnMetaData.DATA_PAGE_OFFSET, thrift.I64, span.start)

    return metadata
