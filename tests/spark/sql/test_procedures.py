"""CALL prod.system.…: Iceberg's procedures with Iceberg's arguments and columns, and those on keys, each from SQL to what it changed."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType

from tablecrypt import maintenance
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.table.metadata import EncryptedTableMetadata
from tests.spark.conftest import Lake
from tests.spark.sql.test_protected_columns import protected
from tests.support.aws import AwsServer
from tests.support.spark_release import lists_procedures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.java
KEY: Final = {"encryption.key-id": "alias/orders"}
FUTURE: Final = "TIMESTAMP '2100-01-01 00:00:00'"


class Orders:
    """A table of three appends, with its procedures at hand."""

    def __init__(self, spark: SparkSession, catalog: Catalog, name: str, **properties: str) -> None:
        self.spark, self.catalog, self.name = spark, catalog, name
        table = catalog.create_table(name, rows(0).schema, properties={**KEY, **properties})
        for number in range(3):
            table.append(rows(number))

    def call(self, procedure: str, **arguments: Any) -> list[dict[str, Any]]:
        given = ", ".join(f"{name} => {value}" for name, value in {"table": f"'{self.name}'", **arguments}.items())
        return [row.asDict(recursive=True) for row in self.spark.sql(f"CALL prod.system.{procedure}({given})").collect()]

    def one(self, procedure: str, **arguments: Any) -> dict[str, Any]:
        [row] = self.call(procedure, **arguments)
        return row

    @property
    def table(self) -> Table:
        return self.catalog.load_table(self.name)

    @property
    def snapshots(self) -> list[int]:
        return [snapshot.snapshot_id for snapshot in self.table.metadata.snapshots]

    @property
    def ids(self) -> list[int]:
        return sorted(self.table.scan().to_arrow()["id"].to_pylist())

    @property
    def below(self) -> str:
        return f"array('{self.table.location()}')"


def rows(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64()), "note": [f"note {number}"]})


@pytest.fixture
def orders(spark: SparkSession, prod: Lake, new_name: str) -> Orders:
    return Orders(spark, prod.catalog, new_name)


def refusal(orders: Orders, procedure: str, **arguments: Any) -> str:
    """What a call is refused with: the error, and its cause where Spark's own error has one."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    with pytest.raises((Py4JError, PySparkException)) as raised:
        orders.call(procedure, **arguments)
    origin = getattr(raised.value, "_origin", None)
    return f"{raised.value} {origin.getCause() if origin is not None else ''}"


def test_a_rollback_takes_snapshots_that_were_current_alone(orders: Orders) -> None:
    first, second, third = orders.snapshots
    assert orders.one("rollback_to_snapshot", snapshot_id=first) == {"previous_snapshot_id": third, "current_snapshot_id": first}
    assert orders.ids == [0]
    assert "was never current" in refusal(orders, "rollback_to_snapshot", snapshot_id=third)
    assert orders.one("set_current_snapshot", snapshot_id=third)["current_snapshot_id"] == third
    assert orders.ids == [0, 1, 2]
    when = dt.datetime.fromtimestamp(orders.table.metadata.snapshots[1].timestamp_ms / 1000 + 0.001, dt.UTC)
    moved = orders.one("rollback_to_timestamp", timestamp=f"TIMESTAMP '{when.isoformat(sep=' ')}'")
    assert moved["current_snapshot_id"] in (second, first) and "has no snapshot 7" in refusal(orders, "rollback_to_snapshot", snapshot_id=7)


def test_branches_and_tags_are_made_moved_and_dropped(orders: Orders) -> None:
    first, second, third = orders.snapshots
    assert orders.one("create_branch", branch="'audit'", snapshot_id=first, min_snapshots_to_keep=5) == {
        "branch": "audit",
        "snapshot_id": first,
    }
    assert orders.one("create_tag", tag="'eod'")["snapshot_id"] == third
    moved = orders.one("fast_forward", branch="'audit'", to="'main'")
    assert moved == {"branch_updated": "audit", "previous_ref": first, "updated_ref": third}
    assert orders.table.metadata.refs["audit"].min_snapshots_to_keep == 5
    assert "which never moves" in refusal(orders, "fast_forward", branch="'eod'", to="'main'")
    assert orders.one("set_current_snapshot", ref="'eod'")["current_snapshot_id"] == third
    assert [row["snapshot_id"] for row in orders.call("ancestors_of")] == [third, second, first]
    assert orders.one("drop_tag", tag="'eod'")["snapshot_id"] == third and orders.one("drop_branch", branch="'audit'")
    assert set(orders.table.metadata.refs) == {"main"}
    assert "cannot be dropped" in refusal(orders, "drop_branch", branch="'main'")


