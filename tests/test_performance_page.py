"""The page of benchmarks shows what was measured: every ratio with its spread, every aim, every curve."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_the_page_shows_every_ratio_with_its_spread_and_every_curve(tmp_path: Path) -> None:
    case = {"name": "a scan", "aim": 0.8, "against": "PyIceberg", "took": {}}
    case["took"] = {"tablecrypt": [[1.0, 0.5], [2.0, 0.5], [3.0, 0.5]], "PyIceberg": [[2.0, 1.0], [2.0, 2.0], [2.0, 0.25]]}
    curve = {side: [[10, 0.1], [100, 1.0], [1000, 10.0]] for side in ("tablecrypt", "PyIceberg")}
    results, docs = tmp_path / "results", tmp_path / "docs"
    results.mkdir()
    docs.mkdir()
    (results / "scans.json").write_text(json.dumps({"arguments": ["--rows", "5"], "cases": [case]}))
    (results / "growth.json").write_text(json.dumps({"arguments": [], "curves": {"rows: scan": curve}}))
    subprocess.run([sys.executable, BENCHMARKS / "_page.py", results, docs], check=True)
    page = (docs / "performance.md").read_text()
    assert "## scans.py --rows 5" in page
    assert "| a scan | 2000 ms | PyIceberg | 1.00 (0.50 to 1.50) | 0.50 (0.25 to 2.00) | 0.8 |" in page
    assert "exponents tablecrypt 1.00, PyIceberg 1.00" in page
    for plot in ("scans", "rows-scan"):
        assert f"](performance/{plot}.svg)" in page
        ElementTree.parse(docs / "performance" / f"{plot}.svg")


def test_the_page_says_which_benchmarks_did_not_run_and_shows_what_the_others_printed(tmp_path: Path) -> None:
    results, docs = tmp_path / "results", tmp_path / "docs"
    docs.mkdir()
    only = ["--only", "shred", "import_time", "--minutes"]
    subprocess.run([sys.executable, BENCHMARKS / "_all.py", results, docs, *only, "0"], check=False, capture_output=True)
    run = {"name": "shred", "arguments": "--files 2", "outcome": "done", "printed": "peak 41 MB\n"}
    (results / "shred.run.json").write_text(json.dumps(run))
    subprocess.run([sys.executable, BENCHMARKS / "_page.py", results, docs], check=True)
    page = (docs / "performance.md").read_text()
    assert "## import_time.py --rounds 5\n\nThis benchmark was not begun: no time was left." in page
    assert "## shred.py --files 2\n\n```text\npeak 41 MB\n```" in page
