"""Joins on partitions: of rows that are read, and of rows that change. No side is shuffled, and the rows are those of a shuffled join."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

import tablecrypt.spark as tcs
from tests.spark.conftest import Lake
from tests.spark.sql.test_row_level import COPY, MARK, each_in_one_mode, in_mode
from tests.spark.sql.test_row_level import plan_of as plan_of_change
from tests.spark.test_jvm_path import KEY, plan_of
from tests.support.tables import path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
SHUFFLED: Final = {
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.enabled": "false",
}
GROUPED: Final = SHUFFLED | {
    "spark.sql.iceberg.planning.preserve-data-grouping": "true",
    "spark.sql.sources.v2.bucketing.enabled": "true",
    "spark.sql.sources.v2.bucketing.pushPartValues.enabled": "true",
    "spark.sql.sources.v2.bucketing.allowJoinKeysSubsetOfPartitionKeys.enabled": "true",
    "spark.sql.sources.v2.bucketing.allowCompatibleTransforms.enabled": "true",
}
LINEAGE: Final = "_row_id, _last_updated_sequence_number"
COMMANDS: Final = {
    "delete": "DELETE FROM {t} t WHERE EXISTS (SELECT 1 FROM {s} s WHERE t.id = s.id AND t.dep = s.dep)",
    "update": "UPDATE {t} t SET salary = -1 WHERE EXISTS (SELECT 1 FROM {s} s WHERE t.id = s.id AND t.dep = s.dep)",
    "merge": (
        "MERGE INTO {t} t USING {s} s ON t.id = s.id AND t.dep = s.dep "
        "WHEN MATCHED THEN UPDATE SET t.salary = s.salary WHEN NOT MATCHED THEN INSERT *"
    ),
    "merge_some": (
        "MERGE INTO {t} t USING {s} s ON t.id = s.id AND t.dep = s.dep AND t.dep IN ('hr', 'ops', 'software') "
        "WHEN MATCHED THEN UPDATE SET t.salary = s.salary WHEN NOT MATCHED THEN INSERT *"
    ),
}


def session_with(spark: SparkSession, prod: Lake, settings: dict[str, str]) -> SparkSession:
    session = spark.newSession()
    tcs.catalog(session, "prod", prod.properties)
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


@pytest.fixture
def grouped(spark: SparkSession, prod: Lake) -> SparkSession:
    """A session that joins on partitions."""
    return session_with(spark, prod, GROUPED)


@pytest.fixture
def shuffled(spark: SparkSession, prod: Lake) -> SparkSession:
    """A session that does not."""
    return session_with(spark, prod, SHUFFLED)


def made(spark: SparkSession, name: str, columns: str, partitioning: str, *appends: str, **properties: str) -> str:
    """A table of these columns, with one append for each list of rows."""
    told = ", ".join(f"'{key}' = '{value}'" for key, value in (KEY | properties).items())
    spark.sql(f"CREATE TABLE prod.{name} ({columns}) PARTITIONED BY ({partitioning}) TBLPROPERTIES ({told})")
    for rows in appends:
        spark.sql(f"INSERT INTO prod.{name} VALUES {rows}")
    return f"prod.{name}"


def rows_of(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in spark.sql(query).collect()), key=str)


@pytest.mark.parametrize(("kind", "mode"), each_in_one_mode(COMMANDS))
def test_a_change_by_a_join_on_partitions_shuffles_no_rows(
    grouped: SparkSession, shuffled: SparkSession, new_name: str, mode: str, kind: str
) -> None:
    command = kind.partition("_")[0]
    properties = in_mode(mode) | {f"write.{command}.distribution-mode": "none"}
    columns = "id INT, salary INT, dep STRING"
    changed = [
        made(
            shuffled,
            f"{new_name}{each}",
            columns,
            "dep",
            "(1, 100, 'hr')",
            "(2, 200, 'hr'), (3, 300, 'hr')",
            "(4, 400, 'hardware'), (6, 600, 'software'), (7, 700, NULL)",
            **properties,
        )
        for each in "ab"
    ]
    source = made(
        shuffled, f"{new_name}s", columns, "dep", "(1, 110, 'hr'), (5, 500, 'hr')", "(6, 300, 'software'), (10, 1000, 'ops'), (7, 7, NULL)"
    )
    statements = [COMMANDS[kind].format(t=name, s=source) for name in changed]

    plan = plan_of_change(grouped, statements[0])
    # Spark looks for the files of a copy-on-write change by their names, each once.
    assert plan.count("Exchange") == {COPY: 1, MARK: 0}[mode], plan
    assert plan.count("Exchange hashpartitioning(_file") == {COPY: 1, MARK: 0}[mode]
    grouped.sql(statements[0])
    shuffled.sql(statements[1])
    found, wanted = (rows_of(shuffled, f"SELECT *, {LINEAGE} FROM {name}") for name in changed)
    assert [row[:3] for row in found] == [row[:3] for row in wanted]
    assert len(found) == {"delete": 4, "update": 6}.get(command, 9)
    before = {row[0]: row for row in wanted if row[0] in (1, 2, 3, 4, 6)}
    assert {row[0]: row for row in found if row[0] in before} == before
    assert len({row[3] for row in found}) == len(found)


PARTITIONINGS: Final = {
    "bucket(4, id)|bucket(6, id)": 0,
    "bucket(4, id)|bucket(8, id)": 0,
    "bucket(3, id)|bucket(5, id)": 2,
    "days(at)|hours(at)": 0,
    "months(at)|days(at)": 2,
}
"""Of tables that are joined on these columns, and how many of them Spark shuffles, as with Iceberg's own catalog."""


