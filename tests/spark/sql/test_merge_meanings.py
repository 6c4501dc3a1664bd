"""`write_table(mode="merge")` and `delete_where` do what the statements of SQL do.

Random rows meet random tables: some keys match and some do not, files have deletion vectors, and conditions meet nulls. The statement
changes one copy of the table, and the function another. Then both have the same rows, rows that were there before have kept their
identity, and the snapshots count the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType
from pyspark.sql import functions

import tablecrypt.spark as tcs
from tablecrypt.maintenance import verify
from tests.spark.conftest import Lake
from tests.spark.sql.test_row_level import COPY, MARK, in_mode
from tests.spark.sql.test_write import create
from tests.support.plaintext import CANARY
from tests.support.tables import summary_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
SCHEMA: Final = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "the key", StringType()),
    NestedField(3, "region", StringType()),
    NestedField(4, "score", DoubleType()),
)
BY_REGION: Final = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "region"), PartitionField(1, 1001, BucketTransform(2), "b"))
REGIONS: Final = ("eu", "us", f"{CANARY} x", None)
SCORES: Final = (0.5, math.nan, -1.0, None)
KEYS: Final = tuple((number, text) for number in range(15) for text in ("a", "b"))
CONDITIONS: Final = (
    ("region = 'eu' OR id = 3", "region = 'eu' or id = 3"),
    ("region NOT IN ('eu', 'x') AND id > 4", "region not in ('eu', 'x') and id > 4"),
    ("NOT (region = 'us' OR id < 5)", "not (region = 'us' or id < 5)"),
    ("region IS NULL AND `the key` <> 'a'", "region is null and \"the key\" != 'a'"),
)


class Copies:
    """One table twice: for the statements, and for the functions."""

    def __init__(self, seed: int, spark: SparkSession, lake: Lake, name: str) -> None:
        self.random = Random(seed)
        self.spark = spark
        self.properties = lake.properties
        self.names = {of: f"{name}_{of}" for of in ("statements", "functions")}
        mode, spec = (COPY, MARK)[seed % 2], (BY_REGION, UNPARTITIONED_PARTITION_SPEC)[seed // 2 % 2]
        self.tables = {path: create(lake, each, SCHEMA, spec, properties=in_mode(mode)) for path, each in self.names.items()}
        keys = list(KEYS)
        self.random.shuffle(keys)
        for first in range(0, 24, 8):
            rows = self._rows(keys[first : first + 8])
            for table in self.tables.values():
                table.append(rows)
        for table in self.tables.values():
            table.delete("id = 1")

    def merge(self) -> None:
        """Merge rows by both keys. Every other time they lack a column."""
        given = self.spark.createDataFrame(self._rows([key for key in KEYS if self.random.random() < 0.4]))
        lacks = self.random.random() < 0.5
        source = given.withColumn("score", functions.lit(None)) if lacks else given
        source.createOrReplaceTempView("merged_rows")
        self._change(
            "MERGE INTO {t} t USING merged_rows s ON t.id = s.id AND t.`the key` = s.`the key` "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            lambda name: tcs.write_table(
                given.drop("score") if lacks else given, name, "merge", keys=["id", "the key"], catalog_properties=self.properties
            ),
        )

    def delete(self, condition: str, row_filter: str) -> None:
        """Delete rows by a condition, and by a filter that says the same."""
        self._change(
            f"DELETE FROM {{t}} WHERE {condition}",
            lambda name: tcs.delete_where(self.spark, name, row_filter, catalog_properties=self.properties),
        )

    def _change(self, statement: str, change: Callable[[str], None]) -> None:
        before = {of: self._row_ids(of) for of in self.names}
        self.spark.sql(statement.format(t=f"prod.{self.names['statements']}"))
        change(f"prod.{self.names['functions']}")
        assert self._values("functions") == self._values("statements")
        assert self._summary("functions") == self._summary("statements")
        for of in self.names:
            after = self._row_ids(of)
            assert len(set(after.values())) == len(after)
            assert {key: after[key] for key in before[of].keys() & after.keys()}.items() <= before[of].items()

    def _rows(self, keys: Sequence[tuple[int, str]]) -> pa.Table:
        rows = [
            {"id": number, "the key": text, "region": self.random.choice(REGIONS), "score": self.random.choice(SCORES)}
            for number, text in keys
        ]
        return pa.Table.from_pylist(rows, schema=SCHEMA.as_arrow())

    def _read(self, of: str, *names: str) -> list[dict[str, Any]]:
        rows = self.tables[of].refresh().scan(selected_fields=("id", "the key", *names)).to_arrow()
        return sorted(rows.to_pylist(), key=lambda row: (row["id"], row["the key"]))

    def _values(self, of: str) -> list[str]:
        """The rows with the sequence numbers of their last change. NaN is equal to itself in text."""
        return [repr(row) for row in self._read(of, "region", "score", "_last_updated_sequence_number")]

    def _row_ids(self, of: str) -> dict[tuple[int, str], int]:
        return {(row["id"], row["the key"]): row["_row_id"] for row in self._read(of, "_row_id")}

    def _summary(self, of: str) -> dict[str, str | int]:
        """What the newest summary says that does not depend on which files the rows are in."""
        said = summary_of(self.tables[of]).additional_properties
        counted = {name: count for name, count in said.items() if name.startswith("spark.merge-into.") and not name.endswith("-copied")}
        # Spark counts since 4.1.
        live = int(said["total-records"]) - int(said["total-position-deletes"])
        return {"live": live} | ({} if self.spark.version.startswith("4.0") else counted)


@pytest.mark.parametrize("seed", range(4))
def test_merges_and_deletes_do_what_the_statements_do(spark: SparkSession, prod: Lake, new_name: str, seed: int) -> None:
    copies = Copies(seed, spark, prod, new_name)

    copies.merge()
    copies.delete(*CONDITIONS[seed])
    copies.merge()

    assert all(verify(table).is_good for table in copies.tables.values())
