"""One long data file is read by several tasks, and its rows are those that one task reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import tablecrypt.spark as tcs
from tests.spark.conftest import Lake
from tests.support.plaintext import CANARY
from tests.support.tables import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
PROPERTIES = {"encryption.key-id": "alias/orders", "write.parquet.row-group-limit": "1000", "write.delete.mode": "merge-on-read"}
LINEAGE = ("id", "note", "_row_id", "_last_updated_sequence_number")


@pytest.fixture
def small_partitions(spark: SparkSession) -> Iterator[None]:
    """Spark partitions of the size of a few row groups."""
    settings = {"spark.sql.files.maxPartitionBytes": "8k", "spark.sql.files.openCostInBytes": "1"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)


@pytest.mark.usefixtures("small_partitions")
def test_a_long_file_is_read_by_several_tasks_with_equal_rows(spark: SparkSession, lake: Lake) -> None:
    table = lake.catalog.create_table("db.long", SCHEMA, properties=PROPERTIES)
    notes = [f"{CANARY} {each * 2654435761 % 2**32}" for each in range(20_000)]
    table.append(pa.table({"id": range(20_000), "note": notes}, schema=SCHEMA.as_arrow()))
    table.delete("id in (0, 999, 1000, 15555, 19999)")
    expected = table.scan(selected_fields=LINEAGE).to_arrow().sort_by("id")

    rows = tcs.read_table(spark, lake.identifier("db.long"), LINEAGE, path="python", catalog_properties=lake.properties)
    filtered = tcs.read_table(
        spark, lake.identifier("db.long"), ["id"], "id >= 15550 and id < 15560", path="python", catalog_properties=lake.properties
    )

    assert len(list(table.scan().plan_files())) == 1
    assert rows.rdd.getNumPartitions() > 5
    assert rows.toArrow().sort_by("id").to_pylist() == expected.to_pylist()
    assert expected.num_rows == 19_995
    assert sorted(row["id"] for row in filtered.collect()) == [each for each in range(15550, 15560) if each != 15555]
