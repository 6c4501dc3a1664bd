"""DataFusion, which gets a dataset of a scan."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from datafusion import SessionContext
from pyiceberg.catalog import load_catalog

from tests.programs.ways import expect_ids, main

TABLE: Any = load_catalog("prod").load_table("db.orders")
QUERY = "SELECT id, name FROM orders WHERE id > 1"


def of_a_dataset() -> None:
    context = SessionContext()
    context.register_dataset("orders", TABLE.scan().to_arrow_dataset())
    expect_ids(context.sql(QUERY).to_arrow_table(), 2, 3)


def of_arrow() -> None:
    context = SessionContext()
    context.from_arrow(TABLE.scan().to_arrow(), "orders")
    expect_ids(context.sql(QUERY).to_arrow_table(), 2, 3)


def of_the_table() -> None:
    context = SessionContext()
    context.register_table("orders", TABLE)
    context.sql(QUERY).to_arrow_table()


def to_a_table() -> None:
    context = SessionContext()
    context.register_dataset("orders", TABLE.scan().to_arrow_dataset())
    found = context.sql("SELECT id + 10 AS id, name FROM orders").to_arrow_table()
    TABLE.append(found.cast(pa.schema([("id", pa.int64()), ("name", pa.string())])))
    expect_ids(TABLE.scan().to_arrow(), 1, 2, 3, 11, 12, 13)


if __name__ == "__main__":
    main(
        {
            'context.register_dataset("orders", table.scan().to_arrow_dataset())': of_a_dataset,
            'context.from_arrow(table.scan().to_arrow(), "orders")': of_arrow,
            'context.register_table("orders", table)': of_the_table,
            'table.append(context.sql("…").to_arrow_table())': to_a_table,
        }
    )
