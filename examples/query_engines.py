"""SQL over several encrypted tables at once, in DuckDB and in Polars: both read the tables' files through tablecrypt, which decrypts them.

Run: python query_engines.py   (its files are in ./demo/query-engines, which every run makes again)
"""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa

from tablecrypt import load_catalog
from tablecrypt.kms.memory import MemoryKeyManagementClient

DEMO = Path("demo/query-engines").absolute()
JOINED = """
    SELECT c.country, count(*) AS orders, sum(o.amount) AS amount
    FROM orders AS o JOIN customers AS c ON o.customer = c.id
    WHERE o.amount >= 100
    GROUP BY c.country ORDER BY c.country
"""


def main() -> None:
    """Make two tables, each under a master key of its own, and join them."""
    # The master keys live as long as this process: no later one reads these files.
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir(parents=True)
    for key in ("sales", "people"):
        MemoryKeyManagementClient().create_key(key)

    properties = {
        "type": "tablecrypt",
        "uri": f"sqlite:///{DEMO}/catalog.db",
        "warehouse": f"{DEMO}/warehouse",
        "encryption.kms-type": "memory",
    }
    catalog = load_catalog("demo", **properties)
    catalog.create_namespace("db")
    customers = pa.table({"id": [1, 2, 3], "country": ["NO", "IT", "NO"], "name": ["Ada", "Bea", "Cleo"]})
    orders = pa.table({"customer": [1, 1, 2, 3, 2], "amount": [120, 80, 300, 150, 20]})
    tables = {
        "customers": catalog.create_table("db.customers", customers.schema, properties={"encryption.key-id": "people"}),
        "orders": catalog.create_table("db.orders", orders.schema, properties={"encryption.key-id": "sales"}),
    }
    tables["customers"].append(customers)
    tables["orders"].append(orders)

    with duckdb.connect() as connection:
        for name, table in tables.items():
            table.scan().to_duckdb(name, connection)
        print("DuckDB:", connection.execute(JOINED).fetchall())

    with pl.SQLContext({name: table.to_polars() for name, table in tables.items()}) as context:
        print("Polars:", context.execute(JOINED).collect().rows())


if __name__ == "__main__":
    main()
