"""Parquet's Java writer on encrypted tables: the rows and entries of the Python path, or it steps aside and says why."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform, MonthTransform, Transform, VoidTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

import tablecrypt.spark as tcs
from tablecrypt.errors import ConfigurationError
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.parquet.uniform import ReadRequest, UniformParquetFile
from tests.spark.conftest import Lake
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.plaintext import CANARY
from tests.support.tables import data_files, summary_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]

KEY: Final = {"encryption.key-id": "alias/orders"}


def inner(first_id: int) -> StructType:
    return StructType(NestedField(first_id, "x", "int"), NestedField(first_id + 1, "y.z", "string"))


VALUES: Final = Schema(
    NestedField(1, "id", "long", required=True),
    NestedField(2, "note", "string"),
    NestedField(3, "price", "decimal(9, 2)"),
    NestedField(4, "long price", "decimal(18, 4)"),
    NestedField(5, "wide", "decimal(38, 10)"),
    NestedField(6, "ratio", "double"),
    NestedField(7, "small", "float"),
    NestedField(8, "day", "date"),
    NestedField(9, "local", "timestamp"),
    NestedField(10, "instant", "timestamptz"),
    NestedField(11, "number", "int"),
    NestedField(12, "flag", "boolean"),
    NestedField(13, "raw", "binary"),
    NestedField(14, "inner", inner(31)),
    NestedField(15, "tags", ListType(16, StringType(), element_required=False)),
    NestedField(17, "props", MapType(18, StringType(), 19, inner(33), value_required=False)),
    NestedField(20, "pairs", ListType(21, ListType(22, LongType(), element_required=True), element_required=False)),
)
COLUMNS: Final = (
    "id",
    f"if(id % 3 = 0, null, concat('{CANARY} ', cast(id % 10 as string))) as note",
    "if(id % 3 = 0, null, cast(id - 20 as decimal(9, 2)) / 4) as price0",
    "cast(id as decimal(18, 4)) * -7 as long0",
    "cast(if(id % 4 = 0, '1234567890123456789012345678.0123456789', '-0.5') as decimal(38, 10)) as wide",
    "element_at(array(double('NaN'), -0.0d, 0.0d, double('inf'), null, 0.1d), cast(id % 6 + 1 as int)) as ratio",
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
    return lake.catalog.create_table(name, schema, partition_spec=spec or UNPARTITIONED_PARTITION_SPEC, properties={**KEY, **properties})


def write(df: DataFrame, lake: Lake, name: str, mode: Any = "append", path: Any = "jvm", **arguments: Any) -> None:
    tcs.write_table(df, lake.identifier(name), mode, path=path, catalog_properties=lake.properties, **arguments)


def written_by_jvm(table: Table) -> bool:
    """Spark's writer names each file for itself; the Python path counts from one file to the next too, but PyIceberg's keys show."""
    [created_by] = {parquet(table, file).metadata.created_by for file in data_files(table.refresh())}
    return str(created_by).startswith("parquet-mr")


def parquet(table: Table, file: DataFile) -> Any:
    import pyarrow.parquet as pq
    import pyarrow.parquet.encryption as pe

    key = key_metadata_of(file)
    properties = pe.create_decryption_properties(key.encryption_key.reveal(), aad_prefix=key.aad_prefix)
    return pq.ParquetFile(file.file_path.removeprefix("file://"), decryption_properties=properties)


def test_both_paths_write_equal_rows_that_both_paths_read_and_tell_the_same_of_their_files(spark: SparkSession, lake: Lake) -> None:
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
    jvm, python = (sorted(data_files(table), key=lambda file: file.lower_bounds[1]) for table in tables.values())
    ids = {name: tables["jvm"].schema().find_field(name).field_id for name in ("ratio", "small")}
    for one, other in zip(jvm, python, strict=True):
        assert one.record_count == other.record_count
        assert one.value_counts == other.value_counts
        assert one.null_value_counts == other.null_value_counts
        assert one.lower_bounds == other.lower_bounds
        assert one.upper_bounds == {field: bound for field, bound in other.upper_bounds.items() if field != ids["ratio"]}
        assert one.nan_value_counts == {ids["ratio"]: 5, ids["small"]: 0}
        assert one.column_sizes.keys() == other.column_sizes.keys()
        assert one.split_offsets == [4]
        assert one.partition == other.partition
        assert one.spec_id == other.spec_id == 0


FLAT: Final = tuple(field for field in VALUES.fields if field.field_id < 14)


def test_columns_of_a_flat_table_are_written_as_they_are_beside_nested_ones(spark: SparkSession, lake: Lake) -> None:
    """Rows without structs, lists and maps go into Parquet's columns on a path of their own."""
    rows = frame(spark, 400, 1)
    flat = create(lake, "db.flat", Schema(*FLAT))
    nested = create(lake, "db.nested", Schema(*FLAT, VALUES.find_field("inner")))

    write(rows.select(*[f"`{field.name}`" for field in FLAT]), lake, "db.flat")
    write(rows.select(*[f"`{field.name}`" for field in FLAT], "inner"), lake, "db.nested")

    [one], [other] = data_files(flat.refresh()), data_files(nested.refresh())
    chunks, beside = (parquet(table, file).metadata.row_group(0) for table, file in ((flat, one), (nested, other)))
    assert chunks.num_columns == len(FLAT)
    for index in range(chunks.num_columns):
        assert told_of(chunks.column(index)) == told_of(beside.column(index))
    assert_same_rows(flat.scan().to_arrow(), nested.scan().to_arrow().select([field.name for field in FLAT]))


