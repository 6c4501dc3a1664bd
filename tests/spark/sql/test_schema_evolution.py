"""MERGE WITH SCHEMA EVOLUTION brings the source's columns to the table; no other statement loses a column without an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from pyspark.sql import functions as f

from tablecrypt.maintenance import verify
from tests.spark.conftest import Lake
from tests.support.aws import AwsServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
ANY_SCHEMA: Final = "'write.spark.accept-any-schema' = 'true'"
EVOLVING: Final = (
    "MERGE WITH SCHEMA EVOLUTION INTO prod.{} t USING ({}) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def create(spark: SparkSession, name: str, *properties: str) -> None:
    listed = ", ".join(("'encryption.key-id' = 'alias/orders'", *properties))
    spark.sql(f"CREATE TABLE prod.{name} (id int, dep string, part struct<a: int>) TBLPROPERTIES ({listed})")
    spark.sql(f"INSERT INTO prod.{name} VALUES (1, 'hr', named_struct('a', 1))")


@pytest.mark.parametrize(
    ("properties", "branch"),
    [((), ""), ((ANY_SCHEMA,), ""), (("'write.merge.mode' = 'merge-on-read'",), ""), ((), ".branch_audit")],
    ids=["default", "any", "marks", "branch"],
)
def test_new_and_wider_columns_of_a_merge_come_to_the_table(
    spark: SparkSession, prod: Lake, new_name: str, properties: tuple[str, ...], branch: str
) -> None:
    create(spark, new_name, *properties)
    if branch:
        spark.sql(f"ALTER TABLE prod.{new_name} CREATE BRANCH audit")
    new = "SELECT {}L AS id, 'it' AS dep, named_struct('a', 2, 'b', 'new') AS part, 100 AS salary"
    spark.sql(EVOLVING.format(new_name + branch, f"{new.format(1)} UNION ALL {new.format(2**40)}"))

    rows = [row.asDict(recursive=True) for row in spark.sql(f"SELECT * FROM prod.{new_name}{branch} ORDER BY id").collect()]
    assert rows == [{"id": key, "dep": "it", "part": {"a": 2, "b": "new"}, "salary": 100} for key in (1, 2**40)]
    assert spark.table(f"prod.{new_name}").count() == (1 if branch else 2)
    schema = prod.catalog.load_table(new_name).schema()
    assert str(schema.find_type("id")) == "long"
    assert str(schema.find_type("part.b")) == "string"


def test_columns_come_beside_protected_ones_also_where_the_rows_do_not(
    spark: SparkSession, of_analyst: SparkSession, prod: Lake, aws: AwsServer, new_name: str
) -> None:
    create(spark, new_name, ANY_SCHEMA, f"'encryption.column-keys' = '{aws.new_key()}: dep'")
    table = f"prod.{new_name}"
    spark.sql(EVOLVING.format(new_name, "SELECT 2 AS id, 'it' AS dep, named_struct('a', 2) AS part, 100 AS salary"))
    more = "SELECT 3 AS id, 'hr' AS dep, named_struct('a', 3) AS part, 7L AS salary, 'x' AS `more.of it`"
    spark.sql(more).writeTo(table).option("mergeSchema", "true").append()
    with pytest.raises(Exception, match="later"):
        late = "SELECT 4 AS id, if(rand() < 2, raise_error('later'), 'it') AS dep, named_struct('a', 2) AS part, 1 AS late"
        spark.sql(EVOLVING.format(new_name, late))

    read = f"SELECT id, dep, salary, `more.of it`, late FROM {table} ORDER BY id"
    rows = [(1, "hr", None, None, None), (2, "it", 100, None, None), (3, "hr", 7, "x", None)]
    assert [tuple(row) for row in spark.sql(read).collect()] == rows
    assert [tuple(row) for row in of_analyst.sql(read).collect()] == [(row[0], None, *row[2:]) for row in rows]
    assert verify(prod.catalog.load_table(new_name)).is_good


def test_a_dataframe_merges_with_new_columns(spark: SparkSession, prod: Lake, new_name: str) -> None:
    create(spark, new_name)
    rows = spark.sql("SELECT 1 AS id, 'it' AS dep, named_struct('a', 2) AS part, 100 AS salary").alias("s")
    merge = rows.mergeInto(f"prod.{new_name}", f.expr(f"{new_name.split('.')[1]}.id = s.id"))
    merge.whenMatched().updateAll().whenNotMatched().insertAll().withSchemaEvolution().merge()
    assert [row.salary for row in spark.sql(f"SELECT * FROM prod.{new_name}").collect()] == [100]


@pytest.mark.parametrize("properties", [(), (ANY_SCHEMA,)], ids=["default", "any"])
def test_no_other_statement_takes_rows_with_columns_that_the_table_lacks(
    spark: SparkSession, prod: Lake, new_name: str, properties: tuple[str, ...]
) -> None:
    create(spark, new_name, *properties)
    table = f"prod.{new_name}"
    more = "SELECT 2 AS id, 'it' AS dep, named_struct('a', 2) AS part, 100 AS salary"
    nested = "SELECT 2 AS id, 'it' AS dep, named_struct('a', 2, 'b', 3) AS part"
    for rows in (more, nested):
        frame = spark.sql(rows)
        statements = [
            lambda: spark.sql(f"INSERT INTO {table} BY NAME {rows}"),  # noqa: B023
            lambda: spark.sql(f"INSERT INTO {table} {rows}"),  # noqa: B023
            lambda: spark.sql(f"INSERT OVERWRITE {table} {rows}"),  # noqa: B023
            lambda: frame.writeTo(table).append(),  # noqa: B023
            lambda: frame.writeTo(table).overwrite(f.lit(True)),  # noqa: B023
            lambda: frame.writeTo(table).overwritePartitions(),  # noqa: B023
            lambda: frame.write.insertInto(table),  # noqa: B023
            lambda: frame.write.mode("append").saveAsTable(table),  # noqa: B023
        ]
        for number, statement in enumerate(statements):
            with pytest.raises(Exception, match=r"(?i)column|field|arity") as raised:
                statement()  # type: ignore[no-untyped-call]
            assert raised.value is not None, number
    assert prod.catalog.load_table(new_name).scan().to_arrow().num_rows == 1


def test_a_merge_that_cannot_evolve_the_table_changes_nothing(spark: SparkSession, prod: Lake, new_name: str) -> None:
    create(spark, new_name)
    with pytest.raises(Exception, match=r"(?i)dep|cannot|type"):
        spark.sql(EVOLVING.format(new_name, "SELECT 1 AS id, array(1) AS dep, named_struct('a', 1) AS part, 5 AS more"))
    table = prod.catalog.load_table(new_name)
    assert [field.name for field in table.schema().fields] == ["id", "dep", "part"]
    assert table.scan().to_arrow().num_rows == 1
