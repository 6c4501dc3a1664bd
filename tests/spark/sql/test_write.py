"""INSERT, INSERT OVERWRITE and DataFrameWriterV2: the rows arrive, in files of the table's layout, and nothing else does."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE, FileScanTask, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
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
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from pyspark.sql.functions import col, lit

from tablecrypt import maintenance
from tablecrypt import spark as tcs
from tablecrypt.table.reader import TaskReader
from tablecrypt.table.table_files import TableFileIO
from tests.spark.conftest import Lake
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.plaintext import CANARY
from tests.support.spark_release import fills_columns
from tests.support.tables import folder_of, ids, path_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriterV2, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
KEY: Final = {"encryption.key-id": "alias/orders"}
ROW_MODES: Final = ("write.delete.mode", "write.update.mode", "write.merge.mode")
SIMPLE: Final = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "note", StringType()))
TYPES: Final = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "text", StringType()),
    NestedField(3, "day", DateType()),
    NestedField(4, "instant", TimestamptzType()),
    NestedField(5, "local", TimestampType()),
    NestedField(6, "price", DecimalType(20, 2)),
    NestedField(7, "raw", BinaryType()),
    NestedField(8, "flag", BooleanType()),
    NestedField(9, "ratio", DoubleType()),
    NestedField(10, "in", StructType(NestedField(13, "side-x", LongType()))),
    NestedField(11, "tags", ListType(14, StringType(), element_required=False)),
    NestedField(12, "props", MapType(15, StringType(), 16, LongType(), value_required=False)),
)
VALUES: Final[list[dict[str, Any]]] = [
    {
        "id": -(10**12),
        "text": "ünïcodé 😀 text",
        "day": date(1969, 12, 31),
        "instant": datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        "local": datetime(1, 1, 1, 0, 0, 0, 1),
        "price": Decimal("-0.01"),
        "raw": b"\x00\xff\x80",
        "flag": True,
        "ratio": float("nan"),
        "in": {"side-x": -5},
        "tags": ["a", None],
        "props": [("k", 1)],
    },
    {
        "id": 7,
        "text": CANARY,
        "day": date(2024, 2, 29),
        "instant": datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
        "local": datetime(2024, 2, 29, 23, 30),
        "price": Decimal("123456789012345678.90"),
        "raw": b"",
        "flag": False,
        "ratio": 0.5,
        "in": {"side-x": None},
        "tags": [],
        "props": [],
    },
    {"id": 8, **dict.fromkeys(("text", "day", "instant", "local", "price", "raw", "flag", "ratio", "in", "tags", "props"))},
]
RATIO: Final = 9
SPECS: Final = {
    "none": PartitionSpec(),
    "identity": PartitionSpec(
        *(PartitionField(source, 1000 + source, IdentityTransform(), f"p{source}") for source in (2, 3, 4, 5, 6, 7, 8, 13))
    ),
    "bucket": PartitionSpec(
        *(PartitionField(source, 1000 + source, BucketTransform(5), f"p{source}") for source in (1, 2, 3, 4, 5, 6, 7, 13))
    ),
    "truncate": PartitionSpec(*(PartitionField(source, 1000 + source, TruncateTransform(3), f"p{source}") for source in (1, 2, 6, 13))),
    "calendar": PartitionSpec(
        PartitionField(3, 1000, YearTransform(), "year"),
        PartitionField(4, 1001, MonthTransform(), "month"),
        PartitionField(5, 1002, DayTransform(), "day_of_local"),
        PartitionField(4, 1003, HourTransform(), "hour"),
    ),
    "calendar of others": PartitionSpec(
        PartitionField(3, 1000, MonthTransform(), "month"),
        PartitionField(4, 1001, YearTransform(), "year"),
        PartitionField(5, 1002, HourTransform(), "hour_of_local"),
        PartitionField(5, 1003, YearTransform(), "year_of_local"),
        PartitionField(4, 1004, DayTransform(), "day_of_instant"),
        PartitionField(3, 1005, DayTransform(), "day_of_day"),
        PartitionField(5, 1006, MonthTransform(), "month_of_local"),
    ),
}


def create(
    prod: Lake,
    name: str,
    schema: Schema,
    spec: PartitionSpec = SPECS["none"],
    order: SortOrder = UNSORTED_SORT_ORDER,
    properties: Mapping[str, str] | None = None,
) -> Table:
    return prod.catalog.create_table(name, schema, partition_spec=spec, sort_order=order, properties={**KEY, **(properties or {})})


def files(table: Table) -> list[Path]:
    return sorted(path_of(task.file.file_path) for task in table.refresh().scan().plan_files())


def stored(table: Table) -> list[Path]:
    return sorted(path for path in (folder_of(table) / "data").rglob("*") if path.is_file())


@pytest.mark.parametrize("layout", SPECS)
def test_values_of_all_types_land_in_the_partitions_that_pyiceberg_gives_them(
    spark: SparkSession, prod: Lake, new_name: str, layout: str
) -> None:
    rows = pa.Table.from_pylist(VALUES, TYPES.as_arrow())
    by_python = create(prod, f"{new_name}_python", TYPES, SPECS[layout])
    by_python.append(rows)
    table = create(prod, new_name, TYPES, SPECS[layout])

    tcs.read_table(spark, f"prod.{new_name}_python", catalog_properties=prod.properties).writeTo(f"prod.{new_name}").append()

    assert_same_rows(table.refresh().scan().to_arrow(), rows)
    assert partitions(table) == partitions(by_python)
    assert bounds(table) == bounds(by_python)
    assert stored(table) == files(table)


def partitions(table: Table) -> list[str]:
    return sorted(str(task.file.partition) for task in table.refresh().scan().plan_files())


def bounds(table: Table) -> list[str]:
    """The bounds and counts of each file, which planning goes by; of RATIO, NaN leaves one Parquet writer without an upper bound."""
    described = []
    for task in table.refresh().scan().plan_files():
        known = (task.file.lower_bounds, task.file.upper_bounds, task.file.null_value_counts, task.file.nan_value_counts)
        described.append(str([sorted(item for item in (each or {}).items() if item[0] != RATIO) for each in known]))
    return sorted(described)


def test_statements_and_writers_add_and_replace_rows(spark: SparkSession, prod: Lake, new_name: str) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "note"))
    table = create(prod, new_name, SIMPLE, spec)
    name = f"prod.{new_name}"

    spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'a'), (3, 'b'), (4, NULL)")
    spark.sql(f"INSERT INTO {name} (note, id) VALUES ('b', 5)")
    spark.sql(f"INSERT INTO {name} BY NAME SELECT 'c' AS note, 6L AS id")
    assert ids(table.refresh()) == [1, 2, 3, 4, 5, 6]
    spark.range(7, 8).selectExpr("id", "'c' as note").writeTo(name).option("snapshot-property.Who", "me").append()
    assert ids(table.refresh()) == [1, 2, 3, 4, 5, 6, 7]
    head = table.metadata.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert (head.summary["Who"], head.summary["engine-name"]) == ("me", "spark")

    spark.range(20, 22).selectExpr("id", "if(id = 20, 'b', 'd') as note").writeTo(name).overwritePartitions()
    assert ids(table.refresh()) == [1, 2, 4, 6, 7, 20, 21]
    with_setting(spark, "spark.sql.sources.partitionOverwriteMode", "dynamic", f"INSERT OVERWRITE {name} SELECT 30L, 'c'")
    assert ids(table.refresh()) == [1, 2, 4, 20, 21, 30]
    spark.sql(f"INSERT OVERWRITE {name} SELECT 40L, 'z'")
    assert ids(table.refresh()) == [40]
    assert len(files(table)) == 1


def test_an_unpartitioned_table_is_one_partition_for_overwritepartitions(spark: SparkSession, prod: Lake, new_name: str) -> None:
    table = create(prod, new_name, SIMPLE)
    spark.sql(f"INSERT INTO prod.{new_name} VALUES (1, 'a'), (2, 'b')")

    spark.range(5, 6).selectExpr("id", "'c' as note").writeTo(f"prod.{new_name}").overwritePartitions()

    assert ids(table.refresh()) == [5]


def test_the_option_for_dynamic_overwrites_keeps_partitions_without_new_rows(spark: SparkSession, prod: Lake, new_name: str) -> None:
    table = create(prod, new_name, SIMPLE, PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "note")))
    spark.sql(f"INSERT INTO prod.{new_name} VALUES (1, 'a'), (2, 'b'), (3, 'c')")

    one_row(spark, 4, "a").write.option("overwrite-mode", "dynamic").mode("overwrite").insertInto(f"prod.{new_name}")
    assert ids(table.refresh()) == [2, 3, 4]
    one_row(spark, 5, "b").writeTo(f"prod.{new_name}").option("overwriteMode", "Dynamic").overwrite(lit(True))
    assert ids(table.refresh()) == [3, 4, 5]
    one_row(spark, 6, "a").writeTo(f"prod.{new_name}").option("overwrite-mode", "dynamic").overwrite(col("note") == "c")
    assert ids(table.refresh()) == [4, 5, 6]
    one_row(spark, 7, "a").write.option("overwrite-mode", "static").mode("overwrite").insertInto(f"prod.{new_name}")
    assert ids(table.refresh()) == [7]


def one_row(spark: SparkSession, number: int, note: str) -> DataFrame:
    return spark.createDataFrame([(number, note)], "id bigint, note string")


def with_setting(spark: SparkSession, name: str, value: str, statement: str) -> None:
    spark.conf.set(name, value)
    try:
        spark.sql(statement)
    finally:
        spark.conf.unset(name)


def test_distribution_and_order_are_those_of_the_table(spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(3), "bucket"))
    order = SortOrder(SortField(2, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST))
    shuffled = spark.range(0, 600, 1, 4).selectExpr("id * 7919 % 600 as id", "lpad(cast(id * 31 % 600 as string), 3, '0') as note")
    counts = {}
    for mode in ("none", "hash", "range", "streamed"):
        properties = {} if mode == "streamed" else {"write.distribution-mode": mode}
        table = create(prod, f"{new_name}_{mode}", SIMPLE, spec, order, properties)
        if mode == "streamed":
            stream = spark.readStream.table(f"prod.{new_name}_none").writeStream.option("checkpointLocation", tmp_path.as_uri())
            stream.trigger(availableNow=True).toTable(f"prod.{new_name}_{mode}").awaitTermination()
        else:
            shuffled.writeTo(f"prod.{new_name}_{mode}").append()

        assert ids(table.refresh()) == list(range(600))
        counts[mode] = len(files(table))
        for task in table.scan().plan_files():
            notes = notes_of(table, task)
            assert notes == sorted(notes, reverse=True)
            assert task.file.sort_order_id == table.metadata.default_sort_order_id > 0
    assert counts["none"] == 12
    assert counts["hash"] == 3
    assert counts["range"] <= 6


def notes_of(table: Table, task: FileScanTask) -> list[str]:
    """The notes of a file's rows, in their order."""
    reader = TaskReader(table.metadata, cast("TableFileIO", table.io), table.schema(), ALWAYS_TRUE)
    return [note for batch in reader.batches(task) for note in batch.column("note").to_pylist()]


