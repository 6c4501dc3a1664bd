"""Spark's own Parquet writer on encrypted tables: the rows and entries of the portable path, or it steps aside and says why."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

import tablecrypt.spark as tcs
from tablecrypt.errors import ConfigurationError
from tablecrypt.parquet.uniform import UniformParquetFile
from tablecrypt.table.content_files import key_metadata_of
from tests.spark.conftest import Lake
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.plaintext import CANARY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]

KEY: Final = {"encryption.key-id": "alias/orders"}
INNER: Final = StructType(NestedField(31, "x", IntegerType()), NestedField(32, "y.z", StringType()))
VALUES: Final = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "note", StringType()),
    NestedField(3, "price", DecimalType(9, 2)),
    NestedField(4, "long price", DecimalType(18, 4)),
    NestedField(5, "wide", DecimalType(38, 10)),
    NestedField(6, "ratio", DoubleType()),
    NestedField(7, "small", FloatType()),
    NestedField(8, "day", DateType()),
    NestedField(9, "local", TimestampType()),
    NestedField(10, "instant", TimestamptzType()),
    NestedField(11, "number", IntegerType()),
    NestedField(12, "flag", BooleanType()),
    NestedField(13, "raw", BinaryType()),
    NestedField(14, "inner", INNER),
    NestedField(15, "tags", ListType(16, StringType(), element_required=False)),
    NestedField(17, "props", MapType(18, StringType(), 19, INNER.model_copy(), value_required=False)),
    NestedField(20, "pairs", ListType(21, ListType(22, LongType(), element_required=True), element_required=False)),
)
COLUMNS: Final = (
    "id",
    f"if(id % 3 = 0, null, concat('{CANARY} ', cast(id % 10 as string))) as note",
    "if(id % 3 = 0, null, cast(id - 20 as decimal(9, 2)) / 4) as price0",
    "cast(id as decimal(18, 4)) * -7 as long0",
    "cast(if(id % 4 = 0, '1234567890123456789012345678.0123456789', '-0.5') as decimal(38, 10)) as wide",
    "case id % 6 when 0 then double('NaN') when 1 then -0.0d when 2 then 0.0d when 3 then double('inf') when 4 then null else 0.1d end as ratio",
    "cast(if(id % 5 = 0, null, id / 3) as float) as small",
    "date_add(date'0001-01-01', cast(id * 9000 as int)) as day",
    "timestamp_ntz'1969-12-31 23:59:59.999999' + make_dt_interval(cast(id as int)) as local",
    "timestamp_micros(-1 - id * 86400000001) as instant",
    "if(id % 3 = 0, null, cast(id % 7 as int)) as number",
    "id % 2 = 0 as flag",
    "encode(cast(id as string), 'utf-8') as raw",
    "if(id % 3 = 0, null, named_struct('x', cast(id as int), 'y.z', 'a')) as inner",
    "if(id % 4 = 0, null, array('a', null, cast(id as string))) as tags",
    "map('k', named_struct('x', cast(id as int), 'y.z', null), 'l', null) as props",
    "array(array(id, id + 1), null, array()) as pairs",
)


def frame(spark: SparkSession, count: int = 60, partitions: int = 2) -> DataFrame:
    rows = spark.range(0, count, 1, partitions).selectExpr(*COLUMNS)
    rows = rows.withColumn("price", rows["price0"].cast("decimal(9,2)")).withColumn("long price", rows["long0"].cast("decimal(18,4)"))
    return rows.select(*[f"`{field.name}`" for field in VALUES.fields])


def create(lake: Lake, name: str, schema: Schema = VALUES, spec: PartitionSpec | None = None, **properties: str) -> Table:
    more = {"partition_spec": spec} if spec is not None else {}
    return lake.catalog.create_table(name, schema, properties={**KEY, **properties}, **more)


def write(df: DataFrame, lake: Lake, name: str, mode: Any = "append", path: Any = "jvm", **arguments: Any) -> None:
    tcs.write_table(df, lake.identifier(name), mode, path=path, catalog_properties=lake.properties, **arguments)


def data_files(table: Table) -> list[DataFile]:
    return [task.file for task in table.refresh().scan().plan_files()]


def written_by_jvm(table: Table) -> bool:
    """Spark's writer names each file for itself; the portable path counts from one file to the next too, but PyIceberg's keys show."""
    [created_by] = {parquet(table, file).metadata.created_by for file in data_files(table)}
    return str(created_by).startswith("parquet-mr")


def parquet(table: Table, file: DataFile) -> Any:
    import pyarrow.parquet as pq
    import pyarrow.parquet.encryption as pe

    key = key_metadata_of(file)
    properties = pe.create_decryption_properties(key.encryption_key.reveal(), aad_prefix=key.aad_prefix)
    return pq.ParquetFile(file.file_path.removeprefix("file://"), decryption_properties=properties)


def test_both_paths_write_equal_rows_that_both_paths_read(spark: SparkSession, lake: Lake) -> None:
    tables = {path: create(lake, f"db.{path}") for path in ("jvm", "python")}
    for path in tables:
        write(frame(spark), lake, f"db.{path}", path=path)

    expected = tables["python"].refresh().scan().to_arrow()
    assert expected.num_rows == 60
    for path, table in tables.items():
        assert written_by_jvm(table) == (path == "jvm")
        assert_same_rows(table.scan().to_arrow(), expected)
        for reader in ("jvm", "python"):
            name = lake.identifier(f"db.{path}")
            assert_same_rows(tcs.read_table(spark, name, path=reader, catalog_properties=lake.properties).toArrow(), expected)


def test_both_paths_tell_the_same_of_their_files(spark: SparkSession, lake: Lake) -> None:
    for path in ("jvm", "python"):
        create(lake, f"db.{path}")
        write(frame(spark), lake, f"db.{path}", path=path)

    jvm, python = (sorted(data_files(lake.catalog.load_table(f"db.{path}")), key=lambda file: file.lower_bounds[1]) for path in ("jvm", "python"))
    for one, other in zip(jvm, python, strict=True):
        assert one.record_count == other.record_count
        assert one.value_counts == other.value_counts
        assert one.null_value_counts == other.null_value_counts
        assert one.lower_bounds == {field: bound for field, bound in other.lower_bounds.items() if field != 6}
        assert one.upper_bounds == {field: bound for field, bound in other.upper_bounds.items() if field != 6}
        assert one.nan_value_counts == {6: 5, 7: 0}
        assert one.column_sizes.keys() == other.column_sizes.keys()
        assert one.split_offsets == [4]
        assert one.partition == other.partition
        assert one.spec_id == other.spec_id == 0
