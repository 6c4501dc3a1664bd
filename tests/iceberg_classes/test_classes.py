"""Iceberg's own test classes for Spark find what classes.toml says, and docs/spark-sql.md shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.iceberg_classes.classes import PART, IcebergClass, iceberg_classes, rendered
from tests.iceberg_classes.runner import run_class

CLASSES = iceberg_classes()


@pytest.mark.java
@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("tested", CLASSES, ids=[each.name for each in CLASSES])
def test_a_class_finds_what_is_written_down(java_runtime: None, tmp_path: Path, tested: IcebergClass) -> None:
    outcome = run_class(tested.name, tmp_path, timeout=1500, left_out=tested.left_out)

    assert (set(outcome.failed), len(outcome.passed)) == (tested.failing - tested.left_out, tested.passed), outcome.failed


def test_the_page_shows_each_class() -> None:
    assert PART.read() == rendered(), "python -m tests.iceberg_classes.classes writes them"
