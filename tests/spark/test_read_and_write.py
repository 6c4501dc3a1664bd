"""Encrypted tables through a real Spark session: what goes in comes out, and what does not fit stays out."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType, UUIDType

import tablecrypt.spark as tcs
from tablecrypt.errors import ConfigurationError
from tests.spark.conftest import Lake
from tests.support.plaintext import CANARY
from tests.support.tables import data_files, new_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
KEY = {"encryption.key-id": "alias/orders"}

ORDERS = Schema(
    NestedField(1, "id", "long", required=True),
    NestedField(2, "region", "string"),
    NestedField(3, "note", "string"),
)
INNER = StructType(
    NestedField(30, "name", "string"),
    NestedField(31, "when", "timestamptz"),
    NestedField(32, "ref", "uuid"),
)
ALL_TYPES = Schema(
    NestedField(1, "flag", "boolean"),
    NestedField(2, "small", "int"),
    NestedField(3, "big", "long", required=True),
    NestedField(4, "single", "float"),
    NestedField(5, "double", "double"),
    NestedField(6, "price", "decimal(9, 2)"),
    NestedField(7, "huge", "decimal(38, 10)"),
    NestedField(8, "day", "date"),
    NestedField(9, "local", "timestamp"),
    NestedField(10, "instant", "timestamptz"),
    NestedField(11, "text", "string"),
    NestedField(12, "ref", "uuid"),
    NestedField(13, "code", "fixed[3]"),
    NestedField(14, "raw", "binary"),
    NestedField(15, "tags", ListType(40, StringType(), element_required=False)),
    NestedField(16, "counts", MapType(41, StringType(), 42, LongType(), value_required=False)),
    NestedField(17, "inner", INNER),
    NestedField(18, "refs", ListType(43, UUIDType(), element_required=True)),
)
REF = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
INSTANT = dt.datetime(2024, 3, 31, 1, 30, 0, 123456, tzinfo=dt.UTC)
ROW: dict[str, Any] = {
    "flag": True,
    "small": -7,
    "big": 2**60,
    "single": 1.5,
    "double": -2.25,
    "price": Decimal("1234567.89"),
    "huge": Decimal("1234567890123456789012345678.0123456789"),
    "day": dt.date(1969, 12, 31),
    "local": dt.datetime(2024, 3, 31, 2, 30, 0, 123456),
    "instant": INSTANT,
    "text": CANARY,
    "ref": REF,
    "code": b"abc",
    "raw": b"\x00\xff",
    "tags": ["a", None],
    "counts": [("x", 1), ("y", None)],
    "inner": {"name": CANARY, "when": INSTANT, "ref": REF},
    "refs": [REF],
}
NULLS: dict[str, Any] = dict.fromkeys(ROW) | {"big": 0}


def frame(spark: SparkSession, first: int, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(first, first + count, 1, partitions).selectExpr(
        "id", "concat('r', cast(id % 3 as string)) as region", f"'{CANARY}' as note"
    )


def write(df: DataFrame, lake: Lake, name: str, mode: Any = "append", **arguments: Any) -> None:
    arguments = {"path": "python", **arguments}
    tcs.write_table(df, lake.identifier(name), mode, catalog_properties=lake.properties, **arguments)


def read(spark: SparkSession, lake: Lake, name: str, *arguments: Any, **named: Any) -> DataFrame:
    return tcs.read_table(spark, lake.identifier(name), *arguments, path="python", catalog_properties=lake.properties, **named)


def ids(rows: DataFrame | pa.Table) -> list[int]:
    values = rows["id"].to_pylist() if isinstance(rows, pa.Table) else [row["id"] for row in rows.select("id").collect()]
    return sorted(values)


def test_every_type_comes_back_as_spark_has_it(spark: SparkSession, lake: Lake) -> None:
    new_table(lake.catalog, "db.types", ALL_TYPES, appends=[_stored([ROW, NULLS])])

    rows = read(spark, lake, "db.types")

    kinds = {field.name: field.dataType.simpleString() for field in rows.schema}
    assert kinds["local"] == "timestamp_ntz"
    assert kinds["instant"] == "timestamp"
    assert kinds["huge"] == "decimal(38,10)"
    assert (kinds["ref"], kinds["code"], kinds["refs"]) == ("string", "binary", "array<string>")
    assert kinds["inner"] == "struct<name:string,when:timestamp,ref:string>"
    assert not rows.schema["big"].nullable
    back = rows.toArrow().sort_by("big").to_pylist()
    assert back == [NULLS, _with_uuids(ROW, str(REF))]


def test_every_type_that_spark_writes_is_what_pyiceberg_reads(spark: SparkSession, lake: Lake) -> None:
    source = new_table(lake.catalog, "db.source", ALL_TYPES, appends=[_stored([ROW, NULLS])])
    target = lake.catalog.create_table("db.target", ALL_TYPES, properties=KEY)

    write(read(spark, lake, "db.source"), lake, "db.target")

    assert target.refresh().scan().to_arrow().sort_by("big").to_pylist() == source.scan().to_arrow().sort_by("big").to_pylist()


def test_instants_do_not_depend_on_the_session_time_zone(spark: SparkSession, lake: Lake) -> None:
    schema = Schema(NestedField(1, "instant", "timestamptz"), NestedField(2, "local", "timestamp"))
    table = lake.catalog.create_table("db.times", schema, properties=KEY)

    write(spark.sql("SELECT timestamp'2024-01-01T00:00:00Z' AS instant, timestamp_ntz'2024-01-01T00:00:00' AS local"), lake, "db.times")

    [row] = table.refresh().scan().to_arrow().to_pylist()
    assert row["instant"] == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert row["local"] == dt.datetime(2024, 1, 1)
    [shown] = read(spark, lake, "db.times").selectExpr("cast(instant as string) i", "cast(local as string) l").collect()
    assert (shown["i"], shown["l"]) == ("2024-01-01 05:30:00", "2024-01-01 00:00:00")


def test_filter_and_projection_are_applied_where_the_files_are_read(spark: SparkSession, lake: Lake) -> None:
    lake.catalog.create_table("db.orders", ORDERS, properties=KEY)
    write(frame(spark, 0, 1000), lake, "db.orders")

    rows = read(spark, lake, "db.orders", ["region", "id"], "id >= 990 and region = 'r1'")

    assert rows.columns == ["region", "id"]
    assert [tuple(row) for row in rows.sort("id").collect()] == [("r1", 991), ("r1", 994), ("r1", 997)]


def test_each_partition_of_a_partitioned_table_gets_its_files(spark: SparkSession, lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"), PartitionField(1, 1001, BucketTransform(2), "id_bucket"))
    table = lake.catalog.create_table("db.parts", ORDERS, partition_spec=spec, properties=KEY)

    write(frame(spark, 0, 300), lake, "db.parts")

    table.refresh()
    files = data_files(table)
    assert len({(file.partition[0], file.partition[1]) for file in files}) == 6
    assert {file.file_path.rpartition("/")[0] for file in files} == {f"{table.location()}/data"}
    assert len(list(table.scan("region = 'r2'").plan_files())) == 4
    assert ids(read(spark, lake, "db.parts", row_filter="region = 'r2'")) == list(range(2, 300, 3))


def test_partitions_without_rows_write_no_file(spark: SparkSession, lake: Lake) -> None:
    table = lake.catalog.create_table("db.orders", ORDERS, properties=KEY)

    write(frame(spark, 0, 100, 4).where("id < 10"), lake, "db.orders")
    write(frame(spark, 0, 100, 4).where("id < 0"), lake, "db.orders")

    assert len(list(lake.warehouse.rglob("*.parquet"))) == 1
    assert len(table.refresh().snapshots()) == 1


def test_files_are_named_for_partition_and_attempt_and_hold_whole_row_groups(spark: SparkSession, lake: Lake) -> None:
    table = lake.catalog.create_table("db.orders", ORDERS, properties=KEY)

    write(frame(spark, 0, 60_000), lake, "db.orders")

    files = data_files(table.refresh())
    assert sorted(file.file_path.rpartition("/")[2].split("-")[0] for file in files) == ["00000", "00001"]
    assert [len(file.split_offsets or []) for file in files] == [1, 1]
    assert len({bytes(file.key_metadata or b"") for file in files}) == 2


def test_a_dataframe_read_from_a_table_may_overwrite_it(spark: SparkSession, lake: Lake) -> None:
    lake.catalog.create_table("db.orders", ORDERS, properties=KEY)
    write(frame(spark, 0, 100), lake, "db.orders")

    write(read(spark, lake, "db.orders").where("id % 2 = 0"), lake, "db.orders", "overwrite")

    assert ids(read(spark, lake, "db.orders")) == list(range(0, 100, 2))


def test_optional_columns_may_be_missing_or_void_and_narrow_numbers_widen(spark: SparkSession, lake: Lake) -> None:
    lake.catalog.create_table("db.orders", ORDERS, properties=KEY)

    write(spark.sql("SELECT cast(1 AS tinyint) AS id, NULL AS region"), lake, "db.orders")

    assert [tuple(row) for row in read(spark, lake, "db.orders").collect()] == [(1, None, None)]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT 'x' AS id", "column 'id' is string in the DataFrame, but long in the table"),
        ("SELECT 1L AS id, 2 AS region", "column 'region' is int in the DataFrame, but string in the table"),
        ("SELECT 1L AS id, 'x' AS Region", "column 'Region' is not in the table; the table has 'region'"),
        ("SELECT 1L AS id, 'x' AS other", "column 'other' is not in the table; it has id, region, note"),
        ("SELECT 'x' AS region", "column 'id' is required in the table and missing from the DataFrame"),
        ("SELECT 1L AS id, 'x' AS region, 'y' AS region", "column 'region' occurs more than once"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused_before_anything_is_written(spark: SparkSession, lake: Lake, query: str, told: str) -> None:
    lake.catalog.create_table("db.orders", ORDERS, properties=KEY)

    with pytest.raises(ConfigurationError) as caught:
        write(spark.sql(query), lake, "db.orders")

    assert told in str(caught.value)
    assert not list(lake.warehouse.rglob("*.parquet"))


def test_a_timestamp_is_not_turned_into_another_kind_in_silence(spark: SparkSession, lake: Lake) -> None:
    schema = Schema(NestedField(1, "at", "timestamp"))
    lake.catalog.create_table("db.times", schema, properties=KEY)

    with pytest.raises(ConfigurationError, match="cast it to timestamp_ntz yourself"):
        write(spark.sql("SELECT current_timestamp() AS at"), lake, "db.times")


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT if(id = 3, null, id) AS big FROM range(5)", "column 'big' is required in the table, but the DataFrame has nulls"),
        ("SELECT 1L AS big, 'no uuid' AS ref", "column 'ref' holds a value that uuid cannot hold"),
        ("SELECT 1L AS big, cast('four' AS binary) AS code", "column 'code' holds a value that fixed"),
        ("SELECT 1L AS big, array('a', null) AS refs", "column 'refs.element' is required in the table, but the DataFrame has nulls"),
    ],
)
def test_a_value_that_its_column_cannot_hold_fails_the_job_and_leaves_no_file(
    spark: SparkSession, lake: Lake, query: str, told: str
) -> None:
    table = lake.catalog.create_table("db.types", ALL_TYPES, properties=KEY)

    with pytest.raises(Exception, match=r"PythonException|Job aborted|ConfigurationError") as caught:
        write(spark.sql(query).coalesce(1), lake, "db.types")

    assert told in str(caught.value)
    assert table.refresh().current_snapshot() is None
    assert not list(lake.warehouse.rglob("*.parquet"))


def test_a_type_that_spark_lacks_is_refused_unless_left_out(spark: SparkSession, lake: Lake) -> None:
    schema = Schema(NestedField(1, "id", "long"), NestedField(2, "at", "time"))
    new_table(lake.catalog, "db.clock", schema, appends=[pa.table({"id": [1], "at": pa.array([dt.time(12)], pa.time64("us"))})])

    with pytest.raises(ConfigurationError, match=r"column 'at' is of type time, which Spark does not have"):
        read(spark, lake, "db.clock")
    assert ids(read(spark, lake, "db.clock", ["id"])) == [1]


def test_a_table_without_rows_has_its_columns(spark: SparkSession, lake: Lake) -> None:
    lake.catalog.create_table("db.orders", ORDERS, properties=KEY)

    rows = read(spark, lake, "db.orders")

    assert rows.columns == ["id", "region", "note"]
    assert rows.count() == 0


def test_a_table_that_is_not_encrypted_is_refused(spark: SparkSession, lake: Lake) -> None:
    lake.catalog.create_table("db.plain", ORDERS)

    for act in (lambda: read(spark, lake, "db.plain"), lambda: write(frame(spark, 0, 1), lake, "db.plain")):
        with pytest.raises(ConfigurationError, match=r"tablecrypt\.spark is for encrypted tables"):
            act()


def test_the_catalog_may_be_configured_in_the_environment(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.catalog.create_table("db.orders", ORDERS, properties=KEY)
    for name, value in lake.properties.items():
        monkeypatch.setenv("PYICEBERG_CATALOG__SPARKTEST__" + name.replace(".", "__").replace("-", "_").upper(), value)

    tcs.write_table(frame(spark, 0, 10), "sparktest.db.orders")

    assert ids(tcs.read_table(spark, "sparktest.db.orders")) == list(range(10))


def test_an_unknown_mode_and_a_name_without_catalog_are_refused(spark: SparkSession, lake: Lake) -> None:
    lake.catalog.create_table("db.orders", ORDERS, properties=KEY)

    with pytest.raises(ConfigurationError, match="mode 'replace' is not known"):
        write(frame(spark, 0, 1), lake, "db.orders", "replace")
    with pytest.raises(ConfigurationError, match=r"write catalog\.namespace\.table"):
        tcs.read_table(spark, "db.orders", catalog_properties=lake.properties)


def _stored(rows: list[dict[str, Any]]) -> pa.Table:
    """The rows as an Arrow table; Arrow makes nested uuids of their bytes only."""
    schema = schema_to_pyarrow(ALL_TYPES, include_field_ids=False)
    return pa.Table.from_pylist([_with_uuids(row, REF.bytes) for row in rows], schema=_uuids_as_bytes(schema)).cast(schema)


def _uuids_as_bytes(schema: pa.Schema) -> pa.Schema:
    raw = pa.binary(16)
    inner = pa.struct([field.with_type(raw) if field.name == "ref" else field for field in schema.field("inner").type])
    refs = schema.field("refs").type
    changed = {"ref": raw, "inner": inner, "refs": pa.large_list(refs.value_field.with_type(raw))}
    return pa.schema([field.with_type(changed.get(field.name, field.type)) for field in schema])


def _with_uuids(row: dict[str, Any], value: object) -> dict[str, Any]:
    if row["ref"] is None:
        return row
    return row | {"ref": value, "refs": [value], "inner": {**row["inner"], "ref": value}}
