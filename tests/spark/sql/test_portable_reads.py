"""Files that Spark's own Parquet reader would not read right come through Python, with the same rows, or are refused."""

from __future__ import annotations

import datetime as dt
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import FixedType, LongType, NestedField, StringType, StructType, UUIDType

import tablecrypt.spark as tcs
from tablecrypt.table.snapshots import CommitOptions
from tablecrypt.table.transaction import EncryptedTransaction
from tests.spark.conftest import CATALOG, Lake
from tests.spark.sql.test_read import rows_of
from tests.spark.test_jvm_path import KEY, VECTORS, vectors, vectors_in_hadoop
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.plaintext import CANARY
from tests.support.table_files import TableFiles
from tests.support.tables import encrypted_table, folder_of
from tests.support.vectors import VectorTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["vectors", "vectors_in_hadoop"]
pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def in_store(spark: SparkSession, aws: AwsServer, vectors: Lake) -> Lake:
    """The tables that Java wrote, once where Hadoop finds them."""
    tcs.catalog(spark, CATALOG, vectors.properties)
    return vectors


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector.folder.name}-{vector.name}")
def test_what_java_wrote_is_read_as_java_read_it(spark: SparkSession, in_store: Lake, vector: VectorTable) -> None:
    assert_same_rows(spark.table(f"{CATALOG}.db.{vector.name}").toArrow(), vector.expected())
    if (vector.folder / "expected" / vector.name / "current-lineage.parquet").exists():
        columns = [field.name for field in vector.expected("current-lineage").schema]
        assert_same_rows(spark.table(f"{CATALOG}.db.{vector.name}").select(*columns).toArrow(), vector.expected("current-lineage"))


def test_values_that_a_file_lacks_are_those_of_the_table(spark: SparkSession, prod: Lake, new_name: str) -> None:
    inner = StructType(NestedField(3, "x", LongType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    table = prod.catalog.create_table(
        new_name, Schema(NestedField(1, "id", LongType()), NestedField(2, "s", inner)), partition_spec=spec, properties=KEY
    )
    table.append(pa.table({"id": pa.array([1, 2], pa.int64()), "s": [{"x": 1}, None]}, schema=table.schema().as_arrow()))
    with table.update_schema() as update:
        update.add_column("grade", LongType(), default_value=7)
        update.add_column(("s", "note"), StringType(), default_value="d")
    table.append(pa.Table.from_pylist([{"id": 3, "s": {"x": 4, "note": CANARY}, "grade": 8}], schema=table.schema().as_arrow()))

    assert_same_rows(spark.table(f"prod.{new_name}").toArrow(), rows_of(prod, new_name))
    assert [row["id"] for row in spark.sql(f"SELECT id FROM prod.{new_name} WHERE grade = 7 AND s IS NULL").collect()] == [2]
    assert [row["n"] for row in spark.sql(f"SELECT s.note AS n FROM prod.{new_name} WHERE id = 1").collect()] == ["d"]


def test_timestamps_of_other_programs_are_those_that_a_scan_has(spark: SparkSession, prod: Lake, new_name: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    table = encrypted_table(prod.catalog.create_table(new_name, schema, properties=KEY))
    with table.transaction() as transaction:
        # As whoever adds such files does. Without one, files of Iceberg's own writers are expected, which have no such types.
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: table.schema().name_mapping.model_dump_json()})
    files = TableFiles(folder_of(table), table.schema())
    files.metadata, files.io = table.metadata, table.io
    far = pa.table({"id": [1, 2], "at": [dt.datetime(9999, 12, 31), dt.datetime(1, 1, 1)]}, schema=schema)
    fine = pa.table({"id": [3, 4], "at": pa.array([1_577_836_800_000_001_999, None], pa.timestamp("ns", "UTC"))})
    written = [files.data_of_others(far, use_deprecated_int96_timestamps=True), files.data_of_others(fine)]
    with table.transaction() as transaction:
        cast("EncryptedTransaction", transaction).append_producer(CommitOptions()).commit_files(written)

    assert_same_rows(spark.table(f"prod.{new_name}").toArrow(), rows_of(prod, new_name))
    later = spark.sql(f"SELECT id FROM prod.{new_name} WHERE at > TIMESTAMP '2019-01-01T00:00:00Z' ORDER BY id")
    assert [row["id"] for row in later.collect()] == [1, 3]


def test_types_that_spark_lacks_are_text_and_bytes(spark: SparkSession, prod: Lake, new_name: str) -> None:
    fields = NestedField(2, "ref", UUIDType()), NestedField(3, "code", FixedType(2)), NestedField(4, "ID", LongType())
    table = prod.catalog.create_table(new_name, Schema(NestedField(1, "id", LongType()), *fields), properties=KEY)
    keys = [uuid.UUID(int=number) for number in range(4)]
    table.append(
        pa.table(
            {
                "id": pa.array(range(4), pa.int64()),
                "ref": pa.array([each.bytes for each in keys], pa.uuid()),
                "code": pa.array([b"ab"] * 4, pa.binary(2)),
                "ID": pa.array(range(4, 8), pa.int64()),
            }
        )
    )
    table.delete("id = 3")
    spark.conf.set("spark.sql.caseSensitive", "true")

    assert_same_rows(spark.table(f"prod.{new_name}").toArrow(), rows_of(prod, new_name))
    assert spark.sql(f"SELECT ID FROM prod.{new_name} WHERE ref = '{keys[2]}'").collect()[0]["ID"] == 6
    found = spark.sql(f"SELECT id, ref, _pos, _row_id, _deleted FROM prod.{new_name} WHERE code = X'6162'").collect()
    assert [(row["id"], row["_pos"], row["_deleted"]) for row in found] == [(each, each, each == 3) for each in range(4)]
    spark.conf.unset("spark.sql.caseSensitive")


def test_files_without_field_ids_are_found_by_the_name_mapping(spark: SparkSession, prod: Lake, new_name: str) -> None:
    table = prod.catalog.create_table(
        new_name, Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType())), properties=KEY
    )
    mapping = '[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["text", "words"]}]'
    table.append(pa.table({"id": pa.array([5], pa.int64()), "text": [CANARY]}))
    with table.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": mapping})

    assert_same_rows(spark.table(f"prod.{new_name}").toArrow(), rows_of(prod, new_name))


