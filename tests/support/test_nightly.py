"""Every part of the night runs, whatever became of those before it."""

from __future__ import annotations

import os
import re
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.support.nightly import LOGS, ROOT, Result, main, table

MAKEFILE = """
good:
\t@echo all is well
bad:
\t@echo about to fail; exit 3
killed:
\t@kill -KILL $$$$
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "Makefile").write_text(MAKEFILE)
    return tmp_path


def test_every_part_runs_although_one_before_it_failed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["bad", "killed", "good"], project)

    shown = capsys.readouterr().out
    results = (project / LOGS / "results.txt").read_text()
    assert code == 2
    assert [line.split()[0] for line in results.splitlines()] == ["bad", "killed", "good"]
    assert [line.partition("min")[2].split() for line in results.splitlines()] == [
        ["failed", "with", "2"],
        ["failed", "with", "2"],
        ["passed"],
    ]
    assert shown.endswith(f"\n{results}\n")
    assert "about to fail" in shown
    assert f"bad failed with 2; all of it is in {LOGS / 'bad.log'}" in shown
    assert (project / LOGS / "good.log").read_text() == "all is well\n"


def test_a_night_without_failures_ends_with_0(project: Path) -> None:
    assert main(["good"], project) == 0


def test_a_target_that_the_makefile_lacks_is_a_failure(project: Path) -> None:
    assert main(["unknown", "good"], project) == 2


def test_a_night_of_no_parts_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], project) == 2
    assert "NIGHTLY_PARTS" in capsys.readouterr().err


def test_the_table_has_minutes_and_outcomes_in_columns() -> None:
    results = [Result("fuzz", 0, 1.234), Result("test-spark-4.3.0", 137, 100)]

    assert table(results) == "fuzz                  1.2 min  passed\ntest-spark-4.3.0    100.0 min  failed with 137\n"


def test_every_part_of_the_night_is_a_target_that_one_can_run_alone() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--no-print-directory", "--print-data-base", "nightly-parts"]
    parts, _, database = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout.partition(
        "\n"
    )
    targets = re.findall(r"^([\w.%-]+):(?!=)", database, re.MULTILINE)

    assert parts.split()[0] == "test-nightly-properties"
    assert [part for part in parts.split() if not any(fnmatchcase(part, target.replace("%", "?*")) for target in targets)] == []
