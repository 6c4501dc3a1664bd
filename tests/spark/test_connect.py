"""Spark Connect: the Python path, from a client that has no JVM, and what is left when the processes that commit are killed."""

from __future__ import annotations

import datetime as dt
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tablecrypt.maintenance import remove_orphan_files
from tests.spark.conftest import CATALOG, Lake
from tests.spark.test_jvm_path import lake_in
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY
from tests.support.spark_connect import CLIENT, CRASHES, ConnectServer
from tests.support.spark_jar import catalog_settings, spark_jar
from tests.support.tables import REGION_SCHEMA, ids

pytestmark = [pytest.mark.java, pytest.mark.slow]
PLAIN = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "note", StringType()))
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
KEY = {"encryption.key-id": "alias/orders"}


@pytest.fixture(scope="module")
def lake_of_client(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = lake_in(tmp_path_factory.mktemp("connect-lake"), aws)
    lake.catalog.create_table("db.rows", REGION_SCHEMA, partition_spec=SPEC, properties=KEY)
    for name in ("db.source", "db.sink"):
        lake.catalog.create_table(name, PLAIN, properties=KEY)
    people, protection = pa.table({"ssn": [CANARY]}), {"encryption.column-keys": f"{aws.new_key()}: ssn"}
    lake.catalog.create_table("db.people", people.schema, properties=KEY | protection).append(people)
    return lake


@pytest.fixture(scope="module")
def server(java_runtime: None, lake_of_client: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    settings = catalog_settings(CATALOG, lake_of_client.properties)
    with ConnectServer(tmp_path_factory.mktemp("connect"), settings, [spark_jar()]) as running:
        yield running


@pytest.fixture(scope="module")
def results(server: ConnectServer, lake_of_client: Lake, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    job = {"properties": lake_of_client.properties, "folder": str(tmp_path_factory.mktemp("client")), "canary": CANARY}
    return server.answers(CLIENT, job)


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
def test_every_verb_works_from_a_client(results: dict[str, Any], step: str, held: list[int]) -> None:
    assert results[step] == held


@pytest.mark.parametrize("step", ["read by the JVM", "write by the JVM"])
def test_the_jvm_path_is_refused_with_its_reason(results: dict[str, Any], step: str) -> None:
    assert "ConfigurationError" in results[step]["error"]
    assert "the session is one of Spark Connect, whose client has no JVM" in results[step]["error"]


def test_keys_that_spark_would_bring_are_refused_with_the_reason(results: dict[str, Any]) -> None:
    assert "a session of Spark Connect has no broadcasts, so its executors need the KMS" in results["keys by broadcast"]["error"]


def test_the_data_source_reads_and_writes(results: dict[str, Any]) -> None:
    assert results["format read"] == list(range(15, 20))
    assert results["format append"] == list(range(25))
    assert results["view"] == 25
    assert results["format overwrite"] == list(range(50, 55))


@pytest.mark.parametrize("step", ["compact", "compact in order"])
def test_compaction_works_from_a_client(results: dict[str, Any], step: str) -> None:
    assert results[step] == {"groups": 3, "ids": list(range(50, 55))}


def test_masks_are_shown_to_who_asks_for_them(results: dict[str, Any]) -> None:
    assert results["masks by source"] == [None], "the server refuses conditions on them"
    assert "ColumnKeyDeniedError" in results["masks by source, refused"]["error"]
    assert "ColumnKeyDeniedError" in results["masks by function"]["error"]
    assert results["masks by function, asked for"] == [None]


def test_properties_of_catalogs_are_refused_in_the_client(results: dict[str, Any]) -> None:
    assert "configure them where the server runs" in results["catalogs"]["error"]


def test_streams_write_each_batch_once(results: dict[str, Any], lake_of_client: Lake) -> None:
    assert results["stream"] == list(range(10))
    assert results["foreachBatch"] == [*range(10), *range(100, 110)]
    sink: Table = lake_of_client.catalog.load_table("db.sink")
    assert sorted(sink.scan().to_arrow()["id"].to_pylist()) == results["foreachBatch"]


def test_foreach_batch_asks_for_the_name_that_connect_does_not_tell(results: dict[str, Any]) -> None:
    assert "give stream_writer a query_id" in results["foreachBatch without a name"]["error"]


def test_a_client_that_is_killed_between_data_and_commit_commits_nothing(
    server: ConnectServer, lake_of_client: Lake, tmp_path: Path, often: int
) -> None:
    name = f"db.batches_{often}"
    table = lake_of_client.catalog.create_table(name, PLAIN, properties=KEY)
    job = {"what": "batch", "properties": lake_of_client.properties, "table": lake_of_client.identifier(name)}
    job |= {"folder": str(tmp_path), "canary": CANARY}
    for first in range(0, 100 * often, 100):
        table.append(pa.table({"id": range(first, first + 100), "note": [CANARY] * 100}, schema=PLAIN.as_arrow()))
        run = server.run(CRASHES, job | {"first": first, "last": first + 100})
        assert run.returncode == -signal.SIGKILL, run.stderr
        assert ids(table.refresh()) == list(range(first + 100))

    assert orphans_removed(table) >= 2 * often
    assert ids(table.refresh()) == list(range(100 * often))


@pytest.mark.parametrize("point", ["before", "after"])
def test_a_stream_whose_committing_process_is_killed_writes_each_batch_once(
    server: ConnectServer, lake_of_client: Lake, tmp_path: Path, point: str, often: int
) -> None:
    name = f"db.{point}_{often}"
    table = lake_of_client.catalog.create_table(name, PLAIN, properties=KEY)
    job = {"what": "stream", "properties": lake_of_client.properties, "table": lake_of_client.identifier(name), "point": point}

    result = server.answers(CRASHES, job | {"folder": str(tmp_path), "canary": CANARY, "times": often})

    assert result == {"failures": often}
    found = ids(table.refresh())
    assert len(found) >= often * 5
    assert found == list(range(len(found)))
    assert (orphans_removed(table) > 0) == (point == "before")
    assert ids(table.refresh()) == found


def orphans_removed(table: Table) -> int:
    """How many data files nothing named; they are gone now."""
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)
    found = remove_orphan_files(table, older_than=soon, dry_run=False)
    assert len(found.deleted) == len(found.found)
    assert not remove_orphan_files(table, older_than=soon).found
    return len([file for file in found.found if file.location.endswith(".parquet")])