def told_of(chunk: Any) -> str:
    """All that the footer says of a column chunk but where it lies; as text, in which NaN equals itself."""
    return str({name: value for name, value in chunk.to_dict().items() if not name.endswith("_offset")})


@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_row_groups_end_by_their_bytes_and_by_their_rows(spark: SparkSession, lake: Lake, nested: bool) -> None:
    fields = [NestedField(1, "id", "long"), NestedField(2, "text", "string")]
    schema = Schema(*fields, *([NestedField(3, "tags", ListType(4, LongType(), element_required=True))] if nested else []))
    rows = spark.range(0, 20000, 1, 1).selectExpr("id", "sha2(cast(id as string), 512) as text", *(["array(id) as tags"] if nested else []))
    by_bytes = create(lake, "db.bytes", schema, None, **{"write.parquet.row-group-size-bytes": "262144"})
    by_rows = create(lake, "db.rows", schema, None, **{"write.parquet.row-group-limit": "6000"})

    write(rows, lake, "db.bytes")
    write(rows, lake, "db.rows")

    assert counts_of_groups(by_rows) == [6000, 6000, 6000, 2000]
    [*whole, last] = counts_of_groups(by_bytes)
    # The text takes 128 bytes a row and four for its length, an id eight.
    assert len(whole) >= 8
    assert max(whole) * 140 <= 1.1 * 262144
    assert sum(whole) + last == 20000
    for table in (by_bytes, by_rows):
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(20000))


def counts_of_groups(table: Table) -> list[int]:
    [file] = data_files(table.refresh())
    metadata = parquet(table, file).metadata
    return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


