"""Iceberg Java reads what SQL wrote and changes it; SQL reads that, changes it again, and Java reads it once more.

Both share views of a REST catalog too, in one session that has the extensions of both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tablecrypt.spark as tcs
from tablecrypt.errors import TamperedFileError
from tablecrypt.spark.sql.metadata_tables import NAMES
from tests.spark.conftest import Lake
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.java import LINEAGE_COLUMNS, JavaError, JavaOracle
from tests.support.plaintext import CANARY
from tests.support.rest_server import RestServer, new_namespace
from tests.support.spark_jar import catalog_settings, spark_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
COLUMNS: Final = (
    "id bigint NOT NULL, region string, price decimal(9, 2), local timestamp_ntz, instant timestamp, day date, tags array<string>, "
    "prices map<string, int>, part struct<a: double, b: binary>, ratio float, note string"
)
ROWS: Final = (
    "SELECT id, concat('r', id % 3), CAST(id / 4 AS decimal(9, 2)), timestamp_ntz'2024-03-31 02:30:00', timestamp_seconds(id * 40000), "
    "date_from_unix_date(CAST(id - 20 AS int)), array('a', NULL), map('k', CAST(id AS int)), "
    f"named_struct('a', if(id = 7, double('NaN'), id / 3D), 'b', x'00ff'), CAST(id AS float), '{CANARY}' FROM range(60)"
)


@pytest.fixture(scope="module")
def oracle(java_runtime: None, aws: AwsServer, rest_server: RestServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaOracle]:
    """Iceberg Java whose session has one REST catalog twice: as `ours`, and as `theirs`, which Iceberg's own Spark catalog opens."""
    rest = {"py-catalog-impl": "tablecrypt_catalog.EncryptedRestCatalog", "uri": rest_server.uri, **aws.kms_properties}
    settings = catalog_settings("ours", rest) | {
        "spark.jars": str(spark_jar()),
        "spark.sql.catalog.theirs": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.theirs.type": "rest",
        "spark.sql.catalog.theirs.uri": rest_server.uri,
        "spark.sql.catalog.theirs.cache-enabled": "false",
    }
    with JavaOracle(tmp_path_factory.mktemp("sql-java"), aws.endpoint, settings=settings) as running:
        yield running


