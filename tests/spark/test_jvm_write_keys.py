"""A whole write on the JVM path, searched for the keys that it made. What a killed executor leaves looks test_cluster_faults.py at."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

import tablecrypt.spark as tcs
from tablecrypt.errors import ConfigurationError
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.spark.shared.task_keys import ResultKey
from tablecrypt.spark.sql.messages import Response, SentRequest
from tablecrypt.spark.sql.writes.programs import Statement, planned_write, written_by
from tablecrypt.spark.tables import LocatedTable
from tests.spark.conftest import Lake, SparkRun
from tests.support.key_search import found
from tests.support.observed_calls import observed
from tests.support.plaintext import CANARY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "note", StringType()))
KEY = {"encryption.key-id": "alias/orders", "write.target-file-size-bytes": "20000"}


def test_no_key_is_in_plan_event_log_local_file_or_debug_log(spark_run: SparkRun, lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    opened: list[bytes] = []
    lake.catalog.create_table("db.secrets", SCHEMA, properties=KEY)
    rows = spark_run.session.range(0, 20_000, 1, 3).selectExpr("id", f"concat('{CANARY}', cast(rand(1) as string)) as note")

    def record(names: Mapping[str, Any]) -> None:
        opened.append(names["self"].decrypt(names["task"], names["message"]))

    class Observed(Statement):
        def respond(self, sent: SentRequest) -> Response:
            with observed(ResultKey.decrypt, record):
                return super().respond(sent)

    with caplog.at_level(logging.DEBUG):
        located = LocatedTable.of(lake.identifier("db.secrets"), lake.properties)
        planned = planned_write(rows.repartition(2), located, None, None, forced=True)
        assert planned is not None
        files = written_by(Observed(planned))

    keys = [key_metadata_of(file).encryption_key.reveal() for file in files]
    events = spark_run.events()
    haystacks = {"the logs": caplog.text.encode(), **events}
    haystacks |= {str(path): path.read_bytes() for path in spark_run.local_files.rglob("*") if path.is_file()}
    assert len(keys) > 4
    assert found(keys, {"results": b"".join(opened)}) == ["results"], "the search would not see what is not encrypted"
    assert any(b"Range (0, 20000, step=1, splits=3)" in content for content in events.values()), "the write's plan is in the event log"
    assert any(path.endswith(".data") for path in haystacks), "no shuffle file was searched"
    assert b"newPlanner" in haystacks["the logs"]
    assert found(keys, haystacks) == []


def test_unauthenticated_results_are_taken_only_where_that_was_asked_for_and_not_forbidden(
    open_spark: SparkSession, lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    lake.catalog.create_table("db.rows", SCHEMA, properties=KEY)
    rows = open_spark.range(0, 3, 1, 1).selectExpr("id")
    strict = lake.properties | {"tablecrypt.spark.require-encrypted-rpc": "true"}

    with caplog.at_level(logging.DEBUG, "tablecrypt"):
        tcs.write_table(rows, lake.identifier("db.rows"), catalog_properties=lake.properties)
        assert "is written on the Python path: rows would be committed that anyone who reaches the driver may have sent" in caplog.text
        caplog.clear()
        tcs.write_table(rows, lake.identifier("db.rows"), path="jvm", catalog_properties=lake.properties)
        assert "set spark.authenticate and spark.network.crypto.enabled" in caplog.text
    with pytest.raises(ConfigurationError, match=r"set spark\.authenticate and spark\.network\.crypto\.enabled"):
        tcs.write_table(rows, lake.identifier("db.rows"), path="jvm", catalog_properties=strict)
