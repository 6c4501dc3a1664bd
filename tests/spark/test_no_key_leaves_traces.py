"""Jobs on a cluster, searched from outside for every key: logs of driver and executors, event log, UI, local files, processes."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tablecrypt.table.table import EncryptedTable
from tests.spark.conftest import Lake
from tests.spark.test_jvm_path import lake_in
from tests.support.aws import AwsServer
from tests.support.key_search import file_keys, found
from tests.support.plaintext import CANARY

pytestmark = [pytest.mark.java, pytest.mark.slow]
JOB: Final = Path(__file__).parents[1] / "support" / "spark_cluster_traces.py"
NOTE: Final = 2
SCHEMA: Final = Schema(NestedField(1, "id", LongType(), required=True), NestedField(NOTE, "note", StringType()))


@pytest.fixture(scope="module")
def traced_lake(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = lake_in(tmp_path_factory.mktemp("traced-lake"), aws)
    properties = {"encryption.key-id": "alias/orders"}
    lake.catalog.create_table("db.traced", SCHEMA, properties=properties)
    lake.catalog.create_table("db.people", SCHEMA, properties=properties | {"encryption.column-keys": f"{aws.new_key()}: note"})
    return lake


@pytest.fixture(scope="module")
def traces(java_runtime: None, traced_lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the application left its traces."""
    folder = tmp_path_factory.mktemp("traces")
    job = {
        "folder": str(folder),
        "properties": traced_lake.properties,
        "table": traced_lake.identifier("db.traced"),
        "protected": traced_lake.identifier("db.people"),
        "canary": CANARY,
    }
    with (folder / "driver.log").open("wb") as log:
        run = subprocess.run(
            [sys.executable, str(JOB)], input=json.dumps(job).encode(), stdout=log, stderr=log, check=False, timeout=800, cwd=folder
        )
    assert run.returncode == 0, (folder / "driver.log").read_text(errors="replace")[-6000:]
    return folder


@pytest.fixture(scope="module")
def keys(traces: Path, traced_lake: Lake) -> dict[str, list[bytes]]:
    """Every key of the tables and of the jobs, by what it is."""
    table = cast("EncryptedTable", traced_lake.catalog.load_table("db.traced"))
    metadata, manager = table.metadata, table.io.manager
    keks = [each for each in metadata.encryption_keys if each.encrypted_by_id == manager.table_key_id]
    people = cast("EncryptedTable", traced_lake.catalog.load_table("db.people"))
    ring, columns = people.metadata.key_ring, people.io.manager.columns
    return {
        "DEK": file_keys(table) + file_keys(people),
        "column KEK": [columns.open_kek(ring, each, NOTE).reveal() for each in ring.column_keks],
        "column key": [columns.open(ring, each).reveal() for each in ring.column_keys],
        "KEK": [manager.kms.unwrap_key(base64.b64decode(each.encrypted_key_metadata), manager.table_key_id) for each in keks],
        "job": [bytes.fromhex(line) for line in (traces / "secrets").read_text().split()],
    }


def contents(folder: Path, pattern: str) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob(pattern) if path.is_file()}


@pytest.mark.parametrize(
    ("where", "pattern", "shows"),
    [
        ("the driver's log and its plans", "driver.log", (b"MapInArrow", b"BatchScan db.", b"BatchScan sparktest.", b"DEBUG ")),
        ("what executors printed", "work/*/*/std*", (b"DEBUG ", b"Running task")),
        (
            "the event log",
            "events/*",
            (b"SparkListenerJobEnd", b"SparkListenerEnvironmentUpdate", b"spark.job.tags"),
        ),
        ("local files", "kept/**/*", (b"",)),
        (
            "processes",
            "processes/*",
            (b"CoarseGrainedExecutorBackend", b"pyspark.daemon", b"spark_cluster_traces.py", b"tablecrypt.spark.sql", b"PYTHONPATH="),
        ),
        ("the UI", "ui/*", (b"MapInArrow", b"BatchScan db.", b"spark.network.crypto.enabled")),
    ],
)
def test_no_key_is_in(traces: Path, keys: dict[str, list[bytes]], where: str, pattern: str, shows: tuple[bytes, ...]) -> None:
    haystacks = contents(traces, pattern)

    for content in shows:
        assert any(content in haystack for haystack in haystacks.values()), f"{where}: {content!r} is not there, so this is no search"
    assert found([key for each in keys.values() for key in each], haystacks) == []


def test_keys_of_every_kind_are_searched_for_and_would_be_found(traces: Path, keys: dict[str, list[bytes]]) -> None:
    assert len(keys["DEK"]) >= 6
    assert len(keys["column KEK"]) == len(keys["column key"]) == 1
    assert len(keys["KEK"]) == 1
    assert len(keys["job"]) >= 6
    log = (traces / "driver.log").read_bytes()
    forms: tuple[Callable[[bytes], bytes], ...] = (bytes, base64.b64encode, lambda key: key.hex().encode())
    for kind in keys.values():
        for key in kind:
            for form in forms:
                assert found([key], {"log": log + form(key)}) == ["log"]


def test_rows_are_all_there(traces: Path, traced_lake: Lake) -> None:
    rows: pa.Table = traced_lake.catalog.load_table("db.traced").scan().to_arrow()
    assert sorted(rows["id"].to_pylist()) == sorted({*range(4000)} - {3002})
    people: pa.Table = traced_lake.catalog.load_table("db.people").scan().to_arrow()
    expected = {each: f"{CANARY} again" if each < 10 else CANARY for each in range(40)}
    assert dict(zip(people["id"].to_pylist(), people["note"].to_pylist(), strict=True)) == expected


def test_procedures_ran_on_the_executors(traces: Path) -> None:
    started = b"".join(contents(traces, "events/*").values()).split(b'"Event":"SparkListenerJobStart"')
    assert [job for job in started if b"tablecrypt-" in job.partition(b'"spark.job.tags"')[2][:200]]
