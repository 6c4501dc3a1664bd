"""Rows on stdout: CSV, a JSON object a line, or an Arrow stream."""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from tablecrypt.errors import ConfigurationError
from tablecrypt.printable import json_printable

if TYPE_CHECKING:
    import pyarrow as pa


def print_rows(rows: pa.RecordBatchReader, row_format: str) -> None:
    """Write rows to stdout, batch by batch. A reader of the pipe that has had enough ends it quietly.

    Raises:
        ConfigurationError: a column cannot be written in this format.
    """
    try:
        _WRITERS[row_format](rows, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # Python flushes stdout once more at exit, and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write_csv(rows: pa.RecordBatchReader, sink: BinaryIO) -> None:
    import pyarrow as pa
    from pyarrow import csv

    for field in rows.schema:
        if pa.types.is_nested(field.type):
            raise ConfigurationError(f"column {field.name} is a {field.type}, which CSV cannot hold: use --format json")
    with csv.CSVWriter(sink, rows.schema) as writer:
        for batch in rows:
            writer.write_batch(batch)


def _write_json(rows: pa.RecordBatchReader, sink: BinaryIO) -> None:
    for batch in rows:
        for row in batch.to_pylist(maps_as_pydicts=None):
            sink.write(json_printable(json.dumps(row, default=_as_json, ensure_ascii=False)).encode() + b"\n")


def _as_json(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, (dt.date, dt.time, dt.datetime)) else str(value)


def _write_arrow(rows: pa.RecordBatchReader, sink: BinaryIO) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(sink, rows.schema) as writer:
        for batch in rows:
            writer.write_batch(batch)


_WRITERS: Final[dict[str, Callable[[pa.RecordBatchReader, BinaryIO], None]]] = {
    "csv": _write_csv,
    "json": _write_json,
    "arrow": _write_arrow,
}
ROW_FORMATS: Final = tuple(_WRITERS)
