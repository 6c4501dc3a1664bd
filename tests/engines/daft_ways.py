"""The natural ways of Daft with a table, in a process of its own: its runtime's threads end with it.

    python -m tests.engines.daft_ways '{"catalog": {…}, "table": "db.t", "text": "…"}'

Prints for each way the error it ended with, or its result, as one JSON object.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from typing import Any

import daft
from daft.io import IOConfig
from daft.recordbatch import MicroPartition
from pyiceberg.catalog import load_catalog

import tablecrypt.daft as tcd


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
        **of_ours(table.refresh(), frame),
    }
    return {name: outcome(way) for name, way in ways.items()}


def of_ours(table: Any, frame: daft.DataFrame) -> dict[str, Callable[[], Any]]:
    """The ways of tablecrypt.daft, one after another."""

    def ids(scan: Any) -> list[int]:
        return sorted(tcd.read_table(scan).to_pydict()["id"])

    def written(mode: Any, rows: dict[str, list[Any]]) -> dict[str, list[int]]:
        done: dict[str, list[int]] = daft.from_pydict(rows).write_sink(tcd.datasink(table.refresh(), mode=mode)).to_pydict()
        return done

    def late() -> Any:
        sink = tcd.datasink(table.refresh())
        with table.transaction() as transaction:
            transaction.set_properties({"encryption.column-keys": "alias/people: name"})
        return frame.write_sink(sink)

    def again() -> Any:
        sink = tcd.datasink(table.refresh())
        done = list(sink.write(iter([MicroPartition.from_arrow(frame.to_arrow())])))
        sink.finalize(done)
        before = ids(table.refresh())
        return [outcome(lambda: sink.finalize(done)), outcome(lambda: frame.write_sink(sink)), ids(table.refresh()) == before]

    name = frame.to_pydict()["name"]
    return {
        "read": lambda: ids(table.refresh()),
        "read by a scan's filter": lambda: ids(table.scan("id > 1")),
        "read, and filtered by another column": lambda: tcd.read_table(table).where(daft.col("id") == 3).select("name").to_pydict(),
        "count": lambda: tcd.read_table(table.scan(limit=3)).count_rows(),
        "write": lambda: written("append", {"id": [7, 8], "name": name}),
        "a sink that was used": again,
        "overwrite": lambda: (written("overwrite", {"id": [9], "name": name[:1]}), ids(table.refresh())),
        "another type": lambda: written("append", {"id": ["x"], "name": name[:1]}),
        "another mode": lambda: written("upsert", {"id": [9], "name": name[:1]}),
        "pickled": lambda: type(pickle.loads(pickle.dumps(tcd.datasink(table)))).__name__,
        "no encrypted table": lambda: tcd.read_table("db.t"),  # type: ignore[arg-type]
        "a column is declared meanwhile": late,
        "read afterwards": lambda: ids(table.refresh()),
    }


def outcome(way: Callable[[], Any]) -> Any:
    try:
        return way()
    except Exception as error:  # noqa: BLE001  whatever Daft makes of it is the answer
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(json.loads(sys.argv[1]))))
