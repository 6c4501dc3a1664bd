"""Writing ORC files with encrypted columns: pyarrow writes masks and true values, then the true values are encrypted.

    rows ─► parts of about one stripe ─► masks applied, true values appended as shadow columns ─► ORC in memory, by pyarrow
                                                                                                       │
    sink ◄─ tail ◄─ stripes with the shadows' streams encrypted, as variants of the masked columns ◄──┘

No plaintext of an encrypted column leaves the process: not in streams, indexes, bloom filters or statistics. docs/orc.md says what stays
visible: names and types, the number of rows, lengths of streams, sizes of dictionaries, and the masks.

ORC has one kind of list, of text and of bytes, and no dictionaries, so rows are cast first:

    large_list, fixed_size_list → list      large_string, string_view → string      large_binary, fixed_size_binary, binary_view → binary
    dictionary → the type of its values     every field may be null

Other types stay as they are; pyarrow's writer decides whether ORC has them at all.

Raises ConfigurationError for what cannot be encrypted as asked, and whatever the key provider and the sink raise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.orc as pyarrow_orc
import pyarrow.types as pt

from tablecrypt._arrow_types import offsets_of, refusals_of_writers
from tablecrypt._atomic_file import named_file
from tablecrypt._bytes import write_all
from tablecrypt.arguments import check_file, checked_arguments, described, names_of
from tablecrypt.errors import ConfigurationError
from tablecrypt.orc.column_plan import ColumnPlan, MaskChoice, mask_table_column, plan_columns
from tablecrypt.orc.compression import MAX_CHUNK_LENGTH
from tablecrypt.orc.file_encryption import FileAssembly, ShadowColumns
from tablecrypt.orc.integrity_manifest import FileHasher, IntegrityManifestWriter
from tablecrypt.orc.key_providers import KeyProvider
from tablecrypt.orc.source import FileSource
from tablecrypt.orc.tail import read_tail

DEFAULT_STRIPE_SIZE: Final = 64 * 1024 * 1024
WRITER_OPTIONS: Final = frozenset(
    {
        "batch_size",
        "bloom_filter_fpp",
        "compression_block_size",
        "compression_strategy",
        "dictionary_key_size_threshold",
        "file_version",
        "row_index_stride",
    }
)
"""Options of pyarrow.orc.write_table that are passed on."""
_AT_MOST: Final = {"batch_size": 2**24, "compression_block_size": MAX_CHUNK_LENGTH}
"""With more of these pyarrow would end the process."""


@checked_arguments(but=("keys",))
def write_table(
    table: pa.Table | pa.RecordBatchReader,
    sink: Any,
    encrypt: Mapping[str, Sequence[str]],
    keys: KeyProvider,
    mask: Mapping[str, MaskChoice] | None = None,
    *,
    compression: str = "zstd",
    stripe_size: int = DEFAULT_STRIPE_SIZE,
    bloom_filter_columns: Sequence[str] = (),
    manifest: IntegrityManifestWriter | None = None,
    name: str | None = None,
    **options: Any,
) -> None:
    """Write rows as an ORC file with encrypted columns.

    Args:
        table: the rows; a RecordBatchReader is written as it is read, with about one stripe in memory.
        sink: a path, or anything with `write`. A file appears at a path, or takes the place of one, only if all went well.
        encrypt: for each key name the columns under it, sub-columns by dotted names ("home.zip", "tags._elem", "attrs._value").
        keys: the newest version of each key is used.
        mask: what readers without the key see of a column: "nullify" (the default of encrypted columns), "sha256", "redact",
            "redact,XxN,..." or a Mask. A masked column that is not encrypted has no true values in the file.
        compression: "uncompressed", "zlib", "snappy", "lz4" or "zstd".
        stripe_size: about how many bytes of rows a stripe holds, as Arrow counts them.
        bloom_filter_columns: columns that get bloom filters; those of encrypted columns are encrypted.
        manifest: takes the file up while it is written.
        name: the file's name in the manifest; by default the last part of its path.
        options: WRITER_OPTIONS.
    """
    if unknown := options.keys() - WRITER_OPTIONS:
        known = ", ".join(sorted(WRITER_OPTIONS))
        raise ConfigurationError(f"{', '.join(sorted(unknown))}: not an option of this writer; it takes {known}")
    for option, most in _AT_MOST.items():
        if isinstance(value := options.get(option), int) and value > most:
            raise ConfigurationError(f"{option} is {value}; it must be at most {most}")
    if not hasattr(keys, "current_version"):
        given = "keys=None" if keys is None else f"keys is {described(keys)}"
        raise ConfigurationError(f"{given}: give a key provider; use pyarrow.orc to write an ORC file without encryption")

    encrypt = {key_name: names_of(f"encrypt[{key_name!r}]", columns) for key_name, columns in encrypt.items()}
    if stripe_size < 1:
        raise ConfigurationError(f"a stripe size of {stripe_size} bytes")
    if name is not None and manifest is None:
        raise ConfigurationError("name is given, and no manifest: it is the file's name there")

    # Comes before the sink is opened: a request that cannot be met costs no key.
    parts = _PartWriter(table.schema, encrypt, mask or {}, {"compression": compression, **options}, bloom_filter_columns)
    digest = FileHasher()

    with _opened(sink) as output:
        write = partial(write_all, output)
        assembly = FileAssembly(parts.plan, parts.shadows, keys, write if manifest is None else _both(write, digest.update))
        for rows in _stripe_sized(table, stripe_size):
            assembly.add(parts.write(rows))
        assembly.finish()

    if manifest is not None:
        # Only a finished file gets an entry: readers would take a missing file for a tampered one.
        manifest.add(_name_of(sink) if name is None else name, digest.entry())


def _both(first: Callable[[bytes], object], second: Callable[[bytes], object]) -> Callable[[bytes], None]:
    def put(data: bytes) -> None:
        first(data)
        second(data)

    return put


class _PartWriter:
    """Writes rows with masks and shadow columns as plain ORC in memory."""

    def __init__(
        self,
        schema: pa.Schema,
        encrypt: Mapping[str, Sequence[str]],
        mask: Mapping[str, MaskChoice],
        options: dict[str, Any],
        bloom_filter_columns: Sequence[str],
    ) -> None:
        self._options = options
        self._schema = _orc_schema(schema)
        with refusals_of_writers("ORC"):
            self._orc_schema = read_tail(_as_orc(self._schema.empty_table(), options)).schema
        # Masks and shadows find their columns by name: with two of one name, the wrong one could stay in the clear, or lose its values.
        if any(len(set(column.child_names)) < len(column.child_names) for column in self._orc_schema):
            raise ConfigurationError("an ORC file with encrypted columns needs a different name for every column and field")
        self.plan: ColumnPlan = plan_columns(self._orc_schema, encrypt, mask)
        self.shadows = ShadowColumns(self.plan)
        self._shadowed = [self._orc_schema.name_of(top.id) for top in self.plan.shadowed]
        self._bloom_filters = {self._written_id(name) for name in bloom_filter_columns}
        # Without a row this runs every cast, mask and option once, so that a bad request fails here.
        self.write(pa.Table.from_batches([], schema))

    def write(self, rows: pa.Table) -> FileSource:
        with refusals_of_writers("ORC"):
            return self._write(_cast(rows, self._schema))

    def _write(self, rows: pa.Table) -> FileSource:
        masked = [
            mask_table_column(rows.column(name), self.plan.masks[name], name) if name in self.plan.masks else rows.column(name)
            for name in rows.schema.names
        ]
        shadows = [rows.column(name) for name in self._shadowed]
        fields = [*rows.schema, *(rows.schema.field(name).with_name(f"{name} (true)") for name in self._shadowed)]
        part = _as_arrow_writes_it(pa.Table.from_arrays(masked + shadows, schema=pa.schema(fields)))

        return _as_orc(part, {**self._options, "bloom_filter_columns": self._bloom_filters or None})

    def _written_id(self, name: str) -> int:
        """Return the written column with a column's true values: a filter over a mask is useless."""
        column = self._orc_schema.find(name)
        if column.children:
            raise ConfigurationError(f"column {name!r} has columns below it: put the bloom filter on one of those")
        shadow = self.shadows.shadow_of(column.id)
        return column.id if shadow is None else shadow


