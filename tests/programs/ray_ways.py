"""Ray Data: its own reader and writer of Iceberg, and tablecrypt's."""

from __future__ import annotations

import os
import tempfile
from typing import Final

import ray
from pyiceberg.catalog import load_catalog

import tablecrypt.ray
from tests.programs.ways import NEXT_ROWS, expect_ids, main

TABLE = load_catalog("prod").load_table("db.orders")


def write() -> None:
    ray.data.from_arrow(NEXT_ROWS).write_datasink(tablecrypt.ray.datasink(TABLE))
    expect_ids(TABLE.refresh().scan().to_arrow(), 1, 2, 3, 4, 5)


WAYS: Final = {
    'ray.data.read_iceberg(table_identifier="db.orders", catalog_kwargs={"name": "prod"})': lambda: ray.data.read_iceberg(
        table_identifier="db.orders", catalog_kwargs={"name": "prod"}
    ).take_all(),
    'dataset.write_iceberg("db.orders", catalog_kwargs={"name": "prod"})': lambda: ray.data.from_arrow(NEXT_ROWS).write_iceberg(
        "db.orders", catalog_kwargs={"name": "prod"}
    ),
    "tablecrypt.ray.read_table(table)": lambda: expect_ids([row["id"] for row in tablecrypt.ray.read_table(TABLE).take_all()], 1, 2, 3),
    "dataset.write_datasink(tablecrypt.ray.datasink(table))": write,
}


if __name__ == "__main__":
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    # The names of Ray's sockets are too long in the folder of a test.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        ray.init("local", num_cpus=1, include_dashboard=False, object_store_memory=100_000_000, log_to_driver=False, _temp_dir=folder)
        main(WAYS)
        ray.shutdown()
