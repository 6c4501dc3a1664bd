"""Whoever keeps an error of a read or a write keeps no view of a buffer that Python may clear, and no key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
KINDS = {"rows", "people", "key service", "Parquet", "ORC", "AGS1", "written", "key server"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each error holds on to. A process of its own makes them: a view that is left over ends it on some releases of Python."""
    command = [sys.executable, "-m", "tests.support.kept_errors", str(tmp_path_factory.mktemp("kept"))]
    environment = {**os.environ, "PYTHONPATH": "."}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_kind_of_tampering_and_of_failing_store_raises(kept: list[dict[str, Any]]) -> None:
    assert {each["name"].partition(":")[0].partition(",")[0] for each in kept} == KINDS
    assert len(kept) > 400


def test_no_error_keeps_a_view_of_a_buffer_that_python_may_clear(kept: list[dict[str, Any]]) -> None:
    assert [(each["name"], each["views"]) for each in kept if each["views"]] == []


def test_no_error_keeps_a_key_in_a_frame(kept: list[dict[str, Any]]) -> None:
    assert [(each["name"], each["keys"]) for each in kept if each["keys"]] == []


def test_each_error_is_one_of_tablecrypt_or_of_the_store(kept: list[dict[str, Any]]) -> None:
    assert [(each["name"], each["error"]) for each in kept if not each["named"]] == []
