"""What one client may do by tablecrypt.daft with the table of column_principals.py, in a process of its own.

    python -m tests.engines.daft_principals '{"catalog": {…}, "table": "db.people"}'

Prints for each way the error it ended with, or its result, as one JSON object.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import tablecrypt.daft as tcd
from tablecrypt import load_catalog
from tests.engines.daft_ways import outcome


def main(question: dict[str, Any]) -> dict[str, Any]:
    table: Any = load_catalog("prod", **question["catalog"]).load_table(question["table"])
    ways = {
        "read": lambda: tcd.read_table(table).to_pydict()["team"],
        "masked": lambda: tcd.read_table(table.scan(masked="mask")).to_pydict()["team"],
        "other columns": lambda: sorted(tcd.read_table(table.scan(selected_fields=("id", "note"))).to_pydict()["id"]),
        "sink": lambda: type(tcd.datasink(table)).__name__,
    }
    return {name: outcome(way) for name, way in ways.items()}


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(json.loads(sys.argv[1]))))