def test_every_mode_replaces_the_rows_that_it_names(spark: SparkSession, lake: Lake) -> None:
    schema = Schema(NestedField(1, "id", "long", required=True), NestedField(2, "region", "string"))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    table = create(lake, "db.modes", schema, spec)

    def rows(first: int, count: int) -> DataFrame:
        return spark.range(first, first + count, 1, 2).selectExpr("id", "concat('r', cast(id % 3 as string)) as region")

    def ids() -> list[int]:
        assert written_by_jvm(table)
        found = [
            sorted(
                row["id"]
                for row in tcs.read_table(spark, lake.identifier("db.modes"), path=path, catalog_properties=lake.properties).collect()
            )
            for path in ("jvm", "python")
        ]
        assert found[0] == found[1] == sorted(table.refresh().scan().to_arrow()["id"].to_pylist())
        return found[0]

    write(rows(0, 9), lake, "db.modes", snapshot_properties={"job": "first"})
    assert summary_of(table.refresh())["job"] == "first"
    write(rows(9, 3), lake, "db.modes", path=None)
    assert ids() == list(range(12))
    write(rows(100, 2).where("region = 'r1'"), lake, "db.modes", "overwrite_partitions")
    assert ids() == [0, 2, 3, 5, 6, 8, 9, 11, 100]
    write(rows(0, 0), lake, "db.modes", "overwrite_partitions")
    assert ids() == [0, 2, 3, 5, 6, 8, 9, 11, 100]
    write(rows(200, 1), lake, "db.modes", "overwrite", overwrite_filter="region = 'r0'")
    assert ids() == [2, 5, 8, 11, 100, 200]
    write(rows(300, 4), lake, "db.modes", "overwrite", sort_by=["id"])
    assert ids() == [300, 301, 302, 303]
    assert len(table.refresh().snapshots()) == 5
    write(rows(0, 0), lake, "db.modes", "overwrite")
    assert table.refresh().scan().to_arrow().num_rows == 0


def test_the_sessions_own_settings_do_not_reach_the_files(spark: SparkSession, lake: Lake) -> None:
    table, expected = create(lake, "db.rows"), create(lake, "db.expected")
    write(frame(spark), lake, "db.expected", path="python")
    session = spark.newSession()
    for name, value in {
        "spark.sql.parquet.fieldId.write.enabled": "false",
        "spark.sql.parquet.writeLegacyFormat": "true",
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.compression.codec": "none",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.caseSensitive": "true",
    }.items():
        session.conf.set(name, value)

    write(frame(session), lake, "db.rows")

    assert_same_rows(table.refresh().scan().to_arrow(), expected.refresh().scan().to_arrow())
    assert {parquet(table, file).metadata.row_group(0).column(0).compression for file in data_files(table.refresh())} == {"ZSTD"}


@pytest.mark.parametrize("fails", [False, True], ids=["written", "failed"])
def test_a_write_leaves_nothing_in_the_session_and_takes_nothing_from_it(spark: SparkSession, lake: Lake, fails: bool) -> None:
    schema = Schema(NestedField(1, "a.b", "long"), NestedField(2, "Name", "string"), NestedField(3, "`c`", "int"))
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "bucket"), PartitionField(2, 1001, IdentityTransform(), "name"))
    table = create(lake, "db.rows", schema, spec)
    session = spark.newSession()
    for name, value in {
        # Another catalog of the name that the table's has here, write-audit-publish, and casts that make nulls of what does not fit.
        "spark.sql.catalog.sparktest": "of.no.Class",
        "spark.wap.id": "another load",
        "spark.sql.storeAssignmentPolicy": "LEGACY",
        "spark.sql.defaultCatalog": "spark_catalog",
    }.items():
        session.conf.set(name, value)
    before = state_of(session)
    rows = session.range(8).selectExpr("'x' as Name", "cast(id as short) as ```c```", "id as `a.b`").repartition(2)
    if fails:
        rows = rows.selectExpr("if(`a.b` = 7, raise_error('it fails on purpose'), Name) as Name", "```c```", "`a.b`")

    with pytest.raises(Exception, match="it fails on purpose") if fails else nullcontext():
        write(rows, lake, "db.rows", distribute_by="partition", sort_by=["`c`", "a.b"])

    assert state_of(session) == before
    found = [] if fails else [{"a.b": number, "Name": "x", "`c`": number} for number in range(8)]
    assert sorted(table.refresh().scan().to_arrow().to_pylist(), key=lambda row: row["`c`"]) == found
    if not fails:
        assert "wap.id" not in summary_of(table).additional_properties
        assert len(data_files(table)) == 2