@pytest.mark.parametrize("sides", PARTITIONINGS, ids=["both_reduced", "one_reduced", "coprime_buckets", "hours_to_days", "days_to_months"])
def test_tables_of_compatible_partitions_are_joined_without_a_shuffle(
    grouped: SparkSession, shuffled: SparkSession, new_name: str, sides: str
) -> None:
    columns = "id BIGINT, at TIMESTAMP, side STRING"
    row = "id, timestamp_seconds((id - 20) * 3541) AS at"
    for side, partitioning in zip("lr", sides.split("|"), strict=True):
        name = made(shuffled, f"{new_name}{side}", columns, partitioning, "(NULL, NULL, 'none')")
        shuffled.sql(
            f"INSERT INTO {name} SELECT {row}, '{side}' FROM range({40 if side == 'l' else 60}) WHERE id % 5 > 0 OR '{side}' = 'l'"
        )
    key = "id" if "bucket" in sides else "at"
    query = f"SELECT l.id, l.at, l.side, r.side FROM prod.{new_name}l l JOIN prod.{new_name}r r ON l.{key} = r.{key}"

    joined = grouped.sql(query)
    plan = plan_of(joined)
    assert "SortMergeJoin" in plan
    assert plan.count("hashpartitioning") == PARTITIONINGS[sides], plan
    found = rows_of(grouped, query)
    assert found == rows_of(shuffled, query)
    assert len(found) == 32
    assert "hashpartitioning" not in plan_of(grouped.sql(f"SELECT {key}, count(DISTINCT side) FROM prod.{new_name}r GROUP BY {key}"))
    outer = query.replace("JOIN", "FULL OUTER JOIN")
    assert rows_of(grouped, outer) == rows_of(shuffled, outer)


def test_a_runtime_filter_prunes_by_a_column_that_is_written_in_another_case(spark: SparkSession, prod: Lake, new_name: str) -> None:
    name = made(spark, new_name, "id BIGINT, data STRING, note STRING", "data, bucket(4, id)")
    spark.sql(f"INSERT INTO {name} SELECT id, concat('d', id % 3), 'n' FROM range(60)")
    spark.createDataFrame([(1, "d1", "x"), (2, "d2", "y")], "id BIGINT, data STRING, kind STRING").createOrReplaceTempView("kinds")
    query = f"SELECT /*+ BROADCAST(d) */ f.* FROM {name} F JOIN kinds d ON f.Id = d.iD AND f.DaTa = d.dAtA WHERE d.kiNd = 'x'"
    wanted = [(1, "d1", "n")]
    assert rows_of(spark, query) == wanted
    (kept,) = rows_of(spark, f"SELECT _file FROM {name} WHERE id = 1")
    gone = [location for (location,) in rows_of(spark, f"SELECT DISTINCT _file FROM {name}") if location != kept[0]]
    assert len(gone) == 11
    for location in gone:
        path_of(location).unlink()

    assert rows_of(spark, query) == wanted
