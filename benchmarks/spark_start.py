"""What a fresh Spark session takes until it has the first rows of an encrypted table, against plaintext Parquet files of the same rows.

Each measurement has a session in a process of its own, in turn: how long adding the catalog takes (`tcs.catalog`), and the first and the
second statement, once Spark itself has started. Needs Java 17 or newer.

Run: python benchmarks/spark_start.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from _medians import seconds_of

from tablecrypt import load_catalog
from tablecrypt.kms.local_file import create_key_file

SIDES: Final = ("tablecrypt", "plaintext Parquet")
_KEY_ID: Final = "orders"
AIM: Final = 3.0
"""Seconds on two quiet cores that adding the catalog and the first statement take together, beyond the first on plaintext."""


def main() -> int:
    """Make the files, run the rounds, print medians in seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--session", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.session is not None:
        print(json.dumps(_in_session(options.session, options.folder)))
        return 0

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _make(folder)
        taken: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
        for _ in range(options.rounds):
            for side, rounds in taken.items():
                rounds.append(_measured(side, folder))

    medians = {side: {step: statistics.median(each[step] for each in rounds) for step in rounds[0]} for side, rounds in taken.items()}
    print("| | adding the catalog | first statement | both | second statement |\n|---|---|---|---|---|")
    for side, of in medians.items():
        both = of["catalog"] + of["first"]
        print(f"| with {side} | {of['catalog']:.2f} s | {of['first']:.2f} s | {both:.2f} s | {of['second']:.2f} s |")
    ours, plain = (medians[side] for side in SIDES)
    beyond = ours["catalog"] + ours["first"] - plain["first"]
    print(
        f"\nBeyond the first statement on plaintext: {beyond:.2f} s (aim on two quiet cores: {AIM} s{', MISSED' if beyond > AIM else ''})"
    )
    return int(beyond > AIM)


def _properties(folder: Path) -> dict[str, str]:
    return {
        "type": "tablecrypt",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
        "encryption.kms-type": "local",
        "kms.local.key-file": str(folder / "keys"),
    }


def _make(folder: Path) -> None:
    rows = pa.table({"id": pa.array(range(1000), pa.int64()), "page": [f"page {each % 10}" for each in range(1000)]})
    create_key_file(folder / "keys", _KEY_ID)
    catalog = load_catalog("prod", **_properties(folder))
    catalog.create_namespace("db")
    catalog.create_table("db.visits", rows.schema, properties={"encryption.key-id": _KEY_ID}).append(rows)
    pq.write_table(rows, folder / "visits.parquet")


def _measured(side: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--session", side, "--folder", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | {"PYSPARK_PYTHON": sys.executable})
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _in_session(side: str, folder: Path) -> dict[str, float]:
    from pyspark.sql import SparkSession

    import tablecrypt.spark as tcs

    builder: Any = SparkSession.builder
    session = builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    source = f"parquet.`{folder / 'visits.parquet'}`"
    taken = {"catalog": 0.0}
    if side == "tablecrypt":
        source = "prod.db.visits"
        taken["catalog"] = seconds_of(lambda: tcs.catalog(session, "prod", _properties(folder)))

    statement = f"SELECT page, count(*) FROM {source} GROUP BY page"
    for which in ("first", "second"):
        taken[which] = seconds_of(lambda: session.sql(statement).collect())
    session.stop()

    return taken


if __name__ == "__main__":
    sys.exit(main())