def test_files_end_at_the_target_size_that_table_or_write_say(spark: SparkSession, prod: Lake, new_name: str) -> None:
    table = create(prod, new_name, SIMPLE)
    rows = spark.range(0, 20_000, 1, 1).selectExpr("id", "cast(rand(1) as string) as note")

    rows.writeTo(f"prod.{new_name}").append()
    assert len(files(table)) == 1
    rows.writeTo(f"prod.{new_name}").option("target-file-size-bytes", "50000").option("compression-codec", "gzip").append()
    assert len(files(table)) > 4


def test_rows_are_appended_in_the_partition_spec_that_a_write_names(spark: SparkSession, prod: Lake, aws: AwsServer, new_name: str) -> None:
    table = create(prod, new_name, SIMPLE, PartitionSpec(PartitionField(1, 1000, BucketTransform(3), "bucket")))
    with table.update_spec() as update:
        update.add_identity("note")

    def append(spec_id: int, number: int, name: str = new_name) -> DataFrameWriterV2:
        rows = spark.sql(f"SELECT {number}L AS id, 'a' AS note")
        return rows.writeTo(f"prod.{name}").option("output-spec-id", str(spec_id))

    append(0, 1).append()
    append(1, 2).append()

    assert {task.file.spec_id: len(task.file.partition) for task in table.refresh().scan().plan_files()} == {0: 1, 1: 2}
    assert ids(table) == [1, 2] and ids(table, row_filter="note = 'a'") == [1, 2]
    with pytest.raises(Exception, match="rows that replace others are written with the table's current partitioning"):
        append(0, 3).overwritePartitions()
    hidden = create(prod, f"{new_name}_hidden", SIMPLE, properties={"encryption.column-keys": f"{aws.new_key()}: note"})
    with hidden.update_spec() as update:
        update.add_identity("id")
    with pytest.raises(Exception, match="tables with protected columns are written with their current partitioning"):
        append(0, 3, f"{new_name}_hidden").append()
    assert maintenance.verify(table).is_good


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"write-format": "orc"}, "encrypted tables are written as Parquet"),
        ({"output-spec-id": "7"}, "output-spec-id=7: the table has no such partition spec"),
        ({"distribution-mode": "random"}, "it must be none, hash or range"),
        ({"isolation-level": "none"}, "it must be serializable or snapshot"),
        ({"overwrite-mode": "partitions"}, "it must be static or dynamic"),
        ({"target-file-size-bytes": "-1"}, "target-file-size-bytes"),
        ({"compression-codec": "brotli"}, "codec brotli"),
    ],
)
def test_options_that_are_not_served_are_refused_before_rows_are_written(
    spark: SparkSession, prod: Lake, new_name: str, options: dict[str, str], named: str
) -> None:
    table = create(prod, new_name, SIMPLE)

    with pytest.raises(Exception, match=named):
        spark.range(1).selectExpr("id", "'x' as note").writeTo(f"prod.{new_name}").options(**options).append()

    assert table.refresh().current_snapshot() is None
    assert not stored(table)