def test_deletes_by_equality_take_rows_and_are_no_mark(spark: SparkSession, in_store: Lake) -> None:
    count = spark.sql(f"SELECT count(*) AS n FROM {CATALOG}.db.equality_deletes").collect()[0]["n"]

    assert count == in_store.catalog.load_table("db.equality_deletes").scan().count()
    with pytest.raises(Exception, match="deleted by equality, for which _deleted is not known"):
        spark.sql(f"SELECT _deleted FROM {CATALOG}.db.equality_deletes").collect()


def test_a_store_that_hadoop_does_not_reach_is_read_by_python(spark: SparkSession, aws: AwsServer, tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    properties = {
        "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog",
        "uri": f"sqlite:///{tmp_path}/far.db",
        "warehouse": f"s3://{aws.bucket('sql-far')}/lake",
        **aws.kms_properties,
        **aws.s3_properties,
    }
    catalog = load_catalog("far", **properties)
    catalog.create_namespace("db")
    table = catalog.create_table(
        "db.orders", Schema(NestedField(1, "id", LongType()), NestedField(2, "note", StringType())), properties=KEY
    )
    table.append(pa.table({"id": pa.array(range(1000), pa.int64()), "note": [CANARY] * 1000}))
    table.delete("id >= 10")
    tcs.catalog(spark, "far", properties)

    rows = spark.sql("SELECT note, id, _pos, _file FROM far.db.orders WHERE id > 2").collect()
    assert sorted((row["id"], row["_pos"]) for row in rows) == [(each, each) for each in range(3, 10)]
    assert spark.sql("SELECT count(*) AS n FROM far.db.orders").collect()[0]["n"] == 10
    assert len(spark.sql("SELECT * FROM far.db.orders LIMIT 3").collect()) == 3
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", "false")
    assert spark.sql("SELECT sum(id) AS s FROM far.db.orders").collect()[0]["s"] == 45
    spark.conf.unset("spark.sql.parquet.enableVectorizedReader")
