"""Protected columns in the catalog of Spark SQL: who may use their key sees values, others masks, and no row is written of masks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pytest

import tablecrypt.spark as tcs
from tablecrypt.errors import ColumnKeyDeniedError, FormatError
from tablecrypt.spark.sql.scans.python_reads import portable_tasks, start_reading
from tablecrypt.table.table import EncryptedTable
from tests.spark.conftest import Lake
from tests.spark.sql.test_plan import ID, ONLY_ID, Asked, call
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY
from tests.support.planner_requests import respond
from tests.support.tables import metadata_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = pa.table({"id": [1, 2, 3], "ssn": [f"{CANARY}-{each}" for each in (1, 2, 3)], "note": ["a", "b", "a"]})
BOTH: Final = {"type": "struct", "fields": [ID, {**ID, "name": "ssn", "type": "string"}]}
TABLE_KEY_ALONE: Final = {"encryption.allowed-key-ids": "alias/orders"}


def protected(lake: Lake, aws: AwsServer, name: str, **properties: str) -> EncryptedTable:
    declared = {"encryption.key-id": "alias/orders", "encryption.column-keys": f"{aws.new_key()}: ssn", **properties}
    table = cast("EncryptedTable", lake.catalog.create_table(name, ROWS.schema, properties=declared))
    table.append(ROWS)
    return table


@pytest.fixture
def people(lake: Lake, aws: AwsServer) -> EncryptedTable:
    return protected(lake, aws, "db.people")


@pytest.fixture
def payroll(lake: Lake, people: EncryptedTable) -> Asked:
    return Asked(lake, "db.people")


@pytest.fixture
def analyst(lake: Lake, people: EncryptedTable) -> Asked:
    return Asked(replace(lake, properties=lake.properties | TABLE_KEY_ALONE), "db.people")


def read(asked: Asked, columns: Any) -> list[Any]:
    """The column ssn, as the process of an executor reads it: one that has no catalog and no key service."""
    plan = asked.plan(columns=columns)
    known = asked.planner.plans[plan["plan"]]
    content = asked("open_files", plan=plan["plan"], portable=[0], with_deleted=False).content
    assert content
    [task] = portable_tasks(known.loaded, known.projected, known.readable, {0: known.tasks[0]}, with_deleted=False).values()
    reader = respond(asked.planner, start_reading, task, row_ids=False, last_updated=False, positions=False).fields["reader"]
    rows = asked("next_rows", reader=reader)
    return cast("list[Any]", pa.ipc.open_stream(rows.content).read_all()["ssn"].to_pylist())


def test_a_query_of_a_protected_column_is_read_by_python_and_others_by_spark(payroll: Asked, analyst: Asked) -> None:
    for asked in (payroll, analyst):
        assert asked.plan(columns=ONLY_ID)["portable"] == [None]
        assert "protected" in asked.plan(columns=BOTH)["portable"][0]
    assert read(payroll, BOTH) == ROWS["ssn"].to_pylist()
    assert read(analyst, BOTH) == [None] * 3


@pytest.mark.parametrize(
    "predicate",
    [
        call("=", "ssn", f"{CANARY}-1"),
        call("IS_NOT_NULL", "ssn"),
        {"op": "OR", "args": [call("=", "id", 1), {"op": "NOT", "args": [call("IN", "ssn", "x")]}]},
        {"op": "=", "args": [{"op": "UPPER", "args": [{"column": ["ssn"]}]}, {"value": "X", "type": "string"}]},
        {"op": "?", "args": [{"column": ["ssn"]}]},
    ],
    ids=lambda predicate: str(predicate["op"]),
)
def test_a_condition_on_masks_is_refused_whether_it_is_translated_or_not(payroll: Asked, analyst: Asked, predicate: Any) -> None:
    payroll.plan([predicate])
    with pytest.raises(ColumnKeyDeniedError):
        analyst.plan([predicate])


def test_columns_that_conditions_look_at_are_checked_by_their_path(lake: Lake, aws: AwsServer) -> None:
    rows = pa.table({"id": [1], "person": [{"email": f"{CANARY}@example.org", "age": 7}]})
    declared = {"encryption.key-id": "alias/orders", "encryption.column-keys": f"{aws.new_key()}: person.email"}
    lake.catalog.create_table("db.nested", rows.schema, properties=declared).append(rows)
    payroll, analyst = Asked(lake, "db.nested"), Asked(replace(lake, properties=lake.properties | TABLE_KEY_ALONE), "db.nested")
    for asked in (payroll, analyst):
        with pytest.raises(FormatError, match=r"no protected column person\.age"):
            asked("check_conditions", table=asked.table, columns=[["person", "age"]])
    assert payroll("check_conditions", table=payroll.table, columns=[["person", "email"]]).fields == {}
    with pytest.raises(ColumnKeyDeniedError):
        analyst("check_conditions", table=analyst.table, columns=[["person", "email"]])


def test_rows_are_not_changed_by_what_masks_show(analyst: Asked, payroll: Asked) -> None:
    asked: dict[str, Any] = {"options": {}, "filter": [], "answered": [], "limit": None, "grouped": False, "row_level": True}
    payroll("plan", table=payroll.table, columns=json.dumps(BOTH), **asked)
    analyst("plan", table=analyst.table, columns=json.dumps(ONLY_ID), **asked)
    with pytest.raises(ColumnKeyDeniedError):
        analyst("plan", table=analyst.table, columns=json.dumps(BOTH), **asked)


def test_manifests_do_not_answer_for_a_column_that_was_declared_later(lake: Lake, aws: AwsServer) -> None:
    table = cast("EncryptedTable", lake.catalog.create_table("db.late", ROWS.schema, properties={"encryption.key-id": "alias/orders"}))
    table.append(pa.table({"id": [1, 2, 3], "ssn": ["1", "2", "3"], "note": ["a", "b", "a"]}))
    asked = Asked(lake, "db.late")

    def counted(column: str) -> Mapping[str, Any]:
        functions = [{"function": "count", "column": [column]}]
        return asked("aggregate", table=asked.table, options={}, functions=functions, filter=[]).fields

    assert counted("ssn") == {"values": [3]}

    with table.transaction() as transaction:
        transaction.set_properties({"encryption.column-keys": f"{aws.new_key()}: ssn"})
    asked = Asked(lake, "db.late")
    assert counted("ssn") == {}
    assert counted("id") == {"values": [3]}


@pytest.mark.java
def test_statements_by_who_may_use_the_key_and_by_who_may_not(
    spark: SparkSession, of_analyst: SparkSession, prod: Lake, aws: AwsServer, new_name: str
) -> None:
    table, name = protected(prod, aws, new_name), f"prod.{new_name}"
    assert {row["id"]: row["ssn"] for row in spark.table(name).collect()} == dict(enumerate(ROWS["ssn"].to_pylist(), 1))
    assert {row["ssn"] for row in of_analyst.table(name).collect()} == {None}

    def ids(session: SparkSession, condition: str) -> list[int]:
        return sorted(row["id"] for row in session.sql(f"SELECT id FROM {name} AS t WHERE {condition}").collect())

    assert ids(spark, f"ssn = '{CANARY}-2'") == ids(of_analyst, "note = 'b'") == [2]
    for condition in (
        f"ssn = '{CANARY}-2'",
        "ssn IS NULL",
        "upper(ssn) = 'X'",
    ):
        with pytest.raises(Exception, match="does not let you use"):
            ids(of_analyst, condition)

    for statement in (
        "INSERT INTO {} SELECT * FROM {}",
        "INSERT OVERWRITE {} SELECT * FROM {}",
        "UPDATE {} SET note = 'x' WHERE id = 1",
        "INSERT INTO {} VALUES (4, NULL, 'd')",
        "MERGE INTO {} t USING (SELECT 4L AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (4)",
        "DELETE FROM {} WHERE upper(ssn) = 'X'",
        "DELETE FROM {} WHERE ssn IS NULL",
    ):
        with pytest.raises(Exception, match="does not let you use"):
            of_analyst.sql(statement.format(name, name))
    assert table.refresh().scan().to_arrow().sort_by("id")["ssn"].to_pylist() == ROWS["ssn"].to_pylist()

    of_analyst.sql(f"DELETE FROM {name} WHERE id = 1")
    spark.sql(f"DELETE FROM {name} WHERE ssn = '{CANARY}-3'")
    spark.sql(f"MERGE INTO {name} t USING (SELECT 9 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE")
    assert table.refresh().scan().to_arrow()["id"].to_pylist() == [2]
    assert spark.sql(f"SELECT max(ssn) AS highest FROM {name}").collect()[0]["highest"] == f"{CANARY}-2"
    assert len(metadata_of(table).key_ring.column_keys) == 1


CONDITIONS: Final = {
    "cast": "SELECT id FROM {t} WHERE cast(substr(ssn, -1) AS int) = 3",
    "function of Python": "SELECT id FROM {t} WHERE last_of(ssn) = '3'",
    "behind a name": "SELECT id FROM (SELECT id, concat(ssn, '!') AS s FROM {t} LIMIT 9) WHERE s LIKE '%3!'",
    "join": "SELECT a.id FROM {t} a JOIN (SELECT max(ssn) AS s FROM {t}) b ON concat('x', a.ssn) = concat('x', b.s)",
    "exists": "SELECT id FROM {t} a WHERE EXISTS (SELECT 1 FROM {t} b WHERE b.ssn = a.ssn AND b.id = 3)",
    "in a query": "SELECT id FROM {t} WHERE id > 2 AND ssn IN (SELECT max(ssn) FROM {t})",
    "value of a query": "SELECT id FROM {t} WHERE concat(id, '') = (SELECT substr(max(ssn), -1) FROM {t})",
    "having": "SELECT max(id) AS id FROM {t} GROUP BY note HAVING max(ssn) LIKE '%3'",
    "filter of an aggregate": "SELECT max(id) FILTER (WHERE upper(ssn) LIKE '%3') AS id FROM {t}",
    "case": "SELECT max(CASE WHEN ssn LIKE '%3' THEN id END) AS id FROM {t}",
    "count_if": "SELECT 2 + count_if(ssn LIKE '%3') AS id FROM {t}",
    "yes or no": "SELECT id FROM (SELECT id, rand() < 2 AND ssn LIKE '%3' AS hit FROM {t}) WHERE hit",
    "window": "SELECT id FROM (SELECT id, lead(ssn) OVER (ORDER BY id DESC) AS s FROM {t}) WHERE s LIKE '%2'",
    "union": "SELECT id FROM (SELECT id, note FROM {t} WHERE id = 0 UNION ALL SELECT id, ssn FROM {t}) WHERE concat(note, '') LIKE '%3'",
    "common": "WITH w AS (SELECT *, rand() AS r FROM {t}) SELECT a.id FROM w a JOIN w b ON a.r = b.r WHERE right(b.ssn, 1) = '3'",
    "set": "SELECT 3 AS id FROM (SELECT ssn FROM {t} INTERSECT SELECT max(ssn) FROM {t})",
    "explode": "SELECT id FROM (SELECT id, explode(split(ssn, '-')) AS part FROM {t}) WHERE part = '3'",
}
"""Queries whose conditions Spark evaluates by itself. With the values of ssn, each returns the row 3 alone."""


def is_refused(session: SparkSession, query: str) -> bool:
    from pyspark.errors import IllegalArgumentException

    try:
        session.sql(query).collect()
    except IllegalArgumentException as error:
        return "does not let you use" in str(error)
    return False


@pytest.mark.java
def test_no_condition_is_evaluated_on_masks_by_spark_itself(
    spark: SparkSession, of_analyst: SparkSession, prod: Lake, aws: AwsServer, new_name: str
) -> None:
    protected(prod, aws, new_name)
    table = f"prod.{new_name}"
    for session in (spark, of_analyst):
        session.udf.register("last_of", lambda text: text and text[-1])
    queries = {name: query.format(t=table) for name, query in CONDITIONS.items()}
    assert {name: [row["id"] for row in spark.sql(query).collect()] for name, query in queries.items()} == {name: [3] for name in queries}
    assert [name for name, query in queries.items() if not is_refused(of_analyst, query)] == []
    for session, highest in ((spark, f"{CANARY}-3"), (of_analyst, None)):
        shown = session.sql(f"SELECT id, ssn, coalesce(ssn, '?') AS s FROM {table} WHERE note = 'a' ORDER BY ssn, id").collect()
        assert [(row["id"], row["ssn"] is None, row["s"] == "?") for row in shown] == [
            (1, not highest, not highest),
            (3, not highest, not highest),
        ]
        assert session.sql(f"SELECT max(ssn) FROM {table} GROUP BY note ORDER BY 1 DESC").collect()[0][0] == highest
        cached = session.table(table).cache()
        assert cached.count() == 3
        assert [row["id"] for row in cached.where("concat(id, '') = '3'").collect()] == [3]
        if highest:
            assert [row["id"] for row in cached.where(f"ssn = '{highest}'").collect()] == [3]
        else:
            with pytest.raises(Exception, match="does not let you use"):
                cached.where(f"ssn = '{CANARY}-3'").collect()
        cached.unpersist()


@pytest.mark.java
def test_a_stream_s_conditions_are_not_evaluated_on_masks(
    spark: SparkSession, of_analyst: SparkSession, prod: Lake, aws: AwsServer, new_name: str
) -> None:
    protected(prod, aws, new_name)

    def ids(session: SparkSession, condition: str) -> list[int]:
        rows = session.readStream.table(f"prod.{new_name}").where(condition).select("id")
        name = f"found_{new_name[3:]}"
        query = rows.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        query.awaitTermination()
        return sorted(row["id"] for row in session.table(name).collect())

    assert ids(spark, f"ssn = '{CANARY}-3'") == [3]
    assert ids(of_analyst, "note = 'a'") == [1, 3]
    with pytest.raises(Exception, match="does not let you use"):
        ids(of_analyst, f"ssn = '{CANARY}-3'")


@pytest.mark.java
def test_a_table_is_declared_by_sql_and_its_rows_are_copied_as_the_user_sees_them(
    spark: SparkSession, of_analyst: SparkSession, prod: Lake, aws: AwsServer, new_name: str
) -> None:
    name, properties = f"prod.{new_name}", f"'encryption.key-id' = 'alias/orders', 'encryption.column-keys' = '{aws.new_key()}: ssn'"
    spark.sql(f"CREATE TABLE {name} (id bigint, ssn string, note string) TBLPROPERTIES ({properties})")
    rows = spark.createDataFrame(ROWS.to_pandas())
    tcs.write_table(rows, name, catalog_properties=prod.properties)
    tcs.write_table(rows.selectExpr("id + 3 AS id", "ssn", "note"), name, catalog_properties=prod.properties)
    spark.sql(f"CALL prod.system.rewrite_data_files(table => '{new_name}', options => map('rewrite-all', 'true'))")
    assert spark.sql(f"SELECT count(*) FROM {name}.files WHERE content = 0").collect()[0][0] == 1
    assert sorted(row["ssn"] for row in spark.table(name).collect()) == sorted(2 * ROWS["ssn"].to_pylist())

    key = "TBLPROPERTIES ('encryption.key-id' = 'alias/orders')"
    for session, seen in ((spark, set(ROWS["ssn"].to_pylist())), (of_analyst, {None})):
        copy = f"{name}_{len(seen)}"
        session.sql(f"CREATE TABLE {copy} {key} AS SELECT * FROM {name}")
        assert {row["ssn"] for row in spark.table(copy).collect()} == seen
