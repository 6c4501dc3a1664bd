"""Ibis on DuckDB, which gets the rows of a scan."""

from __future__ import annotations

from typing import Any

import ibis
from pyiceberg.catalog import load_catalog

from tests.programs.ways import expect_ids, main

TABLE: Any = load_catalog("prod").load_table("db.orders")


def of_arrow() -> None:
    orders = ibis.memtable(TABLE.scan().to_arrow())
    expect_ids(orders.filter(orders.id > 1).to_pyarrow(), 2, 3)


def of_a_dataset() -> None:
    orders = ibis.memtable(TABLE.scan().to_arrow_dataset())
    expect_ids(orders.filter(orders.id > 1).to_pyarrow(), 2, 3)


def of_a_connection() -> None:
    connection = ibis.duckdb.from_connection(TABLE.scan().to_duckdb("orders"))
    orders = connection.table("orders")
    expect_ids(orders.filter(orders.id > 1).to_pyarrow(), 2, 3)


def to_a_table() -> None:
    orders = ibis.memtable(TABLE.scan().to_arrow())
    TABLE.append(orders.mutate(id=orders.id + 10).to_pyarrow())
    expect_ids(TABLE.scan().to_arrow(), 1, 2, 3, 11, 12, 13)


if __name__ == "__main__":
    main(
        {
            "ibis.memtable(table.scan().to_arrow())": of_arrow,
            "ibis.memtable(table.scan().to_arrow_dataset())": of_a_dataset,
            'ibis.duckdb.from_connection(table.scan().to_duckdb("orders"))': of_a_connection,
            "table.append(expression.to_pyarrow())": to_a_table,
        }
    )
