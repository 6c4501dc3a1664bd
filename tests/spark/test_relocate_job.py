"""relocate with its files copied by a cluster's executors: the same copy as threads here make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tablecrypt.maintenance import relocate
from tablecrypt.spark import SparkRunner
from tests.spark.conftest import Lake
from tests.support.tables import state, table_with_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]


def test_a_copy_made_by_executors_and_finished_here(spark: SparkSession, lake: Lake) -> None:
    table = table_with_history(lake.catalog, "db.rows")
    place = f"{lake.warehouse.as_uri()}/elsewhere"

    result = relocate(table, place, register_as="db.copy", runner=SparkRunner(spark))

    copy = lake.catalog.load_table("db.copy")
    assert state(copy) == state(table)
    assert copy.location() == place
    assert (result.files, result.found) == (4, 0)
    assert relocate(table, place).found == 4