def test_what_a_branch_appended_is_picked_once_and_gets_row_ids_of_its_own(orders: Orders) -> None:
    orders.one("create_branch", branch="'staged'")
    orders.table.append(rows(10), snapshot_properties={"wap.id": "load-7"}, branch="staged")
    staged = orders.table.metadata.refs["staged"].snapshot_id
    orders.table.append(rows(11))
    assert orders.one("publish_changes", wap_id="'load-7'")["source_snapshot_id"] == staged
    assert orders.ids == [0, 1, 2, 10, 11]
    assert "has these changes already" in refusal(orders, "cherrypick_snapshot", snapshot_id=staged)
    row_ids = orders.table.scan(selected_fields=("_row_id",)).to_arrow()["_row_id"].to_pylist()
    assert len(set(row_ids)) == len(row_ids) == 5


def test_expired_snapshots_take_their_files_and_keys_along(orders: Orders) -> None:
    orders.table.delete("id = 0")
    orders.table.delete("id = 1")
    before, kept = len(keys_of(orders.table)), orders.table.metadata.current_snapshot_id
    expired = orders.one("expire_snapshots", older_than=FUTURE, retain_last=1)
    assert expired["deleted_data_files_count"] == 2 and expired["deleted_manifest_lists_count"] == 4
    assert orders.snapshots == [kept] and orders.ids == [2] and len(keys_of(orders.table)) < before
    stored = {str(path) for path in lake_files(orders.table)}
    assert sum(path.endswith(".parquet") for path in stored) == 1
    assert orders.one("verify")["good"]


def test_snapshots_that_refs_and_limits_hold_do_not_expire(orders: Orders) -> None:
    first, second, third = orders.snapshots
    orders.one("create_tag", tag="'first'", snapshot_id=first)
    assert f"snapshot {first} cannot expire: first points to it" in refusal(
        orders, "expire_snapshots", snapshot_ids=f"array({first})", delete_below=orders.below
    )
    assert orders.one("expire_snapshots", delete_below=orders.below)["deleted_manifest_lists_count"] == 0
    assert orders.one("expire_snapshots", older_than=FUTURE, retain_last=2, delete_below=orders.below)["deleted_manifest_lists_count"] == 0
    assert orders.one("expire_snapshots", snapshot_ids=f"array({second})", delete_below=orders.below)["deleted_manifest_lists_count"] == 1
    assert orders.snapshots == [first, third] and orders.ids == [0, 1, 2]


def test_compaction_has_icebergs_arguments_and_columns(orders: Orders) -> None:
    options = "map('rewrite-all', 'true', 'max-concurrent-file-group-rewrites', '4')"
    row = orders.one("rewrite_data_files", strategy="'sort'", sort_order="'id ASC NULLS LAST'", options=options)
    assert (row["rewritten_data_files_count"], row["added_data_files_count"], row["failed_data_files_count"]) == (3, 1, 0)
    assert orders.ids == [0, 1, 2]
    head = orders.table.metadata.current_snapshot()
    assert head is not None and head.summary is not None
    assert head.summary.operation.value == "replace"
    assert (head.summary["engine-name"], head.summary["app-id"]) == ("spark", orders.spark.sparkContext.applicationId)
    assert orders.one("rewrite_data_files", sort_order="'zorder(id, note)'", options=options)["rewritten_data_files_count"] == 1
    assert orders.one("rewrite_data_files", sort_order="'note DESC NULLS FIRST, `id`'", options=options)["added_data_files_count"] == 1
    assert orders.table.scan().to_arrow()["id"].to_pylist() == [2, 1, 0]
    assert "write columns, as in" in refusal(orders, "rewrite_data_files", sort_order="'bucket(4, id)'")
    assert "does not support the option output-spec-id" in refusal(orders, "rewrite_data_files", options="map('output-spec-id', '0')")
    assert orders.one("compact", where="'id > 1'", rewrite_all="true", dry_run="true")["rewritten_files"] == 1
    assert orders.one("rewrite_position_delete_files")["rewritten_delete_files_count"] == 0


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ('note = "note 1"', 1),
        ("note = \\'note 1\\'", 1),
        ('`note` = "note 1" AND id < 5', 1),
        ("1=1", 3),
        (" 3 >= 3.00 ", 3),
        ("0=1", 0),
        ("id = 1 + 1", 1),
        ('note = "1=1"', 0),
        ('ID > 1 AND `Note` <> ""', 1),
        ("id IS NULL OR NOT id < 2", 1),
        ('note LIKE "note 2%"', 1),
        ("prod.system.bucket(4, id) = prod.system.bucket(4, 1L)", 3),
    ],
)
def test_a_condition_is_what_spark_understands(orders: Orders, where: str, found: int) -> None:
    assert orders.one("compact", where=f"'{where}'", rewrite_all="true", dry_run="true")["rewritten_files"] == found


