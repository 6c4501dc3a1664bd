"""What a name means: a table, one of its versions or metadata tables; and what VERSION and TIMESTAMP AS OF find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.types import LongType
from thrift.transport.TTransport import TTransportException

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance.reachable import reachable_files
from tablecrypt.spark.sql.loading import find_table, load_table
from tablecrypt.spark.sql.messages import described_error
from tablecrypt.spark.sql.metadata_tables import NAMES
from tablecrypt.spark.sql.planner import LoadedTable, OpenCatalog, Planner
from tablecrypt_catalog import load_catalog
from tests.spark.conftest import Lake
from tests.support.aws import AwsServer
from tests.support.plaintext_scan import unwatch
from tests.support.planner_requests import respond
from tests.support.tables import ENCRYPTED, encrypted_sql_catalog, encrypted_table, maintained_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SWAPPED: Final = pa.table({"id": [1, 2, 3], "a": [10, 20, 30], "b": [30, 20, 10]})


@pytest.fixture(scope="module")
def table(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Two appends and a delete; the tag `start` at the first snapshot, the branch `audit` at the second, and a column that came last."""
    folder = tmp_path_factory.mktemp("loaded")
    unwatch(folder)
    table = maintained_table(encrypted_sql_catalog(folder, aws))
    first, second, *_ = (snapshot.snapshot_id for snapshot in table.snapshots())
    table.manage_snapshots().create_tag(first, "start").create_branch(second, "audit").create_branch(second, str(first)).commit()
    with table.update_schema() as update:
        update.add_column("later", LongType())
    return table


def load(table: Table, *suffix: str, **fields: Any) -> LoadedTable:
    """Load the table by its name with a suffix, as Java asks for it."""
    planner = Planner()
    handle = planner.catalogs.add(OpenCatalog("prod", table.catalog))
    *namespace, name = (*table.name(), *suffix)
    response = respond(planner, load_table, catalog=handle, namespace=namespace, name=name, **fields)
    return planner.tables[response.fields["table"]]


def test_each_way_to_name_a_version_finds_its_snapshot(table: Table) -> None:
    first, second, third = table.snapshots()[:3]

    def found(*suffix: str, **fields: Any) -> tuple[int | None, str, bool]:
        loaded = load(table, *suffix, **fields)
        return loaded.snapshot_id, loaded.branch, loaded.is_writable

    assert found() == (table.metadata.current_snapshot_id, "main", True)
    assert found("branch_main") == found()
    assert found("branch_audit") == found(version="audit") == (second.snapshot_id, "audit", True)
    assert found("tag_start") == found(version="start") == (first.snapshot_id, "main", False)
    assert found(f"snapshot_id_{third.snapshot_id}") == found(version=str(third.snapshot_id)) == (third.snapshot_id, "main", False)
    # A branch has the id of the first snapshot as its name: the id comes first.
    assert found(version=str(first.snapshot_id)) == (first.snapshot_id, "main", False)
    micros = second.timestamp_ms * 1000 + 999
    assert found(f"at_timestamp_{second.timestamp_ms}") == found(timestamp=micros) == (second.snapshot_id, "main", False)


def test_a_snapshot_has_its_own_columns_and_a_branch_those_of_the_table(table: Table) -> None:
    assert "later" in load(table).schema.column_names and "later" in load(table, "branch_audit").schema.column_names
    assert "later" not in load(table, "tag_start").schema.column_names


def test_metadata_tables_are_found_whatever_the_case_of_their_names(table: Table) -> None:
    opened, name = OpenCatalog("prod", table.catalog), tuple(table.name())
    assert {find_table(opened, (*name, part))[1] for part in ("FILES", "Files", "files")} == {"files"}
    with pytest.raises(NoSuchTableError):
        find_table(opened, (*name, "BRANCH_absent", "FILES"))


@pytest.mark.parametrize(
    "suffix", ["branch_absent", "branch_start", "tag_audit", "tag_absent", "snapshot_id_x", "absent", "fil\nes", "a.b"]
)
def test_a_part_that_a_table_has_not_is_no_table(table: Table, suffix: str) -> None:
    with pytest.raises(NoSuchTableError):
        load(table, suffix)


