"""Spark's own Parquet reader on encrypted tables: the rows of the Python path, or it steps aside and says why."""

from __future__ import annotations

import datetime as dt
import gc
import io
import logging
import math
import threading
from collections.abc import Iterator
from contextlib import redirect_stdout
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression, EqualTo, Not, Or, Reference
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, ListType, NestedField, StringType, StructType

import tablecrypt.spark as tcs
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.network import keeps_messages_private
from tablecrypt.spark.shared.install import jvm_side
from tablecrypt.spark.sql.programs.responses import known_planners
from tests.spark.conftest import CATALOG, Lake, SparkRun
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.held_reads import held_reads, is_let_go
from tests.support.key_search import file_keys, found
from tests.support.plaintext import CANARY
from tests.support.tables import data_paths, new_table
from tests.support.vectors import GOLDEN, JAVA, VectorTable, load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.java

KEY: Final = {"encryption.key-id": "alias/orders", "write.delete.mode": "merge-on-read"}
FOLDER_AS_S3: Final = Path(__file__).parents[1] / "support" / "java_src" / "FolderAsS3.java"
# What Spark's reader does not serve, each for the reason that its name tells.
ON_PYTHON_PATH: Final = {"avro_data", "equality_deletes"}
VECTORS: Final = [*load(GOLDEN).values(), *load(JAVA).values()]
VALUES: Final = Schema(
    NestedField(1, "id", "long", required=True),
    NestedField(2, "note", "string"),
    NestedField(3, "price", "decimal(9, 2)"),
    NestedField(4, "ratio", "double"),
    NestedField(5, "small", "float"),
    NestedField(6, "day", "date"),
    NestedField(7, "local", "timestamp"),
    NestedField(8, "instant", "timestamptz"),
    NestedField(9, "number", "int"),
    NestedField(10, "inner", StructType(NestedField(11, "x", "int"), NestedField(12, "y.z", "string"))),
    NestedField(13, "tags", ListType(14, StringType(), element_required=False)),
)


def values(first: int, count: int) -> pa.Table:
    """Rows in which every third value is null, and some numbers are NaN, infinite or a negative zero."""

    def column(make: Any, data_type: pa.DataType) -> pa.Array:
        return pa.array([None if number % 3 == 0 else make(number) for number in range(first, first + count)], data_type)

    special = [math.nan, -0.0, 0.0, math.inf, -math.inf, 0.1]
    moment = dt.datetime(1969, 12, 31, 23, 59, 59, 999999)
    columns = {
        "id": pa.array(range(first, first + count), pa.int64()),
        "note": column(lambda number: f"{CANARY} {number % 10}", pa.string()),
        "price": column(lambda number: Decimal(number - 20) / 4, pa.decimal128(9, 2)),
        "ratio": column(lambda number: special[number % 6], pa.float64()),
        "small": column(lambda number: special[number % 6], pa.float32()),
        "day": column(lambda number: dt.date(1, 1, 1) + dt.timedelta(days=number * 9000), pa.date32()),
        "local": column(lambda number: moment + dt.timedelta(days=number), pa.timestamp("us")),
        "instant": column(lambda number: (moment - dt.timedelta(days=number)).replace(tzinfo=dt.UTC), pa.timestamp("us", "UTC")),
        "number": column(lambda number: number % 7, pa.int32()),
        "inner": column(lambda number: {"x": number, "y.z": "a"}, pa.struct([("x", pa.int32()), ("y.z", pa.string())])),
        "tags": column(lambda number: ["a", None][: number % 3], pa.list_(pa.string())),
    }
    schema = pa.schema([pa.field(name, array.type, nullable=name != "id") for name, array in columns.items()])
    return pa.table(columns, schema=schema)


def read(spark: SparkSession, lake: Lake, name: str, *arguments: Any, **named: Any) -> DataFrame:
    return tcs.read_table(spark, lake.identifier(name), *arguments, catalog_properties=lake.properties, **named)


def plan_of(rows: DataFrame) -> str:
    with redirect_stdout(io.StringIO()) as out:
        rows.explain(mode="formatted")
    return out.getvalue()


def is_jvm(rows: DataFrame) -> bool:
    plan = plan_of(rows)
    assert ("BatchScan" in plan) != ("MapInArrow" in plan)
    return "BatchScan" in plan