def test_rows_that_do_not_fit_are_refused_and_nothing_stays(spark: SparkSession, prod: Lake, new_name: str) -> None:
    table = create(prod, new_name, SIMPLE)

    with pytest.raises(Exception, match=r"NOT_NULL_ASSERT_VIOLATION|NULL value appeared"):
        spark.range(0, 3000).selectExpr("if(id = 2999, null, id) as id", f"'{CANARY}' as note").writeTo(f"prod.{new_name}").append()
    with pytest.raises(Exception, match="INCOMPATIBLE_DATA_FOR_TABLE"):
        spark.sql(f"INSERT INTO prod.{new_name} VALUES ('no number', 'a')")

    assert not stored(table)
    assert table.refresh().current_snapshot() is None


def test_transforms_are_functions_with_the_values_of_partitions(spark: SparkSession, prod: Lake) -> None:
    row = spark.sql(
        "SELECT prod.system.bucket(16, 34), prod.bucket(16, 'iceberg'), prod.system.truncate(10, -1), prod.truncate(3, 'ünïcode'), "
        "prod.truncate(50, 10.65BD), prod.years(DATE'1969-12-31'), prod.months(DATE'2024-02-29'), prod.system.days(DATE'2024-02-29'), "
        "prod.hours(TIMESTAMP_NTZ'1969-12-31 23:59:59'), prod.bucket(100, CAST(NULL AS STRING)), prod.truncate(2, X'0102FF')"
    ).collect()[0]

    # The hashes are those of the Iceberg table spec, appendix B.
    assert list(row) == [
        2017239379 % 16,
        1210000089 % 16,
        -10,
        "ünï",
        Decimal("10.50"),
        -1,
        649,
        date(2024, 2, 29),
        -1,
        None,
        bytearray(b"\x01\x02"),
    ]
    for call, named in (
        ("prod.bucket(4)", "takes .number of buckets, column."),
        ("prod.hours(DATE'2024-02-29')", "hours does not take date"),
        ("prod.bucket('4', 1)", "takes an integer first"),
        ("prod.truncate(0, 1)", "a number above 0"),
        ("prod.nothing(1)", "nothing"),
    ):
        with pytest.raises(Exception, match=named):
            spark.sql(f"SELECT {call}").collect()


