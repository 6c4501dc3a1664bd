"""The I/O manager of dagster-iceberg for Arrow tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from dagster import AssetIn, asset, materialize
from dagster_iceberg.config import IcebergCatalogConfig
from dagster_iceberg.io_manager.arrow import PyArrowIcebergIOManager
from pyiceberg.catalog import load_catalog

from tests.programs.ways import FIRST_ROWS, NEXT_ROWS, expect_ids, main

KEY = {"table_properties": {"encryption.key-id": "orders"}}
MANAGER = PyArrowIcebergIOManager(name="prod", config=IcebergCatalogConfig(properties={}), namespace="db")
SEEN: dict[str, pa.Table] = {}


def _materialize(rows: pa.Table, *ids: int, **metadata: Any) -> None:
    def made() -> pa.Table:
        return rows

    assert materialize([asset(key_prefix=["db"], metadata=metadata)(made)], resources={"io_manager": MANAGER}).success
    expect_ids(load_catalog("prod").load_table("db.made").scan().to_arrow(), *ids)


def read() -> None:
    def orders() -> pa.Table:
        return FIRST_ROWS

    def seen(orders: pa.Table) -> None:
        SEEN["orders"] = orders

    written = asset(key_prefix=["db"])(orders)
    read = asset(ins={"orders": AssetIn(key=["db", "orders"], metadata={"columns": ["id"]})})(seen)
    assert materialize([written, read], selection=[read], resources={"io_manager": MANAGER}).success
    expect_ids(SEEN["orders"], 1, 2, 3)


def upsert() -> None:
    options = {"join_cols": ["id"], "when_matched_update_all": True, "when_not_matched_insert_all": True}
    _materialize(NEXT_ROWS, 1, 1, 2, 2, 3, 3, 4, 5, write_mode="upsert", upsert_options=options, **KEY)


def evolve() -> None:
    wider = NEXT_ROWS.append_column("note", NEXT_ROWS["name"])
    _materialize(wider, 4, 5, schema_update_mode="update", **KEY)
    assert load_catalog("prod").load_table("db.made").scan().to_arrow()["note"].null_count == 0


if __name__ == "__main__":
    main(
        {
            "an asset as input": read,
            "an asset, for the first time": lambda: _materialize(FIRST_ROWS, 1, 2, 3),
            "an asset, again": lambda: _materialize(FIRST_ROWS, 1, 2, 3),
            'metadata={"table_properties": {"encryption.key-id": "orders"}}': lambda: _materialize(FIRST_ROWS, 1, 2, 3, **KEY),
            'metadata={"write_mode": "append", "table_properties": …}': lambda: _materialize(
                FIRST_ROWS, 1, 1, 2, 2, 3, 3, write_mode="append", **KEY
            ),
            'metadata={"write_mode": "upsert", "table_properties": …}': upsert,
            "a new column": evolve,
        }
    )
