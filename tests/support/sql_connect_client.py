"""A client of Spark Connect, a program of its own: statements in sessions of one server, and what comes of each.

stdin    {"remote": "sc://…", "sessions": [{"settings": {...}, "statements": ["…", …]}, …]}
stdout   the last line: {"results": [[rows or {"error": "…"}, …], …]}
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> None:
    """Run the sessions one after the other, each of a user of its own."""
    from pyspark.sql import SparkSession

    job = json.load(sys.stdin)
    results = []
    for number, session in enumerate(job["sessions"]):
        builder: Any = SparkSession.builder
        spark = builder.remote(f"{job['remote']}/;user_id=user{number}").create()
        for name, value in session.get("settings", {}).items():
            spark.conf.set(name, value)
        results.append([outcome(spark, statement) for statement in session["statements"]])
        spark.stop()
    sys.stdout.write("\n" + json.dumps({"results": results}, default=str) + "\n")


def outcome(spark: Any, statement: str) -> Any:
    """Return a statement's rows, or its error."""
    try:
        return [list(row) for row in spark.sql(statement).collect()]
    except Exception as error:  # noqa: BLE001  whatever the server refuses with is what the test looks at
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
