"""Iceberg's own ALTER TABLE statements: what they do to a table, what is refused, and that Spark's parser keeps everything else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from pyiceberg.types import DecimalType, NestedField, StructType

import tablecrypt.spark as tcs
from tablecrypt import maintenance
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.sql.statements.alter_table import Tokens, alter
from tablecrypt.table.table import EncryptedTable
from tests.spark.conftest import Lake
from tests.support.aws import AwsServer
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.java
class TestInSpark:
    def test_partition_fields_are_added_replaced_and_dropped(self, spark: SparkSession, prod: Lake, new_name: str) -> None:
        _create(spark, new_name)

        spark.sql(f"ALTER TABLE prod.{new_name} ADD PARTITION FIELD bucket(16, id) AS shard -- by hash")
        spark.sql(f"alter table `prod`.{new_name}\nadd partition field days(at);")
        spark.sql(f"ALTER TABLE prod.{new_name} REPLACE PARTITION FIELD at_day WITH hours(at) AS `an hour`")
        spark.sql(f"ALTER TABLE prod.{new_name} ADD PARTITION FIELD `my region`")
        spark.sql(f"ALTER TABLE prod.{new_name} DROP PARTITION FIELD bucket(16, id)")

        fields = prod.catalog.load_table(new_name).spec().fields
        assert [(field.name, str(field.transform)) for field in fields] == [("an hour", "hour"), ("my region", "identity")]

    def test_no_column_has_a_collation_that_files_do_not_keep(self, spark: SparkSession, prod: Lake, new_name: str) -> None:
        """Read again, its texts would be compared by their bytes."""
        _create(spark, new_name)
        spark.sql(f"ALTER TABLE prod.{new_name} ADD COLUMN note STRING COLLATE UTF8_BINARY")

        for statement in (
            f"CREATE TABLE prod.{new_name}_2 (s STRING COLLATE UTF8_LCASE) USING iceberg",
            f"CREATE TABLE prod.{new_name}_2 (s ARRAY<STRUCT<a: STRING COLLATE UNICODE_CI>>) USING iceberg",
            f"CREATE TABLE prod.{new_name}_2 USING iceberg AS SELECT 'a' COLLATE UTF8_LCASE AS s",
            f"ALTER TABLE prod.{new_name} ADD COLUMN s STRING COLLATE UTF8_LCASE",
            f"ALTER TABLE prod.{new_name} ADD COLUMN s MAP<INT, STRING COLLATE UTF8_LCASE>",
            f"ALTER TABLE prod.{new_name} ALTER COLUMN note TYPE STRING COLLATE UTF8_LCASE",
        ):
            with pytest.raises(Exception, match=r"Spark's type string collate \S*(UTF8_LCASE|UNICODE_CI) has no type of Iceberg tables"):
                spark.sql(statement)
        assert not prod.catalog.table_exists(f"{new_name}_2")

    def test_comments_may_stand_between_the_words_of_a_statement(self, spark: SparkSession, prod: Lake, new_name: str) -> None:
        _create(spark, new_name)

        spark.sql(f"/* app: dbt */ ALTER /**/ TABLE prod.{new_name} -- once\nADD PARTITION /* a * */ FIELD bucket(16, /* of */ id) /* */")
        spark.sql(f"/* {'* ' * 10_000}*/ -- long\n/* */ALTER TABLE prod.{new_name} ADD PARTITION FIELD days(at)")

        fields = prod.catalog.load_table(new_name).spec().fields
        assert [(field.name, str(field.transform)) for field in fields] == [("id_bucket_16", "bucket[16]"), ("at_day", "day")]

    def test_a_partition_field_that_is_replaced_by_its_like_is_the_same_field_under_another_name(
        self, spark: SparkSession, prod: Lake, new_name: str
    ) -> None:
        _create(spark, new_name)
        spark.sql(f"ALTER TABLE prod.{new_name} ADD PARTITION FIELD bucket(4, id) AS shard")
        spark.sql(f"INSERT INTO prod.{new_name} VALUES (1, NULL, NULL)")

        spark.sql(f"ALTER TABLE prod.{new_name} REPLACE PARTITION FIELD shard WITH bucket(4, id) AS part")
        spark.sql(f"ALTER TABLE prod.{new_name} REPLACE PARTITION FIELD part WITH bucket(4, id)")

        fields = prod.catalog.load_table(new_name).spec().fields
        assert [(field.name, field.field_id, str(field.transform)) for field in fields] == [("part", 1000, "bucket[4]")]
        assert spark.sql(f"SELECT partition.part FROM prod.{new_name}.partitions").collect() == [(0,)]

    def test_an_order_of_writes_is_the_tables_sort_order_and_distribution(self, spark: SparkSession, prod: Lake, new_name: str) -> None:
        _create(spark, new_name)

        spark.sql(f"ALTER TABLE prod.{new_name} WRITE ORDERED BY `my region` DESC, bucket(4, id) ASC NULLS LAST")
        ordered = prod.catalog.load_table(new_name)
        spark.sql(f"ALTER TABLE prod.{new_name} WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY id")
        local = prod.catalog.load_table(new_name)
        spark.sql(f"ALTER TABLE prod.{new_name} WRITE UNORDERED")
        none = prod.catalog.load_table(new_name)

        assert [str(field) for field in ordered.sort_order().fields] == ["2 DESC NULLS LAST", "bucket[4](1) ASC NULLS LAST"]
        assert [str(field) for field in local.sort_order().fields] == ["1 ASC NULLS FIRST"]
        assert none.sort_order().is_unsorted
        assert [table.properties["write.distribution-mode"] for table in (ordered, local, none)] == ["range", "hash", "none"]

    def test_names_of_the_current_catalog_and_namespace_need_not_be_written(self, spark: SparkSession, prod: Lake, new_name: str) -> None:
        _create(spark, new_name)
        session = spark.newSession()
        tcs.catalog(session, "prod", prod.properties)
        session.sql("USE prod.db")

        session.sql(f"ALTER TABLE {new_name.removeprefix('db.')} SET IDENTIFIER FIELDS id")
        assert prod.catalog.load_table(new_name).schema().identifier_field_names() == {"id"}

        session.sql(f"ALTER TABLE {new_name} DROP IDENTIFIER FIELDS id")
        assert not prod.catalog.load_table(new_name).schema().identifier_field_names()

    def test_statements_on_other_catalogs_and_mistakes_are_refused_as_before(self, spark: SparkSession, prod: Lake, new_name: str) -> None:
        from pyspark.errors import ParseException

        _create(spark, new_name)
        for statement in (
            "ALTER TABLE spark_catalog.default.t ADD PARTITION FIELD id",
            "ALTER TABLE t WRITE UNORDERED",
            f"ALTER TABLE prod.{new_name} MOVE PARTITION FIELD id",
        ):
            with pytest.raises(ParseException):
                spark.sql(statement)
        with pytest.raises(Exception, match=r"bucket\(id\): not a transform of Iceberg"):
            spark.sql(f"ALTER TABLE prod.{new_name} ADD PARTITION FIELD bucket(id)")
        assert spark.sql("SELECT 'ALTER TABLE prod.db.t WRITE UNORDERED'").collect()[0][0] == "ALTER TABLE prod.db.t WRITE UNORDERED"


def _create(spark: SparkSession, name: str) -> None:
    spark.sql(
        f"CREATE TABLE prod.{name} (id bigint NOT NULL, `my region` string, at timestamp) "
        "TBLPROPERTIES ('encryption.key-id' = 'alias/orders')"
    )


@pytest.fixture(scope="module")
def encrypted_table(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> EncryptedTable:
    folder = tmp_path_factory.mktemp("statements")
    catalog = encrypted_sql_catalog(folder, aws)
    return cast(
        "EncryptedTable", catalog.create_table("db.t", pa.schema([("id", pa.int64())]), properties={"encryption.key-id": MASTER_KEY})
    )


class TestGrammar:
    @pytest.mark.parametrize(
        ("statement", "message"),
        [
            ("ADD PARTITION FIELD", "expected a name, found the end"),
            ("ADD PARTITION FIELD bucket(16 id)", "expected ,, found 'id'"),
            ("ADD PARTITION FIELD bucket(16, 4)", "expected a name, found '4'"),
            ("ADD PARTITION FIELD bucket(id, other, 4)", "expected a number, found 'other'"),
            ("ADD PARTITION FIELD id AS", "expected a name, found the end"),
            ("ADD PARTITION FIELD id shard", "expected the end, found 'shard'"),
            ("WRITE", "expected DISTRIBUTED BY PARTITION, ORDERED BY or UNORDERED, found the end"),
            ("WRITE LOCALLY", "expected ORDERED BY, found the end"),
            ("WRITE UNORDERED ORDERED BY id", "expected the end, found 'ORDERED'"),
            ("WRITE DISTRIBUTED BY PARTITION DISTRIBUTED BY PARTITION", "expected the end, found 'DISTRIBUTED'"),
            ("WRITE ORDERED BY (id", "expected ), found the end"),
            ("CREATE BRANCH a-b", "'-' has no meaning here"),
            ("CREATE TAG 123", "expected a name, found '123'"),
            ("CREATE TAG t RETAIN 3 WEEKS", "expected DAYS, HOURS or MINUTES, found 'WEEKS'"),
            (
                "CREATE TAG t RETAIN 99999999999999 DAYS",
                "t: max_ref_age_ms would be 8639999999999913600000; it must be a whole number from 1",
            ),
            ("CREATE BRANCH b RETAIN 0 HOURS", "b: max_ref_age_ms would be 0"),
            ("CREATE BRANCH b WITH SNAPSHOT RETENTION 0 SNAPSHOTS", "b: min_snapshots_to_keep would be 0"),
            ("CREATE BRANCH b WITH SNAPSHOT RETENTION 2147483648 SNAPSHOTS", "from 1 to 2147483647"),
            ("CREATE TAG t WITH SNAPSHOT RETENTION 3 SNAPSHOTS", "expected the end, found 'WITH'"),
            ("CREATE BRANCH b AS OF VERSION main", "expected a number, found 'main'"),
            ("DROP IDENTIFIER FIELDS id,", "expected a name, found the end"),
            ("DROP COLUMN id", "expected PARTITION FIELD, WRITE"),
            ("DROP TAG main", "has no tag main"),
            ("ALTER COLUMN id TYPE bigint", "expected COMMENT, found the end"),
            ("ALTER COLUMN id TYPE decimal(10 COMMENT 'x'", "expected ), found 'COMMENT'"),
            ("ALTER COLUMN id TYPE bigint COMMENT x", "expected a text in quotes, found 'x'"),
            ("ALTER COLUMN nothing TYPE bigint COMMENT 'x'", "there is no column nothing"),
            ("ALTER COLUMN id TYPE interval COMMENT 'x'", "Spark's type interval has no type"),
        ],
    )
    def test_a_mistake_is_named_and_changes_nothing(self, encrypted_table: EncryptedTable, statement: str, message: str) -> None:
        before = encrypted_table.metadata

        with pytest.raises(ConfigurationError, match=re.escape(message)):
            alter(encrypted_table, statement)

        assert encrypted_table.refresh().metadata == before

    @pytest.mark.parametrize(
        ("statement", "mode", "order"),
        [
            ("WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY id", "hash", ["1 ASC NULLS FIRST"]),
            ("WRITE LOCALLY ORDERED BY id DISTRIBUTED BY PARTITION", "hash", ["1 ASC NULLS FIRST"]),
            (
                "WRITE ORDERED BY (id DESC, bucket(id, 4)) DISTRIBUTED BY PARTITION",
                "hash",
                ["1 DESC NULLS LAST", "bucket[4](1) ASC NULLS FIRST"],
            ),
            ("WRITE UNORDERED DISTRIBUTED BY PARTITION", "hash", []),
            ("WRITE ORDERED BY (id)", "range", ["1 ASC NULLS FIRST"]),
            ("WRITE UNORDERED", "none", []),
            ("WRITE LOCALLY ORDERED BY id", "as it was", ["1 ASC NULLS FIRST"]),
        ],
    )
    def test_order_and_distribution_stand_in_either_sequence(
        self, encrypted_table: EncryptedTable, statement: str, mode: str, order: list[str]
    ) -> None:
        before = "none" if mode in ("hash", "range") else "range"
        with encrypted_table.transaction() as transaction:
            transaction.set_properties({"write.distribution-mode": before})

        alter(encrypted_table, statement)

        after = encrypted_table.refresh()
        assert after.properties["write.distribution-mode"] == (before if mode == "as it was" else mode)
        assert [str(field) for field in after.sort_order().fields] == order

    @pytest.mark.parametrize("term", ["bucket(16, id)", "bucket(id, 16)", "Bucket( `id` , 16 )"])
    def test_a_transforms_number_stands_before_its_column_or_behind(self, encrypted_table: EncryptedTable, term: str) -> None:
        alter(encrypted_table, f"ADD PARTITION FIELD {term}")
        assert [(field.name, str(field.transform)) for field in encrypted_table.refresh().spec().fields] == [("id_bucket_16", "bucket[16]")]

        alter(encrypted_table, f"DROP PARTITION FIELD {term}")
        assert encrypted_table.refresh().spec().is_unpartitioned()

    @pytest.mark.parametrize("statement", ["WRITE ORDERED BY ID", "ADD PARTITION FIELD bucket(4, ID)"])
    def test_columns_are_named_in_any_case_unless_the_session_tells_cases_apart(
        self, encrypted_table: EncryptedTable, statement: str
    ) -> None:
        with pytest.raises(ConfigurationError, match="there is no column ID"):
            alter(encrypted_table, statement, is_case_sensitive=True)
        before = encrypted_table.refresh().metadata_location

        alter(encrypted_table, statement)
        assert encrypted_table.refresh().metadata_location != before

    def test_a_columns_type_and_comment_change_in_one_commit(self, encrypted_table: EncryptedTable) -> None:
        with encrypted_table.update_schema() as update:
            update.add_column("at", StructType(NestedField(1, "Lat", DecimalType(9, 2))))
        before = encrypted_table.metadata.current_schema_id

        alter(encrypted_table, r"""ALTER COLUMN at.lat TYPE decimal(12,2) COMMENT 'it\'s ' "in °\n100\%" """)

        lat = encrypted_table.refresh().schema().find_field("at.Lat")
        assert (str(lat.field_type), lat.doc) == ("decimal(12, 2)", "it's in °\n100\\%")
        assert encrypted_table.metadata.current_schema_id == before + 1

    def test_a_branch_of_a_table_without_snapshots_begins_with_an_empty_one(self, encrypted_table: EncryptedTable) -> None:
        alter(encrypted_table, "CREATE OR REPLACE BRANCH b1 RETAIN 3 DAYS WITH SNAPSHOT RETENTION 2 SNAPSHOTS 1 DAYS")

        metadata = encrypted_table.refresh().metadata
        [snapshot], ref = metadata.snapshots, metadata.refs["b1"]
        assert set(metadata.refs) == {"b1"} and ref.snapshot_id == snapshot.snapshot_id and metadata.current_snapshot_id is None
        assert snapshot.parent_snapshot_id is None and snapshot.manifests(encrypted_table.io) == []
        assert snapshot.summary is not None and snapshot.summary["total-records"] == "0"
        limits = (ref.max_ref_age_ms, ref.min_snapshots_to_keep, ref.max_snapshot_age_ms)
        assert limits == (3 * 86_400_000, 2, 86_400_000)
        assert maintenance.verify(encrypted_table).is_good and not maintenance.audit(encrypted_table).findings
        for statement in ("CREATE OR REPLACE BRANCH b1", "CREATE TAG t1"):
            with pytest.raises(ConfigurationError, match="has no snapshot yet"):
                alter(encrypted_table, statement)

        encrypted_table.append(pa.table({"id": [1]}), branch="b1")

        moved = encrypted_table.refresh().metadata.refs["b1"]
        assert (moved.max_ref_age_ms, moved.min_snapshots_to_keep, moved.max_snapshot_age_ms) == limits
        encrypted_table.manage_snapshots().create_branch(moved.snapshot_id, "main").commit()
        assert encrypted_table.refresh().scan().to_arrow().num_rows == 1

    @pytest.mark.parametrize("statement", ["REPLACE TAG t1", "CREATE OR REPLACE TAG t1"])
    def test_a_tag_that_moves_is_kept_as_long_as_before_unless_it_is_said(self, encrypted_table: EncryptedTable, statement: str) -> None:
        encrypted_table.append(pa.table({"id": [1]}))
        first = encrypted_table.refresh().metadata.current_snapshot_id
        alter(encrypted_table, "CREATE TAG t1 RETAIN 5 DAYS")
        encrypted_table.append(pa.table({"id": [2]}))

        alter(encrypted_table, statement)
        moved = encrypted_table.refresh().metadata.refs["t1"]
        assert (moved.snapshot_id != first, moved.max_ref_age_ms) == (True, 5 * 86_400_000)
        alter(encrypted_table, f"{statement} AS OF VERSION {first} RETAIN 1 HOURS")
        moved = encrypted_table.refresh().metadata.refs["t1"]
        assert (moved.snapshot_id, moved.max_ref_age_ms) == (first, 3_600_000)
        with pytest.raises(ConfigurationError, match="has no branch t1"):
            alter(encrypted_table, statement.replace("TAG", "BRANCH"))
        alter(encrypted_table, "DROP TAG t1")

    def test_the_main_branch_is_not_dropped(self, encrypted_table: EncryptedTable) -> None:
        encrypted_table.append(pa.table({"id": [1]}))
        with pytest.raises(ConfigurationError, match="the main branch cannot be dropped"):
            alter(encrypted_table, "DROP BRANCH IF EXISTS main")
        assert encrypted_table.refresh().metadata.refs

    def test_names_in_backticks_are_never_words_of_the_statement(self) -> None:
        tokens = Tokens("`WRITE` `a``b` -- no more")

        assert not tokens.takes("WRITE")
        assert (tokens.name(), tokens.name()) == ("WRITE", "a`b")
        tokens.end()
