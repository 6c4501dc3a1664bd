"""Iceberg's own test classes for Spark find what classes.toml says, and docs/spark-sql.md shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.iceberg_classes.classes import TestedClass, rows_of_page, tested_classes
from tests.iceberg_classes.runner import run_class

CLASSES = tested_classes()
PAGE = Path(__file__).parents[2] / "docs" / "spark-sql.md"


@pytest.mark.java
@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("tested", CLASSES, ids=[each.name for each in CLASSES])
def test_a_class_finds_what_is_written_down(java_runtime: None, tmp_path: Path, tested: TestedClass) -> None:
    outcome = run_class(tested.name, tmp_path, timeout=1500)

    assert (set(outcome.failed), len(outcome.passed)) == (tested.failing, tested.passed), outcome.failed


def test_the_page_shows_each_class() -> None:
    page = PAGE.read_text(encoding="utf-8").splitlines()

    assert [row for row in rows_of_page() if row not in page] == []
