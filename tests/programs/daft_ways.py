"""Daft, which opens the files of a table by itself and so gets none of an encrypted one."""

from __future__ import annotations

import daft
from daft.io import IOConfig
from pyiceberg.catalog import load_catalog

import tablecrypt.daft
from tests.programs.ways import NEXT_ROWS, expect_ids, main

CATALOG = load_catalog("prod")
TABLE = CATALOG.load_table("db.orders")


def write() -> None:
    TABLE.append(daft.from_arrow(NEXT_ROWS).to_arrow().cast(NEXT_ROWS.schema))
    expect_ids(TABLE.scan().to_arrow(), 1, 2, 3, 4, 5)


def write_sink() -> None:
    daft.from_arrow(NEXT_ROWS).write_sink(tablecrypt.daft.datasink(TABLE))
    expect_ids(TABLE.refresh().scan().to_arrow(), 1, 2, 3, 4, 5)
    TABLE.delete("id > 3")


if __name__ == "__main__":
    main(
        {
            "daft.read_iceberg(table)": lambda: daft.read_iceberg(TABLE).to_pydict(),
            "table.to_daft()": lambda: TABLE.to_daft().to_pydict(),
            'daft.Catalog.from_iceberg(catalog).get_table("db.orders").read()': lambda: (
                daft.Catalog.from_iceberg(CATALOG).get_table("db.orders").read().to_pydict()
            ),
            "df.write_iceberg(table)": lambda: daft.from_arrow(NEXT_ROWS).write_iceberg(TABLE).to_pydict(),
            "daft.read_iceberg(table, io_config=…)": lambda: daft.read_iceberg(TABLE, io_config=IOConfig()).to_pydict(),
            "df.write_iceberg(table, io_config=…)": lambda: (
                daft.from_arrow(NEXT_ROWS).write_iceberg(TABLE, io_config=IOConfig()).to_pydict()
            ),
            "tablecrypt.daft.read_table(table)": lambda: expect_ids(tablecrypt.daft.read_table(TABLE).to_pydict()["id"], 1, 2, 3),
            "df.write_sink(tablecrypt.daft.datasink(table))": write_sink,
            "daft.from_arrow(table.scan().to_arrow())": lambda: expect_ids(
                daft.from_arrow(TABLE.scan().to_arrow()).to_pydict()["id"], 1, 2, 3
            ),
            "table.append(df.to_arrow())": write,
        }
    )