def test_an_order_by_a_field_in_a_struct_is_not_one_by_the_column_of_its_name(orders: Orders) -> None:
    with orders.table.update_schema() as update:
        update.add_column("s", StructType(NestedField(1, "id", LongType())))
    with orders.table.update_sort_order() as order:
        order.asc("s.id", IdentityTransform())

    assert "sort_by names 's.id'" in refusal(orders, "rewrite_data_files", strategy="'sort'")


def test_conditions_on_partition_functions_choose_partitions(orders: Orders) -> None:
    orders.spark.sql(f"ALTER TABLE prod.{orders.name} ADD PARTITION FIELD truncate(2, id)")
    orders.spark.sql(f"INSERT INTO prod.{orders.name} VALUES (10, 'a'), (12, 'b'), (14, 'c')")
    for where, found in (
        ("prod.system.truncate(2, id) = 12", 3 + 1),
        ("prod.system.truncate(2, id) >= 12 AND id > 2", 2),
        ("NOT prod.system.truncate(2, id) < 14 AND id > 2", 1),
        ("prod.system.truncate(2, id) = 12 OR id = 10", 3 + 2),
        ("prod.system.truncate(4, id) = 12 AND id > 2", 3),
    ):
        assert orders.one("compact", where=f"'{where}'", rewrite_all="true", dry_run="true")["rewritten_files"] == found, where
        assert orders.one("reencrypt", where=f"'{where}'", dry_run="true")["data_files"] == found, where


def test_a_condition_that_chooses_no_files_is_refused(orders: Orders) -> None:
    for where in ('upper(note) = "NOTE 1"', "rand() > 0.5", 'id = 1 OR note LIKE "%1"', "id IN (SELECT 1)"):
        assert "does not" in refusal(orders, "compact", where=f"'{where}'"), where
    assert "PARSE_SYNTAX_ERROR" in refusal(orders, "compact", where="'id = '")
    assert "UNRESOLVED_COLUMN" in refusal(orders, "rewrite_data_files", where="'nothing = 3'")
    orders.spark.sql("SET spark.sql.caseSensitive=true")
    assert "UNRESOLVED_COLUMN" in refusal(orders, "rewrite_data_files", where="'ID > 1'")
    orders.spark.sql("RESET spark.sql.caseSensitive")
    orders.spark.sql(f"ALTER TABLE prod.{orders.name} ADD COLUMN nested STRUCT<ID: INT>")
    assert orders.one("compact", where="'NESTED.id IS NULL'", rewrite_all="true", dry_run="true")["rewritten_files"] == 3


def test_what_spark_has_cached_is_read_again_after_a_procedure(orders: Orders) -> None:
    table = f"prod.{orders.name}"
    orders.spark.sql(f"CACHE TABLE {table}")
    try:
        assert orders.spark.table(table).count() == 3
        orders.one("rollback_to_snapshot", snapshot_id=orders.snapshots[0])
        assert orders.spark.table(table).count() == 1
    finally:
        orders.spark.sql(f"UNCACHE TABLE {table}")


def test_manifests_become_one_and_rows_keep_their_identity(orders: Orders) -> None:
    fields = ("id", "_row_id", "_last_updated_sequence_number")
    before = orders.table.scan(selected_fields=fields).to_arrow().sort_by("id")
    assert orders.one("rewrite_manifests") == {"rewritten_manifests_count": 3, "added_manifests_count": 1}
    assert orders.table.scan(selected_fields=fields).to_arrow().sort_by("id") == before
    assert "has no partition field region; it has none" in refusal(orders, "rewrite_manifests", sort_by="array('region')")
    assert orders.one("rewrite_manifests") == {"rewritten_manifests_count": 0, "added_manifests_count": 0}
    assert "has no partition spec 7; it has 0" in refusal(orders, "rewrite_manifests", spec_id=7)
    assert "sort_by is empty" in refusal(orders, "rewrite_manifests", sort_by="array()")

    with orders.table.transaction() as transaction:
        transaction.set_properties({"commit.manifest.target-size-bytes": "1"})
    assert orders.one("rewrite_manifests") == {"rewritten_manifests_count": 1, "added_manifests_count": 3}
    with orders.table.update_spec() as update:
        update.add_identity("note")
    assert orders.one("rewrite_manifests") == {"rewritten_manifests_count": 0, "added_manifests_count": 0}
    assert orders.one("rewrite_manifests", spec_id=0) == {"rewritten_manifests_count": 3, "added_manifests_count": 3}
    assert orders.table.scan(selected_fields=fields).to_arrow().sort_by("id") == before
    assert maintenance.verify(orders.table).is_good


