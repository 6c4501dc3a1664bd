"""DuckDB, which gets the rows of a scan."""

from __future__ import annotations

from typing import Any

import duckdb
from pyiceberg.catalog import load_catalog

from tests.programs.ways import expect_ids, main

TABLE: Any = load_catalog("prod").load_table("db.orders")
QUERY = "SELECT id FROM orders WHERE id > 1"


def of_a_scan() -> None:
    with duckdb.connect() as connection:
        TABLE.scan().to_duckdb("orders", connection)
        expect_ids([row[0] for row in connection.execute(QUERY).fetchall()], 2, 3)


def of_a_dataset() -> None:
    with duckdb.connect() as connection:
        connection.register("orders", TABLE.scan().to_arrow_dataset())
        expect_ids([row[0] for row in connection.execute(QUERY).fetchall()], 2, 3)


def to_a_table() -> None:
    with duckdb.connect() as connection:
        TABLE.scan().to_duckdb("orders", connection)
        TABLE.append(connection.sql("SELECT id + 10 AS id, name FROM orders").to_arrow_table())
    expect_ids(TABLE.scan().to_arrow(), 1, 2, 3, 11, 12, 13)


def of_a_file() -> None:
    with duckdb.connect() as connection:
        path = TABLE.inspect.files()["file_path"][0].as_py().removeprefix("file://")
        connection.execute("FROM read_parquet($1)", [path]).fetchall()


if __name__ == "__main__":
    main(
        {
            'table.scan().to_duckdb("orders", connection)': of_a_scan,
            'connection.register("orders", table.scan().to_arrow_dataset())': of_a_dataset,
            "read_parquet('…/data/*.parquet')": of_a_file,
            'table.append(connection.sql("…").to_arrow_table())': to_a_table,
        }
    )
