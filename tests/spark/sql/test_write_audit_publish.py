"""Write-audit-publish: readers see what was written only once somebody has published it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from tablecrypt import maintenance
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.sql.planner import LoadedTable
from tablecrypt.spark.sql.writes.write_audit_publish import AuditFirst, with_branch
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.table.table import EncryptedTable
from tests.spark.conftest import Lake
from tests.spark.sql.test_write import SIMPLE, create
from tests.support.aws import AwsServer
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog, ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BRANCH: Final = "spark.wap.branch"
ID: Final = "spark.wap.id"
AUDITED: Final = {"write.wap.enabled": "true"}
CHANGES: Final[Mapping[str, tuple[str, list[int]]]] = {
    "insert": ("INSERT INTO {} VALUES (3, 'c')", [1, 2, 3]),
    "truncate": ("DELETE FROM {}", []),
    "delete": ("DELETE FROM {} WHERE id = 2", [1]),
    "update": ("UPDATE {} SET id = 7 WHERE id = 2", [1, 7]),
    "overwrite": ("INSERT OVERWRITE {} VALUES (3, 'c')", [3]),
    "merge": (
        "MERGE INTO {} t USING (SELECT 2L AS id UNION ALL SELECT 9L) s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
        [1, 9],
    ),
}


@contextmanager
def session(spark: SparkSession, **settings: str) -> Iterator[None]:
    names = {"branch": BRANCH, "id": ID}
    for name, value in settings.items():
        spark.conf.set(names[name], value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(names[name])


def rows(spark: SparkSession, name: str) -> list[int]:
    return sorted(row[0] for row in spark.sql(f"SELECT id FROM {name}").collect())


def refs(table: Table) -> dict[str, int]:
    return {name: ref.snapshot_id for name, ref in table.refresh().metadata.refs.items()}


def refused(spark: SparkSession, statement: str) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011  Spark's own error has the cause
        spark.sql(statement)
    return str(raised.value)


def orders(spark: SparkSession, prod: Lake, name: str, **properties: str) -> Table:
    table = create(prod, name, SIMPLE, properties={**AUDITED, **properties})
    spark.sql(f"INSERT INTO prod.{name} VALUES (1, 'a'), (2, 'b')")
    return table.refresh()


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize("change", ["insert", "truncate", "merge", "delete"])
def test_changes_stay_in_the_sessions_branch_until_it_is_published(spark: SparkSession, prod: Lake, new_name: str, change: str) -> None:
    statement, expected = CHANGES[change]
    name = f"prod.{new_name}"
    table = orders(spark, prod, new_name, **{"write.update.mode": "merge-on-read"})
    main = refs(table)["main"]
    with session(spark, branch="audit"):
        assert rows(spark, name) == [1, 2]
        assert set(refs(table)) == {"main"}
        spark.sql(statement.format(name))
        assert rows(spark, name) == expected
        assert rows(spark, f"{name} VERSION AS OF 'main'") == [1, 2]
    assert rows(spark, name) == ids(table.refresh()) == [1, 2]
    assert refs(table)["main"] == main

    spark.sql(f"CALL prod.system.fast_forward('{new_name}', 'main', 'audit')")

    assert rows(spark, name) == expected
    assert maintenance.verify(table.refresh()).is_good


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize("change", ["insert", "truncate", "overwrite", "update"])
def test_changes_under_an_id_are_in_no_branch_until_it_is_published(spark: SparkSession, prod: Lake, new_name: str, change: str) -> None:
    statement, expected = CHANGES[change]
    name = f"prod.{new_name}"
    table = orders(spark, prod, new_name, **{"write.merge.mode": "merge-on-read"})
    before = refs(table)
    with session(spark, id="load-7"):
        spark.sql(statement.format(name))
        assert rows(spark, name) == [1, 2]
    assert refs(table) == before
    staged = table.metadata.snapshots[-1]
    assert staged.summary is not None and staged.summary["wap.id"] == "load-7"
    assert staged.parent_snapshot_id == before["main"]

    [published] = spark.sql(f"CALL prod.system.publish_changes('{new_name}', 'load-7')").collect()

    assert tuple(published) == (staged.snapshot_id, staged.snapshot_id)
    assert rows(spark, name) == expected
    assert "was written with the WAP id load-8" in refused(spark, f"CALL prod.system.publish_changes('{new_name}', 'load-8')")
    assert "already" in refused(spark, f"CALL prod.system.publish_changes('{new_name}', 'load-7')")
    assert maintenance.verify(table.refresh()).is_good


@pytest.mark.java
@pytest.mark.slow
def test_an_id_is_published_once_whoever_staged_under_it(spark: SparkSession, prod: Lake, new_name: str) -> None:
    name = f"prod.{new_name}"
    table = orders(spark, prod, new_name)
    with session(spark, id="load-7"):
        spark.sql(f"INSERT INTO {name} VALUES (3, 'c')")
        spark.sql(f"INSERT INTO {name} VALUES (4, 'd')")
    first, second = (snapshot.snapshot_id for snapshot in table.refresh().metadata.snapshots[-2:])
    spark.sql(f"INSERT INTO {name} VALUES (5, 'e')")
    before = refs(table)

    reason = refused(spark, f"CALL prod.system.publish_changes('{new_name}', 'load-7')")

    assert f"2 snapshots were written with the WAP id load-7 ({first}, {second})" in reason and "cherrypick_snapshot" in reason
    assert refs(table) == before and rows(spark, name) == [1, 2, 5]
    spark.sql(f"CALL prod.system.cherrypick_snapshot('{new_name}', {first})")
    assert rows(spark, name) == [1, 2, 3, 5]
    assert "published-wap-id is the same" in refused(spark, f"CALL prod.system.cherrypick_snapshot('{new_name}', {second})")
    spark.sql(f"CALL prod.system.set_current_snapshot('{new_name}', {first})")
    assert "wap.id is the same" in refused(spark, f"CALL prod.system.cherrypick_snapshot('{new_name}', {second})")
    assert rows(spark, name) == [1, 2, 3]


@pytest.mark.java
@pytest.mark.slow
def test_what_would_reach_readers_at_once_is_refused(spark: SparkSession, prod: Lake, new_name: str) -> None:
    name = f"prod.{new_name}"
    table = orders(spark, prod, new_name)
    spark.sql(f"CALL prod.system.create_tag('{new_name}', 'eod')")
    spark.sql(f"CALL prod.system.create_branch('{new_name}', 'other')")
    before = refs(table)
    insert = "INSERT INTO {} VALUES (3, 'c')"
    with session(spark, branch="audit", id="load-7"):
        assert "are both set" in refused(spark, insert.format(name))
    with session(spark, branch="audit"):
        assert "put rows into the main branch" in refused(spark, f"CREATE OR REPLACE TABLE {name} AS SELECT 3L AS id")
    with session(spark, id="load-7"):
        assert "the branch other, and spark.wap.id" in refused(spark, insert.format(f"{name}.branch_other"))
    with session(spark, branch="eod"):
        assert "that is a tag" in refused(spark, insert.format(name))
    assert refs(table) == before and ids(table.refresh()) == [1, 2]


@pytest.mark.java
@pytest.mark.slow
def test_a_table_that_is_not_to_be_audited_is_written_as_ever(spark: SparkSession, prod: Lake, new_name: str) -> None:
    table = create(prod, new_name, SIMPLE)
    with session(spark, branch="audit"):
        spark.sql(f"INSERT INTO prod.{new_name} VALUES (1, 'a')")
    assert set(refs(table)) == {"main"} and ids(table.refresh()) == [1]


@pytest.mark.java
@pytest.mark.slow
def test_the_first_rows_of_a_table_wait_in_the_sessions_branch_or_under_an_id(spark: SparkSession, prod: Lake, new_name: str) -> None:
    table = create(prod, new_name, SIMPLE, properties=AUDITED)
    name = f"prod.{new_name}"
    with session(spark, branch="audit"):
        spark.sql(f"INSERT INTO {name} VALUES (1, 'a')")
        spark.sql(f"INSERT OVERWRITE {name} VALUES (2, 'b')")
        assert rows(spark, name) == [2]
        spark.sql(f"ALTER TABLE {name} CREATE BRANCH other AS OF VERSION {refs(table)['audit']}")
        spark.sql(f"INSERT INTO {name}.branch_other VALUES (3, 'c')")
        assert rows(spark, name) == [2] and rows(spark, f"{name}.branch_other") == [2, 3]
    with session(spark, id="first"):
        spark.sql(f"INSERT INTO {name} VALUES (4, 'd')")
    assert set(refs(table)) == {"audit", "other"} and rows(spark, name) == ids(table.refresh()) == []

    spark.sql(f"CALL prod.system.fast_forward('{new_name}', 'main', 'audit')")

    assert rows(spark, name) == [2]
    assert maintenance.verify(table.refresh()).is_good


@pytest.mark.java
@pytest.mark.slow
def test_a_stream_goes_on_in_its_branch_and_needs_one(spark: SparkSession, prod: Lake, new_name: str, tmp_path: Path) -> None:
    table = orders(spark, prod, new_name)
    spark.sql(f"CREATE TABLE prod.{new_name}_source (id bigint NOT NULL, note string) TBLPROPERTIES ('encryption.key-id' = 'alias/orders')")

    def run() -> None:
        source = spark.readStream.table(f"prod.{new_name}_source")
        writer = source.writeStream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        query = writer.toTable(f"prod.{new_name}")
        query.awaitTermination()

    with session(spark, branch="audit"):
        for number in (3, 4):
            spark.sql(f"INSERT INTO prod.{new_name}_source VALUES ({number}, 'x')")
            run()
        assert rows(spark, f"prod.{new_name}") == [1, 2, 3, 4]
    with session(spark, id="load-7"), pytest.raises(Exception, match="a stream needs a branch"):
        spark.sql(f"INSERT INTO prod.{new_name}_source VALUES (5, 'x')")
        run()
    assert ids(table.refresh()) == [1, 2]


def loaded(table: Table, branch: str) -> LoadedTable:
    assert isinstance(table, EncryptedTable)
    located = LocatedTable.of_table(table)
    return LoadedTable(located, "prod", "main", table.metadata.current_snapshot_id, is_writable=True, audit_first=AuditFirst(branch))


def test_the_branch_of_an_empty_table_begins_empty_unless_others_wrote_meanwhile(aws: AwsServer, tmp_path: Path) -> None:
    catalog = encrypted_sql_catalog(tmp_path, aws)
    row = pa.table({"id": [1], "note": ["a"]})
    catalog.create_table("db.t", row.schema, properties={"encryption.key-id": MASTER_KEY, **AUDITED})
    planned = loaded(catalog.load_table("db.t"), "audit")

    made = with_branch(planned).located.table

    [empty] = made.metadata.snapshots
    assert refs(made) == {"audit": empty.snapshot_id} and empty.parent_snapshot_id is None and empty.manifests(made.io) == []
    assert maintenance.verify(made).is_good
    with pytest.raises(CommitFailedException, match="run the statement again"):
        with_branch(planned)
    planned = loaded(catalog.load_table("db.t"), "later")
    catalog.load_table("db.t").append(row)
    with pytest.raises(CommitFailedException, match="first rows meanwhile: run the statement again"):
        with_branch(planned)


def test_a_branch_begins_where_the_change_was_planned(aws: AwsServer, tmp_path: Path) -> None:
    catalog = encrypted_sql_catalog(tmp_path, aws)
    row = pa.table({"id": [1], "note": ["a"]})
    catalog.create_table("db.t", row.schema, properties={"encryption.key-id": MASTER_KEY, **AUDITED}).append(row)
    planned = loaded(catalog.load_table("db.t"), "audit")
    catalog.load_table("db.t").append(row)

    made = with_branch(planned)

    assert made.located.table.metadata.refs["audit"].snapshot_id == planned.snapshot_id
    assert with_branch(planned).branch == "audit"
    catalog.load_table("db.t").append(row, branch="audit")
    with pytest.raises(CommitFailedException, match="run the statement again"):
        with_branch(planned)
    with catalog.load_table("db.t").update_schema() as update:
        update.delete_column("note")
    with pytest.raises(ConfigurationError, match="its schema was changed"):
        with_branch(planned)


@pytest.mark.parametrize("appends", [0, 1])
def test_a_blank_branch_is_refused_and_none_is_made(aws: AwsServer, tmp_path: Path, appends: int) -> None:
    catalog = encrypted_sql_catalog(tmp_path, aws)
    row = pa.table({"id": [1], "note": ["a"]})
    table = catalog.create_table("db.t", row.schema, properties={"encryption.key-id": MASTER_KEY, **AUDITED})
    for _ in range(appends):
        table.append(row)

    with pytest.raises(ConfigurationError, match="the name '' of a branch or tag is blank"):
        with_branch(loaded(catalog.load_table("db.t"), ""))

    assert "" not in refs(catalog.load_table("db.t"))
