"""The example with query engines runs in any folder, as often as one likes, and leaves only ciphertext behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


def test_engines_join_encrypted_tables(warehouse: Path) -> None:
    """And no value of theirs is in the folder: not even in a temporary file of an engine."""
    search_path = os.pathsep.join([str(ROOT), str(ROOT / "catalog")])
    command = [sys.executable, str(ROOT / "examples" / "query_engines.py")]
    rows = "[('IT', 1, 300), ('NO', 2, 270)]"
    for _ in range(2):
        run = subprocess.run(
            command, cwd=warehouse, env=os.environ | {"PYTHONPATH": search_path}, capture_output=True, encoding="utf-8", check=False
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout.splitlines() == [f"DuckDB: {rows}", f"Polars: {rows}"]

    stored = [path.read_bytes() for path in warehouse.rglob("*.parquet")]
    assert len(stored) == 2
    assert not any(name in content for content in stored for name in (b"Cleo", b"country", b"PAR1"))
