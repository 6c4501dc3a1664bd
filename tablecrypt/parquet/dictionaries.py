"""Values that a file stores and none of its rows has: the rest of the dictionaries that its writer had.

pandas' categories are dictionaries in Arrow. A filter leaves the whole dictionary with fewer rows, and Arrow writes all of it:

    "a" "b" "a" "c", as categories  ─▶  the row of "b"  ─▶  a file    dictionary page    "a" "b" "c"
                                                                     data page          1

No row, bound or filter shows "a" and "c", and whoever has the file's key reads them. So a file that gets a new key is not copied page by
page where its footer says that its writer had dictionaries: its values are written again. Only Arrow's writers say so, and only where
they note the types of their columns, as they do unless they are told not to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter, methodcaller
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tablecrypt._arrow_types import is_list, without_nulls_of_null_structs
from tablecrypt._store_errors import is_store_error, reraise_naming
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError
from tablecrypt.parquet.footer import PLAIN_MAGIC, plain_end
from tablecrypt.parquet.layout import has_dictionary
from tablecrypt.parquet.text_columns import plain_rows, plain_schema
from tablecrypt.parquet.thrift import Struct
from tablecrypt.parquet.uniform import UniformParquetFile, UniformParquetWriter

_CODECS: Final = {"UNCOMPRESSED": "NONE"}
"""Where the names of codecs in Arrow's footers are not those that its writer takes."""


def keeps_unused_values(file: UniformParquetFile) -> bool:
    """Whether the dictionaries that a file's writer had hold values that none of its rows has. All columns that were some are read.

    Args:
        file: opened with the dictionaries of its writer (`dictionary_columns=None`).

    Raises:
        TamperedFileError: a module does not authenticate.
    """
    columns = [field.name for field in file.schema if has_dictionary(field.type)]
    if not columns:
        return False

    # Each row group has dictionaries of its own.
    groups = (file.read(columns, None, [number], use_threads=False) for number in range(file.footer().num_row_groups))
    return any(_has_unused_values(column.chunks) for group in groups for column in group.columns)


def _has_unused_values(arrays: list[pa.Array]) -> bool:
    """Whether dictionaries at any level of the arrays of one column have values that none of the arrays has."""
    if not arrays:
        return False
    kind = arrays[0].type
    if pa.types.is_dictionary(kind):
        whole = pa.chunked_array(arrays).unify_dictionaries().combine_chunks()
        return bool(len(whole.dictionary) > pc.count_distinct(whole.indices).as_py())
    return any(_has_unused_values([part(each) for each in arrays]) for part in _parts_of(kind))


def _parts_of(kind: pa.DataType) -> Iterable[Callable[[pa.Array], pa.Array]]:
    if pa.types.is_struct(kind):
        return [methodcaller("field", at) for at in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [attrgetter("keys"), attrgetter("items")]
    return [attrgetter("values")] if is_list(kind) or pa.types.is_fixed_size_list(kind) else []


def write_values(
    source: Any, old: StandardKeyMetadata | None, sink: Any, new: StandardKeyMetadata, location: str, metadata: Struct | None = None
) -> int:
    """Write the values of a file's rows into an encrypted file, without the dictionaries that its writer had. Returns its length in bytes.

    Row groups, columns, their field ids and codecs stay. Bloom filters and page indexes do not; statistics are made anew.

    Args:
        source: a Parquet file, open for reading.
        old: its key metadata; None says that it is plaintext.
        sink: open for writing. The caller closes it.
        new: the new file's key metadata.
        location: names the source in errors.
        metadata: the FileMetaData to read a plaintext file by; None for its own.

    Raises:
        TamperedFileError: a module of an encrypted file does not authenticate.
        FormatError: Arrow does not read the file.
    """
    schema, footer, group = _opened(source, old, location, metadata)
    writer = UniformParquetWriter(sink, schema, new, compression=_codecs(footer))
    for number in range(footer.num_row_groups):
        rows = [without_nulls_of_null_structs(batch) for batch in group(number).to_batches()]
        writer.write(pa.Table.from_batches(rows, schema), max(1, footer.row_group(number).num_rows))
    return writer.close()[1]


def _opened(
    source: Any, old: StandardKeyMetadata | None, location: str, metadata: Struct | None
) -> tuple[pa.Schema, pq.FileMetaData, Callable[[int], pa.Table]]:
    """Return the columns as plain values, the footer, and what reads a row group."""
    if old is not None:
        file = UniformParquetFile(source, old, location)
        return file.schema, file.footer(), lambda number: file.read(None, None, [number], use_threads=False)

    with _named(location):
        plain = pq.ParquetFile(source, metadata=None if metadata is None else _parsed(metadata), arrow_extensions_enabled=True)

    def group(number: int) -> pa.Table:
        with _named(location):
            return plain_rows(plain.read_row_group(number, use_threads=False))

    return plain_schema(plain.schema_arrow), plain.metadata, group


def _parsed(metadata: Struct) -> pq.FileMetaData:
    return pq.read_metadata(pa.BufferReader(PLAIN_MAGIC + plain_end(metadata)))


def _codecs(footer: pq.FileMetaData) -> str | dict[str, str]:
    if not footer.num_row_groups:
        return "NONE"
    group = footer.row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    return {chunk.path_in_schema: _CODECS.get(chunk.compression, chunk.compression) for chunk in chunks}


@contextmanager
def _named(location: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        if is_store_error(error):
            reraise_naming(error, location)
        raise FormatError(f"{location}: Arrow does not read this Parquet file: {error}") from error
