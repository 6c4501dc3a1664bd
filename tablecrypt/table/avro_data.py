"""Avro data files as Arrow batches. The file has been decrypted (AGS1) by the stream that it is read from.

    Avro type (Iceberg appendix A)                              Arrow type
    boolean, int, long, float, double, string, bytes            bool, int32, int64, float32, float64, large_string, large_binary
    int date; long time-micros                                  date32; time64[us]
    long timestamp-micros, timestamp-nanos                      timestamp[us], [ns]; with tz UTC where adjust-to-utc is true
    fixed; fixed or bytes decimal; fixed uuid                   fixed_size_binary; decimal128; uuid
    record; array with element-id                               struct; large_list
    array of key/value records (logicalType map), map           map
    union of null and one type                                  that type, nullable

Each Arrow field carries the Avro field-id (element-id, key-id, value-id) in its metadata, so that columns are found by id as in Parquet.
Values are decoded by fastavro with the logical types taken off: they stay integers and bytes, which Arrow takes as they are, so that no
date or precision is lost on the way through Python's own types.

Raises FormatError, naming the file, for a file that is not Avro, is cut, or has a type that Iceberg does not store.

Iceberg table spec, appendix A "Avro".
"""

from __future__ import annotations

import itertools
import json
import struct
import zlib
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, cast

import fastavro
import fastavro.schema
import pyarrow as pa
import pyarrow.compute as pc

from tablecrypt.errors import AuthenticationError, FormatError
from tablecrypt.parquet.uniform import PositionedBatch
from tablecrypt.table.avro_columns import Column, record_columns

_BATCH_ROWS: Final = 65536
_DECODING_ERRORS: Final = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    fastavro.schema.SchemaParseException,
    fastavro.schema.UnknownType,
    pa.ArrowException,
    struct.error,
    zlib.error,
)


class AvroDataFile:
    """An Avro data file, opened for reading.

    Args:
        source: the plaintext, a binary stream.
        location: names the file in errors.
    """

    def __init__(self, source: Any, location: str) -> None:
        self.location = location
        with self._decoding():
            self._blocks = fastavro.block_reader(cast("BinaryIO", source))
            stored = json.loads(self._blocks.metadata["avro.schema"])
            self._columns = record_columns(stored)
            self._plain_schema = fastavro.parse_schema(without_logical_types(stored))
        self.schema = pa.schema([column.field for column in self._columns])

    def batches(
        self,
        columns: list[str],
        row_filter: pc.Expression | None = None,
        read_ahead: int | None = None,
        part: Container[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that pass the filter, which may name only `columns`. FormatError for a part: an Avro file has none."""
        self._refuse_part(part)
        for batch in self._batches(self._selected(columns)):
            yield batch if row_filter is None else batch.filter(row_filter)

    def positioned_batches(
        self,
        columns: list[str],
        prune_by: pc.Expression | None = None,
        read_ahead: int | None = None,
        part: Container[int] | None = None,
    ) -> Iterator[PositionedBatch]:
        """Yield every row with its position in the file. Avro has no statistics to prune by, and no parts, as for `batches`."""
        self._refuse_part(part)
        start = 0
        for batch in self._batches(self._selected(columns)):
            yield PositionedBatch(pa.arange(start, start + len(batch)), batch)
            start += len(batch)

    def _refuse_part(self, part: Container[int] | None) -> None:
        if part is not None:
            raise FormatError(f"{self.location}: a part of an Avro file was asked for, and only Parquet files are read in parts")

    def _selected(self, names: list[str]) -> list[Column]:
        by_name = {column.field.name: column for column in self._columns}
        return [by_name[name] for name in names]

    def _batches(self, columns: list[Column]) -> Iterator[pa.RecordBatch]:
        records = self._records()
        while True:
            with self._decoding():
                portion = list(itertools.islice(records, _BATCH_ROWS))
                if not portion:
                    return
                batch = _to_batch(portion, columns)
            yield batch

    def _records(self) -> Iterator[dict[str, Any]]:
        for block in self._blocks:
            content = cast("Any", block).bytes_
            for _ in range(block.num_records):
                yield cast("dict[str, Any]", fastavro.schemaless_reader(content, self._plain_schema, None))

    @contextmanager
    def _decoding(self) -> Iterator[None]:
        try:
            yield
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


def _to_batch(records: list[dict[str, Any]], columns: list[Column]) -> pa.RecordBatch:
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(records), pa.struct([])))
    arrays = [column.array([record[column.field.name] for record in records]) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([column.field for column in columns]))
