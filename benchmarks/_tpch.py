"""TPC-H: its tables, made by tpchgen-cli, its 22 queries, and whether two engines gave the same rows."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

TABLES: Final = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")


def queries() -> dict[int, str]:
    """The queries by their numbers."""
    text = Path(__file__).with_name("tpch.sql").read_text(encoding="utf-8")
    return {int(number): query.strip().rstrip(";") for number, query in re.findall(r"^-- (\d+): .*\n((?:.+\n)+)", text, re.MULTILINE)}


def generator() -> str | None:
    """The program that makes the tables, if it is installed."""
    return shutil.which("tpchgen-cli", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


def generate(program: str, folder: Path, scale: float) -> None:
    """Make the tables as Parquet files."""
    subprocess.run([program, "parquet", "-s", str(scale), "--output-dir", str(folder)], check=True, stdout=subprocess.DEVNULL)


def same_rows(found: list[Any], expected: list[Any]) -> bool:
    """Are they equal but for the last digits of floating-point sums and averages, which depend on the order of the rows?"""
    return len(found) == len(expected) and all(
        len(one) == len(other) and all(map(_same, one, other))
        for one, other in zip(sorted(found, key=repr), sorted(expected, key=repr), strict=True)
    )


def _same(one: Any, other: Any) -> bool:
    return math.isclose(one, other, rel_tol=1e-9) if isinstance(one, float) and isinstance(other, float) else bool(one == other)