@fills_columns
def test_a_column_that_a_statement_leaves_out_gets_its_default(spark: SparkSession, prod: Lake, new_name: str) -> None:
    name = f"prod.{new_name}"
    table = create(prod, new_name, SIMPLE)
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a')")
    defaults: dict[str, tuple[PrimitiveType, Any]] = {
        "flag": (BooleanType(), True),
        "small": (IntegerType(), -3),
        "large": (LongType(), 2**62),
        "ratio": (DoubleType(), 0.1),
        "single": (FloatType(), 1.5),
        "price": (DecimalType(9, 2), Decimal("-14.20")),
        "day": (DateType(), date(1582, 10, 4)),
        "local": (TimestampType(), datetime(1969, 12, 31, 23, 59, 59, 999999)),
        "instant": (TimestamptzType(), datetime(2024, 2, 29, 12, 30, tzinfo=UTC)),
        "text": (StringType(), 'it\'s \\n "ünï"'),
        "raw": (BinaryType(), b"\x00\xff"),
    }
    with table.update_schema() as update:
        for column, (kind, value) in defaults.items():
            update.add_column(column, kind, default_value=value)
    expected = {column: value for column, (_, value) in defaults.items()}

    spark.sql(f"INSERT INTO {name} (id) VALUES (2)")
    spark.sql(f"INSERT INTO {name} (id, small, text) VALUES (3, DEFAULT, NULL)")
    spark.range(4, 5).writeTo(name).append()
    spark.sql(f"MERGE INTO {name} t USING (SELECT 5L AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)")
    spark.sql(f"UPDATE {name} SET small = 7, large = DEFAULT WHERE id = 1")

    rows = {row["id"]: row for row in table.refresh().scan().to_arrow().to_pylist()}
    assert rows == {
        1: {"id": 1, "note": "a"} | expected | {"small": 7},
        2: {"id": 2, "note": None} | expected,
        3: {"id": 3, "note": None} | expected | {"text": None},
        4: {"id": 4, "note": None} | expected,
        5: {"id": 5, "note": None} | expected,
    }
    assert_same_rows(spark.table(name).toArrow().cast(table.scan().to_arrow().schema), table.scan().to_arrow())


