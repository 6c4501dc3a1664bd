"""CREATE TABLE AS SELECT, REPLACE TABLE and createOrReplace: table and rows come in one commit, and a replaced table keeps its history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType

from tablecrypt.maintenance import verify
from tablecrypt.table.replacement import schema_with_ids_of, stage_replacement
from tablecrypt.table.table import EncryptedTable
from tests.spark.conftest import Lake
from tests.spark.sql.test_definitions import KEY, refusal
from tests.support.aws import AwsServer
from tests.support.plaintext_scan import unwatch
from tests.support.tables import encrypted_sql_catalog, maintained_table, team_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILING = "SELECT if(id < 900, id, raise_error('a row that fails')) AS id FROM range(1000)"


@pytest.fixture
def table(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> EncryptedTable:
    """Two appends and a delete."""
    folder = tmp_path_factory.mktemp("replaced")
    unwatch(folder)
    table = maintained_table(encrypted_sql_catalog(folder, aws), properties={"kept": "1", "changed": "1"})
    assert isinstance(table, EncryptedTable)
    return table


def replace(table: EncryptedTable, schema: Schema, spec: PartitionSpec, **properties: str) -> Table:
    """Replace a table, without rows."""
    transaction = table.transaction()
    with transaction:
        stage_replacement(transaction, schema, spec, properties)
        with transaction.update_snapshot().replacement():
            pass
    return table.refresh()


class TestReplacement:
    def test_columns_of_the_same_name_and_type_keep_their_ids_and_no_id_is_given_twice(self, table: EncryptedTable) -> None:
        inner = StructType(NestedField(7, "id", LongType()))
        schema = Schema(
            NestedField(1, "note", StringType()),
            NestedField(2, "team", LongType()),
            NestedField(3, "list", ListType(5, inner)),
            NestedField(4, "id", LongType()),
        )

        assert [(field.name, field.field_id) for field in schema_with_ids_of(schema, table.metadata).fields] == [
            ("note", 3),
            ("team", 4),
            ("list", 5),
            ("id", 1),
        ]
        again = schema_with_ids_of(schema, table.metadata).find_field("list").field_type
        assert isinstance(again, ListType) and (again.element_id, again.element_type) == (6, StructType(NestedField(7, "id", LongType())))

    def test_a_replaced_table_has_its_snapshots_refs_and_other_properties_and_reads_as_before_at_each(self, table: EncryptedTable) -> None:
        snapshots = [snapshot.snapshot_id for snapshot in table.snapshots()]
        table.manage_snapshots().create_tag(snapshots[0], "start").create_branch(snapshots[1], "audit").commit()
        counts = {each: table.scan(snapshot_id=each).count() for each in snapshots}
        schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "n", IntegerType()))

        replaced = replace(table, schema, PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket")), changed="2")

        assert replaced.scan().count() == 0 and [field.name for field in replaced.schema().fields] == ["id", "n"]
        assert [(field.name, field.source_id, field.field_id) for field in replaced.spec().fields] == [("id_bucket", 1, 1001)]
        assert {name: replaced.properties[name] for name in ("kept", "changed")} == {"kept": "1", "changed": "2"}
        assert {each: replaced.scan(snapshot_id=each).count() for each in snapshots} == counts
        assert {"start", "audit", "main"} == set(replaced.metadata.refs)
        head = replaced.metadata.current_snapshot()
        assert head is not None and head.parent_snapshot_id is None and head.summary is not None
        assert head.summary["total-records"] == "0"
        # Somebody who has seen the table before takes it as the same one.
        assert table.catalog.load_table(table.name()).metadata_location == replaced.metadata_location
        assert not verify(replaced).bad

    def test_the_same_definition_again_has_the_same_schema_and_spec(self, table: EncryptedTable) -> None:
        schema, spec = table.schema(), table.spec()
        replaced = replace(table, schema, PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "team")))

        assert (replaced.schema().schema_id, replaced.spec()) == (schema.schema_id, spec)
        assert len(replaced.metadata.schemas) == 1 and len(replaced.metadata.partition_specs) == 1

    def test_a_column_that_stays_keeps_its_initial_default_and_not_the_one_for_new_rows(self, table: EncryptedTable) -> None:
        with table.update_schema() as update:
            update.add_column("later", LongType(), default_value=7)

        replaced = replace(table, Schema(NestedField(1, "id", LongType()), NestedField(2, "later", LongType())), PartitionSpec())

        assert replaced.schema().find_field("later").initial_default == 7
        assert replaced.schema().find_field("later").write_default is None

    def test_rows_of_others_are_replaced_too_but_a_schema_that_others_changed_is_not(self, table: EncryptedTable) -> None:
        other = table.catalog.load_table(table.name())
        transaction = table.transaction()
        stage_replacement(transaction, Schema(NestedField(1, "id", LongType())), PartitionSpec(), {})
        with transaction.update_snapshot().replacement():
            pass
        other.append(team_rows(500))
        transaction.commit_transaction()
        assert table.refresh().scan().count() == 0

        transaction = table.transaction()
        stage_replacement(transaction, Schema(NestedField(1, "x", LongType())), PartitionSpec(), {})
        with transaction.update_snapshot().replacement():
            pass
        other.refresh()
        with other.update_schema() as update:
            update.add_column("y", LongType())
        with pytest.raises(CommitFailedException):
            transaction.commit_transaction()
        assert table.catalog.load_table(table.name()).schema().column_names == ["id", "y"]


@pytest.mark.java
class TestStatements:
    def test_a_table_is_created_with_its_rows_in_one_commit(self, spark: SparkSession, prod: Lake, new_name: str) -> None:
        spark.sql(f"CREATE TABLE prod.{new_name} PARTITIONED BY (part) {KEY} AS SELECT id, id % 3 AS part FROM range(100)")

        table = prod.catalog.load_table(new_name)
        assert (len(table.metadata.metadata_log), len(table.snapshots()), table.scan().count()) == (0, 1, 100)
        assert {file.file.partition[0] for file in table.scan().plan_files()} == {0, 1, 2}
        assert spark.table(f"prod.{new_name}").where("part = 1").count() == 33

    def test_a_replaced_table_keeps_its_history_and_may_be_read_by_its_own_replacement(
        self, spark: SparkSession, prod: Lake, new_name: str
    ) -> None:
        name = f"prod.{new_name}"
        spark.sql(f"CREATE OR REPLACE TABLE {name} {KEY} AS SELECT id, 'a' AS note FROM range(10)")
        first = prod.catalog.load_table(new_name)
        spark.sql(f"CREATE OR REPLACE TABLE {name} PARTITIONED BY (bucket(4, id)) AS SELECT id, id * 2 AS double FROM {name} WHERE id < 5")
        spark.sql(f"REPLACE TABLE {name} USING iceberg AS SELECT double FROM {name}")
        spark.range(3).writeTo(name).tableProperty("more", "1").createOrReplace()

        table = prod.catalog.load_table(new_name)
        assert table.metadata.table_uuid == first.metadata.table_uuid and len(table.snapshots()) == 4
        assert table.properties["more"] == "1" and table.properties["encryption.key-id"] == "alias/orders"
        assert sorted(row[0] for row in spark.table(name).collect()) == [0, 1, 2]
        before = [snapshot.snapshot_id for snapshot in table.snapshots()]
        assert sorted(row[0] for row in spark.sql(f"SELECT double FROM {name} VERSION AS OF {before[2]}").collect()) == [0, 2, 4, 6, 8]
        assert spark.sql(f"SELECT note FROM {name} VERSION AS OF {before[0]}").distinct().collect() == [("a",)]

        spark.sql(f"CREATE OR REPLACE TABLE {name} (id INT, name STRING) TBLPROPERTIES ('more' = '2')")
        assert spark.table(name).collect() == [] and spark.table(name).columns == ["id", "name"]
        assert not verify(prod.catalog.load_table(new_name)).bad

    def test_streams_and_readers_of_changes_see_that_a_replacement_is_no_append(
        self, spark: SparkSession, prod: Lake, new_name: str
    ) -> None:
        name = f"prod.{new_name}"
        spark.sql(f"CREATE OR REPLACE TABLE {name} {KEY} AS SELECT id FROM range(3)")
        spark.sql(f"CREATE OR REPLACE TABLE {name} AS SELECT id FROM range(2)")
        spark.sql(f"CREATE OR REPLACE TABLE {name} AS SELECT id FROM range(0)")
        spark.sql(f"CREATE OR REPLACE TABLE {name} (id BIGINT)")

        # As Iceberg's own catalog has it.
        operations = [row["operation"] for row in spark.sql(f"SELECT operation FROM {name}.snapshots ORDER BY committed_at").collect()]
        assert operations == ["append", "overwrite", "delete", "delete"]

    def test_a_statement_that_fails_leaves_no_table_no_change_and_no_file(self, spark: SparkSession, prod: Lake, new_name: str) -> None:
        name, folder = f"prod.{new_name}", prod.warehouse / "db" / new_name.partition(".")[2]
        assert "a row that fails" in refusal(spark, f"CREATE TABLE {name} {KEY} AS {FAILING}")[1]
        with pytest.raises(NoSuchTableError):
            prod.catalog.load_table(new_name)
        assert not [path for path in folder.rglob("*") if path.is_file()]

        spark.sql(f"CREATE TABLE {name} {KEY} AS SELECT 1L AS id")
        files, before = set(folder.rglob("*")), prod.catalog.load_table(new_name).metadata_location
        assert "a row that fails" in refusal(spark, f"CREATE OR REPLACE TABLE {name} AS {FAILING}")[1]
        assert "KeyIdChangedError" in refusal(spark, f"REPLACE TABLE {name} TBLPROPERTIES ('encryption.key-id' = 'other') AS SELECT 2L")[1]
        assert "stays where it is" in refusal(spark, f"REPLACE TABLE {name} LOCATION 'file:///elsewhere' AS SELECT 2L AS id")[1]
        assert set(folder.rglob("*")) == files and prod.catalog.load_table(new_name).metadata_location == before

    def test_what_is_missing_or_there_already_has_sparks_own_errors(self, spark: SparkSession, prod: Lake, new_name: str) -> None:
        name = f"prod.{new_name}"
        assert refusal(spark, f"REPLACE TABLE {name} AS SELECT 1 AS id")[0] == "TABLE_OR_VIEW_NOT_FOUND"
        assert refusal(spark, f"CREATE TABLE prod.nowhere.t {KEY} AS SELECT 1 AS id")[0] == "SCHEMA_NOT_FOUND"
        assert "would not be encrypted" in refusal(spark, f"CREATE TABLE {name} AS SELECT 1 AS id")[1]
        spark.sql(f"CREATE TABLE {name} {KEY} AS SELECT 1 AS id")
        assert refusal(spark, f"CREATE TABLE {name} {KEY} AS SELECT 1 AS id")[0] == "TABLE_OR_VIEW_ALREADY_EXISTS"
        spark.sql(f"CREATE TABLE IF NOT EXISTS {name} {KEY} AS SELECT 2 AS id")
        assert [row[0] for row in spark.table(name).collect()] == [1]