def assert_paths_agree(spark: SparkSession, lake: Lake, name: str, *arguments: Any, **named: Any) -> int:
    """Both paths give the same rows, columns and types. Returns how many rows."""
    jvm = read(spark, lake, name, *arguments, path="jvm", **named)
    python = read(spark, lake, name, *arguments, path="python", **named)
    assert jvm.columns == python.columns
    rows = python.toArrow()
    assert_same_rows(jvm.toArrow(), rows)
    return int(rows.num_rows)


@pytest.fixture(scope="module")
def vectors_in_hadoop(spark: SparkSession) -> Iterator[None]:
    """A Hadoop file system for s3:// that reads the vectors from their folders."""
    context: Any = spark.sparkContext
    compiler = context._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(FOLDER_AS_S3.name, FOLDER_AS_S3.read_text())
    configuration = context._jsc.hadoopConfiguration()
    before = configuration.getClassLoader()
    configuration.setClassLoader(compiler.getClassLoader())
    configuration.set("fs.s3.impl", "tablecrypt.tests.FolderAsS3")
    configuration.set("tablecrypt.tests.s3", f"{GOLDEN / 's3'},{JAVA / 's3'}")
    yield
    configuration.unset("fs.s3.impl")
    configuration.setClassLoader(before)


def lake_in(folder: Path, aws: AwsServer, **more: str) -> Lake:
    """An empty catalog whose tables lie in the folder."""
    properties = {
        "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog",
        "uri": f"sqlite:///{folder.parent}/{folder.name}-jvm.db",
        "warehouse": folder.as_uri(),
        **aws.kms_properties,
        **more,
    }
    catalog = load_catalog(CATALOG, **properties)
    catalog.create_namespace("db")
    return Lake(catalog, properties, folder)


@pytest.fixture(scope="module")
def vectors(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory, vectors_in_hadoop: None) -> Lake:
    """A catalog of the tables that Java wrote; PyIceberg reads them from S3."""
    lake = lake_in(tmp_path_factory.mktemp("vectors"), aws, **aws.s3_properties)
    for folder in (GOLDEN, JAVA):
        aws.load_bucket(folder / "s3")
    for vector in VECTORS:
        lake.catalog.register_table(f"db.{vector.name}", vector.metadata_location)
    return lake


