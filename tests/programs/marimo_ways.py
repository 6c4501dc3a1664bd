"""marimo: the loader that its panel of data sources writes into a notebook, that panel, and SQL cells."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from runpy import run_path
from typing import Any

from marimo._data.data_source_discovery.plugins.pyiceberg import discover
from marimo._data.data_source_discovery.types import DiscoveryContext
from marimo._sql.engines.pyiceberg import PyIcebergEngine
from pyiceberg.catalog import Catalog

from tests.programs.ways import expect_ids, main

NOTEBOOK = """
import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo
    from pyiceberg.catalog import load_catalog

    orders = load_catalog("prod").load_table("db.orders").to_polars().collect()
    return mo, orders


@app.cell
def _(mo, orders):
    found = mo.sql("SELECT id FROM orders WHERE id > 1")
    return (found,)
"""


def _catalog(environment: Mapping[str, str] = os.environ) -> Catalog:
    sources = discover(DiscoveryContext(environment=environment))
    if not sources:
        raise LookupError("marimo shows no catalog")
    names: dict[str, Any] = {}
    exec(sources[0].code, names)
    catalog: Catalog = names["catalog"]
    return catalog


def by_the_file_alone() -> None:
    _catalog({name: value for name, value in os.environ.items() if not name.startswith("PYICEBERG_CATALOG__")})


def load() -> None:
    expect_ids(_catalog().load_table("db.orders").scan().to_arrow(), 1, 2, 3)


def panel() -> None:
    engine = PyIcebergEngine(_catalog())
    databases = engine.get_databases(include_schemas=True, include_tables=True, include_table_details=True)
    assert [each.name for each in databases] == ["db"]
    (table,) = [each for schema in databases[0].schemas for each in schema.tables if each.name == "orders"]
    assert [column.name for column in table.columns] == ["id", "name"]


def query() -> None:
    Path("notebook.py").write_text(NOTEBOOK, encoding="utf-8")
    _, found = run_path("notebook.py")["app"].run()
    expect_ids(found["found"]["id"], 2, 3)


if __name__ == "__main__":
    main(
        {
            "the loader, with the type in the environment": load,
            "the loader, with .pyiceberg.yaml alone": by_the_file_alone,
            "the panel of data sources": panel,
            'mo.sql("…") over table.to_polars().collect()': query,
        }
    )