def state_of(session: SparkSession) -> tuple[dict[str, str], list[str], list[str]]:
    """A session's settings, the catalogs that it has opened, and its views."""
    settings = {row["key"]: row["value"] for row in session.sql("SET").collect()}
    opened = [row[0] for row in session.sql("SHOW CATALOGS").collect()]
    return settings, opened, [view.name for view in session.catalog.listTables()]


def test_a_session_with_artifacts_of_its_own_is_supported_too(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("not a class")
    session = spark.newSession()
    session.addArtifacts(str(note), file=True)
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "bucket"))
    table = create(lake, "db.rows", Schema(NestedField(1, "id", "long")), spec)

    write(session.range(10), lake, "db.rows")

    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == list(range(10))


def test_micro_batches_are_written_once_each(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    table = create(lake, "db.stream", Schema(NestedField(1, "id", "long")))
    spark.range(0, 5, 1, 1).write.parquet(f"{tmp_path}/in")
    writer = tcs.stream_writer(lake.identifier("db.stream"), path="jvm", query_id="the query", catalog_properties=lake.properties)
    stream = spark.readStream.schema("id bigint").parquet(f"{tmp_path}/in")

    for more in (True, False):
        query = stream.writeStream.foreachBatch(writer).option("checkpointLocation", f"{tmp_path}/at").trigger(availableNow=True).start()
        query.awaitTermination()
        if more:
            spark.range(5, 10, 1, 1).write.mode("append").parquet(f"{tmp_path}/in")
    writer(spark.range(100), 1)

    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == list(range(10))
    assert written_by_jvm(table)


SOURCES: Final[dict[str, tuple[IcebergType, str]]] = {
    "long": (LongType(), "id * 10000000019 - 70000000000"),
    "text": (StringType(), "element_at(array('', 'a/b c=d', 'ü%20+', '.dot', null, 'äöüß-long-text'), cast(id % 6 + 1 as int))"),
    "raw": (BinaryType(), "if(id % 5 = 0, null, encode(concat('r', cast(id % 4 as string)), 'utf-8'))"),
    "day": (DateType(), "date_add(date'1969-11-28', cast(id * 11 as int))"),
    "flag": (BooleanType(), "if(id % 7 = 0, null, id % 2 = 0)"),
}


def test_partitions_are_those_of_the_python_path_and_no_folder_shows_them(spark: SparkSession, lake: Lake) -> None:
    names = ["text", "long", "day", "raw", "flag"]
    schema = Schema(*(NestedField(number, name, SOURCES[name][0]) for number, name in enumerate(names, 1)))
    transforms: list[Transform[Any, Any]] = [
        IdentityTransform(),
        BucketTransform(3),
        MonthTransform(),
        IdentityTransform(),
        IdentityTransform(),
    ]
    spec = PartitionSpec(*(PartitionField(at, 999 + at, transform, f"part {at}") for at, transform in enumerate(transforms, 1)))
    rows = spark.range(0, 24, 1, 1).selectExpr(*(f"{SOURCES[name][1]} as {name}" for name in names))
    found = {}
    for path in ("jvm", "python"):
        table = create(lake, f"db.{path}", schema, spec)
        write(rows, lake, f"db.{path}", path=path)
        files = data_files(table.refresh())
        found[path] = Counter((str(file.partition), file.record_count) for file in files)
        assert {file.file_path.rpartition("/")[0] for file in files} == {f"{table.location()}/data"}
    assert found["jvm"] == found["python"]


def test_each_table_partition_gets_one_file_of_a_task_however_the_rows_come(spark: SparkSession, lake: Lake) -> None:
    schema = Schema(NestedField(1, "id", "long"), NestedField(2, "s", StructType(NestedField(3, "region", "string"))))
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "region"), PartitionField(1, 1001, VoidTransform(), "gone"))
    rows = spark.range(0, 90, 1, 3).selectExpr("id", "named_struct('region', concat('r', cast(id % 4 as string))) as s")
    table = create(lake, "db.scattered", schema, spec)
    write(rows, lake, "db.scattered")
    assert Counter(file.partition[0] for file in data_files(table.refresh())) == {"r0": 3, "r1": 3, "r2": 3, "r3": 3}
    assert {file.partition[1] for file in data_files(table.refresh())} == {None}

    write(rows, lake, "db.scattered", "overwrite_partitions", distribute_by="partition", sort_by=["id"])
    assert Counter(file.partition[0] for file in data_files(table.refresh())) == {"r0": 1, "r1": 1, "r2": 1, "r3": 1}
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(90))


