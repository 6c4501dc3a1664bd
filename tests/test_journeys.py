"""docs/architecture.md draws the ways through the code that operations take."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.journeys import ROOT, drawn


@pytest.mark.parametrize(("name", "heading"), [("append", "Append"), ("scan", "Scan with a deletion vector"), ("shred", "Shred")])
def test_a_journey_passes_the_files_that_are_drawn_and_no_others(name: str, heading: str) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "catalog")])}
    command = [sys.executable, "-m", "tests.support.journeys", name]
    passed = set(subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())
    named, in_groups = drawn(heading)

    assert passed - named - in_groups == set()
    assert named - passed == set()
