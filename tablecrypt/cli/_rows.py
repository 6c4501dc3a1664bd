"""Rows on stdout: a table for people, CSV, a JSON object a line, or an Arrow stream.

JSON has no NaN and no infinity: they are the texts "NaN", "Infinity" and "-Infinity" there, as Spark writes and reads them.

    id  home                        a table is as wide as the terminal, or 80 columns where there is none
     1  {"city":"Bern","zip":30…    a long value is cut, and ends with …
     2  null

A table with more columns than fit shows each row as lines `name  value`. It is for looking; programs take one of the other formats.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from rich.cells import cell_len, set_cell_size

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.printable import json_printable, printable

if TYPE_CHECKING:
    import pyarrow as pa

_NARROWEST: Final = 9
"""Terminal columns that each column of a table has at least, with the gap behind it."""
_GAP: Final = "  "
_PAGE: Final = 1000
"""Rows whose values decide how wide the columns of a table are, before its head is printed again."""


def print_rows(rows: pa.RecordBatchReader, row_format: str | None) -> None:
    """Write rows to stdout, batch by batch.

    Args:
        rows: the rows.
        row_format: one of ROW_FORMATS; None for a table on a terminal, and CSV elsewhere.

    Raises:
        ConfigurationError: a column cannot be written in this format.
    """
    _WRITERS[row_format or ("table" if sys.stdout.isatty() else "csv")](rows, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _write_table(rows: pa.RecordBatchReader, sink: BinaryIO) -> None:
    import pyarrow as pa

    # Whoever may edit metadata.json names columns, and a terminal must not obey the names.
    names = [printable(name) for name in rows.schema.names]
    right = [
        pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type) for field in rows.schema
    ]
    width = max(shutil.get_terminal_size().columns, _NARROWEST)
    # By the names alone and not by values, so that all pages of an output have one form.
    is_wide = len(names) * _NARROWEST > width

    for page in _pages(rows):
        cells = [list(map(_cell, values)) for values in _values(page)]
        text = _as_blocks(names, cells, width) if is_wide else _as_table(names, cells, right, width)
        sink.write(text.encode())


def _pages(rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield rows in parts of at most _PAGE; one without rows, which shows the columns, if there are none."""
    import pyarrow as pa

    is_empty = True
    for batch in rows:
        for start in range(0, batch.num_rows, _PAGE):
            is_empty = False
            yield batch.slice(start, _PAGE)

    if is_empty:
        yield pa.RecordBatch.from_pylist([], rows.schema)


def _values(rows: pa.RecordBatch) -> Iterator[list[Any]]:
    """Yield the values of each column. FormatError for one that Python has no value for."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        try:
            # Pairs of a map come as a list: as a dictionary, keys that are there twice would be lost.
            yield column.to_pylist(maps_as_pydicts=None)
        except (UnicodeDecodeError, OverflowError) as error:
            said = "text that is not UTF-8" if isinstance(error, UnicodeDecodeError) else "a moment outside of the years 1 to 9999"
            raise FormatError(f"column {printable(name)} has {said}: use --format arrow, or leave it out by --columns") from None


def _as_table(names: list[str], columns: list[list[str]], right: list[bool], width: int) -> str:
    fitting = _widths([max(map(cell_len, (name, *cells))) for name, cells in zip(names, columns, strict=True)], width)
    rows = [names, *map(list, zip(*columns, strict=True))]
    return "".join(f"{_GAP.join(map(_sized, row, fitting, right)).rstrip()}\n" for row in rows)


def _as_blocks(names: list[str], columns: list[list[str]], width: int) -> str:
    """Return each row as lines of names and values, with an empty line behind it."""
    left = min(max(map(cell_len, names)), width // 3)
    blocks = (
        "\n".join(f"{_sized(name, left)}{_GAP}{_cut(cell, width - left - len(_GAP))}" for name, cell in zip(names, row, strict=True))
        for row in zip(*columns, strict=True)
    )
    return "".join(f"{block}\n\n" for block in blocks)


def _widths(wanted: list[int], width: int) -> list[int]:
    """Return how wide each column is: as it wants to be, but that the widest are as narrow as the line asks for."""
    room = width - len(_GAP) * (len(wanted) - 1)
    widest = max(wanted, default=0)
    while widest > 1 and sum(min(each, widest) for each in wanted) > room:
        widest -= 1
    return [min(each, widest) for each in wanted]


def _sized(text: str, width: int, right: bool = False) -> str:
    shown = _cut(text, width)
    padding = " " * (width - cell_len(shown))
    return f"{padding}{shown}" if right else f"{shown}{padding}"


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…"


def _cell(value: Any) -> str:
    """Return a value as one line: null, true, text as it is, and what is nested as JSON."""
    # As JSON, so that a null does not look like an empty text.
    if value is None or isinstance(value, (bool, dict, list)):
        return printable(_as_json(value))
    return printable(_cell_as_json(value))


def _write_csv(rows: pa.RecordBatchReader, sink: BinaryIO) -> None:
    import pyarrow as pa
    from pyarrow import csv

    for field in rows.schema:
        if pa.types.is_nested(field.type):
            raise ConfigurationError(
                f"column {printable(field.name)} is a {printable(field.type)}, which CSV cannot hold: use --format json, or --format table"
            )

    # Anybody who may edit metadata.json names columns: their names must not command a terminal, rows are of those who hold the key.
    names = [printable(field.name) for field in rows.schema]
    schema = pa.schema([field.with_name(name) for field, name in zip(rows.schema, names, strict=True)])
    with csv.CSVWriter(sink, schema) as writer:
        for batch in rows:
            writer.write_batch(batch.rename_columns(names))


def _write_json(rows: pa.RecordBatchReader, sink: BinaryIO) -> None:
    for batch in rows:
        for values in zip(*_values(batch), strict=True):
            row = dict(zip(batch.schema.names, values, strict=True))
            # One row a line: a value that holds a line break is escaped, and so is what commands a terminal.
            sink.write(json_printable(_as_json(row)).encode() + b"\n")


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, default=_cell_as_json, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(value), default=_cell_as_json, ensure_ascii=False)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(each) for each in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _cell_as_json(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, (dt.date, dt.time, dt.datetime)) else str(value)


def _write_arrow(rows: pa.RecordBatchReader, sink: BinaryIO) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(sink, rows.schema) as writer:
        for batch in rows:
            writer.write_batch(batch)


_WRITERS: Final[dict[str, Callable[[pa.RecordBatchReader, BinaryIO], None]]] = {
    "table": _write_table,
    "csv": _write_csv,
    "json": _write_json,
    "arrow": _write_arrow,
}
ROW_FORMATS: Final = tuple(_WRITERS)
