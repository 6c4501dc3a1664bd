"""Protected columns in the catalog of Spark SQL: who may use their key sees values, others masks, and no row is written of masks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pytest

import tablecrypt.spark as tcs
from tablecrypt.errors import ColumnKeyDeniedError
from tablecrypt.spark.sql.messages import Request
from tablecrypt.spark.sql.scans.portable import portable_tasks, start_reading
from tablecrypt.table.table import EncryptedTable
from tests.spark.conftest import Lake
from tests.spark.sql.test_plan import ID, ONLY_ID, Asked, call
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY
from tests.support.protected_tables import metadata_of

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
    content = asked("open_files", plan=plan["plan"], portable=[0], marked=False).content
    assert content
    [task] = portable_tasks(known.loaded, known.projected, known.readable, {0: known.tasks[0]}, marked=False).values()
    reader = start_reading(asked.planner, Request({"row_ids": False, "last_updated": False, "positions": False}, task)).fields["reader"]
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


def test_rows_are_not_changed_by_what_masks_show(analyst: Asked, payroll: Asked) -> None:
    asked: dict[str, Any] = {"filter": [], "limit": None, "grouped": False, "row_level": True}
    payroll("plan", table=payroll.table, columns=json.dumps(BOTH), **asked)
    analyst("plan", table=analyst.table, columns=json.dumps(ONLY_ID), **asked)
    with pytest.raises(ColumnKeyDeniedError):
        analyst("plan", table=analyst.table, columns=json.dumps(BOTH), **asked)


def test_manifests_do_not_answer_for_a_column_that_was_declared_later(lake: Lake, aws: AwsServer) -> None:
    table = cast("EncryptedTable", lake.catalog.create_table("db.late", ROWS.schema, properties={"encryption.key-id": "alias/orders"}))
    table.append(pa.table({"id": [1, 2, 3], "ssn": ["1", "2", "3"], "note": ["a", "b", "a"]}))
    asked = Asked(lake, "db.late")
    highest = [{"function": "count", "column": ["ssn"]}]
    assert asked("aggregate", table=asked.table, functions=highest).fields == {"values": [3]}

    with table.transaction() as transaction:
        transaction.set_properties({"encryption.column-keys": f"{aws.new_key()}: ssn"})
    asked = Asked(lake, "db.late")
    assert asked("aggregate", table=asked.table, functions=highest).fields == {}
    assert asked("aggregate", table=asked.table, functions=[{"function": "count", "column": ["id"]}]).fields == {"values": [3]}


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
