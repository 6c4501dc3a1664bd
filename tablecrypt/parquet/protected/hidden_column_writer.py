"""Writing files with protected columns: pyarrow's C++ encrypts every column of the table, and the hidden columns are added here.

    rows ──▶ placeholders, other columns ──pyarrow, under the DEK──▶ row group, whose blanks become error placeholders on their way
    rows ──▶ hidden columns ──pyarrow, in the clear in memory──▶ pages ──each under its column key──▶ behind the row group
    end  ──▶ pyarrow's footer, held back until it has the hidden columns, apart from those that it lists, and encrypted again

The hidden columns' pages are made with the same options as the others, and encrypted module by module (writing.py).

The whole file has one AAD prefix and one aad_file_unique, so that nothing of it opens in another file.

Raises what UniformParquetWriter raises, and ConfigurationError for a protected field that is not among the columns.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tablecrypt._arrow_types import cast_values
from tablecrypt._bytes import flat_view, write_all
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.keys.bound_schemas import BoundSchema
from tablecrypt.parquet import thrift
from tablecrypt.parquet.file_keys import FileKeys
from tablecrypt.parquet.footer import TAIL_LENGTH, FileCiphers, encrypted_footer
from tablecrypt.parquet.layout import plain_layout
from tablecrypt.parquet.modules import ModuleOrdinals
from tablecrypt.parquet.protected.hidden_arrays import Replacement, hidden_column, hidden_field, path_to, replaced, written_by_arrow
from tablecrypt.parquet.protected.hidden_columns import (
    bound_schemas,
    check_names,
    hidden_leaves_among,
    hidden_name,
    leaves_of,
    pages_of_hidden_column,
    without_hidden_columns,
)
from tablecrypt.parquet.protected.placeholders import ErrorPlaceholderSink, blanks, error_placeholder_chunk
from tablecrypt.parquet.storage import Sink, open_source
from tablecrypt.parquet.structs import COLUMN_CHUNK_SHAPE, ColumnMetaData, FileMetaData, RowGroup
from tablecrypt.parquet.thrift import Struct
from tablecrypt.parquet.uniform import UniformParquetWriter
from tablecrypt.parquet.writing import FileEncryption, NewChunk, PlacedChunk, write_pages

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NAMED_AFTER_THE_SCHEMA: Final = (FileMetaData.SCHEMA, FileMetaData.COLUMN_ORDERS)
_LOCATION: Final = "the new Parquet file"


@dataclass(frozen=True)
class ProtectedField:
    """A field whose values go into a hidden column.

    Attributes:
        field_id: in the metadata of the Arrow schema.
        key: of the hidden column, 16, 24 or 32 bytes.
        key_metadata: returns what the footer stores of the key, which binds the schema of the column.
        mask: makes what the placeholder holds; None for an error placeholder.
    """

    field_id: int
    key: Secret
    key_metadata: Callable[[BoundSchema], bytes]
    mask: Replacement | None = None


class ProtectedParquetWriter:
    """Writes one file with protected columns into an open output stream, which the caller closes.

    Args:
        sink: where the ciphertext goes.
        schema: the Arrow schema of every table written, with field ids in its metadata (PARQUET:field_id).
        key_metadata: a DEK and AAD prefix that no other file has.
        fields: what is protected, at least one.
        options: pyarrow.parquet.ParquetWriter's. No page indexes are written: those of error placeholders would describe blanks, and belong
            to no column.
    """

    def __init__(
        self, sink: Any, schema: pa.Schema, key_metadata: StandardKeyMetadata, fields: Sequence[ProtectedField], **options: Any
    ) -> None:
        # A column of the user's under such a name would be taken for a hidden column by every reader.
        check_names(schema.names)
        self._stream = _SwitchedStream(sink)
        # pyarrow counts the bytes that it has written itself, so that ours go through the same file.
        self._sink = pa.PythonFile(self._stream, mode="w")
        self._fields = {field.field_id: field for field in fields}
        self._paths = {field_id: path_to(schema, field_id) for field_id in self._fields}
        self._hidden_schema = pa.schema([hidden_field(schema, path, field_id) for field_id, path in self._paths.items()])
        options = {**options, "write_page_index": False}
        # As UniformParquetWriter writes decimals: a hidden column has to have the physical type of its placeholder.
        self._options = {**options, "store_decimal_as_integer": True}
        # pyarrow describes both alike here, so that the nodes of a hidden column are those of its placeholder, which readers compare.
        self._described = self._empty_file(schema)
        self._leaves = leaves_of(self._described.structs(FileMetaData.SCHEMA))
        self._hidden_leaves = hidden_leaves_among(self._leaves, _LOCATION)
        schemas = bound_schemas(self._described.structs(FileMetaData.SCHEMA), self._hidden_leaves, _LOCATION)
        self._error_placeholders = sorted(
            hidden.placeholder for hidden in self._hidden_leaves if self._fields[hidden.field_id].mask is None
        )
        # An error placeholder says that its dictionary is missing, so pyarrow must not write one for it.
        with_dictionary, self._hidden_options = self._dictionaries(options.get("use_dictionary", True))
        self._uniform = UniformParquetWriter(self._sink, schema, key_metadata, **{**options, "use_dictionary": with_dictionary})
        self._key_metadata = key_metadata
        self._encryption = FileEncryption(
            FileKeys(
                key_metadata.encryption_key,
                {hidden_name(field.field_id): field.key for field in fields},
                key_metadata.aad_prefix,
                column_key_metadata={hidden_name(field.field_id): field.key_metadata(schemas[field.field_id]) for field in fields},
            ),
            _LOCATION,
            secrets.token_bytes,
            # The same for pyarrow's modules and ours: a reader derives the AAD of both from one footer.
            self._uniform.aad_file_unique(),
        )
        cipher = self._encryption.cipher(self._leaves[0].path)
        assert cipher is not None and self._leaves[0].hidden_field_id is None, (
            "placeholders come before hidden columns, and all are encrypted"
        )
        self._cipher = cipher
        self._groups: list[list[NewChunk]] = []

    def write(self, table: pa.Table, row_group_size: int) -> None:
        """Write a table in row groups of at most `row_group_size` rows."""
        for start in range(0, table.num_rows, row_group_size):
            self._write_row_group(table.slice(start, row_group_size))

    def close(self) -> tuple[pq.FileMetaData, int]:
        """Write the footer. Returns pyarrow's metadata of the other columns, without the hidden ones, and the file's length in bytes."""
        # pyarrow's footer does not name the hidden columns, so it must not reach the sink.
        with io.BytesIO() as ending, self._stream.to(ending):
            metadata, end = self._uniform.close()
            held = ending.getvalue()
        start = end - len(held)
        footer = encrypted_footer(_LOCATION, start, held[:-TAIL_LENGTH])
        ciphers = FileCiphers(footer, FileKeys.of_table_file(self._key_metadata))
        sink = Sink(self._stream, start)
        self._encryption.write_footer(sink, without_hidden_columns(self._with_hidden_columns(footer.open(ciphers.footer))))

        return metadata, sink.position

    def _write_row_group(self, rows: pa.Table) -> None:
        shown = rows
        # pyarrow gets no protected value: all that it encrypts is under the DEK, which every reader of the table has.
        for field_id, path in self._paths.items():
            shown = replaced(shown, path, self._fields[field_id].mask or blanks)
        number = len(self._groups)
        placeholders = [ModuleOrdinals(number, column, self._path(column)) for column in self._error_placeholders]
        if placeholders:
            changed = ErrorPlaceholderSink(self._stream.file, self._cipher, placeholders)
            with self._stream.to(changed):
                self._uniform.write(shown, rows.num_rows)
            changed.finish()
        else:
            self._uniform.write(shown, rows.num_rows)
        self._groups.append(self._write_hidden_columns(Sink(self._sink, self._sink.tell()), rows, number))

    def _path(self, column: int) -> str:
        return ".".join(self._leaves[column].path)

    def _write_hidden_columns(self, sink: Sink, rows: pa.Table, row_group: int) -> list[NewChunk]:
        columns = [
            pa.chunked_array([cast_values(each, field.type) for each in hidden_column(rows, path).chunks], field.type)
            for path, field in zip(self._paths.values(), self._hidden_schema, strict=True)
        ]
        made = written_by_arrow(pa.Table.from_arrays(columns, schema=self._hidden_schema), _LOCATION, **self._hidden_options)
        return [
            write_pages(
                sink,
                self._encryption.cipher(chunk.path),
                PlacedChunk(chunk, chunk.path, pages_of_hidden_column(chunk)),
                ModuleOrdinals(row_group, hidden.ordinal, self._path(hidden.ordinal)),
            )
            for hidden, chunk in zip(self._hidden_leaves, made.row_groups[0], strict=True)
        ]

    def _dictionaries(self, chosen: bool | list[str]) -> tuple[list[str], dict[str, Any]]:
        """Which columns get dictionaries: no error placeholder, and each hidden column as its placeholder would."""
        names = [self._path(column) for column in range(len(self._leaves))]
        wanted = names if chosen is True else (chosen or [])
        hidden_leaves = [names[hidden.ordinal] for hidden in self._hidden_leaves if names[hidden.placeholder] in wanted]
        without = {names[column] for column in self._error_placeholders}
        shown = [name for name, leaf in zip(names, self._leaves, strict=True) if leaf.hidden_field_id is None and name in wanted]
        # With page indexes, which are not taken over, pyarrow leaves statistics out of the pages: see `pages_of_hidden_column`.
        options = {**self._options, "use_dictionary": hidden_leaves, "write_page_index": True}
        return [name for name in shown if name not in without], options

    def _empty_file(self, schema: pa.Schema) -> Struct:
        """The footer of a file without rows: what pyarrow says of the columns and the hidden columns together."""
        every = pa.schema([*schema, *self._hidden_schema], schema.metadata)
        plaintext = pa.BufferOutputStream()
        pq.ParquetWriter(plaintext, every, **self._options).close()
        with open_source(plaintext.getvalue(), _LOCATION) as source:
            return plain_layout(source).metadata

    def _with_hidden_columns(self, metadata: Struct) -> Struct:
        copy = metadata.copy(without=_NAMED_AFTER_THE_SCHEMA)
        for field_id in _NAMED_AFTER_THE_SCHEMA:
            # pyarrow's footer has the schema of the placeholders alone. So has the Arrow schema in it, by which Arrow reads what is listed.
            if field_id in self._described:
                copy.fields[field_id] = self._described.fields[field_id]

        groups = zip(metadata.structs(FileMetaData.ROW_GROUPS), self._groups, strict=True)
        copy.set(FileMetaData.ROW_GROUPS, thrift.LIST, [self._group_with_hidden_columns(group, added) for group, added in groups])

        return copy

    def _group_with_hidden_columns(self, group: Struct, hidden_leaves: list[NewChunk]) -> Struct:
        chunks = list(group.deferred_structs(RowGroup.COLUMNS))
        # Statistics of blanks would say that all values are null or empty, and a filter would skip the row group instead of failing.
        for column in self._error_placeholders:
            chunks[column] = error_placeholder_chunk(thrift.decode(chunks[column], COLUMN_CHUNK_SHAPE)).encode()
        copy = group.copy()
        for chunk in hidden_leaves:
            self._encryption.put_metadata(chunk.struct, chunk.metadata, chunk.ordinals, chunk.path)
            chunks.append(chunk.struct.encode())
        # Where hidden columns end is seen anyway. How long their values are uncompressed is not: total_byte_size stays that of the others.
        stored = sum(chunk.metadata.integer(ColumnMetaData.TOTAL_COMPRESSED_SIZE) for chunk in hidden_leaves)
        copy.set(RowGroup.TOTAL_COMPRESSED_SIZE, thrift.I64, group.integer(RowGroup.TOTAL_COMPRESSED_SIZE) + stored)
        copy.set(RowGroup.COLUMNS, thrift.LIST, chunks)

        return copy


class _SwitchedStream:
    """A stream whose bytes go to a file, or for a while elsewhere."""

    closed: Final = False
    mode: Final = "wb"

    def __init__(self, file: Any) -> None:
        self.file: Final = file
        self._to = file

    @contextmanager
    def to(self, other: Any) -> Iterator[None]:
        """Have `other` take the bytes that come."""
        self._to = other
        try:
            yield
        finally:
            self._to = self.file

    def write(self, data: Buffer) -> int:
        # An error that a caller keeps must hold no buffer of Python's own I/O: see `flat_view`.
        with flat_view(data) as view:
            del data
            write_all(self._to, view)
            return view.nbytes

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        """Does nothing: the stream is the caller's."""

    def close(self) -> None:
        """Does nothing: the stream is the caller's."""
