"""Parquet files of Spark, Hive and Impala in types that Arrow no longer writes: read as by Iceberg Java, protected, and erased from.

timestamps in 12 bytes (INT96)          which Arrow reads as nanoseconds, in which the year 9999 has no place
decimals in bytes of fixed length       as many as the precision needs, or more
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.types import StringType

from tablecrypt.errors import FormatError
from tablecrypt.maintenance import compact, erase, migrate, reencrypt, verify
from tablecrypt.parquet.footer import plain_end
from tablecrypt.parquet.layout import plain_layout
from tablecrypt.parquet.storage import source_of
from tablecrypt.parquet.structs import FileMetaData, SchemaElement
from tablecrypt.parquet.thrift import I32
from tablecrypt.table.table import EncryptedTable
from tests.support.protected_tables import COLUMN_KEY, TABLE_KEY, Clients, declare, loaded
from tests.support.table_files import plain_table_of_others

PRICES: Final = [Decimal("1.50"), Decimal("-99999.99"), None]
MOMENTS: Final = [dt.datetime(9999, 12, 31), dt.datetime(2020, 5, 1, 12, 30, 0, 5), dt.datetime(1200, 1, 1)]

Made = Callable[[], tuple[pa.Array, bytes]]
"""Makes a column, and a Parquet file with it."""


def _as_int96() -> tuple[pa.Array, bytes]:
    column = pa.array(MOMENTS, pa.timestamp("us"))
    return column, _stored(column, use_deprecated_int96_timestamps=True)


def _as_nanoseconds() -> tuple[pa.Array, bytes]:
    numbers = [1_577_836_800_000_001_999, -1, None]
    column = pa.array([1_577_836_800_000_001, 0, None], pa.timestamp("us", "UTC"))
    return column, _stored(pa.array(numbers, pa.timestamp("ns", "UTC")))


def _as_decimal_bytes() -> tuple[pa.Array, bytes]:
    column = pa.array(PRICES, pa.decimal128(9, 2))
    return column, _stored(column, store_decimal_as_integer=False)


def _as_long_decimal_bytes() -> tuple[pa.Array, bytes]:
    scaled = [None if each is None else int(each.scaleb(2)).to_bytes(16, "big", signed=True) for each in PRICES]
    content = _stored(pa.array(scaled, pa.binary(16)))
    layout = plain_layout(source_of(content))
    elements = layout.metadata.structs(FileMetaData.SCHEMA)
    elements[2].set(SchemaElement.CONVERTED_TYPE, I32, 5)
    elements[2].set(SchemaElement.SCALE, I32, 2)
    elements[2].set(SchemaElement.PRECISION, I32, 9)
    return pa.array(PRICES, pa.decimal128(9, 2)), content[: layout.footer.start] + plain_end(layout.metadata)


def _stored(column: pa.Array, **options: Any) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": pa.array([1, 2, 3], pa.int64()), "value": column}), out, store_schema=False, **options)
    return bytes(out.getvalue())


def _table(both: Clients, column: pa.Array, content: bytes) -> EncryptedTable:
    """A table with one file of such a type."""
    schema = pa.schema([("id", pa.int64()), ("value", column.type)])
    plain = plain_table_of_others(both.payroll, "db.people", schema, "older.parquet", content, len(column))
    migrate(plain, TABLE_KEY)

    return loaded(both.payroll)


def _values(table: EncryptedTable) -> pa.Array:
    return table.scan().to_arrow().sort_by("id")["value"].combine_chunks()


@pytest.mark.parametrize("made", [_as_int96, _as_nanoseconds, _as_decimal_bytes, _as_long_decimal_bytes])
def test_they_are_read_as_what_they_are(both: Clients, made: Made) -> None:
    values, content = made()
    table = _table(both, values, content)

    assert _values(table).equals(values)
    assert table.scan("id = 3").to_arrow()["value"].to_pylist() == values[2:].to_pylist()
    assert table.scan(EqualTo(term="value", value=values[0].as_py())).to_arrow()["id"].to_pylist() == [1]
    assert table.scan(EqualTo(term="value", value=values[0].as_py())).count() == 1
    assert table.scan().to_arrow_batch_reader().read_all().sort_by("id")["value"].combine_chunks().equals(values)


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (_as_int96, None),
        (_as_int96, dt.datetime(2000, 1, 1)),
        (_as_nanoseconds, dt.datetime(2000, 1, 1, tzinfo=dt.UTC)),
        (_as_decimal_bytes, None),
        (_as_decimal_bytes, Decimal("7.00")),
    ],
)
def test_they_are_protected(both: Clients, made: Made, shown: Any) -> None:
    values, content = made()
    table = _table(both, values, content)
    mask = "null" if shown is None else f"constant({shown})".replace(" ", "T")
    declare(table, f"{COLUMN_KEY}: value", value=mask)
    reencrypt(loaded(both.payroll))

    assert _values(loaded(both.payroll)).equals(values)
    assert _values(loaded(both.analyst)).to_pylist() == [shown] * 3
    assert verify(loaded(both.payroll)).bad == ()


@pytest.mark.parametrize("made", [_as_int96, _as_nanoseconds, _as_decimal_bytes])
def test_rows_are_erased_without_a_key(both: Clients, made: Made) -> None:
    values, content = made()
    table = _beside_protected_column(both, values, content)
    erase(table, "id = 2")

    assert _values(loaded(both.payroll)).to_pylist() == [values[0].as_py(), values[2].as_py()]
    assert verify(loaded(both.payroll)).bad == ()


def test_what_arrow_does_not_write_is_written_again_by_compact(both: Clients) -> None:
    values, content = _as_long_decimal_bytes()
    table = _beside_protected_column(both, values, content)
    with pytest.raises(FormatError, match="Arrow writes column value otherwise than the file has it; compact the file instead"):
        erase(table, "id = 2")
    declare(loaded(both.payroll), f"{COLUMN_KEY}: name, value")
    with pytest.raises(FormatError, match="Arrow writes column value otherwise than the file has it; compact the file instead"):
        reencrypt(loaded(both.payroll))
    compact(loaded(both.payroll), rewrite_all=True)

    # The row was deleted, and what an erasure does beside that is still to do.
    assert _values(loaded(both.payroll)).to_pylist() == [values[0].as_py(), values[2].as_py()]
    assert _values(loaded(both.analyst)).null_count == 2


def _beside_protected_column(both: Clients, values: pa.Array, content: bytes) -> EncryptedTable:
    """The table as somebody sees it who lacks a column's key: the rows of its files are blanked where they are."""
    table = _table(both, values, content)
    with table.update_schema() as update:
        update.add_column("name", StringType())
    declare(table, f"{COLUMN_KEY}: name")
    return loaded(both.analyst)
