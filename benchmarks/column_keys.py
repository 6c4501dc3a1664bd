"""Protected columns against none: writing and reading tables of which 3 of 50 columns are under column keys.

Three tables hold the same rows: one without protected columns, one with error placeholders, one with stored masks. Compared are

    write                 appending the rows, to the table without protected columns
    all columns, key      to the same scan of the table without protected columns
    masked                what somebody sees without the column keys, to a scan of the plain table without the three columns

Rounds are interleaved; see _paired.py.

Run: python benchmarks/column_keys.py [--rows 500000] [--rounds 9]
"""

from __future__ import annotations

import argparse
import secrets
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from _paired import OURS, Case, run_rounds
from pyiceberg.catalog import Catalog

from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt_catalog import EncryptedSqlCatalog

COLUMNS: Final = 50
PROTECTED: Final = ("c1", "c11", "c21")
UNPROTECTED: Final = "no protected columns"
TABLES: Final = {
    "plain": {},
    "protected": {"encryption.column-keys": f"pii: {', '.join(PROTECTED)}"},
    "masked": {
        "encryption.column-keys": f"pii: {', '.join(PROTECTED)}",
        **{f"encryption.column-mask.{name}": "truncate(2)" for name in PROTECTED},
    },
}


def main() -> None:
    """Make the tables, run the rounds, print the figures."""
    options = _options()
    rows = _rows(options.rows)
    with tempfile.TemporaryDirectory() as folder:
        payroll, analyst = _catalogs(Path(folder))
        for name, properties in TABLES.items():
            payroll.create_table(f"db.{name}", rows.schema, properties={"encryption.key-id": "orders", **properties}).append(rows)
        others = tuple(name for name in rows.column_names if name not in PROTECTED)
        scans = {
            "read 50 columns with the keys": (partial(_scan, payroll, "protected"), partial(_scan, payroll, "plain"), 1.05),
            "the same, masks are stored": (partial(_scan, payroll, "masked"), partial(_scan, payroll, "plain"), 1.05),
            "read the 3 columns with the keys": (
                partial(_scan, payroll, "protected", PROTECTED),
                partial(_scan, payroll, "plain", PROTECTED),
                None,
            ),
            "read 47 columns without the keys": (
                partial(_scan, analyst, "protected", others),
                partial(_scan, payroll, "plain", others),
                1.05,
            ),
            "nulls, against 47 columns": (partial(_scan, analyst, "protected"), partial(_scan, payroll, "plain", others), 1.05),
            "stored masks, against 50 columns": (partial(_scan, analyst, "masked"), partial(_scan, payroll, "plain"), 1.05),
        }
        run_rounds([_case(name, ours, theirs, aim) for name, (ours, theirs, aim) in scans.items()], options.rounds)
        # After the reads, since every round of these makes the tables longer.
        writes = [
            _case(
                "append, error placeholders", partial(_append, payroll, "protected", rows), partial(_append, payroll, "plain", rows), 1.15
            ),
            _case("append, stored masks", partial(_append, payroll, "masked", rows), partial(_append, payroll, "plain", rows), 1.15),
        ]
        run_rounds(writes, options.rounds)


def _case(name: str, ours: Callable[[], Any], theirs: Callable[[], Any], aim: float | None) -> Case:
    return Case(name, {OURS: ours, UNPROTECTED: theirs}, aim, UNPROTECTED)


def _scan(catalog: Catalog, name: str, columns: tuple[str, ...] = ("*",)) -> int:
    return int(catalog.load_table(f"db.{name}").scan(selected_fields=columns).to_arrow().num_rows)


def _append(catalog: Catalog, name: str, rows: pa.Table) -> None:
    catalog.load_table(f"db.{name}").append(rows)


def _rows(count: int) -> pa.Table:
    """A fifth of the columns is text, a fifth repeats few values, the rest are numbers."""
    random = np.random.default_rng(1)
    columns: dict[str, Any] = {}
    for at in range(COLUMNS):
        kind = at % 5
        if kind == 1:
            columns[f"c{at}"] = pa.array([f"{number:012d}" for number in random.integers(0, 10**12, count)])
        elif kind == 2:
            columns[f"c{at}"] = pa.array(np.char.add("city ", random.integers(0, 500, count).astype(str)))
        elif kind == 3:
            columns[f"c{at}"] = random.normal(size=count)
        else:
            columns[f"c{at}"] = random.integers(0, 2**40 if kind else count, count)
    return pa.table(columns)


def _catalogs(folder: Path) -> tuple[Catalog, Catalog]:
    """One that may use every key, and one that may use the table's alone."""
    keys = {name: secrets.token_bytes(32) for name in ("orders", "pii")}
    made: list[Catalog] = []
    for name, own in {"payroll": keys, "analyst": {"orders": keys["orders"]}}.items():
        MemoryKeyManagementClient({"kms.memory.name": name}, own)
        properties = {"encryption.kms-type": "memory", "kms.memory.name": name}
        made.append(EncryptedSqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/files", **properties))
    made[0].create_namespace("db")
    return made[0], made[1]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=9)
    return parser.parse_args()


if __name__ == "__main__":
    main()