@pytest.mark.first
@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_java_and_sql_read_and_change_what_the_other_wrote(
    spark: SparkSession, prod: Lake, java: JavaOracle, new_name: str, mode: str
) -> None:
    modes = ", ".join(f"'write.{operation}.mode' = '{mode}'" for operation in ("delete", "update", "merge"))
    spark.sql(
        f"CREATE TABLE prod.{new_name} ({COLUMNS}) PARTITIONED BY (region, bucket(2, id), days(instant), truncate(3, id)) "
        f"TBLPROPERTIES ('encryption.key-id' = 'alias/orders', {modes})"
    )
    spark.sql(f"INSERT INTO prod.{new_name} {ROWS}")
    spark.sql(f"DELETE FROM prod.{new_name} WHERE id % 10 = 9")
    spark.sql(f"UPDATE prod.{new_name} SET price = price + 1, region = 'moved' WHERE id % 7 = 0")
    spark.sql(
        f"MERGE INTO prod.{new_name} t USING (SELECT id + 50 AS id FROM range(20)) s ON t.id = s.id WHEN MATCHED AND s.id < 53 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET ratio = -1 "
        "WHEN NOT MATCHED THEN INSERT (id, region, instant) VALUES (s.id, 'new', timestamp'2026-01-01 00:00:00')"
    )

    java_name = f"with_sql.{mode.replace('-', '_')}"
    java.register(java_name, prod.catalog.load_table(new_name).metadata_location)
    rows = java.rows(java_name, lineage=True)
    assert_same_rows(rows, _rows(spark, new_name))
    assert_same_rows(rows.drop_columns(list(LINEAGE_COLUMNS)), prod.catalog.load_table(new_name).scan().to_arrow())
    assert len(set(rows["_row_id"].to_pylist())) == rows.num_rows == 62

    java.sql(f"DELETE FROM h.{java_name} WHERE id % 10 = 1")
    java.sql(f"UPDATE h.{java_name} SET ratio = 77 WHERE id = 20")
    java.sql(f"MERGE INTO h.{java_name} t USING (SELECT 30L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET price = 9.99")
    prod.catalog.register_table(f"{new_name}_back", java.metadata_location(java_name))
    changed = java.rows(java_name, lineage=True)
    assert_same_rows(_rows(spark, f"{new_name}_back"), changed)

    spark.sql(f"UPDATE prod.{new_name}_back SET ratio = ratio + 1 WHERE id > 20")
    spark.sql(f"DELETE FROM prod.{new_name}_back WHERE id = 40")
    spark.sql(f"ALTER TABLE prod.{new_name}_back RENAME COLUMN note TO remark")
    spark.sql(f"INSERT INTO prod.{new_name}_back (id, remark) VALUES (100, '{CANARY}')")
    java.register(f"{java_name}_again", prod.catalog.load_table(f"{new_name}_back").metadata_location)
    again = java.rows(f"{java_name}_again", lineage=True)
    assert_same_rows(_rows(spark, f"{new_name}_back"), again)
    assert again.num_rows == changed.num_rows
    assert dict(zip(again["id"].to_pylist(), again["_row_id"].to_pylist(), strict=True)).items() >= {
        (row["id"], row["_row_id"]) for row in changed.to_pylist() if row["id"] != 40
    }


def test_pages_whose_levels_java_leaves_in_the_clear_are_read_by_nobody_here(
    spark: SparkSession, prod: Lake, java: JavaOracle, new_name: str
) -> None:
    """Nothing authenticates the levels, which say what is null and which row a value is of."""
    java.sql("CREATE NAMESPACE IF NOT EXISTS h.with_sql")
    properties = "'format-version' = '3', 'encryption.key-id' = 'alias/orders', 'write.parquet.page-version' = 'v2'"
    java.sql(f"CREATE TABLE h.with_sql.levels (id bigint, note string) USING iceberg TBLPROPERTIES ({properties})")
    java.sql(f"INSERT INTO h.with_sql.levels SELECT id, if(id % 2 = 0, '{CANARY}', NULL) FROM range(100)")
    table = prod.catalog.register_table(new_name, java.metadata_location("with_sql.levels"))

    with pytest.raises(TamperedFileError, match="pages of version 2 whose levels are left in the clear"):
        table.scan().to_arrow()
    with pytest.raises(Exception, match="pages of version 2, whose levels parquet-java leaves in the clear"):
        spark.table(f"prod.{new_name}").collect()


