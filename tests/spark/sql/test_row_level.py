"""DELETE, UPDATE, MERGE and overwrites by condition, in both modes: exact rows, each with the identity that the specification gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tablecrypt import maintenance
from tablecrypt import spark as tcs
from tests.spark.conftest import Lake
from tests.spark.sql.test_write import SIMPLE, create, files, stored
from tests.spark.sql.test_write_failures import after_some_rows
from tests.support.plaintext import CANARY
from tests.support.tables import ids, path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
COPY: Final = "copy-on-write"
MARK: Final = "merge-on-read"
MODES: Final = (COPY, MARK)
BUCKETS: Final = PartitionSpec(PartitionField(1, 1000, BucketTransform(3), "bucket"))
SPECS: Final = {"plain": PartitionSpec(), "bucket": BUCKETS}
BY_NOTE: Final = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "note"))
ROWS: Final = 300


def each_in_one_mode(cases: Iterable[str]) -> list[Any]:
    """The parameters of a test: each case in one of the modes, in turn. The campaign has both."""
    return [
        pytest.param(case, mode, marks=[] if (number + MODES.index(mode)) % 2 else pytest.mark.campaign)
        for number, case in enumerate(cases)
        for mode in MODES
    ]


def in_mode(mode: str, **properties: str) -> dict[str, str]:
    return {f"write.{command}.mode": mode for command in ("delete", "update", "merge")} | properties


@dataclass
class Row:
    """What a model knows of a row."""

    note: str | None
    row_id: int
    changed_at: int


def with_lineage(table: Table) -> dict[int, Row]:
    """The rows by id, as Python reads them."""
    read = table.refresh().scan(selected_fields=("id", "note", "_row_id", "_last_updated_sequence_number")).to_arrow()
    rows = {row["id"]: Row(row["note"], row["_row_id"], row["_last_updated_sequence_number"]) for row in read.to_pylist()}
    assert len(rows) == read.num_rows
    return rows


def by_sql(spark: SparkSession, name: str) -> dict[int, Row]:
    read = spark.sql(f"SELECT id, note, _row_id, _last_updated_sequence_number FROM {name}").collect()
    return {row[0]: Row(*row[1:]) for row in read}


def sequence_number(table: Table) -> int:
    head = table.refresh().current_snapshot()
    assert head is not None
    assert head.sequence_number is not None
    return head.sequence_number


@pytest.mark.parametrize(("spec", "mode"), each_in_one_mode(SPECS))
def test_commands_change_exactly_their_rows_and_others_keep_their_identity(
    spark: SparkSession, prod: Lake, new_name: str, spec: str, mode: str
) -> None:
    name = f"prod.{new_name}"
    table = create(prod, new_name, SIMPLE, SPECS[spec], properties=in_mode(mode))
    for first in (0, 100, 200):
        spark.range(first, first + 100, 1, 2).selectExpr("id", f"concat('{CANARY}', id) as note").writeTo(name).append()
    model = with_lineage(table)
    assert sorted(model) == list(range(ROWS))

    def check(statement: str, note: Callable[[int, Row], str | None], gone: Callable[[int], bool], new: dict[int, str | None]) -> None:
        """The rows, and of the new ones only that their ids are theirs alone."""
        spark.sql(statement.format(name=name))
        number, found = sequence_number(table), with_lineage(table)
        for row_id in [each for each in model if gone(each)]:
            del model[row_id]
        for row_id, row in model.items():
            if note(row_id, row) != row.note:
                model[row_id] = Row(note(row_id, row), row.row_id, number)
        for row_id, text in new.items():
            model[row_id] = Row(text, found[row_id].row_id, number)
        assert found == model
        assert len({row.row_id for row in found.values()}) == len(found)
        assert by_sql(spark, name) == model

    def same(_: int, row: Row) -> str | None:
        return row.note

    check("DELETE FROM {name} WHERE id % 7 = 3", same, lambda key: key % 7 == 3, {})
    check(
        "UPDATE {name} SET note = concat('u', id) WHERE id BETWEEN 95 AND 110",
        lambda key, row: f"u{key}" if 95 <= key <= 110 else row.note,
        lambda _: False,
        {},
    )
    check(
        "MERGE INTO {name} t USING (SELECT explode(sequence(90, 330, 10)) AS id) s ON t.id = s.id "
        "WHEN MATCHED AND t.id % 20 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET note = 'm' "
        "WHEN NOT MATCHED AND s.id > 300 THEN INSERT (id, note) VALUES (s.id, 'n') "
        "WHEN NOT MATCHED BY SOURCE AND t.id < 5 THEN UPDATE SET note = NULL "
        "WHEN NOT MATCHED BY SOURCE AND t.id BETWEEN 280 AND 282 THEN DELETE",
        lambda key, row: None if key < 5 else "m" if key % 10 == 0 and key >= 90 else row.note,
        lambda key: (key >= 90 and key % 20 == 0) or 280 <= key <= 282,
        {310: "n", 320: "n", 330: "n"},
    )
    check(
        "UPDATE {name} SET note = 'q' WHERE id IN (SELECT id + 1 FROM {name} WHERE note = 'm')",
        lambda key, row: "q" if key - 1 in model and model[key - 1].note == "m" else row.note,
        lambda _: False,
        {},
    )
    check("DELETE FROM {name} WHERE note = 'u101' OR note IS NULL", same, lambda key: key == 101 or model[key].note is None, {})

    assert bool(vectors(table)) == (mode == MARK)
    assert maintenance.verify(table).is_good
    assert set(stored(table)) <= reachable(table)


def vectors(table: Table) -> list[Any]:
    return [file for task in table.refresh().scan().plan_files() for file in task.delete_files]


def reachable(table: Table) -> set[Path]:
    """The files of all snapshots."""
    return {path_of(path) for path in table.refresh().inspect.all_files()["file_path"].to_pylist()}


@pytest.mark.parametrize("mode", MODES)
def test_rows_of_other_row_groups_stay(spark: SparkSession, prod: Lake, new_name: str, mode: str) -> None:
    table = create(prod, new_name, SIMPLE, properties=in_mode(mode, **{"write.parquet.row-group-limit": "100"}))
    table.append(pa.table({"id": range(1000), "note": [str(key) for key in range(1000)]}, schema=SIMPLE.as_arrow()))
    assert len(files(table)) == 1

    spark.sql(f"DELETE FROM prod.{new_name} WHERE id = 555")
    spark.sql(f"UPDATE prod.{new_name} SET note = 'x' WHERE id >= 990")

    assert ids(table.refresh()) == [*range(555), *range(556, 1000)]


def test_a_condition_that_partitions_or_bounds_answer_deletes_without_a_job(spark: SparkSession, prod: Lake, new_name: str) -> None:
    name = f"prod.{new_name}"
    table = create(prod, new_name, SIMPLE, BY_NOTE)
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, NULL), (4, 'c')")
    before = stored(table)

    assert "DeleteFromTable" in plan_of(spark, f"DELETE FROM {name} WHERE note IN ('a', 'b')")
    spark.sql(f"DELETE FROM {name} WHERE note IN ('a', 'b')")
    assert ids(table.refresh()) == [3, 4]
    spark.sql(f"DELETE FROM {name} WHERE note IS NULL")
    assert ids(table.refresh()) == [4]
    head = table.metadata.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert (head.summary.operation.value, head.summary["engine-name"]) == ("delete", "spark")
    spark.sql(f"DELETE FROM {name} WHERE note = 'nobody'")
    assert table.refresh().metadata.current_snapshot_id == head.snapshot_id
    spark.sql(f"TRUNCATE TABLE {name}")
    assert ids(table.refresh()) == []
    assert stored(table) == before

    spark.sql(f"INSERT INTO {name} VALUES (5, 'e'), (6, 'e'), (7, 'f')")
    assert "DeleteFromTable" in plan_of(spark, f"DELETE FROM {name} WHERE id IN (7)")
    assert "DeleteFromTable" not in plan_of(spark, f"DELETE FROM {name} WHERE id > 5")
    spark.sql(f"DELETE FROM {name} WHERE id > 6")
    assert ids(table.refresh()) == [5, 6]


def plan_of(spark: SparkSession, statement: str) -> str:
    return str(spark.sql(f"EXPLAIN {statement}").collect()[0][0])


def test_an_overwrite_replaces_what_its_condition_covers_and_refuses_parts_of_files(spark: SparkSession, prod: Lake, new_name: str) -> None:
    from pyspark.sql.functions import col

    name = f"prod.{new_name}"
    table = create(prod, new_name, SIMPLE, BY_NOTE)
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, NULL), (4, 'c')")

    spark.sql(f"INSERT OVERWRITE {name} PARTITION (note = 'a') SELECT 10L")
    assert ids(table.refresh()) == [2, 3, 4, 10]
    spark.range(20, 21).selectExpr("id", "'b' as note").writeTo(name).overwrite(col("note").isin("b", "c"))
    assert ids(table.refresh()) == [3, 10, 20]
    spark.sql(f"INSERT INTO {name} REPLACE WHERE note = 'a' SELECT 30L, 'a'")
    assert ids(table.refresh()) == [3, 20, 30]
    before = table.metadata_location, stored(table)
    spark.range(29, 30).selectExpr("id", "'a' as note").writeTo(name).overwrite(col("id") == 30)
    assert ids(table.refresh()) == [3, 20, 29]
    spark.sql(f"INSERT INTO {name} VALUES (30, 'a'), (31, 'a')")
    with pytest.raises(Exception, match="the condition may match some of its rows and not others"):
        spark.range(40, 41).selectExpr("id", "'a' as note").writeTo(name).overwrite(col("id") == 30)
    assert ids(table.refresh()) == [3, 20, 29, 30, 31]
    assert before[0] != table.metadata_location


@pytest.mark.parametrize("mode", MODES)
def test_a_merge_that_matches_a_row_twice_or_fails_changes_nothing(spark: SparkSession, prod: Lake, new_name: str, mode: str) -> None:
    name = f"prod.{new_name}"
    table = create(prod, new_name, SIMPLE, properties=in_mode(mode))
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    before = table.refresh().metadata_location, stored(table)

    with pytest.raises(Exception, match="MERGE_CARDINALITY_VIOLATION"):
        spark.sql(f"MERGE INTO {name} t USING (SELECT 1L AS id FROM range(2)) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET note = 'x'")
    with pytest.raises(Exception, match="on purpose"):
        spark.sql(f"UPDATE {name} SET note = if(id = 2, raise_error('on purpose'), 'x') WHERE id > 0")
    with pytest.raises(Exception, match=r"NOT_NULL_ASSERT_VIOLATION|NULL value appeared"):
        spark.sql(f"UPDATE {name} SET id = if(id = 2, NULL, id) WHERE id > 0")

    assert (table.refresh().metadata_location, stored(table)) == before


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_others_changes_meanwhile_are_conflicts_as_the_isolation_level_says(
    spark: SparkSession, prod: Lake, new_name: str, mode: str, isolation: str
) -> None:
    name, properties = f"prod.{new_name}", prod.properties
    table = create(prod, new_name, SIMPLE, properties=in_mode(mode, **{"write.merge.isolation-level": isolation}))
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")

    def change(act: Callable[[Table], None]) -> Callable[[], None]:
        def run() -> None:
            from pyiceberg.catalog import load_catalog

            act(load_catalog("prod", **properties).load_table(new_name))

        return run

    def merge(act: Callable[[Table], None]) -> None:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
        source = after_some_rows(spark.range(1, 100, 1, 1).selectExpr("id"), change(act))
        source.createOrReplaceTempView("source")
        spark.sql(f"MERGE INTO {name} t USING source s ON t.id = s.id WHEN MATCHED THEN UPDATE SET note = 'm'")

    schema = SIMPLE.as_arrow()

    def append(other: Table) -> None:
        # The source is read twice where Spark first looks for the files with matches.
        if not other.scan("id = 50").to_arrow().num_rows:
            other.append(pa.table({"id": [50], "note": ["z"]}, schema=schema))

    def delete(other: Table) -> None:
        other.delete("id = 2")

    try:
        if isolation == "serializable":
            with pytest.raises(Exception, match="ValidationException"):
                merge(append)
            assert rows_of(table) == {1: "a", 2: "b", 50: "z"}
        else:
            merge(append)
            assert rows_of(table) == {1: "m", 2: "m", 50: "z"}
        before = rows_of(table)
        with pytest.raises(Exception, match="ValidationException"):
            merge(delete)
        assert rows_of(table) == {key: note for key, note in before.items() if key != 2}
        assert set(stored(table)) <= reachable(table)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def rows_of(table: Table) -> dict[int, str]:
    return {key: row.note or "" for key, row in sorted(with_lineage(table).items())}


@pytest.mark.parametrize("mode", MODES)
def test_branches_are_written_to_and_tags_are_not(spark: SparkSession, prod: Lake, new_name: str, mode: str) -> None:
    name = f"prod.{new_name}"
    table = create(prod, new_name, SIMPLE, BUCKETS, properties=in_mode(mode))
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    head = table.refresh().metadata.current_snapshot_id
    assert head is not None
    table.manage_snapshots().create_branch(head, "side").create_tag(head, "then").commit()

    spark.sql(f"INSERT INTO {name}.branch_side VALUES (4, 'd')")
    spark.sql(f"UPDATE {name}.branch_side SET note = 'x' WHERE id = 1")
    spark.sql(f"DELETE FROM {name}.branch_side WHERE id = 2")
    spark.sql(f"MERGE INTO {name}.branch_side t USING (SELECT 3L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET note = 'y'")

    side = {row["id"]: row["note"] for row in table.refresh().scan().use_ref("side").to_arrow().to_pylist()}
    assert side == {1: "x", 3: "y", 4: "d"}
    assert rows_of(table) == {1: "a", 2: "b", 3: "c"}
    for statement in (
        "INSERT INTO {} VALUES (9, 'z')",
        "DELETE FROM {} WHERE id = 1",
        "UPDATE {} SET note = 'z'",
        "TRUNCATE TABLE {}",
    ):
        with pytest.raises(Exception, match="which cannot change: write to the table or a branch"):
            spark.sql(statement.format(f"{name}.tag_then"))


@pytest.mark.parametrize("mode", MODES)
def test_columns_and_partitions_that_changed_keep_rows_whole(spark: SparkSession, prod: Lake, new_name: str, mode: str) -> None:
    name = f"prod.{new_name}"
    schema = Schema(
        NestedField(1, "id", LongType(), required=True), NestedField(2, "note", StringType()), NestedField(3, "old", LongType())
    )
    table = create(prod, new_name, schema, properties=in_mode(mode))
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a', 10), (2, 'b', 20), (3, 'c', 30)")
    with table.update_schema() as update:
        update.rename_column("old", "older")
        update.add_column("new", StringType())
        update.move_first("new")
    with table.update_spec() as spec:
        spec.add_field("note", IdentityTransform(), "by_note")

    spark.sql(f"UPDATE {name} SET new = 'x', older = older + 1 WHERE id = 2")
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT 3L AS id UNION SELECT 4L) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET note = 'cc' WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    spark.sql(f"DELETE FROM {name} WHERE older = 10")

    expected = [("x", 2, "b", 21), (None, 3, "cc", 30), (None, 4, None, None)]
    assert sorted((tuple(row) for row in spark.table(name).collect()), key=lambda row: int(row[1])) == expected
    assert maintenance.verify(table.refresh()).is_good


@pytest.mark.parametrize("mode", MODES)
def test_a_merge_that_only_adds_rows_is_an_append_which_streams_read(spark: SparkSession, prod: Lake, new_name: str, mode: str) -> None:
    table = create(prod, new_name, SIMPLE, properties=in_mode(mode))
    merge = "MERGE INTO prod.{} t USING (SELECT id FROM range({})) s ON t.id = s.id {} WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    for rows in (2, 3, 3):
        spark.sql(merge.format(new_name, rows, ""))
    tcs.write_table(spark.range(3, 4), f"prod.{new_name}", "merge", keys=["id"], catalog_properties=prod.properties)
    spark.sql(merge.format(new_name, 5, "WHEN MATCHED AND t.id = 0 THEN UPDATE SET note = 'b'"))

    history = table.refresh().inspect.snapshots()["operation"].to_pylist()
    assert history == ["append", "append", "append", "overwrite"]


@pytest.mark.parametrize("mode", MODES)
def test_a_merges_counts_are_in_its_snapshots_summary(spark: SparkSession, prod: Lake, new_name: str, mode: str) -> None:
    table = create(prod, new_name, SIMPLE, properties=in_mode(mode))
    table.append(pa.table({"id": range(1, 8), "note": ["a"] * 7}, schema=SIMPLE.as_arrow()))
    spark.sql("SELECT * FROM VALUES (1L), (2L), (3L), (8L), (9L) AS s(id)").createOrReplaceTempView("merged")

    spark.sql(f"""MERGE INTO prod.{new_name} t USING merged s ON t.id = s.id
        WHEN MATCHED AND t.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET note = 'b' WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)
        WHEN NOT MATCHED BY SOURCE AND t.id = 4 THEN DELETE WHEN NOT MATCHED BY SOURCE AND t.id < 6 THEN UPDATE SET note = 'c'""")

    head = table.refresh().current_snapshot()
    assert head is not None and head.summary is not None
    counts = {name: value for name, value in head.summary.additional_properties.items() if name.startswith("spark.merge-into.")}
    expected = {
        "copied": 2 if mode == COPY else 0,
        "deleted": 2,
        "updated": 3,
        "inserted": 2,
        "matched-updated": 2,
        "matched-deleted": 1,
        "not-matched-by-source-updated": 1,
        "not-matched-by-source-deleted": 1,
    }
    # Spark counts since 4.1.
    counted = {f"spark.merge-into.num-target-rows-{name}": str(value) for name, value in expected.items()}
    assert counts == ({} if spark.version.startswith("4.0") else counted)
