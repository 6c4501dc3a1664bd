"""A suite of a test's own, run by pytest in another process: for tests of the plugins that this suite runs with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_MARKS: Final = ("browser", "campaign", "first", "java", "nightly", "releases", "slow")
_HANGING: Final = 200
"""Seconds. An inner run takes a few, on a busy machine some dozens."""


def inner_command(folder: Path, *options: str, **variables: str) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a run in this folder, which knows nothing of the run that it is started from."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n" + "".join(f"    {mark}: as outside\n" for mark in _MARKS))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_") and name != "CI"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", str(folder / "basetemp"), *options]
    return command, inherited | {"PYTHONPATH": str(ROOT)} | variables


def run_inner(folder: Path, *options: str, test: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run what is in the folder, and this test as test_inner.py. A run that hangs is killed."""
    if test is not None:
        (folder / "test_inner.py").write_text(test)
    command, environment = inner_command(folder, *options, **variables)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=_HANGING)