def test_expired_metadata_goes_when_it_is_asked_for(orders: Orders) -> None:
    with orders.table.update_schema() as update:
        update.add_column("more", StringType())
    orders.spark.sql(f"INSERT INTO prod.{orders.name} VALUES (3, 'd', 'e')")
    at = {"older_than": "TIMESTAMP '2100-01-01'", "delete_below": orders.below}
    assert orders.one("expire_snapshots", **at)["deleted_manifest_lists_count"] == 3
    assert len(orders.table.metadata.schemas) == 2

    assert orders.one("expire_snapshots", **at, clean_expired_metadata="true")["deleted_manifest_lists_count"] == 0

    assert [schema.schema_id for schema in orders.table.metadata.schemas] == [1] and orders.ids == [0, 1, 2, 3]


def test_orphans_are_listed_and_then_deleted(orders: Orders) -> None:
    stray = lake_files(orders.table)[0].parent.parent / "data" / "stray.parquet"
    stray.write_bytes(b"left by a failed write")
    tomorrow = f"TIMESTAMP '{(dt.datetime.now() + dt.timedelta(days=1)).isoformat(sep=' ', timespec='seconds')}'"
    [found] = orders.call("remove_orphan_files", older_than=tomorrow, dry_run="true", delete_below=orders.below)
    assert found["orphan_file_location"].endswith("stray.parquet") and stray.exists()
    assert orders.call("remove_orphan_files", older_than=tomorrow, delete_below=orders.below) == [found] and not stray.exists()


def test_orphans_are_looked_for_in_a_folder_and_in_a_list(orders: Orders) -> None:
    data = lake_files(orders.table)[0].parent.parent / "data"
    for name in ("listed.parquet", "unlisted.parquet"):
        (data / name).write_bytes(b"left by a failed write")
    known = next(iter(orders.table.scan().plan_files())).file.file_path
    rows = [
        (f"{orders.table.location()}/data/listed.parquet",),
        (known,),
        (known.replace("file://", "hdfs://elsewhere"),),
        ("file:///etc/a.parquet",),
    ]
    files = orders.spark.createDataFrame(rows, "file_path STRING").selectExpr("file_path", "TIMESTAMP '2024-01-01' AS last_modified")
    files.createOrReplaceTempView("inventory")
    future = {"older_than": FUTURE, "dry_run": "true"}
    [found] = orders.call("remove_orphan_files", file_list_view="'inventory'", **future)
    assert found["orphan_file_location"].endswith("/listed.parquet")
    folder = f"'{orders.table.location()}/data'"
    assert len(orders.call("remove_orphan_files", location=folder, prefix_mismatch_mode="'IGNORE'", **future)) == 2
    assert "is not below" in refusal(orders, "remove_orphan_files", location="'file:///etc'", **future)
    assert "it must be ERROR, IGNORE or DELETE" in refusal(orders, "remove_orphan_files", prefix_mismatch_mode="'SOME'", **future)


def test_a_metadata_file_becomes_a_table(orders: Orders, prod: Lake) -> None:
    location = orders.table.metadata_location
    prod.catalog.drop_table(orders.name)
    orders.name = f"{orders.name}_again"
    row = orders.one("register_table", metadata_file=f"'{location}'")
    assert row == {"current_snapshot_id": orders.snapshots[-1], "total_records_count": 3, "total_data_files_count": 3}


