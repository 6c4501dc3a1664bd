"""docs/architecture.md draws the ways through the code that operations take, and they get no longer."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from typing import Final

import pytest

from tests.support.journeys import JOURNEYS, ROOT, drawn

MOST_FILES: Final = {"append": 45, "scan": 39, "upsert": 60, "reencrypt": 60, "reencrypt-protected": 82, "shred": 50}
"""What a maintainer has to open to follow an operation. A change that needs another file looks first for one that can go."""


@functools.cache
def files_on(name: str) -> set[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "catalog")])}
    command = [sys.executable, "-m", "tests.support.journeys", name]
    return set(subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("name", JOURNEYS)
def test_a_journey_gets_no_longer(name: str) -> None:
    assert len(files_on(name)) <= MOST_FILES[name]


@pytest.mark.parametrize(("name", "heading"), [("append", "Append"), ("scan", "Scan with a deletion vector"), ("shred", "Shred")])
def test_a_journey_passes_the_files_that_are_drawn_and_no_others(name: str, heading: str) -> None:
    passed = files_on(name)
    named, in_groups = drawn(heading)

    assert passed - named - in_groups == set()
    assert named - passed == set()