def test_columns_are_matched_by_name_widened_and_filled_with_nulls_at_every_level(spark: SparkSession, lake: Lake) -> None:
    wide = StructType(NestedField(11, "x", "long"), NestedField(12, "y", "string"), NestedField(13, "later", "double"))
    schema = Schema(
        NestedField(1, "id", "long"),
        NestedField(2, "ratio", "double"),
        NestedField(3, "price", "decimal(12, 2)"),
        NestedField(4, "absent", MapType(5, StringType(), 6, DateType())),
        NestedField(10, "s", wide),
        NestedField(
            20,
            "list",
            ListType(21, StructType(NestedField(22, "x", "long"), NestedField(23, "y", "string")), element_required=False),
        ),
        NestedField(
            30,
            "map",
            MapType(
                31,
                StructType(NestedField(33, "k", "long")),
                32,
                StructType(NestedField(34, "a", "long"), NestedField(35, "b", "long")),
            ),
        ),
        NestedField(40, "nothing", "date"),
    )
    columns = (
        "map(named_struct('k', 1Y), named_struct('b', 2S)) as map",
        "array(named_struct('y', 'a', 'x', 1), null) as list",
        "if(id = 1, null, named_struct('y', 'b', 'x', cast(id as short))) as s",
        "cast(1.5 as decimal(4, 2)) as price",
        "cast(0.5 as float) as ratio",
        "cast(id as int) as id",
        "null as nothing",
    )
    for path in ("jvm", "python"):
        create(lake, f"db.{path}", schema)
        write(spark.range(0, 3, 1, 1).selectExpr(*columns), lake, f"db.{path}", path=path)

    jvm, python = (lake.catalog.load_table(f"db.{path}").scan().to_arrow() for path in ("jvm", "python"))
    assert_same_rows(jvm, python)
    assert jvm.slice(0, 2)["s"].to_pylist() == [{"x": 0, "y": "b", "later": None}, None]
    assert jvm["map"][0].as_py() == [({"k": 1}, {"a": None, "b": 2})]


@pytest.mark.parametrize(
    ("column", "path"),
    [
        ("if(id = 7, null, id) as id", "id"),
        ("named_struct('x', if(id = 7, null, 1)) as s", "s.x"),
        ("array(named_struct('x', if(id = 7, null, 1))) as list", "list.element.x"),
        ("if(id = 7, array(null), array()) as list", "list.element"),
        ("map('k', if(id = 7, null, 1)) as map", "map.value"),
    ],
)
def test_a_null_where_a_value_is_required_fails_the_write_and_leaves_nothing(
    spark: SparkSession, lake: Lake, column: str, path: str
) -> None:
    one = StructType(NestedField(11, "x", "int", required=True))
    schema = Schema(
        NestedField(1, "id", "long", required=True),
        NestedField(2, "s", one),
        NestedField(3, "list", ListType(4, StructType(NestedField(12, "x", "int", required=True)), element_required=True)),
        NestedField(5, "map", MapType(6, StringType(), 7, IntegerType(), value_required=True)),
    )
    table = create(lake, "db.strict", schema)
    columns = [column] if column.endswith(" id") else ["id", column]

    with pytest.raises(Exception, match=f"column '{path}' is required in the table, but the DataFrame has nulls in it"):
        write(spark.range(0, 10, 1, 2).selectExpr(*columns), lake, "db.strict")

    assert table.refresh().current_snapshot() is None
    assert not [path for path in lake.warehouse.rglob("data/**/*") if path.is_file()]