def test_keys_are_rotated_rewrapped_pruned_and_shredded(orders: Orders) -> None:
    rotated = orders.one("rotate_kek")
    assert rotated["new_kek"] and rotated["manifest_list_keys"] == 3 and not rotated["dry_run"]
    assert orders.one("rewrap", dry_run="true")["keks"] and orders.one("prune_keys")["kept"] > 0
    files = {task.file.file_path for task in orders.table.scan().plan_files()}
    assert orders.one("reencrypt", where="'id = 1'")["data_files"] == 1
    assert len(files & {task.file.file_path for task in orders.table.scan().plan_files()}) == 2
    shredded = orders.one("shred", snapshots=f"array({orders.snapshots[0]})", delete_below=orders.below, dry_run="true")
    assert shredded["snapshots"] == [orders.snapshots[0]] and shredded["dry_run"]
    assert orders.ids == [0, 1, 2]


def test_keys_of_columns_are_rotated_rewrapped_and_shredded(
    spark: SparkSession, of_analyst: SparkSession, prod: Lake, aws: AwsServer, new_name: str
) -> None:
    table = protected(prod, aws, new_name)

    def one(session: SparkSession, procedure: str, arguments: str = "") -> dict[str, Any]:
        [row] = session.sql(f"CALL prod.system.{procedure}('{new_name}'{arguments})").collect()
        return dict(row.asDict(recursive=True))

    [(key_id, keks)] = one(spark, "rewrap_column_keks")["keks"].items()
    rotated = one(spark, "rotate_column_keks")
    assert rotated["old_keks"] == keks and list(rotated["new_keks"]) == [key_id]
    seen = one(of_analyst, "verify", ", workers => 1")
    assert (seen["good"], seen["complete"], seen["unchecked_columns"]) == (True, False, {"ssn": 1})
    checked = one(spark, "verify")
    assert (checked["good"], checked["complete"], checked["unchecked_columns"]) == (True, True, {})
    assert one(spark, "reencrypt", ", out_of_line => true, accept_masks => true")["in_line"] == 0
    below = f", column => 'ssn', delete_below => array('{table.location()}')"
    assert one(spark, "shred_column", f"{below}, dry_run => true")["column_keys"]
    assert one(spark, "shred_column", below)["complete"]
    assert spark.sql(f"SELECT id FROM prod.{new_name}").count() == 3


def test_a_moment_that_python_has_not_is_named(orders: Orders) -> None:
    for procedure in ("remove_orphan_files", "expire_snapshots", "reencrypt"):
        assert "older_than is a timestamp outside of the years 1 to 9999" in refusal(
            orders, procedure, older_than="TIMESTAMP '+10000-01-02 00:00:00'"
        )


def test_what_is_wrong_with_a_table_comes_as_rows(orders: Orders) -> None:
    assert orders.one("verify", quick="true") | {"good": True, "empty": False, "full": False, "bad": []} == orders.one(
        "verify", quick="true"
    )
    path = next(file for file in lake_files(orders.table) if file.suffix == ".parquet")
    path.write_bytes(path.read_bytes()[:-40])
    verified = orders.one("verify")
    assert not verified["good"] and {bad["kind"] for bad in verified["bad"]} == {"data"}
    kinds = {row["kind"]: row for row in orders.call("audit")}
    assert "wrong-length" in kinds or "wrong-footer" in kinds
    assert {row["state"] for row in orders.call("doctor")} <= {"works", "noted", "fails"}


def test_a_dropped_column_comes_back_with_its_values(orders: Orders) -> None:
    table = orders.table
    with table.update_schema() as update:
        update.add_column("at", StructType(NestedField(1, "lat", LongType()), NestedField(2, "lon", LongType())))
    filled = rows(7).append_column("at", pa.array([{"lat": 1, "lon": 2}], pa.struct([("lat", pa.int64()), ("lon", pa.int64())])))
    orders.table.append(filled)
    with orders.table.update_schema() as update:
        update.delete_column("note").delete_column(("at", "lon"))
    assert orders.one("undelete_column", column="'note'") == {"column": "note", "type": "string", "field_id": 2}
    assert orders.one("undelete_column", column="'at.lon'")["type"] == "long"
    assert orders.spark.sql(f"SELECT note, at.lon FROM prod.{orders.name} WHERE id = 7").collect()[0][:] == ("note 7", 2)
    assert "rename it first" in refusal(orders, "undelete_column", column="'note'")
    assert "ever had a column other" in refusal(orders, "undelete_column", column="'other'")