@pytest.fixture(scope="module")
def valued(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A catalog with the table `values`: two files, the second with a deletion vector."""
    lake = lake_in(tmp_path_factory.mktemp("values"), aws)
    table = new_table(lake.catalog, "db.values", VALUES, appends=[values(0, 60), values(60, 60)], properties=KEY)
    table.delete("id in (61, 62, 119)")
    return lake


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector.folder.name}-{vector.name}")
def test_what_java_wrote_is_read_as_java_read_it(spark: SparkSession, vectors: Lake, vector: VectorTable) -> None:
    by_itself = read(spark, vectors, f"db.{vector.name}")

    if vector.snapshot_ids:
        assert is_jvm(by_itself) == (vector.name not in ON_PYTHON_PATH)
    assert_same_rows(by_itself.toArrow(), vector.expected())
    for number, snapshot_id in enumerate(vector.snapshot_ids):
        rows = read(spark, vectors, f"db.{vector.name}", snapshot_id=snapshot_id)
        assert_same_rows(rows.toArrow(), vector.expected(f"snapshot-{number}"))


@pytest.mark.parametrize(
    "row_filter",
    [
        "id >= 50 and id < 70",
        "id = 10000000000",
        "note = 'c4nary-plaintext-must-not-appear 4' or id = 3",
        "note like 'c4nary%'",
        "note not like 'c4nary-plaintext-must-not-appear 4%'",
        "price = 2.50",
        "price > 1.25",
        "ratio > 0",
        "ratio <= 0",
        "ratio = 0",
        "ratio != 0.1",
        "not (ratio > 0)",
        "ratio is nan",
        "ratio is not nan",
        "small >= 0.1",
        "day < '0800-01-01'",
        "local >= '1970-01-05T00:00:00'",
        "instant < '1969-12-01T00:00:00+00:00'",
        "number in (1, 2)",
        "number not in (1, 2)",
        "not (number in (1, 2) or price < 1)",
        "number is null and id > 3",
        "number is not null",
        "inner.x > 30",
        "tags is null and id < 80",
    ],
)
def test_filters_keep_the_same_rows(spark: SparkSession, valued: Lake, row_filter: str) -> None:
    rows = read(spark, valued, "db.values", row_filter=row_filter, path="jvm")

    scan = valued.catalog.load_table("db.values").scan(row_filter)
    assert_same_rows(rows.toArrow(), scan.to_arrow())
    named = read(spark, valued, "db.values", ["note"], row_filter=row_filter)
    assert_same_rows(named.toArrow(), scan.to_arrow().select(["note"]))


def equal(name: str, value: Any) -> BooleanExpression:
    return EqualTo(term=Reference(name), value=value)


def test_a_filter_of_hundreds_of_predicates_keeps_the_same_rows(spark: SparkSession, valued: Lake) -> None:
    either: BooleanExpression = AlwaysFalse()
    all_of: BooleanExpression = AlwaysTrue()
    for number in range(0, 400, 2):
        either, all_of = Or(either, equal("id", number)), And(all_of, Not(equal("id", number)))
    table = valued.catalog.load_table("db.values")

    for row_filter in (either, all_of, And(either, Or(all_of, either))):
        rows = read(spark, valued, "db.values", row_filter=row_filter, path="jvm")
        assert_same_rows(rows.toArrow(), table.scan(row_filter).to_arrow())


def test_text_and_names_mean_themselves_in_a_filter(spark: SparkSession, lake: Lake) -> None:
    name = "a`b.${spark.app.name}"
    table = lake.catalog.create_table("db.texts", Schema(NestedField(1, name, "string")), properties=KEY)
    texts = ["", "'", '"', "\\", "\\n", "\n", "%", "${spark.app.name}", "`", "ü\0", "--", "x'00'"]
    table.append(pa.table({name: texts}))
    session = spark.newSession()
    session.conf.set("spark.sql.parser.escapedStringLiterals", "true")

    for each in texts:
        rows = read(session, lake, "db.texts", row_filter=equal(name, each), path="jvm")
        assert [row[0] for row in rows.collect()] == [each]


def test_columns_types_and_order_are_those_of_the_python_path(spark: SparkSession, valued: Lake) -> None:
    for columns in (None, ["tags", "id"], ["inner.x", "note"]):
        jvm, python = (read(spark, valued, "db.values", columns, path=path) for path in ("jvm", "python"))
        assert jvm.dtypes == python.dtypes
        assert [field.nullable for field in jvm.schema] == [field.nullable for field in python.schema]
        assert_same_rows(jvm.toArrow(), python.toArrow())
    assert assert_paths_agree(spark, valued, "db.values", ["note"], "id > 100 or number is null") > 18


def test_what_is_done_to_the_dataframe_reaches_the_files(spark: SparkSession, valued: Lake) -> None:
    rows = read(spark, valued, "db.values", path="jvm").where("id > 100").select("note")

    assert "[id#" in plan_of(rows)
    assert "filters=id > 100" in plan_of(rows)
    assert "price" not in plan_of(rows)
    assert rows.count() == 18


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"spark.sql.columnVector.offheap.enabled": "true"},
        {"spark.sql.codegen.wholeStage": "false"},
        {"spark.sql.parquet.enableVectorizedReader": "false"},
    ],
    ids=["batches", "off the heap", "interpreted", "row by row"],
)
def test_text_and_decimals_in_dictionaries_long_and_short_are_read_right_with_nulls_and_deleted_rows(
    spark: SparkSession, lake: Lake, settings: dict[str, str]
) -> None:
    fields = [("few", StringType()), ("many", StringType()), *((f"d{digits}", DecimalType(digits, 2)) for digits in (9, 15, 30))]
    named = [NestedField(number, name, kind) for number, (name, kind) in enumerate(fields, 2)]
    schema = Schema(NestedField(1, "id", "long"), *named)
    table = lake.catalog.create_table("db.repeated", schema, properties={**KEY, "write.parquet.row-group-limit": "7000"})
    ids = range(20_000)
    few = [None if i % 5 == 0 else f"{i // 7000} {i % 3}" for i in ids]
    cents = [None if i % 7 == 0 else Decimal(i % 400 - 100) / 100 for i in ids]
    decimals = {f"d{digits}": pa.array(cents, pa.decimal128(digits, 2)) for digits in (9, 15, 30)}
    table.append(pa.table({"id": pa.array(ids, pa.int64()), "few": few, "many": [f"{i % 1000} of many" for i in ids], **decimals}))
    table.delete("id >= 6000 and id < 12000")
    last = {
        "id": pa.array([20_000], pa.int64()),
        "few": ["alone"],
        "many": [CANARY],
        **{name: each[1:2] for name, each in decimals.items()},
    }
    table.append(pa.table(last))
    session = spark.newSession()
    for name, value in settings.items():
        session.conf.set(name, value)

    found = read(session, lake, "db.repeated", path="jvm").orderBy("id").collect()

    live = [(i, few[i], f"{i % 1000} of many", *3 * [cents[i]]) for i in ids if not 6000 <= i < 12000]
    assert [tuple(row) for row in found] == [*live, (20_000, "alone", CANARY, *3 * [cents[1]])]


def test_what_is_worked_out_of_decimals_in_dictionaries_leaves_them_as_they_are(spark: SparkSession, lake: Lake) -> None:
    table = lake.catalog.create_table("db.tax", Schema(NestedField(1, "tax", "decimal(15, 2)")), properties=KEY)
    table.append(pa.table({"tax": pa.array([Decimal(i % 9) / 100 for i in range(6000)], pa.decimal128(15, 2))}))
    worked_out = [
        "tax",
        "cast(tax AS decimal(20,5))",
        "cast(tax AS decimal(14,1))",
        "round(tax, 1)",
        "-tax",
        "tax * tax",
        "tax",
        "abs(tax)",
    ]

    for expressions in (worked_out, ["max(tax)", "min(tax)", "sum(tax)", "avg(cast(tax AS decimal(17,3)))", "max_by(tax, -tax)"]):
        jvm, python = (read(spark, lake, "db.tax", path=path).selectExpr(*expressions).collect() for path in ("jvm", "python"))
        assert sorted(map(str, jvm)) == sorted(map(str, python))


def test_a_negative_filter_on_a_column_that_files_may_lack_is_left_to_the_python_path(spark: SparkSession, lake: Lake) -> None:
    table = lake.catalog.create_table("db.grown", Schema(NestedField(1, "id", "long")), properties=KEY)
    table.append(pa.table({"id": pa.array([1, 2], pa.int64())}))
    with table.update_schema() as change:
        change.add_column("note", StringType())
    table.append(pa.table({"id": pa.array([3, 4], pa.int64()), "note": [CANARY, None]}))

    assert not is_jvm(read(spark, lake, "db.grown", row_filter="note != 'x'"))
    assert is_jvm(read(spark, lake, "db.grown", row_filter="id != 3"))
    assert assert_paths_agree(spark, lake, "db.grown", row_filter="note is null") == 3


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("avro_data", {}, "it is of format AVRO"),
        ("equality_deletes", {}, "rows of it are deleted by equality"),
        ("orders", {"columns": ["id", "_row_id"]}, "_row_id is a column of row lineage"),
    ],
)
def test_what_is_not_supported_is_refused_with_the_reason(
    spark: SparkSession, vectors: Lake, name: str, arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        read(spark, vectors, f"db.{name}", path="jvm", **arguments)
    assert not is_jvm(read(spark, vectors, f"db.{name}", **arguments))


def test_columns_that_python_translates_are_left_to_it(spark: SparkSession, lake: Lake) -> None:
    schema = Schema(NestedField(1, "id", "long"), NestedField(2, "ref", "uuid"), NestedField(3, "ID", "long"))
    table = lake.catalog.create_table("db.refs", schema, properties=KEY)
    table.append(pa.table({"id": pa.array([1], pa.int64()), "ref": pa.array([bytes(16)], pa.uuid()), "ID": pa.array([2], pa.int64())}))

    with pytest.raises(ConfigurationError, match="ref: uuid is translated by Python"):
        read(spark, lake, "db.refs", ["ref"], path="jvm")
    with pytest.raises(ConfigurationError, match="names of columns differ in case alone"):
        read(spark, lake, "db.refs", ["id", "ID"], path="jvm")
    with pytest.raises(ConfigurationError, match="use jvm or python"):
        read(spark, lake, "db.refs", path="java")
    assert is_jvm(read(spark, lake, "db.refs", ["id"]))


def test_files_that_hadoop_does_not_find_are_left_to_the_python_path(spark: SparkSession, aws: AwsServer, tmp_path: Path) -> None:
    lake = lake_in(tmp_path, aws, **aws.s3_properties)
    location = f"s3://{aws.bucket('jvm-unknown')}/db/orders"
    table = lake.catalog.create_table("db.orders", Schema(NestedField(1, "id", "long")), location=location, properties=KEY)
    table.append(pa.table({"id": pa.array([1], pa.int64())}))

    with pytest.raises(ConfigurationError, match="Hadoop, with its own configuration and credentials, does not find it"):
        read(spark, lake, "db.orders", path="jvm")
    assert [row["id"] for row in read(spark, lake, "db.orders").collect()] == [1]


def test_no_setting_of_the_session_is_changed_or_needed(spark: SparkSession, valued: Lake) -> None:
    session = spark.newSession()
    before = {row["key"]: row["value"] for row in session.sql("SET").collect()}
    hadoop: Any = spark.sparkContext._jsc

    rows = read(session, valued, "db.values", path="jvm")

    assert rows.count() == 117
    assert {row["key"]: row["value"] for row in session.sql("SET").collect()} == before
    assert hadoop.hadoopConfiguration().get("parquet.crypto.factory.class") is None
    session.conf.set("spark.sql.parquet.fieldId.read.enabled", "false")
    session.conf.set("spark.sql.parquet.enableVectorizedReader", "false")
    session.conf.set("spark.sql.ansi.enabled", "false")
    assert_same_rows(read(session, valued, "db.values", path="jvm").toArrow(), valued.catalog.load_table("db.values").scan().to_arrow())


def test_it_works_from_another_thread(spark: SparkSession, valued: Lake) -> None:
    counts: list[int] = []
    thread = threading.Thread(target=lambda: counts.append(read(spark, valued, "db.values", path="jvm").count()))

    thread.start()
    thread.join()

    assert counts == [117]


@pytest.mark.parametrize("vectorized", ["true", "false"])
@pytest.mark.parametrize("path", ["jvm", "python"])
def test_a_file_that_says_it_is_of_another_algorithm_is_refused(
    spark: SparkSession, aws: AwsServer, unwatched_warehouse: Path, path: str, vectorized: str
) -> None:
    """Uncompressed pages of required columns, which AES_GCM_CTR_V1 would turn into other rows without an error."""
    lake = lake_in(unwatched_warehouse, aws)
    uncompressed = {**KEY, "write.parquet.compression-codec": "uncompressed"}
    schema = Schema(NestedField(1, "id", "long", required=True))
    table = lake.catalog.create_table("db.required", schema, properties=uncompressed)
    table.append(pa.table({"id": range(1000)}, schema=schema.as_arrow()))
    session = spark.newSession()
    session.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    assert {row["id"] for row in read(session, lake, "db.required", path=path).collect()} == set(range(1000))
    rows = read(_ignoring(session), lake, "db.required", path=path)
    [stored] = unwatched_warehouse.rglob("*.parquet")
    content = stored.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    assert content[start : start + 2] == b"\x1c\x1c"
    stored.write_bytes(content[: start + 1] + b"\x2c" + content[start + 2 :])

    with pytest.raises(Exception, match=rf"(?s){stored.name}.*AES_GCM_CTR_V1, which leaves pages unauthenticated"):
        rows.collect()


@pytest.mark.slow
def test_no_value_of_a_plaintext_byte_changes_rows_of_the_jvm_path(spark: SparkSession, aws: AwsServer, unwatched_warehouse: Path) -> None:
    """A flip in each byte of FileCryptoMetaData and the trailer, and the one value that names AES_GCM_CTR_V1."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    lake = lake_in(unwatched_warehouse, aws)
    schema = Schema(NestedField(1, "id", "long", required=True))
    table = lake.catalog.create_table("db.swept", schema, properties={**KEY, "write.parquet.compression-codec": "uncompressed"})
    table.append(pa.table({"id": range(10)}, schema=schema.as_arrow()))
    rows = read(spark, lake, "db.swept", path="jvm")
    [stored] = unwatched_warehouse.rglob("*.parquet")
    content = stored.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    refused = 0
    places = (*range(start, start + 15), *range(len(content) - 8, len(content)))
    for number, at in enumerate(places):
        for value in {content[at] ^ 1 << number % 8, 0x2C if at == start + 1 else 0} - {content[at]}:
            stored.write_bytes(content[:at] + bytes([value]) + content[at + 1 :])
            try:
                found = {row["id"] for row in rows.collect()}
            except (PySparkException, Py4JJavaError) as error:
                assert "FAILED_READ_FILE" in str(error)
                refused += 1
            else:
                assert found == set(range(10)), f"byte {at} as {value}"
    assert refused > len(places)


def ten_rows(spark: SparkSession, lake: Lake) -> tuple[DataFrame, Path]:
    """Rows of a new table as the JVM reads them, and the file that they are in."""
    table = lake.catalog.create_table("db.ten", pa.schema([("id", pa.int64())]), properties=KEY)
    table.append(pa.table({"id": range(10)}))
    [stored] = data_paths(table)
    return read(spark, lake, "db.ten", path="jvm"), stored


def test_no_length_of_a_footer_is_believed_that_takes_all_memory(spark: SparkSession, aws: AwsServer, unwatched_warehouse: Path) -> None:
    """The session would be gone, and with it those of all others in it."""
    rows, stored = ten_rows(spark, lake_in(unwatched_warehouse, aws))
    content = stored.read_bytes()
    # Behind the file crypto metadata comes the footer, up to the trailer of 8 bytes.
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    [at] = [at for at in range(start, start + 40) if int.from_bytes(content[at : at + 4], "little") == len(content) - 8 - at - 4]
    for length in (2**31 - 16, 2**30, 2**32 - 1, len(content) - at, 0):
        stored.write_bytes(content[:at] + length.to_bytes(4, "little") + content[at + 4 :])
        with pytest.raises(Exception, match="says that its footer has another length than it has"):
            rows.collect()
    stored.write_bytes(content)
    assert rows.count() == 10


@pytest.mark.parametrize("vectored", ["true", "false"])
def test_no_length_of_a_page_or_an_index_is_believed_that_takes_all_memory(
    spark: SparkSession, aws: AwsServer, unwatched_warehouse: Path, vectored: str
) -> None:
    """Parquet makes room for it before it reads on."""
    from pyspark.errors import PySparkException

    lake = lake_in(unwatched_warehouse, aws)
    lake.catalog.create_table("db.modules", pa.schema([("id", pa.int64()), ("note", pa.string())]), properties=KEY)
    values = spark.range(0, 2000, 1, 1).selectExpr("id", "concat('v', id % 50) AS note")
    tcs.write_table(values, lake.identifier("db.modules"), path="jvm", catalog_properties=lake.properties)
    session = spark.newSession()
    session.conf.set("parquet.hadoop.vectored.io.enabled", vectored)
    rows = read(session, lake, "db.modules", path="jvm").where("id > 700 AND note > 'u'")
    [stored] = unwatched_warehouse.rglob("*.parquet")
    content = stored.read_bytes()
    end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    refused = set()
    for at in modules(content, end):
        for length in (2**31 - 16, 2**32 - 1, 0):
            stored.write_bytes(content[:at] + length.to_bytes(4, "little") + content[at + 4 :])
            try:
                assert rows.count() == 1299
            except PySparkException as error:
                assert f"{stored.name}: says that an encrypted module has {length} bytes" in str(error)
                refused.add(at)
    assert len(refused) > 6
    stored.write_bytes(content)
    assert rows.count() == 1299


def modules(content: bytes, end: int) -> Iterator[int]:
    """Where the encrypted modules of a file begin, up to its file crypto metadata."""
    at = 4
    while at < end:
        yield at
        at += 4 + int.from_bytes(content[at : at + 4], "little")
    assert at == end


def test_a_file_of_another_length_is_refused_before_its_end_is_read(spark: SparkSession, aws: AwsServer, unwatched_warehouse: Path) -> None:
    """The end of a longer one could say that nearly all of it is a footer."""
    from pyspark.errors import PySparkException

    rows, stored = ten_rows(spark, lake_in(unwatched_warehouse, aws))
    content = stored.read_bytes()
    for length in (1_900_000_000, len(content) + 1, len(content) - 1, 0):
        with stored.open("r+b") as file:
            file.truncate(length)
            if length > len(content):
                file.seek(-8, io.SEEK_END)
                file.write((length - 100).to_bytes(4, "little") + b"PARE")
        with pytest.raises(PySparkException, match=f"{stored.name}: has {length} bytes, but the table's metadata says {len(content)}"):
            rows.collect()

    stored.write_bytes(content)
    assert len(rows.collect()) == 10


def test_keys_and_the_relation_are_forgotten_with_the_last_plan_or_rdd_of_their_read(spark: SparkSession, valued: Lake) -> None:
    before, relations = held_reads(spark), known_planners(jvm_side(spark))
    derived = read(spark, valued, "db.values", path="jvm").where("id > 3").select("id")

    # What earlier reads left behind may go at any moment: only what is new counts.
    assert held_reads(spark) <= before, "keys are fetched when the rows are"
    [relation] = known_planners(jvm_side(spark)) - relations
    assert derived.count() == 113
    rdd = derived.rdd
    del derived
    gc.collect()
    assert rdd.count() == 113
    [held] = held_reads(spark) - before
    del rdd
    assert is_let_go(spark, held)
    assert relation not in known_planners(jvm_side(spark))


def test_no_key_is_in_plan_event_log_task_or_debug_log(spark_run: SparkRun, valued: Lake, caplog: pytest.LogCaptureFixture) -> None:
    spark = spark_run.session
    with caplog.at_level(logging.DEBUG, "py4j"):
        rows = read(spark, valued, "db.values", row_filter="id < 100", path="jvm")
        assert rows.repartition(3, "id").groupBy("id").count().count() == 98
    execution: Any = rows._jdf.queryExecution()
    plan = "".join(execution.explainString(execution_mode) for execution_mode in _explain_modes(spark))
    haystacks = {
        "plan": plan.encode(),
        "tasks": bytes(_jvm(spark).org.apache.spark.util.Utils.serialize(execution.toRdd())),
        "py4j's log": caplog.text.encode(),
    }
    haystacks |= spark_run.events()
    haystacks |= {str(path): path.read_bytes() for path in spark_run.local_files.rglob("*") if path.is_file()}
    keys = file_keys(valued.catalog.load_table("db.values"))  # type: ignore[arg-type]

    assert len(keys) >= 4
    assert b"db.values" in haystacks["plan"]
    assert b"tablecrypt.jvm.ReadFunction" in haystacks["tasks"]
    assert b"openProgram" in haystacks["py4j's log"] or b"newPlanner" in haystacks["py4j's log"]
    assert haystacks["py4j's log"].count(b"\nrespond\n") >= 2
    assert any(b"db.values" in content for name, content in haystacks.items() if name not in ("plan", "tasks", "py4j's log"))
    assert found(keys, haystacks) == []


def test_a_session_with_artifacts_of_its_own_is_supported_too(spark: SparkSession, valued: Lake, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("not a class")
    session = spark.newSession()
    session.addArtifacts(str(note), file=True)

    assert read(session, valued, "db.values", path="jvm").count() == 117


def test_keys_go_in_the_clear_only_where_that_was_asked_for_and_not_forbidden(
    open_spark: SparkSession, valued: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    strict = Lake(valued.catalog, valued.properties | {"tablecrypt.spark.require-encrypted-rpc": "true"}, valued.warehouse)

    assert not is_jvm(read(open_spark, valued, "db.values"))
    assert is_jvm(read(open_spark, valued, "db.values", path="jvm"))
    assert "keys of data files travel to the executors in the clear" in caplog.text
    with pytest.raises(ConfigurationError, match=r"set spark\.authenticate and spark\.network\.crypto\.enabled"):
        read(open_spark, strict, "db.values", path="jvm")


@pytest.mark.parametrize(
    ("settings", "private"),
    [
        ({"spark.master": "local[4]"}, True),
        ({"spark.master": "local"}, True),
        ({"spark.master": "local-cluster[2,1,1024]"}, False),
        ({"spark.master": "spark://host:7077", "spark.authenticate": "true"}, False),
        ({"spark.master": "spark://host:7077", "spark.network.crypto.enabled": "true"}, False),
        ({"spark.master": "yarn", "spark.authenticate": "true", "spark.network.crypto.enabled": "true"}, True),
        ({"spark.master": "yarn", "spark.authenticate": "true", "spark.ssl.rpc.enabled": "true"}, True),
    ],
)
def test_messages_are_private_on_one_machine_or_where_spark_encrypts_them(settings: dict[str, str], private: bool) -> None:
    assert keeps_messages_private(settings.get) == private


def _ignoring(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    session.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    return session


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm


def _explain_modes(spark: SparkSession) -> list[Any]:
    modes = _jvm(spark).org.apache.spark.sql.execution.ExplainMode
    return [modes.fromString(mode) for mode in ("extended", "formatted", "codegen", "cost")]