def test_a_table_that_java_replaced_with_another_type_is_read_at_each_version(
    spark: SparkSession, prod: Lake, java: JavaOracle, new_name: str
) -> None:
    """Java's replacement gives a column the field id that one of its name had, whatever its type."""
    java.sql("CREATE NAMESPACE IF NOT EXISTS h.with_sql")
    properties = "USING iceberg TBLPROPERTIES ('format-version' = '3', 'encryption.key-id' = 'alias/orders')"
    java.sql(f"CREATE TABLE h.with_sql.replaced {properties} AS SELECT id, '{CANARY}' AS note, 1L AS day FROM range(9)")
    java.sql("ALTER TABLE h.with_sql.replaced RENAME COLUMN note TO remark")
    replacing = "SELECT concat('x', id) AS id, '' AS remark, DATE'2026-01-01' AS day"
    java.sql(f"CREATE OR REPLACE TABLE h.with_sql.replaced {properties} AS {replacing} FROM range(3)")
    table = prod.catalog.register_table(new_name, java.metadata_location("with_sql.replaced"))
    before, name = table.metadata.snapshots[0].snapshot_id, f"prod.{new_name}"
    old = f"{name} VERSION AS OF {before}"
    spark.sql(f"CALL prod.system.create_branch('{new_name}', 'audit', {before})")

    for query, ids in {
        f"{old} WHERE id > 6": [7, 8],
        f"{old} WHERE note = '{CANARY}' AND day = 1": list(range(9)),
        f"{old} o JOIN (SELECT 3L AS id) USING (id)": [3],
        f"{name} WHERE id > 'x0'": ["x1", "x2"],
    }.items():
        assert sorted(row[0] for row in spark.sql(f"SELECT id FROM {query}").collect()) == ids
    assert spark.sql(f"SELECT min(id), max(id), max(day), count(*) FROM {old}").collect() == [(0, 8, 1, 9)]
    for path in ("jvm", "python"):
        rows = tcs.read_table(
            spark, f"prod.{new_name}", row_filter="id > 6", snapshot_id=before, path=path, catalog_properties=prod.properties
        )
        assert sorted(row["id"] for row in rows.collect()) == [7, 8]
    for table_name in NAMES:
        spark.sql(f"SELECT * FROM {name}.{table_name}").collect()
    bounds: dict[str, list[tuple[object, object]]] = {
        f"{name}.files VERSION AS OF {before}": [(0, 3), (4, 8)],
        f"{name}.files": [("x0", "x0"), ("x1", "x2")],
        f"{name}.all_data_files": [(None, None), (None, None), ("x0", "x0"), ("x1", "x2")],
    }
    for query, of_files in bounds.items():
        found = spark.sql(f"SELECT readable_metrics.id.lower_bound, readable_metrics.id.upper_bound FROM {query}").collect()
        assert sorted(map(tuple, found), key=str) == sorted(of_files, key=str)
    for branch in (f"{name}.branch_audit", f"{name} VERSION AS OF 'audit'"):
        with pytest.raises(Exception, match=r"column id is long in snapshot \d+, and string since the table was replaced"):
            spark.sql(f"SELECT * FROM {branch}").collect()
    spark.sql(f"CALL prod.system.drop_branch('{new_name}', 'audit')")
    spark.sql(f"CALL prod.system.expire_snapshots('{new_name}', timestamp'2100-01-01 00:00:00')")
    assert len(table.refresh().metadata.snapshots) == 1


OVERWRITES: Final = {
    "unpartitioned": ("", "INSERT OVERWRITE {} SELECT id + 20, 'x', 9.0 FROM range(2)"),
    "partitioned": ("PARTITIONED BY (region)", "INSERT OVERWRITE {} SELECT id + 20, 'x', 9.0 FROM range(2)"),
    "a partition": ("PARTITIONED BY (region)", "INSERT OVERWRITE {} PARTITION (region = 'r1') SELECT id + 20, 9.0 FROM range(2)"),
    "by nothing": ("PARTITIONED BY (region)", "INSERT OVERWRITE {} SELECT id, 'x', 9.0 FROM range(0)"),
}


@pytest.mark.parametrize("table", OVERWRITES)
@pytest.mark.parametrize("before", [*(pytest.param(each, marks=pytest.mark.campaign) for each in ("nothing", "rows")), "deleted rows"])
def test_overwrites_make_the_snapshots_that_icebergs_own_catalog_makes(oracle: JavaOracle, table: str, before: str) -> None:
    layout, statement = OVERWRITES[table]
    made = {}
    for catalog in ("ours", "theirs"):
        name = f"{catalog}.overwritten.{catalog}_{table}_{before}".replace(" ", "_")
        oracle.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.overwritten")
        key = "'encryption.key-id' = 'alias/orders', " if catalog == "ours" else "'format-version' = '3', "
        using = "" if catalog == "ours" else "USING iceberg"
        properties = f"TBLPROPERTIES ({key}'write.delete.mode' = 'merge-on-read')"
        oracle.sql(f"CREATE TABLE {name} (id bigint, region string, price double) {using} {layout} {properties}")
        if before != "nothing":
            oracle.sql(f"INSERT INTO {name} SELECT id, concat('r', id % 3), 1.5 FROM range(9)")
        if before == "deleted rows":
            oracle.sql(f"DELETE FROM {name} WHERE id = 4")
        oracle.sql(statement.format(name))
        made[catalog] = _history(oracle, name)

    if before == "nothing" and table == "by nothing":
        # Java makes a snapshot that changes nothing.
        assert made == {"ours": [], "theirs": made["theirs"]}
        return
    assert made["ours"] == made["theirs"]


