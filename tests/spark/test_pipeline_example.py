"""The pipeline of `make demo-spark` runs in an empty folder, shows what it says it shows, and leaves rows in its raw files alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = [pytest.mark.java, pytest.mark.slow]
ROOT: Final = Path(__file__).parents[2]


def test_the_pipeline_goes_from_raw_files_to_a_compacted_table(java_runtime: None, tmp_path: Path) -> None:
    search_path = os.pathsep.join([str(ROOT), str(ROOT / "catalog")])
    environment = os.environ | {"PYTHONPATH": search_path, "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, str(ROOT / "examples" / "spark_pipeline.py")]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=800)

    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    steps = {line[:44].strip(): line[44:].split() for line in run.stdout.splitlines() if " snapshots " in line}
    rows = {step: int(words[0]) for step, words in steps.items()}
    files = {step: int(words[4]) for step, words in steps.items()}
    assert rows["first day, from CSV"] == 20_000
    assert rows["second day, from JSON"] == rows["second day, from JSON, once more"] == 40_000
    assert rows["live orders in the evening"] == rows["late corrections, merged"] == rows["compacted"] == 42_000
    assert files["compacted"] < files["late corrections, merged"]
    assert all(words[-1] == "PARE" for words in steps.values())
    assert "orders in the table: 42000" in run.stdout
    assert "42050 times in the raw files, and 0 times in the table" in run.stdout
