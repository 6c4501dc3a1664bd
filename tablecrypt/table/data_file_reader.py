"""A data or delete file as Arrow batches, whatever its format: Parquet through Modular Encryption, Avro inside AGS1.

Both formats give their columns as an Arrow schema with Iceberg field ids in its metadata, and their rows as batches in file order. Parquet
is read by Arrow; Avro is read here, from a stream that has decrypted it:

    Avro type (Iceberg appendix A)                              Arrow type
    boolean, int, long, float, double, string, bytes            bool, int32, int64, float32, float64, large_string, large_binary
    int date; long time-micros                                  date32; time64[us]
    long timestamp-micros, timestamp-nanos                      timestamp[us], [ns]; with tz UTC where adjust-to-utc is true
    fixed; fixed or bytes decimal; fixed uuid                   fixed_size_binary; decimal128; uuid
    record; array with element-id                               struct; large_list
    array of key/value records (logicalType map), map           map
    union of null and one type                                  that type, nullable

Each Arrow field carries the Avro field-id (element-id, key-id, value-id) in its metadata, so that columns are found by id as in Parquet;
or none where the file has none, and the table's name mapping finds its columns, as those of Parquet.
Values are decoded by fastavro with the logical types taken off: they stay integers and bytes, which Arrow takes as they are, so that no
date or precision is lost on the way through Python's own types.

Raises FormatError, naming the file, for a format that is not read (ORC), for a file that is not Avro, is cut, or has a type that Iceberg
does not store in Avro; PlaintextRefusedError for a file without key metadata.

Iceberg table spec, appendix A "Avro".
"""

from __future__ import annotations

import io
import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, BinaryIO, Final, Protocol, cast

import fastavro
import fastavro.schema
import pyarrow as pa
from pyiceberg.manifest import DataFile, FileFormat

from tablecrypt._arrow_types import with_leaves
from tablecrypt.errors import AuthenticationError, FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.manifests.avro_blocks import LARGE_BLOCK, AvroBlocks
from tablecrypt.manifests.avro_container import AVRO_ERRORS
from tablecrypt.manifests.avro_schema import most_types
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.parquet.uniform import PositionedBatch, ReadRequest, UniformParquetFile, kept, passing
from tablecrypt.table.protection.visible_columns import MaskedFile, VisibleColumns

FIELD_ID_KEY: Final = b"PARQUET:field_id"
_MAX_DEPTH: Final = 64
_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.large_string(),
    "bytes": pa.large_binary(),
    "null": pa.null(),
}
_BATCH_ROWS: Final = 65536
_BATCH_BYTES: Final = LARGE_BLOCK
"""Decompressed; a batch that comes to more ends with its block."""
_DECODING_ERRORS: Final = (
    *AVRO_ERRORS,
    fastavro.schema.SchemaParseException,
    fastavro.schema.UnknownType,
    pa.ArrowException,
)


