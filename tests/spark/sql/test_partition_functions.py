"""Partition functions in conditions: files that they rule out are not touched, Spark does not ask rows what partitions answer, and writers
bring rows of a partition together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.spark.sql.test_partition_joins import made, rows_of
from tests.spark.sql.test_row_level import COPY, MARK, in_mode
from tests.support.tables import path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.usefixtures("prod")]
CALLS: Final = re.compile(r"static_invoke\(|applyfunctionexpression\(")
COLUMNS: Final = "id BIGINT, salary INT, dep STRING, ts TIMESTAMP"
ROWS: Final = tuple(
    f"({number}, {number}00, '{dep}', timestamp'{day} 06:00:00')"
    for number, dep, day in ((1, "hr", "1975-01-01"), (2, "hr", "1975-01-01"), (3, "it", "2020-01-01"), (4, "it", "2020-01-01"))
)
COMMANDS: Final = {
    "delete": ("DELETE FROM {t} t WHERE {where} AND t.id IN (SELECT id FROM {t} VERSION AS OF {v})", {COPY: 1, MARK: 0}),
    "update": ("UPDATE {t} t SET salary = -1 WHERE {where} AND t.id IN (SELECT id FROM {t} VERSION AS OF {v})", {COPY: 2, MARK: 0}),
    "merge": (
        "MERGE INTO {t} t USING (SELECT id FROM {t} VERSION AS OF {v}) s ON t.id = s.id AND {where} "
        "WHEN MATCHED THEN UPDATE SET salary = -1",
        {COPY: 0, MARK: 0},
    ),
}


BUCKET: Final = ("bucket(4, dep)", "prod.system.bucket(4, dep) IN (2, 3)")
YEARS: Final = ("years(ts)", "prod.system.years(ts) > 30")
TRUNCATE: Final = ("truncate(1, dep)", "'i' = prod.system.truncate(1, dep)")


@pytest.mark.parametrize(
    ("command", "mode", "by"),
    [
        ("delete", COPY, BUCKET),
        ("delete", MARK, YEARS),
        ("update", COPY, YEARS),
        ("update", MARK, TRUNCATE),
        ("merge", COPY, TRUNCATE),
        ("merge", MARK, BUCKET),
    ],
    ids=str,
)
def test_a_change_by_a_partition_function_opens_no_other_file_and_calls_no_function_on_rows(
    spark: SparkSession, new_name: str, command: str, mode: str, by: tuple[str, str]
) -> None:
    partitioning, condition = by
    table = made(spark, new_name, COLUMNS, partitioning, ", ".join(ROWS), **in_mode(mode) | {f"write.{command}.distribution-mode": "none"})
    [version] = [row[0] for row in spark.sql(f"SELECT snapshot_id FROM {table}.snapshots").collect()]
    kept = rows_of(spark, f"SELECT id, salary FROM {table} WHERE NOT ({condition})")
    assert 0 < len(kept) < len(ROWS)
    for location in [row[0] for row in spark.sql(f"SELECT DISTINCT _file FROM {table} WHERE NOT ({condition})").collect()]:
        Path(path_of(location)).rename(f"{path_of(location)}.away")

    statement, calls = COMMANDS[command]
    # The other side reads the files of the condition too.
    changed = statement.format(t=table, v=version, where=condition).replace(f"OF {version}", f"OF {version} WHERE {condition}")
    assert len(CALLS.findall(spark.sql(f"EXPLAIN FORMATTED {changed}").collect()[0][0])) == calls[mode]
    spark.sql(changed)
    for away in Path(path_of(location)).parent.parent.rglob("*.away"):
        away.rename(away.with_suffix(""))
    found = rows_of(spark, f"SELECT id, salary FROM {table}")
    assert [row for row in found if row[1] != -1] == kept
    assert len(found) == (len(kept) if command == "delete" else len(ROWS))


def test_a_query_by_a_partition_function_leaves_it_to_the_plan_and_deletes_whole_files(spark: SparkSession, new_name: str) -> None:
    table = made(spark, new_name, COLUMNS, "bucket(4, dep), days(ts)", ", ".join(ROWS))

    def shown(condition: str) -> str:
        plan: str = spark.sql(f"EXPLAIN SELECT count(*) FROM {table} WHERE {condition}").collect()[0][0]
        return plan

    assert "Filter (" not in shown("prod.system.days(ts) = date'2020-01-01'")
    assert "LocalTableScan" in shown("prod.system.bucket(4, dep) = prod.system.bucket(4, 'it')")
    assert CALLS.search(shown("prod.system.bucket(5, dep) = 2"))
    assert rows_of(spark, f"SELECT id FROM {table} WHERE prod.system.bucket(5, dep) = prod.system.bucket(5, 'it')") == [(3,), (4,)]

    spark.sql(f"DELETE FROM {table} WHERE prod.system.days(ts) < date'2000-01-01'")
    assert rows_of(spark, f"SELECT operation, summary['deleted-data-files'] FROM {table}.snapshots")[-1] == ("delete", "1")
    assert rows_of(spark, f"SELECT id FROM {table}") == [(3,), (4,)]


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("bucket(10, 8Y)", 3),
        ("bucket(100, 34L)", 79),
        ("bucket(64, CAST('12.34' AS DECIMAL(9, 2)))", 56),
        ("bucket(128, 'abc')", 122),
        ("bucket(12, X'61626364656667')", 10),
        ("bucket(5S, 1L)", 1),
        ("bucket(2, CAST(null AS long))", None),
        ("bucket(2, CAST(null AS string))", None),
        ("truncate(10, -1Y)", -10),
        ("truncate(10, -11S)", -20),
        ("truncate(2, 'ab' || 'cd')", "ab"),
        ("truncate(2, CAST(null AS decimal))", None),
        ("years(date'1969-12-31')", -1),
        ("months(timestamp'2020-03-15 00:00:00')", 602),
        ("hours(timestamp_ntz'1969-12-31 23:30:00')", -1),
    ],
)
def test_functions_have_icebergs_values_and_are_called_by_compiled_code(spark: SparkSession, call: str, value: object) -> None:
    assert spark.sql(f"SELECT prod.system.{call}").collect()[0][0] == value
    name = call.partition("(")[0].title()
    assert (
        f"static_invoke(tablecrypt.jvm.PartitionFunctions${name}."
        in spark.sql(f"EXPLAIN EXTENDED SELECT prod.system.{call}").collect()[0][0]
    )


@pytest.mark.parametrize(
    ("condition", "filters", "left"),
    [
        ("dep <=> 'hr'", "dep = 'hr'", ""),
        ("dep IN (null, 'hr')", "dep IN ('hr')", ""),
        ("dep NOT IN ('hr', 'x')", "(dep IS NOT NULL AND dep NOT IN ('hr', 'x'))", ""),
        ("dep LIKE '%r' AND id IN (1, 5)", "dep IS NOT NULL, id IN (1, 5)", "EndsWith(dep, r) AND id IN (1,5)"),
        ("dep NOT LIKE 'x%' AND (id = 1 OR id = 5)", "dep IS NOT NULL, NOT (dep LIKE 'x%'), (id = 1 OR id = 5)", "(id = 1) OR (id = 5)"),
        ("code IN (X'0aff', X'0b')", "code IN (X'0AFF', X'0B')", "code IN (0x0AFF,0x0B)"),
        ("salary > 1.5 AND ts < timestamp'2020-01-01 00:00:00'", "salary IS NOT NULL, ts IS NOT NULL, ", "isnotnull(salary)"),
    ],
)
def test_a_plan_shows_filters_in_icebergs_wording(spark: SparkSession, new_name: str, condition: str, filters: str, left: str) -> None:
    table = made(spark, new_name, f"{COLUMNS}, code BINARY", "dep")
    plan = re.sub(r"#\d+L?", "", spark.sql(f"EXPLAIN SELECT * FROM {table} WHERE {condition}").collect()[0][0])

    assert f", filters={filters}" in plan
    assert left in plan.partition("BatchScan")[0] if left else "Filter (" not in plan


@pytest.mark.parametrize("fans_out", ["true", "false"])
def test_rows_in_any_order_make_one_file_in_each_partition_of_a_task(spark: SparkSession, new_name: str, fans_out: str) -> None:
    properties = {"write.spark.fanout.enabled": fans_out, "write.distribution-mode": "none"}
    table = made(spark, new_name, "id BIGINT, dep STRING, day DATE", "dep, days(day), bucket(2, id)", **properties)
    source = spark.range(0, 3000, 1, 1).selectExpr(
        "id", "if(id % 7 = 0, null, concat('d', id % 5)) AS dep", "date_add(date'2020-01-01', int(id % 3)) AS day"
    )

    source.writeTo(table).append()
    assert "Sort" in spark.sql(f"EXPLAIN INSERT INTO {table} SELECT * FROM {table}").collect()[0][0] or fans_out == "true"
    assert rows_of(spark, f"SELECT * FROM {table}") == sorted((tuple(row) for row in source.collect()), key=str)
    [counts] = spark.sql(f"SELECT count(DISTINCT _file), count(DISTINCT _partition) FROM {table}").collect()
    assert counts[0] == counts[1] == 36