def _history(oracle: JavaOracle, name: str) -> list[tuple[str, dict[str, str]]]:
    """The operation of each snapshot and its counts, but those of bytes, which encryption changes."""
    read = oracle.sql(f"SELECT operation, summary FROM {name}.snapshots ORDER BY committed_at")
    assert read is not None
    others = ("size", "manifests", "engine", "app", "iceberg", "spark")
    return [
        (row["operation"], {key: value for key, value in dict(row["summary"]).items() if not any(each in key for each in others)})
        for row in read.to_pylist()
    ]


def _rows(spark: SparkSession, name: str) -> pa.Table:
    return spark.sql(f"SELECT *, {', '.join(LINEAGE_COLUMNS)} FROM prod.{name}").toArrow()


def test_icebergs_own_catalog_and_sql_share_views(oracle: JavaOracle, rest_server: RestServer) -> None:
    views = SharedViews(oracle, new_namespace(rest_server))
    views.run("CREATE TABLE ours.db.orders (id BIGINT, region STRING) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    views.run("ALTER TABLE ours.db.orders ADD PARTITION FIELD region")
    views.run("INSERT INTO ours.db.orders VALUES (1, 'eu'), (2, 'us'), (3, 'eu')")
    header = "(key COMMENT 'the order''s', `my region`) COMMENT 'seen' TBLPROPERTIES ('team' = 'a')"
    views.run(f"CREATE VIEW ours.db.eu {header} AS SELECT id, region FROM ours.db.orders WHERE region = 'eu'")
    views.run(f"CREATE VIEW theirs.db.us {header} AS SELECT id, concat(region, 'a') FROM ours.db.orders WHERE region = 'us'")
    views.run("CREATE VIEW theirs.db.both AS SELECT key FROM ours.db.eu UNION ALL SELECT key FROM theirs.db.us")

    for catalog in ("ours", "theirs"):
        assert views.ids(f"SELECT key FROM {catalog}.db.eu WHERE `my region` = 'eu'") == [1, 3]
        assert views.ids(f"SELECT key FROM {catalog}.db.us WHERE `my region` = 'usa'") == [2]
        assert views.ids(f"SELECT * FROM {catalog}.db.both") == [1, 2, 3]
        assert [row["viewName"] for row in views.run(f"SHOW VIEWS IN {catalog}.db")] == ["both", "eu", "us"]
        for view in ("eu", "us"):
            described = {row["col_name"]: (row["data_type"], row["comment"]) for row in views.run(f"DESCRIBE EXTENDED {catalog}.db.{view}")}
            assert described["key"] == ("bigint", "the order's") and described["Comment"][0] == "seen"
            [made] = views.run(f"SHOW CREATE TABLE {catalog}.db.{view}")
            assert "'team' = 'a'" in str(made["createtab_stmt"])

    views.run("CREATE OR REPLACE VIEW theirs.db.eu AS SELECT id AS other FROM ours.db.orders WHERE id = 3")
    views.run("CREATE OR REPLACE VIEW ours.db.us AS SELECT id AS other FROM ours.db.orders WHERE id = 2")
    views.run("ALTER VIEW ours.db.us SET TBLPROPERTIES ('team' = 'b')")
    views.run("ALTER VIEW ours.db.us RENAME TO db.renamed")
    assert (views.ids("SELECT other FROM ours.db.eu"), views.ids("SELECT other FROM theirs.db.renamed")) == ([3], [2])
    assert {"key": "team", "value": "b"} in views.run("SHOW TBLPROPERTIES theirs.db.renamed")
    views.run("DROP VIEW theirs.db.renamed")
    views.refused("SELECT * FROM ours.db.renamed", "TABLE_OR_VIEW_NOT_FOUND")


def test_a_view_leads_to_no_table_that_its_readers_catalog_cannot_open(oracle: JavaOracle, rest_server: RestServer) -> None:
    """A name without a catalog is looked for in the reader's own, which opens encrypted tables alone, or plain ones alone."""
    views = SharedViews(oracle, new_namespace(rest_server))
    views.run("CREATE TABLE ours.db.orders (id BIGINT) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    views.run("INSERT INTO ours.db.orders VALUES (1), (2)")
    views.run("USE ours.db")
    views.run("CREATE VIEW short AS SELECT id FROM orders")
    views.run("USE theirs.db")
    views.run("CREATE TABLE plain USING iceberg AS SELECT 7L AS id")
    views.run("CREATE VIEW over_plain AS SELECT id FROM plain")
    views.run("CREATE VIEW hostile AS SELECT length(reflect('java.lang.System', 'lineSeparator')) AS id")

    assert views.ids("SELECT id FROM ours.db.short") == [1, 2]
    views.refused("SELECT id FROM theirs.db.short", "(?i)avro|magic|encrypt")
    assert views.ids("SELECT id FROM over_plain") == [7]
    views.refused("SELECT id FROM ours.db.over_plain", "plain is not an encrypted table")
    assert views.ids("SELECT id FROM hostile") == [1]
    views.refused("SELECT id FROM ours.db.hostile", "calls Java")
    views.run("USE h.default")


def test_java_keeps_what_was_copied_until_it_writes_the_manifest_again(
    spark: SparkSession, prod: Lake, oracle: JavaOracle, new_name: str, tmp_path: Path
) -> None:
    for number in range(3):
        pq.write_table(pa.table({"id": [number], "note": [CANARY]}), tmp_path / f"{number}.parquet")
    add = f"CALL prod.system.add_files('{{}}', '`parquet`.`{tmp_path.as_uri()}`')"
    spark.sql(f"CREATE TABLE prod.{new_name} (id bigint, note string) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")
    assert spark.sql(add.format(new_name)).collect() == [(3, 1)]

    oracle.register("with_sql.copied", prod.catalog.load_table(new_name).metadata_location)
    oracle.sql(f"INSERT INTO h.with_sql.copied VALUES (7, '{CANARY}')")
    prod.catalog.register_table(f"{new_name}_back", oracle.metadata_location("with_sql.copied"))
    assert spark.table(f"prod.{new_name}_back").count() == oracle.rows("with_sql.copied").num_rows == 4
    with pytest.raises(Exception, match="has rows of 3 of the source's files already"):
        spark.sql(add.format(f"{new_name}_back")).collect()

    oracle.sql("CALL h.system.rewrite_data_files(table => 'with_sql.copied', options => map('rewrite-all', 'true'))")
    prod.catalog.register_table(f"{new_name}_again", oracle.metadata_location("with_sql.copied"))
    assert spark.sql(add.format(f"{new_name}_again")).collect() == [(3, 1)]


def test_icebergs_own_catalog_sorts_files_in_a_session_with_ours(oracle: JavaOracle, rest_server: RestServer) -> None:
    """It asks the session's parser what an order means."""
    both = SharedViews(oracle, new_namespace(rest_server))
    for catalog, properties in (("ours", "TBLPROPERTIES ('encryption.key-id' = 'alias/orders')"), ("theirs", "")):
        both.run(f"CREATE TABLE {catalog}.db.sorted_{catalog} USING iceberg {properties} AS SELECT id FROM range(5)")
        sorting = f"table => 'db.sorted_{catalog}', strategy => 'sort', sort_order => 'id DESC', options => map('rewrite-all', 'true')"
        both.run(f"CALL {catalog}.system.rewrite_data_files({sorting})")
        assert [row["id"] for row in both.run(f"SELECT id FROM {catalog}.db.sorted_{catalog}")] == [4, 3, 2, 1, 0]


def test_add_files_gives_what_icebergs_own_gives(oracle: JavaOracle, rest_server: RestServer, tmp_path: Path) -> None:
    both = SharedViews(oracle, new_namespace(rest_server))
    for number, dept in enumerate(["01", "1e3", "a%2Fb", "__HIVE_DEFAULT_PARTITION__", "2024-01-02"]):
        folder = tmp_path / f"dept={dept}" / f"level=0{number}" / f"day=2024-02-0{number + 1}"
        folder.mkdir(parents=True)
        for part in range(2):
            pq.write_table(pa.table({"id": pa.array([10 * number + part], pa.int32())}), folder / f"{part}.parquet")
    pq.write_table(pa.table({"id": pa.array([77], pa.int32())}), tmp_path.parent / f"{tmp_path.name}.parquet")
    source, alone = f"`parquet`.`{tmp_path}`", f"`parquet`.`{tmp_path.parent / tmp_path.name}.parquet`"
    found = []
    for catalog, properties in (("ours", "TBLPROPERTIES ('encryption.key-id' = 'alias/orders')"), ("theirs", "")):
        name, columns = f"db.copies_{catalog}", "id int, dept string, level int, day date"
        both.run(f"CREATE TABLE {catalog}.{name} ({columns}) USING iceberg PARTITIONED BY (dept, level, day) {properties}")
        both.run(f"CREATE TABLE {catalog}.{name}_flat (id int) USING iceberg {properties}")
        some = f"CALL {catalog}.system.add_files('{name}', '{source}', map('dept', '01'))"
        whole = f"CALL {catalog}.system.add_files(table => '{name}', source_table => '{source}', check_duplicate_files => {{}})"
        flat = f"CALL {catalog}.system.add_files('{name}_flat', '{alone}')"
        # Iceberg gives no count of partitions where it adds whole manifests, as it does for files under a path.
        counts = [row["added_files_count"] for row in both.run(some)]
        both.refused(whole.format("true"), "already")
        counts += [row["added_files_count"] for statement in (whole.format("false"), flat) for row in both.run(statement)]
        both.refused(flat, "already")
        both.run(f"DELETE FROM {catalog}.{name}_flat WHERE id > 0")
        counts += [row["added_files_count"] for row in both.run(flat)]
        rows = f"SELECT dept, level, day, id FROM {catalog}.{name} ORDER BY ALL"
        found.append((counts, both.run(rows), both.run(f"SELECT id FROM {catalog}.{name}_flat")))
    assert found[0] == found[1]
    assert found[0][0] == [2, 10, 1, 1]


class SharedViews:
    """One namespace of the REST catalog, `db` in statements."""

    def __init__(self, oracle: JavaOracle, namespace: str) -> None:
        self._oracle = oracle
        self._namespace = namespace

    def run(self, statement: str) -> list[dict[str, object]]:
        rows = self._oracle.sql(re.sub(r"\bdb\b", self._namespace, statement))
        return [] if rows is None else rows.to_pylist()

    def ids(self, query: str) -> list[object]:
        """The values of a query's only column, in order."""
        return sorted((value for row in self.run(query) for value in row.values()), key=str)

    def refused(self, statement: str, reason: str) -> None:
        with pytest.raises(JavaError, match=reason):
            self.run(statement)
