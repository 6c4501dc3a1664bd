"""NaN, which Spark puts above all numbers, is found in files whose statistics leave it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from tests.spark.conftest import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.java
NAN: Final = "double('NaN')"
CONDITIONS: Final = {
    "{} > double('Infinity')": [3],
    "{} >= 100": [3],
    "{} <> 1": [2, 3],
    "NOT ({} < 100)": [3],
    f"{{}} = {NAN}": [3],
    f"{{}} BETWEEN {NAN} AND {NAN}": [3],
    f"{{}} IN (1, {NAN})": [1, 3],
    f"{{}} < {NAN}": [1, 2],
}


@pytest.mark.parametrize("writer", ["python", "sql"])
def test_every_comparison_finds_it(spark: SparkSession, prod: Lake, new_name: str, writer: str) -> None:
    rows = pa.table({"id": [1, 2, 3], "ratio": [1.0, 2.0, float("nan")], "part": [{"ratio": 1.0}, {"ratio": 2.0}, {"ratio": float("nan")}]})
    prod.catalog.create_table(new_name, rows.schema, properties={"encryption.key-id": "alias/orders"})
    if writer == "python":
        prod.catalog.load_table(new_name).append(rows)
    else:
        texts = {1: "1", 2: "2", 3: "NaN"}
        values = ", ".join(f"({number}, double('{text}'), named_struct('ratio', double('{text}')))" for number, text in texts.items())
        spark.sql(f"INSERT INTO prod.{new_name} VALUES {values}")

    for condition, expected in CONDITIONS.items():
        for column in ("ratio", "part.ratio"):
            found = spark.sql(f"SELECT id FROM prod.{new_name} WHERE {condition.format(column)} ORDER BY id").collect()
            assert [row["id"] for row in found] == expected, condition.format(column)
    assert str(spark.sql(f"SELECT max(ratio) FROM prod.{new_name}").collect()[0][0]) == "nan"