@pytest.mark.parametrize(
    ("suffix", "fields", "reason"),
    [
        ((), {"version": "absent"}, "no snapshot, branch or tag 'absent'"),
        ((), {"version": "17"}, "no snapshot 17"),
        ((), {"timestamp": 5_000}, "no snapshot yet"),
        (("snapshot_id_17",), {}, "no snapshot 17"),
        (("tag_start",), {"version": "audit"}, "names a version already"),
        (("snapshots",), {"version": "audit"}, "describes the whole table"),
    ],
)
def test_a_version_that_is_not_there_is_named(table: Table, suffix: tuple[str, ...], fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        load(table, *suffix, **fields)


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("thrift://127.0.0.1:9", "TTransportException: the Hive metastore cannot be reached (Could not connect to any of"),
        (
            "http://127.0.0.1:9/",
            "ConnectionError: the server at http://127.0.0.1:9 cannot be reached (Connection refused): check that it runs",
        ),
    ],
)
def test_a_server_that_is_not_there_is_named(uri: str, told: str) -> None:
    with pytest.raises((OSError, TTransportException)) as raised:
        load_catalog("prod", **{"type": "tablecrypt", "uri": uri, "encryption.kms-type": "aws"}).list_namespaces()
    assert str(described_error(raised.value)["message"]).startswith(told)


@pytest.mark.java
def test_sql_reads_the_rows_of_each_version(spark: SparkSession, prod: Lake) -> None:
    from pyspark.errors import IllegalArgumentException

    table = maintained_table(prod.catalog, "db.versions")
    first, second = table.snapshots()[:2]
    table.manage_snapshots().create_tag(first.snapshot_id, "start").create_branch(second.snapshot_id, "audit").commit()
    name, of_first, of_second = "prod.db.versions", (20, 0, 19), (40, 0, 119)

    for versioned, expected in {
        f"{name} VERSION AS OF {first.snapshot_id}": of_first,
        f"{name} VERSION AS OF 'start'": of_first,
        f"{name} FOR SYSTEM_VERSION AS OF 'audit'": of_second,
        f"{name} TIMESTAMP AS OF timestamp_millis({first.timestamp_ms})": of_first,
        f"{name} FOR SYSTEM_TIME AS OF timestamp_millis({second.timestamp_ms})": of_second,
        f"{name}.tag_start": of_first,
        f"{name}.branch_audit": of_second,
        f"{name}.snapshot_id_{first.snapshot_id}": of_first,
        f"{name}.at_timestamp_{second.timestamp_ms}": of_second,
        name: (39, 0, 119),
    }.items():
        assert tuple(spark.sql(f"SELECT count(*), min(id), max(id) FROM {versioned}").collect()[0]) == expected, versioned
    for option, value, count in (
        ("versionAsOf", first.snapshot_id, 20),
        ("snapshot-id", first.snapshot_id, 20),
        ("as-of-timestamp", second.timestamp_ms, 40),
        ("branch", "audit", 40),
        ("tag", "start", 20),
    ):
        assert spark.read.option(option, value).table(name).count() == count, option
    third, none = table.snapshots()[2], (0, None, None)
    ranges: list[tuple[Any, Any, tuple[Any, ...]]] = [(first, second, (20, 100, 119)), (first, None, (20, 100, 119))]
    for start, end, appended in [*ranges, (second, third, none), (first, first, none)]:
        asked = {"start-snapshot-id": start.snapshot_id} | ({"end-snapshot-id": end.snapshot_id} if end else {})
        rows = spark.read.options(**asked).table(name)
        assert tuple(rows.selectExpr("count(*)", "min(id)", "max(id)").collect()[0]) == appended
        assert rows.where("id < 105").count() == min(appended[0], 5)
    for since in (second.snapshot_id, 17, "x"):
        with pytest.raises(IllegalArgumentException, match="ConfigurationError"):
            spark.read.option("start-snapshot-id", since).option("end-snapshot-id", first.snapshot_id).table(name).count()
    for suffix, option, value, count in (("branch_audit", "branch", "audit", 40), ("tag_start", "tag", "start", 20)):
        assert spark.read.option(option, value).table(f"{name}.{suffix}").count() == count
        with pytest.raises(IllegalArgumentException, match="more than one version is requested: that of its name"):
            spark.read.option("snapshot-id", table.snapshots()[2].snapshot_id).table(f"{name}.{suffix}").count()
    for options in ({"snapshot-id": 17}, {"tag": "audit"}, {"snapshot-id": 1, "branch": "audit"}, {"end-snapshot-id": first.snapshot_id}):
        with pytest.raises(IllegalArgumentException, match="ConfigurationError"):
            spark.read.options(**options).table(name).count()
    for misspelt, meant in (("snapshotId", "snapshot-id"), ("as-of-timestmp", "as-of-timestamp"), ("bramch", "branch")):
        with pytest.raises(IllegalArgumentException, match=f"is not known. Did you mean {meant}"):
            spark.read.option(misspelt, first.snapshot_id).table(name).count()
    assert spark.read.option("comment", "any").table(name).count() == spark.table(name).count()
    spark.sql(f"ALTER TABLE {name} ADD COLUMN later INT")
    with pytest.raises(IllegalArgumentException, match="had other columns"):
        spark.read.option("tag", "start").table(name).count()


