"""Reading encrypted Parquet files into Arrow: whole, projected, filtered, or as a dataset.

    AES_GCM_V1, encrypted footer, only columns without keys of their own
                       pyarrow's C++ decrypts (tablecrypt.parquet.uniform)
    everything else    pyarrow reads a view of the file, which our modules decrypt (tablecrypt.parquet.plaintext_view)

Which of the two it is, the authenticated footer says for the columns that are read. Either way columns and row groups that are not asked
for, or that the statistics rule out, are not fetched. No row is made from bytes that did not authenticate, but for columns that the file
leaves in the clear and for pages in AES_GCM_CTR_V1; `strict` keys refuse both.

Raises TamperedFileError, PlaintextRefusedError, FormatError, KeyNotFoundError for a column whose key is not there, ConfigurationError for a
column or row group that the file does not have, or a filter that does not fit its columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from tablecrypt.arguments import checked_arguments
from tablecrypt.crypto.aes_gcm import TAG_LENGTH
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, FormatError, TablecryptError, TamperedFileError
from tablecrypt.parquet import thrift
from tablecrypt.parquet.footer import PLAIN_MAGIC, plain_end
from tablecrypt.parquet.keys import FileKeys
from tablecrypt.parquet.layout import FileLayout, encrypted_layout
from tablecrypt.parquet.plaintext_view import PlaintextView
from tablecrypt.parquet.storage import Source, await_release, open_source, source_of
from tablecrypt.parquet.thrift import FileMetaData
from tablecrypt.parquet.uniform import UniformParquetFile, is_store_error


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
        keys: of the footer, and of the columns to read; see FileKeys.
        columns: names of columns; `s.a` for the field `a` of a struct `s`, all of which is read for it. None: all.
        filters: an Arrow expression, or tuples (column, operator, value) as pyarrow.parquet takes them: which rows to keep.
        row_groups: indexes of those to read, whose rows come in the order of the file; None: all.
        use_threads: let pyarrow decode columns in parallel.
        location: names the file in errors.

    Raises: as the module says.
    """
    expression = _expression(filters)
    with open_source(source, location) as opened:
        layout = encrypted_layout(opened, keys)
        schema = arrow_schema(layout)
        _check_selection(layout, schema, columns, row_groups)
        _check_filter(layout, schema, expression)
        needed = _needed(schema, columns, expression)
        if layout.ciphers is not None and _is_uniform(layout, needed):
            return _uniform_file(opened, layout, layout.ciphers.footer_key, keys).read(columns, expression, row_groups, use_threads)
        view = PlaintextView(layout, needed)
        await_release(view)
        fragment = _fragment(view, layout.location)
        with _decoding(layout.location):
            chosen = fragment if row_groups is None else fragment.subset(row_group_ids=row_groups)
            return chosen.to_table(schema=schema, columns=columns, filter=expression, use_threads=use_threads)


@checked_arguments(but=("keys",))
def dataset(sources: Any, keys: FileKeys) -> ds.Dataset:
    """Open an encrypted file, or a list of files under the same keys, as an Arrow dataset, which reads what a scan asks for.

    A file that is given as a path stays open as long as the dataset lives. Columns whose keys are not there can be left out of scans, and
    fail them otherwise. The schema is that of the first file. Errors are `read_table`'s.
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
    """What pyarrow makes of the schema in the footer."""
    metadata = layout.metadata.copy(without=(FileMetaData.ENCRYPTION_ALGORITHM, FileMetaData.FOOTER_SIGNING_KEY_METADATA))
    metadata.set(FileMetaData.ROW_GROUPS, thrift.LIST, [])
    metadata.set(FileMetaData.NUM_ROWS, thrift.I64, 0)
    with _decoding(layout.location):
        return pq.read_schema(pa.BufferReader(PLAIN_MAGIC + plain_end(metadata)))


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
    file = UniformParquetFile(source.file, key_metadata, layout.location, under_one_key=False)
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
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"filters are an Arrow expression or tuples (column, operator, value): {error}") from None


def _check_filter(layout: FileLayout, schema: pa.Schema, expression: pc.Expression | None) -> None:
    if expression is None:
        return
    try:
        _bind(expression, schema)
    except pa.ArrowException as error:
        raise ConfigurationError(f"{layout.location}: the filter does not fit the columns of the file: {error}") from None


def _bind(expression: pc.Expression, schema: pa.Schema) -> None:
    """An ArrowException when the expression cannot be evaluated on rows of that schema."""
    ds.dataset(schema.empty_table()).scanner(filter=expression)


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
    if columns is None:
        return set(schema.names)
    chosen = {name if name in schema.names else name.partition(".")[0] for name in columns}
    if expression is None:
        return chosen
    return chosen | {name for name in schema.names if _refers_to(expression, name, schema)}


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
        if isinstance(error, TablecryptError) or is_store_error(error):
            raise
        raise FormatError(f"{location}: cannot be decoded: {error}") from error
