"""Spark Connect: the portable path, from a client that has no JVM."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tests.spark.conftest import Lake
from tests.spark.test_jvm_path import lake_in
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY
from tests.support.spark_connect import ConnectServer

pytestmark = [pytest.mark.java, pytest.mark.slow]
SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "region", StringType()), NestedField(3, "note", StringType()))
PLAIN = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "note", StringType()))
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
KEY = {"encryption.key-id": "alias/orders"}


@pytest.fixture(scope="module")
def lake_of_client(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = lake_in(tmp_path_factory.mktemp("connect-lake"), aws)
    lake.catalog.create_table("db.rows", SCHEMA, partition_spec=SPEC, properties=KEY)
    for name in ("db.source", "db.sink"):
        lake.catalog.create_table(name, PLAIN, properties=KEY)
    return lake


@pytest.fixture(scope="module")
def answers(java_runtime: None, lake_of_client: Lake, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("connect")
    with ConnectServer(folder) as server:
        return server.run_client({"properties": lake_of_client.properties, "folder": str(folder), "canary": CANARY})


@pytest.mark.parametrize(
    ("step", "held"),
    [
        ("append", list(range(30))),
        ("columns and filter", list(range(25, 30))),
        ("overwrite by filter", [*range(11), 100, 101]),
        ("overwrite partitions", [1, 2, 4, 5, 7, 8, 10, 99, 100, 101]),
        ("merge", [1, 2, 3, 4, 5, 7, 8, 10, 99, 100, 101]),
        ("delete", [3, 4, 7, 10, 99, 100]),
        ("overwrite", list(range(20))),
    ],
)
def test_every_verb_works_from_a_client(answers: dict[str, Any], step: str, held: list[int]) -> None:
    assert answers[step] == held


def test_the_jvm_path_is_refused_with_its_reason(answers: dict[str, Any]) -> None:
    assert "ConfigurationError" in answers["jvm"]["error"]
    assert "the session is one of Spark Connect, which has no JVM at hand" in answers["jvm"]["error"]


def test_the_data_source_reads_and_writes(answers: dict[str, Any]) -> None:
    assert answers["format read"] == list(range(15, 20))
    assert answers["format append"] == list(range(25))
    assert answers["view"] == 25
    assert answers["format overwrite"] == list(range(50, 55))


def test_streams_write_each_batch_once(answers: dict[str, Any], lake_of_client: Lake) -> None:
    assert answers["stream"] == list(range(10))
    assert answers["foreachBatch"] == [*range(10), *range(100, 110)]
    sink: Table = lake_of_client.catalog.load_table("db.sink")
    assert sorted(sink.scan().to_arrow()["id"].to_pylist()) == answers["foreachBatch"]


def test_foreach_batch_asks_for_the_name_that_connect_does_not_tell(answers: dict[str, Any]) -> None:
    assert "give stream_writer a query_id" in answers["foreachBatch without a name"]["error"]
