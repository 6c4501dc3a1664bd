"""docs/architecture.md draws the way through the code that a write on the JVM path takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import Lake
from tests.spark.test_jvm_write import VALUES, create, frame, write
from tests.support.journeys import Traveller, drawn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]


def test_a_write_passes_the_files_that_are_drawn_and_no_others(spark: SparkSession, lake: Lake) -> None:
    create(lake, "db.journey", VALUES, None, **{"format-version": "3"})
    # The second one has a snapshot before it, whose list's schema is parsed once in a process.
    for _ in range(2):
        write(frame(spark, 5), lake, "db.journey")
    traveller = Traveller()
    try:
        passed = set(traveller.files_passed(lambda: write(frame(spark, 5), lake, "db.journey")))
    finally:
        traveller.close()
    named, in_groups = drawn("Write from Spark through the JVM")

    assert passed - named - in_groups == set()
    assert named - passed == set()