def test_rows_are_in_their_own_partition_whatever_value_the_first_row_of_a_task_has(spark: SparkSession, prod: Lake, new_name: str) -> None:
    spark.sql(
        f"CREATE TABLE prod.{new_name} (id int, part decimal(20, 0)) PARTITIONED BY (part) "
        "TBLPROPERTIES ('encryption.key-id' = 'alias/orders', 'write.distribution-mode' = 'none')"
    )
    # Each pair has one hash code.
    for values in ("(1, NULL), (2, -1BD)", "(3, 1BD), (4, 4294967296BD)"):
        spark.sql(f"INSERT INTO prod.{new_name} SELECT /*+ COALESCE(1) */ id, part FROM VALUES {values} AS v(id, part)")

    rows = spark.sql(f"SELECT id, _partition.part FROM prod.{new_name} ORDER BY id").collect()
    assert [(row.id, row.part) for row in rows] == [(1, None), (2, Decimal(-1)), (3, Decimal(1)), (4, Decimal(2**32))]
    assert spark.sql(f"SELECT id FROM prod.{new_name} WHERE part IN (-1, 4294967296) ORDER BY id").collect() == [(2,), (4,)]


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_rows_of_the_partition_of_null_are_changed_as_all_others(spark: SparkSession, prod: Lake, new_name: str, mode: str) -> None:
    name = f"prod.{new_name}"
    modes = ", ".join(f"'write.{command}.mode' = '{mode}'" for command in ("delete", "update", "merge"))
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT NOT NULL, note STRING, part STRING) PARTITIONED BY (part) "
        f"TBLPROPERTIES ('encryption.key-id' = 'alias/orders', {modes})"
    )
    spark.sql(f"INSERT INTO {name} SELECT id, 'a', IF(id % 2 = 0, NULL, 'odd') FROM range(8)")

    spark.sql(f"UPDATE {name} SET note = concat(note, 'u') WHERE id > 3 OR note = 'x'")
    spark.sql(f"DELETE FROM {name} WHERE pmod(id, 8) = 6 OR note = 'x'")
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT id FROM range(2, 6)) s ON t.id = s.id WHEN MATCHED AND t.id = 2 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET note = concat(note, 'm') WHEN NOT MATCHED BY SOURCE AND t.id = 0 THEN UPDATE SET note = 'by source'"
    )
    rows = prod.catalog.load_table(new_name).scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["note"]) for row in rows] == [(0, "by source"), (1, "a"), (3, "am"), (4, "aum"), (5, "aum"), (7, "au")]