@pytest.mark.java
def test_sql_filters_each_version_by_the_columns_that_it_shows(spark: SparkSession, prod: Lake) -> None:
    table = encrypted_table(prod.catalog.create_table("db.swapped", SWAPPED.schema, properties=ENCRYPTED))
    table.append(SWAPPED)
    with table.manage_snapshots() as refs:
        refs.create_tag(table.snapshots()[0].snapshot_id, "before").create_branch(table.snapshots()[0].snapshot_id, "work")
    for old, new in (("a", "x"), ("b", "a")):
        with table.update_schema() as update:
            update.rename_column(old, new)
    read_here = table.scan("a = 10").use_ref("before").to_arrow().to_pylist()

    for version in (f"snapshot_id_{table.snapshots()[0].snapshot_id}", "tag_before"):
        then = spark.sql(f"SELECT * FROM prod.db.swapped.{version} WHERE a = 10")
        assert [row.asDict() for row in then.collect()] == read_here == [{"id": 1, "a": 10, "b": 30}]
    for version in ("", ".branch_work", ".branch_main"):
        now = spark.sql(f"SELECT * FROM prod.db.swapped{version} WHERE a = 10")
        assert [row.asDict() for row in now.collect()] == [{"id": 3, "x": 30, "a": 10}]


@pytest.mark.java
class TestMetadataTables:
    def test_every_one_is_a_table_in_sql_and_shows_no_key(self, spark: SparkSession, prod: Lake) -> None:
        prod.catalog.create_namespace_if_not_exists("seen")
        table = maintained_table(prod.catalog)
        name = f"prod.{'.'.join(table.name())}"
        keys = [
            repr(file.key.encryption_key.reveal())[2:-1] for file in reachable_files(table.metadata, table.io).files.values() if file.key
        ]

        for each in sorted(NAMES):
            rows = spark.sql(f"SELECT * FROM {name}.{each}").collect()
            assert rows or each == "audit", each
            assert not any(key in repr(rows) for key in keys), each
        files = spark.sql(f"SELECT file_path, record_count FROM {name}.files WHERE content = 0").collect()
        expected = table.inspect.data_files().select(["file_path", "record_count"]).to_pylist()
        assert sorted((row[0], row[1]) for row in files) == sorted((row["file_path"], row["record_count"]) for row in expected)
        every = spark.sql(f"SELECT DISTINCT data_file.file_path FROM {name}.all_entries WHERE status = 1").count()
        assert every == spark.sql(f"SELECT DISTINCT file_path FROM {name}.all_files").count() == 5
        first = table.snapshots()[0]
        then = spark.sql(f"SELECT sum(record_count) FROM {name}.files VERSION AS OF {first.snapshot_id}").collect()
        assert then[0][0] == table.scan(snapshot_id=first.snapshot_id).count()
        committed = spark.sql(f"SELECT unix_millis(committed_at) FROM {name}.snapshots ORDER BY committed_at").collect()
        assert [row[0] for row in committed] == [snapshot.timestamp_ms for snapshot in table.snapshots()]
        kinds = spark.sql(f"SELECT kind, count(*), sum(size(snapshot_ids)) FROM {name}.keys GROUP BY kind ORDER BY kind").collect()
        assert [tuple(row) for row in kinds] == [("KEK", 1, len(table.snapshots())), ("manifest-list key", *[len(table.snapshots())] * 2)]

    def test_a_table_without_snapshots_has_metadata_tables_without_rows(self, spark: SparkSession, prod: Lake, new_name: str) -> None:
        prod.catalog.create_table(new_name, pa.schema([("id", pa.int64())]), properties={"encryption.key-id": "alias/orders"})

        for each in sorted(NAMES - {"metadata_log_entries", "audit"}):
            assert spark.sql(f"SELECT * FROM prod.{new_name}.{each}").collect() == [], each

    def test_none_is_dropped_or_altered(self, spark: SparkSession, prod: Lake, new_name: str) -> None:
        prod.catalog.create_table(new_name, pa.schema([("id", pa.int64())]), properties={"encryption.key-id": "alias/orders"})

        for statement in ("DROP TABLE prod.{}.files", "DROP TABLE prod.{}.files PURGE", "ALTER TABLE prod.{}.files ADD COLUMN x INT"):
            with pytest.raises(Exception, match=r"cannot be dropped|TABLE_OR_VIEW_NOT_FOUND"):
                spark.sql(statement.format(new_name))
        assert prod.catalog.table_exists(new_name)
