"""dlt's filesystem destination with `table_format="iceberg"`, whose catalog is the one that ICEBERG_CATALOG__ICEBERG_CATALOG_NAME names."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import dlt
import duckdb_ext
from dlt.common.libs.pyiceberg import get_iceberg_tables
from pyiceberg.catalog import load_catalog

from tests.programs.ways import CANARY, FIRST_ROWS, NEXT_ROWS, expect_ids, main

WAREHOUSE = load_catalog("prod").properties["warehouse"]
PIPELINE = dlt.pipeline("orders", destination=dlt.destinations.filesystem(WAREHOUSE), dataset_name="dlt")


def _run(rows: list[dict[str, Any]], disposition: Any, *ids: int, **hints: Any) -> None:
    PIPELINE.run(dlt.resource(rows, name="orders", table_format="iceberg", write_disposition=disposition, **hints))
    expect_ids(_table().scan().to_arrow(), *ids)


def _table() -> Any:
    return get_iceberg_tables(PIPELINE)["orders"]


def append() -> None:
    _run(FIRST_ROWS.to_pylist(), "append", 1, 2, 3)
    _run(NEXT_ROWS.to_pylist(), "append", 1, 2, 3, 4, 5)


def evolve() -> None:
    _run([{"id": 6, "name": CANARY, "note": CANARY}], "append", 1, 2, 3, 4, 5, 6)
    assert _table().scan().to_arrow()["note"].to_pylist().count(CANARY) == 1


def nested() -> None:
    _run([{"id": 7, "name": CANARY, "items": [{"part": CANARY}]}], "append", 1, 2, 3, 4, 5, 6, 7)
    assert get_iceberg_tables(PIPELINE)["orders__items"].scan().to_arrow()["part"].to_pylist() == [CANARY]


def replace() -> None:
    _run(FIRST_ROWS.to_pylist(), "replace", 1, 2, 3)


def merge() -> None:
    _run([{"id": 3, "name": f"{CANARY} again"}, {"id": 4, "name": CANARY}], "merge", 1, 2, 3, 4, primary_key="id")
    assert f"{CANARY} again" in _table().scan(row_filter="id = 3").to_arrow()["name"].to_pylist()


def insert_only() -> None:
    once = {"disposition": "merge", "strategy": "insert-only"}
    _run([{"id": 4, "name": "not this one"}, {"id": 5, "name": CANARY}], once, 1, 2, 3, 4, 5, primary_key="id")
    assert _table().scan(row_filter="id = 4").to_arrow()["name"].to_pylist() == [CANARY]


def drop() -> None:
    rows = dlt.resource(NEXT_ROWS.to_pylist(), name="orders", table_format="iceberg", write_disposition="append")
    PIPELINE.run(rows, refresh="drop_resources")
    expect_ids(_table().scan().to_arrow(), 4, 5)


def through_duckdb() -> None:
    # Where DuckDB looks for its extension `iceberg`, which it would otherwise download.
    shutil.copytree(Path(next(iter(duckdb_ext.__path__))) / "extensions", Path.home() / ".duckdb" / "extensions", dirs_exist_ok=True)
    PIPELINE.dataset().orders.arrow()


if __name__ == "__main__":
    main(
        {
            'write_disposition="append"': append,
            "a new column": evolve,
            "nested data, which becomes a table of its own": nested,
            'write_disposition="replace"': replace,
            'write_disposition="merge"': merge,
            'write_disposition={"disposition": "merge", "strategy": "insert-only"}': insert_only,
            'pipeline.run(…, refresh="drop_resources")': drop,
            'get_iceberg_tables(pipeline)["orders"].scan()': lambda: expect_ids(_table().scan().to_arrow(), 4, 5),
            "pipeline.dataset().orders.arrow()": through_duckdb,
        }
    )