@pytest.mark.parametrize(
    ("spec", "properties"),
    [
        (PartitionSpec(PartitionField(2, 1000, BucketTransform(4), "bucket")), {"write.spark.accept-any-schema": "true"}),
        (PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "ref")), dict.fromkeys(ROW_MODES, "merge-on-read")),
    ],
    ids=["bucket", "value"],
)
def test_uuids_are_written_as_text_and_found_by_it(
    spark: SparkSession, prod: Lake, new_name: str, spec: PartitionSpec, properties: Mapping[str, str]
) -> None:
    fields = NestedField(2, "ref", UUIDType()), NestedField(3, "all", ListType(4, UUIDType(), element_required=False))
    schema = Schema(NestedField(1, "id", LongType()), *fields, NestedField(5, "code", FixedType(2)))
    made = prod.catalog.create_table(new_name, schema, partition_spec=spec, properties=KEY | dict(properties))
    refs, table = [str(uuid.UUID(int=number << 64)) for number in range(20)], f"prod.{new_name}"
    listed = ", ".join(f"({number}L, '{ref.upper()}', array('{ref}', NULL), X'0102')" for number, ref in enumerate(refs))
    spark.sql(f"INSERT INTO {table} VALUES {listed}, (20L, NULL, NULL, NULL)")

    rows = made.refresh().scan().to_arrow().sort_by("id").to_pylist()
    assert [None if row["ref"] is None else str(row["ref"]) for row in rows] == [*refs, None]
    assert (rows[3]["all"], rows[3]["code"]) == ([uuid.UUID(refs[3]), None], b"\x01\x02")
    # Each task has the rows of a partition in a row, and so one file of it.
    files = [task.file.partition for task in made.scan().plan_files()]
    assert len(files) == max(2, len({repr(partition) for partition in files}))
    spark.sql(f"UPDATE {table} SET ref = '{refs[1]}' WHERE ref = '{refs[2]}'")
    source = f"SELECT 3L AS id, '{refs[1]}' AS ref UNION ALL SELECT 30L, '{refs[0]}'"
    merge = "WHEN MATCHED THEN UPDATE SET ref = s.ref WHEN NOT MATCHED THEN INSERT (id, ref) VALUES (s.id, s.ref)"
    spark.sql(f"MERGE INTO {table} t USING ({source}) s ON t.id = s.id {merge}")
    spark.sql(f"DELETE FROM {table} WHERE ref = '{refs[19]}'")
    found = {ref: {row["id"] for row in spark.sql(f"SELECT id FROM {table} WHERE ref = '{ref}'").collect()} for ref in refs}
    changed = {refs[0]: {0, 30}, refs[1]: {1, 2, 3}, refs[2]: set(), refs[3]: set(), refs[19]: set()}
    assert found == {ref: {number} for number, ref in enumerate(refs)} | changed
    if spec.fields and isinstance(spec.fields[0].transform, IdentityTransform):
        spark.table(table).where("id = 30").writeTo(table).overwritePartitions()
        assert {row["id"] for row in spark.sql(f"SELECT id FROM {table} WHERE ref = '{refs[0]}'").collect()} == {30}
    for text in ("1-1-1-1-1", refs[1] + "0"):
        with pytest.raises(Exception, match="not the text of a uuid, 8-4-4-4-12 hexadecimal digits") as refused:
            spark.sql(f"INSERT INTO {table} VALUES (9L, '{text}', NULL, NULL)")
        assert len(str(refused.value).split("\n\nJVM")[0].splitlines()) == 1
    assert maintenance.verify(made.refresh()).is_good
