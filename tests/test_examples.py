"""The example of `make demo` runs in an empty folder, shows what it says it shows, and leaves only ciphertext behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_first_example_shows_ciphertext_keys_and_calls(warehouse: Path) -> None:
    search_path = os.pathsep.join([str(ROOT), str(ROOT / "catalog")])
    command = [sys.executable, str(ROOT / "examples" / "first_encrypted_table.py")]
    environment = os.environ | {"PYTHONPATH": search_path, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    run = subprocess.run(command, cwd=warehouse, env=environment, capture_output=True, encoding="utf-8", check=False)

    assert run.returncode == 0, run.stderr
    shown = {" ".join(line.split()) for line in run.stdout.splitlines()}
    assert {"2 desk 310", "4 shelf 120"} <= shown
    assert any(line.startswith("data file") and "PARE" in line for line in shown)
    assert sum("AGS1" in line for line in shown) == 2
    assert any(line.startswith("demo/, every file") and line.endswith("none") for line in shown)
    assert any(line.startswith("the same rows, by plain PyIceberg") and line.endswith("a .parquet file") for line in shown)
    assert any(line.endswith("wrap_key × 4") for line in shown)
    assert any(line.endswith("unwrap_key × 1") for line in shown)
    assert not any(line.startswith("it returned") for line in shown)
    assert {"payroll 1, Ada, 91000 Ada", "analyst 1, Ada, None ColumnKeyDeniedError"} <= shown
    assert any(line.startswith("__protected__.3") and line.endswith("nothing") for line in shown)


def test_engines_join_encrypted_tables(warehouse: Path) -> None:
    """And no value of theirs is in the folder: not even in a temporary file of an engine."""
    search_path = os.pathsep.join([str(ROOT), str(ROOT / "catalog")])
    command = [sys.executable, str(ROOT / "examples" / "query_engines.py")]
    run = subprocess.run(
        command, cwd=warehouse, env=os.environ | {"PYTHONPATH": search_path}, capture_output=True, encoding="utf-8", check=False
    )

    assert run.returncode == 0, run.stderr
    rows = "[('IT', 1, 300), ('NO', 2, 270)]"
    assert run.stdout.splitlines() == [f"DuckDB: {rows}", f"Polars: {rows}"]
    stored = [path.read_bytes() for path in (warehouse / "warehouse").rglob("*.parquet")]
    assert len(stored) == 2
    assert not any(name in content for content in stored for name in (b"Cleo", b"country", b"PAR1"))