def test_table_properties_shape_the_files(spark: SparkSession, lake: Lake) -> None:
    schema = Schema(NestedField(1, "id", "long"), NestedField(2, "note", "string"))
    shape = {
        "write.parquet.compression-codec": "gzip",
        "write.parquet.compression-level": "9",
        "write.parquet.row-group-limit": "1000",
        "write.parquet.page-row-limit": "100",
        "write.target-file-size-bytes": "20000",
        "write.metadata.metrics.column.note": "counts",
        "write.object-storage.enabled": "true",
        "encryption.data-key-length": "32",
    }
    table = create(lake, "db.shaped", schema, None, **shape)
    write(spark.range(0, 20_000, 1, 1).selectExpr("id", f"concat('{CANARY}', cast(rand(1) as string)) as note"), lake, "db.shaped")

    files = data_files(table.refresh())
    assert len(files) > 3
    assert sum(file.record_count for file in files) == 20_000
    footer = parquet(table, files[0]).metadata
    assert footer.row_group(0).num_rows == 1000
    assert {footer.row_group(0).column(at).compression for at in range(2)} == {"GZIP"}
    assert {footer.row_group(0).column(at).encodings for at in range(2)}
    assert [len(key_metadata_of(file).encryption_key) for file in files] == [32] * len(files)
    assert all(file.lower_bounds.keys() == {1} for file in files)
    assert all(len(file.file_path.rpartition("/data/")[2].split("/")) == 5 for file in files), "no folders of the object store layout"
    assert len({key_metadata_of(file).encryption_key.reveal() for file in files}) == len(files)
    assert len({key_metadata_of(file).aad_prefix for file in files}) == len(files)


@pytest.mark.parametrize(
    ("fields", "columns", "properties", "told"),
    [
        ([NestedField(2, "ref", "uuid")], (), {}, "ref: uuid is translated by Python"),
        ([NestedField(2, "code", "fixed[4]")], (), {}, r"code: fixed\[4\] is translated by Python"),
        ([NestedField(2, "ID", "long")], (), {}, "names of columns differ in case alone"),
        ([], (), {"write.parquet.compression-codec": "brotli"}, "Parquet's Java writer does not have the codec brotli"),
    ],
)
def test_what_is_not_supported_is_refused_with_the_reason_and_written_on_the_python_path(
    spark: SparkSession, lake: Lake, fields: list[NestedField], columns: tuple[str, ...], properties: dict[str, str], told: str
) -> None:
    table = create(lake, "db.odd", Schema(NestedField(1, "id", "long"), *fields), None, **{"format-version": "3", **properties})
    rows = spark.range(0, 3, 1, 1).selectExpr("id", *columns)

    with pytest.raises(ConfigurationError, match=told):
        write(rows, lake, "db.odd")
    write(rows, lake, "db.odd", path=None)

    assert not written_by_jvm(table)
    assert table.scan().to_arrow()["id"].to_pylist() == [0, 1, 2]


def test_a_column_with_a_write_default_that_rows_lack_is_left_to_the_python_path(spark: SparkSession, lake: Lake) -> None:
    table = create(lake, "db.defaults", Schema(NestedField(1, "id", "long")))
    with table.update_schema() as change:
        change.add_column("kind", StringType(), default_value="x")

    with pytest.raises(ConfigurationError, match="the DataFrame lacks kind, which has a write-default"):
        write(spark.range(3), lake, "db.defaults")
    write(spark.sql("select 1L as id, 'y' as kind"), lake, "db.defaults")
    write(spark.range(1), lake, "db.defaults", path=None)
    assert sorted(table.refresh().scan().to_arrow()["kind"].to_pylist()) == ["x", "y"]


