"""Polars, which gets a table of PyIceberg's."""

from __future__ import annotations

import polars as pl
from pyiceberg.catalog import load_catalog

from tests.programs.ways import NEXT_ROWS, expect_ids, main

CATALOG = load_catalog("prod")
TABLE = CATALOG.load_table("db.orders")
FRAME = pl.DataFrame(NEXT_ROWS)


def write() -> None:
    FRAME.write_iceberg(TABLE, mode="append")
    expect_ids(pl.scan_iceberg(TABLE).collect()["id"], 1, 2, 3, 4, 5)


def overwrite() -> None:
    FRAME.write_iceberg(TABLE, mode="overwrite")
    expect_ids(TABLE.scan().to_arrow(), 4, 5)


def delete() -> None:
    pl.delete_iceberg(TABLE, pl.col("id") > 4)
    expect_ids(TABLE.scan().to_arrow(), 4)


def sink_into_a_new_table() -> None:
    FRAME.lazy().sink_iceberg("db.polars", catalog=CATALOG, mode="append", create_if_not_exists=True)


def read_without_the_catalog() -> None:
    pl.scan_iceberg(TABLE.metadata_location).collect()


if __name__ == "__main__":
    main(
        {
            "pl.scan_iceberg(table)": lambda: expect_ids(pl.scan_iceberg(TABLE).filter(pl.col("id") > 1).collect()["id"], 2, 3),
            'pl.scan_iceberg("db.orders", catalog=catalog)': lambda: expect_ids(
                pl.scan_iceberg("db.orders", catalog=CATALOG).collect()["id"], 1, 2, 3
            ),
            "table.to_polars()": lambda: expect_ids(TABLE.to_polars().collect()["id"], 1, 2, 3),
            'pl.scan_iceberg(table, reader_override="native")': lambda: pl.scan_iceberg(TABLE, reader_override="native").collect(),
            "lf.sink_iceberg(table, mode=…)": lambda: FRAME.lazy().sink_iceberg(TABLE, mode="append"),
            'lf.sink_iceberg("db.new", catalog=catalog, create_if_not_exists=True)': sink_into_a_new_table,
            'pl.scan_iceberg("…/metadata.json")': read_without_the_catalog,
            'df.write_iceberg(table, mode="append")': write,
            'df.write_iceberg(table, mode="overwrite")': overwrite,
            'pl.delete_iceberg(table, pl.col("id") > 4)': delete,
        }
    )
