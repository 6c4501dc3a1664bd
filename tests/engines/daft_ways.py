"""The natural ways of Daft with a table, in a process of its own: its runtime's threads end with it.

    python -m tests.engines.daft_ways '{"catalog": {…}, "table": "db.t", "text": "…"}'

Prints for each way the error it ended with, or its result, as one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import daft
from daft.io import IOConfig
from pyiceberg.catalog import load_catalog


def main(question: dict[str, Any]) -> dict[str, Any]:
    table = load_catalog("prod", **question["catalog"]).load_table(question["table"])
    frame = daft.from_pydict({"id": [1, 2], "name": [question["text"]] * 2})
    ways: dict[str, Callable[[], Any]] = {
        "read_iceberg": lambda: daft.read_iceberg(table).to_pydict(),
        "read_iceberg, io_config": lambda: daft.read_iceberg(table, io_config=IOConfig()).to_pydict(),
        "write_iceberg": lambda: frame.write_iceberg(table).to_pydict(),
        "write_iceberg, overwrite": lambda: frame.write_iceberg(table, mode="overwrite").to_pydict(),
        "write_iceberg, io_config": lambda: frame.write_iceberg(table, io_config=IOConfig()).to_pydict(),
        "to_daft": table.to_daft,
        "from_arrow": lambda: daft.from_arrow(table.scan().to_arrow()).sort("id").to_pydict()["id"],
        "append": lambda: table.append(frame.to_arrow()),
    }
    return {name: outcome(way) for name, way in ways.items()}


def outcome(way: Callable[[], Any]) -> Any:
    try:
        return way()
    except Exception as error:  # noqa: BLE001  whatever Daft makes of it is the answer
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(json.loads(sys.argv[1]))))