class OpenedFile(Protocol):
    """Rows of one file."""

    @property
    def schema(self) -> pa.Schema:
        """The columns as they are stored, with field ids."""

    def batches(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        """Yield the rows that pass the request's filter."""

    def positioned_batches(self, request: ReadRequest) -> Iterator[PositionedBatch]:
        """Yield rows with their positions in the file, at least those that pass the request's filter."""


@contextmanager
def opened_file(
    io: EncryptingFileIO,
    file: DataFile,
    dictionary_columns: tuple[str, ...] = (),
    visible: VisibleColumns | None = None,
    sequence_number: int | None = None,
) -> Iterator[OpenedFile]:
    """Open a data file, or a delete file that holds rows.

    Args:
        io: the table's.
        file: its manifest entry.
        dictionary_columns: columns to read as Arrow dictionaries, from Parquet.
        visible: what is seen of protected columns; None for a table that has none, and for delete files.
        sequence_number: the data sequence number of the file, where `visible` is given.
    """
    key_metadata = key_metadata_of(file)
    if file.file_format == FileFormat.PARQUET:
        with io.raw_input(file.file_path).open() as source:
            access = None if visible is None else visible.access_to(sequence_number)
            parquet = UniformParquetFile(
                source, key_metadata, file.file_path, dictionary_columns=dictionary_columns, int96_unit="us", access=access
            )
            check_entry(file, parquet)
            yield _masked(parquet, file.file_path, parquet.protected, parquet.masks, visible, sequence_number)
    elif file.file_format == FileFormat.AVRO:
        with io.decrypting_input(file.file_path, key_metadata).open() as plaintext:
            nothing: frozenset[int] = frozenset()
            avro = AvroDataFile(plaintext, file.file_path, file.record_count)
            yield _masked(avro, file.file_path, nothing, nothing, visible, sequence_number)
    else:
        raise FormatError(f"{file.file_path}: {file.file_format.value} files are not read from encrypted tables; Parquet and Avro are")


def check_entry(file: DataFile, opened: UniformParquetFile) -> None:
    """Raise FormatError where a Parquet file has other rows or bytes than its manifest entry says.

    Counts, row ids and deletes of whole files believe the entry, so that what is read must not tell otherwise.
    """
    for what, stored, said in (("rows", opened.rows, file.record_count), ("bytes", opened.length, file.file_size_in_bytes)):
        if stored != said:
            raise FormatError(f"{file.file_path}: has {stored} {what}, its manifest entry says {said}")


def _masked(
    opened: OpenedFile,
    location: str,
    hidden_columns: frozenset[int],
    masks: frozenset[int],
    visible: VisibleColumns | None,
    sequence_number: int | None,
) -> OpenedFile:
    if visible is None:
        return opened
    masked = visible.still_to_mask(location, hidden_columns, masks, sequence_number)
    return MaskedFile(opened, masked, visible.name_mapping, location) if masked else opened


class FileInMicroseconds:
    """A file whose timestamps in nanoseconds are read in microseconds, as its table has them; filters compare these.

    pandas and Arrow write nanoseconds unasked, and `add_files` takes such files into tables of microseconds.

    Args:
        opened: the file.
    """

    def __init__(self, opened: OpenedFile) -> None:
        self._opened = opened
        self.schema = _in_microseconds(opened.schema)

    def batches(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        """Yield the rows that pass the filter, which may name only the columns asked for."""
        for batch in self._opened.batches(replace(request, row_filter=None)):
            rows = _cast_to_microseconds(batch)
            yield rows if request.row_filter is None else kept(rows, passing(rows, request.row_filter))

    def positioned_batches(self, request: ReadRequest) -> Iterator[PositionedBatch]:
        """Yield every row with its position in the file."""
        for each in self._opened.positioned_batches(replace(request, row_filter=None)):
            yield PositionedBatch(each.parts, _cast_to_microseconds(each.batch))


def _in_microseconds(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(with_leaves(field.type, _microseconds)) for field in schema], schema.metadata)


def _microseconds(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) and kind.unit == "ns" else kind


def _cast_to_microseconds(batch: pa.RecordBatch) -> pa.RecordBatch:
    schema = _in_microseconds(batch.schema)
    columns = [column.cast(kind, safe=False) for column, kind in zip(batch.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class AvroDataFile:
    """An Avro data file, opened for reading.

    Args:
        source: the plaintext, a binary stream.
        location: names the file in errors.
        rows: how many its manifest entry says; None where nothing says.
    """

    def __init__(self, source: Any, location: str, rows: int | None = None) -> None:
        self.location = location
        self._rows = rows
        with self._decoding():
            self._blocks = AvroBlocks(cast("BinaryIO", source))
            stored = json.loads(self._blocks.schema)
            self._columns = record_columns(stored, most_types(self._blocks.schema))
            self._plain_schema = fastavro.parse_schema(without_logical_types(stored))
        self.schema = pa.schema([column.field for column in self._columns])

    def batches(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        """Yield the rows that pass the filter, which may name only the columns asked for. FormatError for a part: an Avro file has none."""
        self._refuse_part(request.part)
        for batch in self._batches(self._selected(request.columns)):
            yield batch if request.row_filter is None else kept(batch, passing(batch, request.row_filter))

    def positioned_batches(self, request: ReadRequest) -> Iterator[PositionedBatch]:
        """Yield every row with its position in the file. Avro has no statistics to prune by, and no parts, as for `batches`."""
        self._refuse_part(request.part)
        start = 0
        for batch in self._batches(self._selected(request.columns)):
            yield PositionedBatch((range(start, start + len(batch)),), batch)
            start += len(batch)

    def counted_rows(self) -> int:
        """Return how many rows the blocks say that they hold. No row is decoded, and the file is read once: by this or by `batches`."""
        with self._decoding():
            return sum(block.count for block in self._blocks)

    def _refuse_part(self, part: Container[int] | None) -> None:
        # Ignored, a part would return every row once for each part of the file.
        if part is not None:
            raise FormatError(f"{self.location}: a part of an Avro file was asked for, and only Parquet files are read in parts")

    def _selected(self, names: list[str]) -> list[AvroColumn]:
        by_name = {column.field.name: column for column in self._columns}
        return [by_name[name] for name in names]

    def _batches(self, columns: list[AvroColumn]) -> Iterator[pa.RecordBatch]:
        portions = self._portions()
        while True:
            with self._decoding():
                portion = next(portions, None)
                if portion is None:
                    return
                batch = _to_batch(portion, columns)
            yield batch

    def _portions(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the records of a batch at a time."""
        portion: list[dict[str, Any]] = []
        held = count = 0
        for block in self._blocks:
            count += block.count
            # Records may take no bytes, so that a few of a block's could name more rows than a process will ever see.
            if self._rows is not None and count > self._rows:
                raise FormatError(f"it has {count} rows or more, and its manifest entry says {self._rows}")

            content = io.BytesIO(block.content)
            for _ in range(block.count):
                portion.append(cast("dict[str, Any]", fastavro.schemaless_reader(content, self._plain_schema, None)))
                if len(portion) == _BATCH_ROWS:
                    yield portion
                    portion, held = [], 0

            held += len(block.content)
            # Rows alone are no limit: a batch of them may come from as many blocks, each as large as a block may be.
            if portion and held >= _BATCH_BYTES:
                yield portion
                portion, held = [], 0

        if portion:
            yield portion
        if self._rows is not None and count != self._rows:
            raise FormatError(f"it has {count} rows, and its manifest entry says {self._rows}")

    @contextmanager
    def _decoding(self) -> Iterator[None]:
        try:
            yield
        # A block that fails to authenticate is no fault of the format, and keeps its own error.
        except AuthenticationError:
            raise
        except FormatError as error:
            raise FormatError(f"{self.location}: {error}") from error
        except _DECODING_ERRORS as error:
            raise FormatError(f"{self.location}: cannot be read as an Avro data file: {error}") from error


def without_logical_types(avro: Any) -> Any:
    """Return an Avro schema that describes the same bytes, without logical types."""
    if isinstance(avro, dict):
        return {name: without_logical_types(value) for name, value in avro.items() if name not in ("logicalType", "default")}
    if isinstance(avro, list):
        return [without_logical_types(value) for value in avro]
    return avro


def _to_batch(records: list[dict[str, Any]], columns: list[AvroColumn]) -> pa.RecordBatch:
    # A batch made of no arrays has no rows: a struct without fields keeps their number.
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(records), pa.struct([])))
    arrays = [column.array([record[column.field.name] for record in records]) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([column.field for column in columns]))


class AvroColumn(ABC):
    """One Avro field and how to build its Arrow array."""

    def __init__(self, name: str, field_id: int | None, arrow_type: pa.DataType, nullable: bool) -> None:
        metadata = None if field_id is None else {FIELD_ID_KEY: str(field_id).encode()}
        self.field = pa.field(name, arrow_type, nullable=nullable, metadata=metadata)

    @abstractmethod
    def array(self, values: Sequence[Any]) -> pa.Array:
        """Return the values as an Arrow array of the field's type."""


class _Plain(AvroColumn):
    def array(self, values: Sequence[Any]) -> pa.Array:
        return pa.array(values, self.field.type)


class _Uuid(AvroColumn):
    def array(self, values: Sequence[Any]) -> pa.Array:
        return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))


class _Decimal(AvroColumn):
    """Big-endian two's complement of any length, which Arrow keeps as 16 bytes little endian."""

    def array(self, values: Sequence[Any]) -> pa.Array:
        numbers = (0 if value is None else int.from_bytes(value, "big", signed=True) for value in values)
        data = b"".join(number.to_bytes(16, "little", signed=True) for number in numbers)
        valid = pa.array([value is not None for value in values], pa.bool_())
        return pa.Array.from_buffers(self.field.type, len(values), [valid.buffers()[1], pa.py_buffer(data)])


class _Struct(AvroColumn):
    def __init__(self, name: str, field_id: int | None, nullable: bool, children: list[AvroColumn]) -> None:
        super().__init__(name, field_id, pa.struct([child.field for child in children]), nullable)
        self._children = children

    def array(self, values: Sequence[Any]) -> pa.Array:
        if not self._children:
            return pa.array(values, self.field.type)
        arrays = [child.array([None if value is None else value[child.field.name] for value in values]) for child in self._children]
        return pa.StructArray.from_arrays(arrays, fields=list(self.field.type), mask=_null_mask(values))


class _List(AvroColumn):
    def __init__(self, name: str, field_id: int | None, nullable: bool, element: AvroColumn) -> None:
        super().__init__(name, field_id, pa.large_list(element.field), nullable)
        self._element = element

    def array(self, values: Sequence[Any]) -> pa.Array:
        elements = self._element.array(list(itertools.chain.from_iterable(value for value in values if value is not None)))
        return pa.LargeListArray.from_arrays(
            pa.array(_offsets(values), pa.int64()), elements, type=self.field.type, mask=_null_mask(values)
        )


class _Map(AvroColumn):
    """Entries as key/value records, or an Avro map, whose keys are strings."""

    def __init__(self, name: str, field_id: int | None, nullable: bool, key: AvroColumn, value: AvroColumn) -> None:
        super().__init__(name, field_id, pa.map_(key.field, value.field), nullable)
        self._key = key
        self._value = value

    def array(self, values: Sequence[Any]) -> pa.Array:
        entries = [None if value is None else self._entries(value) for value in values]
        flat = [entry for each in entries if each is not None for entry in each]
        return pa.MapArray.from_arrays(
            pa.array(_offsets(entries), pa.int32()),
            self._key.array([key for key, _ in flat]),
            self._value.array([value for _, value in flat]),
            type=self.field.type,
            mask=_null_mask(values),
        )

    def _entries(self, value: Any) -> list[tuple[Any, Any]]:
        if isinstance(value, dict):
            return list(value.items())
        return [(entry[self._key.field.name], entry[self._value.field.name]) for entry in value]


def record_columns(avro: Any, most: int) -> list[AvroColumn]:
    """Return the columns of an Avro record schema (parsed JSON), which with those inside them may be `most`."""
    if not isinstance(avro, dict) or avro.get("type") != "record":
        raise FormatError("its Avro schema is not a record")
    return _Types(most).fields(avro, 0)


class _Types:
    """Turns Avro types into columns; remembers named types, which may be defined once and then be named.

    Args:
        most: how many columns there may be, with those inside others.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._named: dict[str, Any] = {}

    def fields(self, record: dict[str, Any], depth: int) -> list[AvroColumn]:
        return [self.column(field["name"], _id(field, "field-id"), field["type"], depth + 1) for field in record["fields"]]

    def column(self, name: str, field_id: int | None, avro: Any, depth: int) -> AvroColumn:
        if depth > _MAX_DEPTH:
            raise FormatError("its Avro schema is nested too deeply")

        # Depth alone is no limit: each record with two fields of the record before it doubles the columns.
        self._left -= 1
        if self._left < 0:
            raise FormatError("its Avro schema names types too often: it would have more columns than its text can spell out")

        avro, nullable = self._without_null(avro)
        if isinstance(avro, str) and avro in self._named:
            avro = self._named[avro]
        if isinstance(avro, str):
            avro = {"type": avro}
        if isinstance(avro.get("type"), dict):
            return self.column(name, field_id, ["null", avro["type"]] if nullable else avro["type"], depth + 1)

        # A record may name itself inside: the limit on depth ends that.
        if "name" in avro:
            self._named[avro["name"]] = avro
        return self._column(name, field_id, avro, nullable, depth)

    def _column(self, name: str, field_id: int | None, avro: dict[str, Any], nullable: bool, depth: int) -> AvroColumn:
        match avro["type"], avro.get("logicalType"):
            case "fixed", _ if avro["size"] < 1:
                raise FormatError(f"its Avro schema has a type of {avro['size']} bytes")
            case "record", _:
                return _Struct(name, field_id, nullable, self.fields(avro, depth))
            case "array", "map":
                key, value = self.fields(_key_value_record(avro["items"]), depth)
                return _Map(name, field_id, nullable, key, value)
            case "array", _:
                element = self.column("element", _id(avro, "element-id"), avro["items"], depth + 1)
                # A list says first how many elements follow: of these, a few bytes could say that there are 2^60.
                if _takes_no_bytes(element.field):
                    raise FormatError("its Avro schema has a list whose elements take no bytes")
                return _List(name, field_id, nullable, element)
            case "map", _:
                key = self.column("key", _id(avro, "key-id"), "string", depth + 1)
                return _Map(name, field_id, nullable, key, self.column("value", _id(avro, "value-id"), avro["values"], depth + 1))
            case (("fixed" | "bytes"), "decimal"):
                return _Decimal(name, field_id, pa.decimal128(avro["precision"], avro.get("scale", 0)), nullable)
            case "fixed", "uuid":
                return _Uuid(name, field_id, pa.uuid(), nullable)
            case "fixed", _:
                return _Plain(name, field_id, pa.binary(avro["size"]), nullable)
            case _:
                return _Plain(name, field_id, _primitive(avro), nullable or avro["type"] == "null")

    def _without_null(self, avro: Any) -> tuple[Any, bool]:
        if not isinstance(avro, list):
            return avro, False
        others = [branch for branch in avro if branch != "null"]
        if len(others) != 1 or len(avro) > 2:
            raise FormatError("its Avro schema has a union of something other than null and one type")
        return others[0], len(avro) == 2


def _takes_no_bytes(field: pa.Field) -> bool:
    """Whether a value takes none; a field that may be null takes one to say so, unless it is never anything else."""
    if pa.types.is_struct(field.type) and not field.nullable:
        return all(_takes_no_bytes(child) for child in field.type)
    return bool(pa.types.is_null(field.type))


def _primitive(avro: dict[str, Any]) -> pa.DataType:
    tz = "UTC" if avro.get("adjust-to-utc", False) else None
    match avro["type"], avro.get("logicalType"):
        case "int", "date":
            return pa.date32()
        case "long", "time-micros":
            return pa.time64("us")
        case "long", "timestamp-micros" | "local-timestamp-micros":
            return pa.timestamp("us", tz)
        case "long", "timestamp-nanos" | "local-timestamp-nanos":
            return pa.timestamp("ns", tz)
        case "long", "timestamp-millis":
            return pa.timestamp("ms", tz)

    if avro["type"] not in _PRIMITIVES:
        raise FormatError(f"its Avro schema has the type {avro['type']!r}, which Iceberg does not store")

    return _PRIMITIVES[avro["type"]]


def _key_value_record(items: Any) -> dict[str, Any]:
    if not isinstance(items, dict) or items.get("type") != "record" or len(items["fields"]) != 2:
        raise FormatError("its Avro schema has a map whose items are not records of key and value")
    return items


def _id(avro: dict[str, Any], name: str) -> int | None:
    return int(avro[name]) if name in avro else None


def _offsets(values: Sequence[Any]) -> list[int]:
    return list(itertools.accumulate((0 if value is None else len(value) for value in values), initial=0))


def _null_mask(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())