def test_a_path_that_does_not_fit_the_mode_is_refused(spark: SparkSession, lake: Lake) -> None:
    create(lake, "db.modes", Schema(NestedField(1, "id", "long", required=True)))

    with pytest.raises(ConfigurationError, match="use jvm or python"):
        write(spark.range(3), lake, "db.modes", path="java")
    with pytest.raises(ConfigurationError, match="mode 'merge' writes on the Python path alone"):
        write(spark.range(3), lake, "db.modes", "merge", path="jvm", keys=["id"])


def test_a_compression_level_that_the_codec_lacks_is_refused(spark: SparkSession, lake: Lake) -> None:
    level = {"write.parquet.compression-codec": "gzip", "write.parquet.compression-level": "11"}
    create(lake, "db.pressed", Schema(NestedField(1, "id", "long")), None, **level)

    with pytest.raises(ConfigurationError, match="gzip has no such level"):
        write(spark.range(3), lake, "db.pressed")


def test_floating_point_partitions_are_left_to_the_python_path(spark: SparkSession, lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "ratio"))
    create(lake, "db.floats", Schema(NestedField(1, "ratio", "double")), spec)

    with pytest.raises(ConfigurationError, match="the partition field ratio is identity of double"):
        write(spark.sql("select 0.5d as ratio"), lake, "db.floats")


def test_a_store_that_hadoop_does_not_reach_is_left_to_the_python_path(spark: SparkSession, aws: AwsServer, lake: Lake) -> None:
    properties = {**lake.properties, **aws.s3_properties}
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("sparktest", **properties)
    location = f"s3://{aws.bucket('jvm-write-unknown')}/db/orders"
    table = catalog.create_table("db.remote", Schema(NestedField(1, "id", "long")), location=location, properties=KEY)
    remote = Lake(catalog, properties, lake.warehouse)

    with pytest.raises(ConfigurationError, match="Hadoop, with its own configuration and credentials, does not find it"):
        write(spark.range(3), remote, "db.remote")
    write(spark.range(3), remote, "db.remote", path=None)
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [0, 1, 2]


def test_files_are_encrypted_as_those_of_the_python_path(spark: SparkSession, lake: Lake) -> None:
    table = create(lake, "db.encrypted")
    write(frame(spark, 30, 1), lake, "db.encrypted")

    [file] = data_files(table.refresh())
    content = lake.warehouse.joinpath(file.file_path.removeprefix(lake.warehouse.as_uri() + "/")).read_bytes()
    key = key_metadata_of(file)
    assert content[:4] == content[-4:] == b"PARE"
    assert key.file_length == file.file_size_in_bytes == len(content)
    assert key.aad_prefix not in content
    opened = UniformParquetFile(pa.BufferReader(content), key, file.file_path)
    assert sum(batch.num_rows for batch in opened.batches(ReadRequest(opened.schema.names))) == 30
    schema = parquet(table, file).schema_arrow
    stored = {
        "long price": schema.field("long_x20price"),
        "inner.y.z": schema.field("inner").type.field("y_x2Ez"),
        "tags.element": schema.field("tags").type.value_field,
        "props.key": schema.field("props").type.key_field,
        "props.value": schema.field("props").type.item_field,
        "props.value.y.z": schema.field("props").type.item_type.field("y_x2Ez"),
        "pairs.element.element": schema.field("pairs").type.value_type.value_field,
    }
    for name, field in stored.items():
        assert field.metadata[b"PARQUET:field_id"] == str(table.schema().find_field(name).field_id).encode()
    assert not schema.field("id").nullable