def test_a_plain_table_becomes_an_encrypted_one(orders: Orders, prod: Lake) -> None:
    for way in ("migrate", "snapshot"):
        plain = prod.catalog.create_table(f"{orders.name}_plain_{way}", rows(0).schema)
        plain.append(rows(5))
    plain = prod.catalog.load_table(f"{orders.name}_plain_migrate")
    assert "is not an encrypted table" in refusal(orders, "rotate_kek", table=f"'{orders.name}_plain_migrate'")
    assert "no master key is named" in refusal(orders, "migrate", table=f"'{orders.name}_plain_migrate'")
    [row] = orders.spark.sql(
        f"CALL prod.system.migrate('{orders.name}_plain_migrate', key_id => 'alias/orders', delete_below => array('{plain.location()}'))"
    ).collect()
    assert row["files"] == 1 and row["snapshot_id"] is not None
    [row] = orders.spark.sql(
        f"CALL prod.system.snapshot('{orders.name}_plain_snapshot', '{orders.name}_copy', "
        "properties => map('encryption.key-id', 'alias/orders'))"
    ).collect()
    assert row["imported_files_count"] == 1
    for name in (f"{orders.name}_plain_migrate", f"{orders.name}_copy"):
        assert prod.catalog.load_table(name).scan().to_arrow()["id"].to_pylist() == [5]


def test_names_are_taken_as_sql_takes_them(orders: Orders, prod: Lake) -> None:
    short = orders.name.partition(".")[2]
    for name in (orders.name, f"prod.{orders.name}", f"`db`.`{short}`"):
        assert orders.spark.sql(f"CALL prod.system.verify('{name}')").collect()[0]["table"] == orders.name
    for name in ("db..t", "orders", "`db.orders`"):
        assert f"ConfigurationError: '{name}' is not a table's name" in refusal(orders, "verify", table=f"'{name}'")


def test_what_is_not_there_is_refused_with_the_name_that_is_near(orders: Orders) -> None:
    assert "Did you mean rotate_kek?" in refusal(orders, "rotate_keks")
    assert "facts about the data" in refusal(orders, "compute_table_stats")
    assert "NoSuchTableError" in refusal(orders, "verify", table="'db.none'")
    assert "REQUIRED_PARAMETER_NOT_FOUND" in refusal(orders, "relocate")
    assert "give either snapshot_id or ref" in refusal(orders, "set_current_snapshot")
    assert "min_input_files is 0" in refusal(orders, "compact", min_input_files=0)
    for procedure in ("expire_snapshots", "remove_orphan_files"):
        assert "max_concurrent_deletes is '0'; it must be" in refusal(orders, procedure, max_concurrent_deletes=0)
    assert "has no option rewriteall" in refusal(orders, "rewrite_position_delete_files", options="map('rewriteall', 'true')")
    assert "UNRESOLVED_COLUMN" in refusal(orders, "rewrite_position_delete_files", where="'nothing = 1'")
    assert orders.one("verify")["good"]


@lists_procedures
def test_the_procedures_are_listed(spark: SparkSession, prod: Lake) -> None:
    listed = {row["procedure_name"] for row in spark.sql("SHOW PROCEDURES IN prod.system").collect()}
    assert {"rotate_kek", "rewrite_data_files", "expire_snapshots", "shred"} <= listed
    described = spark.sql("DESCRIBE PROCEDURE prod.system.rotate_kek").collect()
    assert any("Replace the KEK of an encrypted table." in str(row) for row in described)
    [told] = [row[0] for row in spark.sql("DESCRIBE PROCEDURE prod.system.erase").collect() if row[0].startswith("Description:")]
    arguments = "table STRING (required), row_filter STRING (required), dry_run BOOLEAN, delete_below ARRAY<STRING>"
    assert told.endswith(f"search what is left for them. Arguments: {arguments}, workers BIGINT, break_shares BOOLEAN.")


def keys_of(table: Table) -> list[EncryptedKey]:
    metadata = table.metadata
    assert isinstance(metadata, EncryptedTableMetadata)
    return list(metadata.encryption_keys)


def lake_files(table: Table) -> list[Path]:
    return [path for path in Path(urlsplit(table.location()).path).rglob("*") if path.is_file()]


def test_a_procedure_that_is_not_there_is_answered_with_those_that_are(orders: Orders) -> None:
    assert "there is no procedure rewrite_datafiles. Did you mean rewrite_data_files?" in refusal(orders, "rewrite_datafiles")
    assert "there is no procedure zzz: there are " in refusal(orders, "zzz")
    with pytest.raises(Exception, match=r"procedures are in the namespace system: CALL prod\.system\.rotate_kek"):
        orders.spark.sql(f"CALL prod.sys.rotate_kek(table => '{orders.name}')")