def _as_orc(table: pa.Table, options: dict[str, Any]) -> FileSource:
    sink = pa.BufferOutputStream()
    # Large enough for pyarrow to keep a part in one stripe: `_stripe_sized` has cut the rows already.
    pyarrow_orc.write_table(table, sink, stripe_size=2 * max(DEFAULT_STRIPE_SIZE, table.nbytes), **options)
    return FileSource(sink.getvalue())


def _as_arrow_writes_it(table: pa.Table) -> pa.Table:
    """Copy nested columns so that pyarrow's ORC writer takes the right values in them.

    Of a struct that begins inside a larger array it takes the wrong children. Of a struct in a struct it writes what Arrow keeps in the
    place of a child of a null, as one value more, by which all that follow move.
    """
    if not any(pt.is_nested(field.type) for field in table.schema):
        return table

    copy = pa.BufferOutputStream()
    with pa.ipc.new_stream(copy, table.schema) as stream:
        stream.write_table(table)
    copied = pa.ipc.open_stream(copy.getvalue()).read_all()

    columns = [pa.chunked_array(map(_with_null_children, column.chunks), column.type) for column in copied.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _with_null_children(array: pa.Array) -> pa.Array:
    """Return an array, which begins where its buffers do, in which all that lies in a null struct is null."""
    kind = array.type
    if pt.is_struct(kind) and kind.num_fields:
        children = [_with_null_children(child) for child in array.flatten()]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if pt.is_map(kind):
        keys, items = _with_null_children(array.keys), _with_null_children(array.items)
        return pa.MapArray.from_arrays(offsets_of(array), keys, items, type=kind, mask=array.is_null())
    if pt.is_list(kind) or pt.is_large_list(kind):
        return type(array).from_arrays(offsets_of(array), _with_null_children(array.values), type=kind, mask=array.is_null())

    return array


def _stripe_sized(table: pa.Table | pa.RecordBatchReader, stripe_size: int) -> Iterator[pa.Table]:
    """Cut rows into tables of about one stripe; at least one table, even without rows."""
    batches = table.to_batches() if isinstance(table, pa.Table) else table
    pending: list[pa.RecordBatch] = []
    size = 0
    nothing_yet = True

    for batch in batches:
        rows_in_stripe = max(1, batch.num_rows * stripe_size // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows_in_stripe):
            piece = batch.slice(start, rows_in_stripe)
            pending.append(piece)
            size += piece.nbytes
            if size >= stripe_size:
                yield pa.Table.from_batches(pending)
                pending, size, nothing_yet = [], 0, False

    if pending or nothing_yet:
        yield pa.Table.from_batches(pending, table.schema)


def _name_of(sink: Any) -> str:
    return os.path.basename(os.fspath(sink)) if isinstance(sink, str | os.PathLike) else ""


@contextmanager
def _opened(sink: Any) -> Iterator[Any]:
    if not isinstance(sink, str | os.PathLike):
        check_file(sink, "write")
        yield sink
        return
    # Keys and rows may fail after this. A path gets its file in one step at the end, so that what was there stays until then.
    with named_file(Path(sink), private=False) as output:
        yield output


def _orc_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema that rows are cast to before they are written. Names and metadata stay."""
    return pa.schema([_orc_field(field) for field in schema], schema.metadata)


def _orc_field(field: pa.Field) -> pa.Field:
    # A nullified copy has nulls in columns whose true values have none.
    return field.with_type(_orc_type(field.type)).with_nullable(True)


def _orc_type(kind: pa.DataType) -> pa.DataType:
    if pt.is_dictionary(kind):
        return _orc_type(kind.value_type)
    if pt.is_struct(kind):
        return pa.struct([_orc_field(field) for field in kind])
    if pt.is_map(kind):
        return pa.map_(_orc_type(kind.key_type), _orc_type(kind.item_type))
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return pa.list_(_orc_field(kind.value_field))
    if pt.is_large_string(kind) or pt.is_string_view(kind):
        return pa.string()
    if pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind) or pt.is_binary_view(kind):
        return pa.binary()
    if pt.is_timestamp(kind):
        # As it is read. What nanoseconds cannot hold, pyarrow writes, and refuses to read.
        return pa.timestamp("ns", kind.tz)

    return kind


def _cast(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([_cast_column(rows.column(field.name), field) for field in schema], schema=schema)


def _cast_column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        if "out of bounds timestamp" not in str(error):
            raise
        # Arrow's message shows the value.
        raise ConfigurationError(
            f"column {field.name!r} has a moment before 1677-09-22 or after 2262-04-11, which pyarrow does not read from ORC: "
            "store dates as date32, and other moments as text"
        ) from None
