"""What docs/column-keys.md says about who may do what from Spark is what happens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.column_access_in_spark import PART, rendered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]


def test_the_page_says_what_each_principal_may_do_from_spark(spark: SparkSession, tmp_path: Path) -> None:
    assert PART.read() == rendered(spark, tmp_path), "python -m tests.support.column_access_in_spark writes it again"
