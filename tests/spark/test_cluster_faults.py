"""Executors that die, tasks that fail and tasks that run twice, on a cluster of two hosts: rows are exact, and leftovers are found."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, UUIDType

from tablecrypt.maintenance import remove_orphan_files
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.table.protection.policy import LEAST_BYTES
from tests.spark.conftest import Lake
from tests.spark.test_jvm_path import lake_in
from tests.support.aws import AwsServer
from tests.support.key_search import file_keys, found
from tests.support.plaintext import CANARY
from tests.support.tables import data_files, encrypted_table

pytestmark = [pytest.mark.java, pytest.mark.slow]
JOB: Final = Path(__file__).parents[1] / "support" / "spark_cluster_faults.py"
SCHEMA: Final = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "note", StringType()))
PROPERTIES: Final = {"encryption.key-id": "alias/orders", "write.target-file-size-bytes": "200000"}
ROWS: Final = 8000
SAMPLE: Final = (("write", "python"), ("read", "jvm"), ("sql", "protected"), ("merge", "merge-on-read"))
JOBS: Final = (*SAMPLE, ("write", "jvm"), ("read", "python"), ("merge", "copy-on-write"))
"""The campaign strikes all of them thrice. Elsewhere a sample is struck once: an executor that starts again takes seconds."""
FAULTS: Final = ("raise", "kill", "slow")


def _jobs(often: int) -> tuple[tuple[str, str], ...]:
    return SAMPLE if often == 1 else JOBS


@pytest.fixture(scope="module")
def cluster_lake(often: int, aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = lake_in(tmp_path_factory.mktemp("faults-lake"), aws)
    for name in ("db.read", "db.merged"):
        table = lake.catalog.create_table(name, SCHEMA, properties=PROPERTIES)
        for first in range(0, ROWS, ROWS // 4):
            ids = range(first, first + ROWS // 4)
            table.append(pa.table({"id": pa.array(ids, pa.int64()), "note": [CANARY] * len(ids)}, schema=SCHEMA.as_arrow()))
    lake.catalog.create_table("db.written", SCHEMA, properties=PROPERTIES)
    protected = {"encryption.column-keys": f"{aws.new_key()}: note", "write.target-file-size-bytes": str(LEAST_BYTES)}
    lake.catalog.create_table("db.protected", SCHEMA, properties=PROPERTIES | protected)
    of_refs = Schema(NestedField(1, "id", LongType()), NestedField(2, "ref", UUIDType()))
    refs = lake.catalog.create_table("db.refs", of_refs, properties=PROPERTIES | {"write.delete.mode": "merge-on-read"})
    refs.append(pa.table({"id": range(30), "ref": pa.array([bytes(16)] * 30, pa.uuid())}))
    refs.delete("id < 10")
    return lake


@pytest.fixture(scope="module")
def results(java_runtime: None, often: int, cluster_lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("faults")
    job = {
        "folder": str(folder),
        "properties": cluster_lake.properties,
        "warehouse": str(cluster_lake.warehouse),
        "read": cluster_lake.identifier("db.read"),
        "written": cluster_lake.identifier("db.written"),
        "merged": cluster_lake.identifier("db.merged"),
        "protected": cluster_lake.identifier("db.protected"),
        "portable": cluster_lake.identifier("db.refs"),
        "rows": ROWS,
        "jobs": [(*job, often) for job in _jobs(often)],
        "canary": CANARY,
    }
    run = subprocess.run(
        [sys.executable, str(JOB)], input=json.dumps(job), capture_output=True, text=True, check=False, timeout=1200, cwd=folder
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-6000:]
    answered: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    printed = {str(path): path.read_bytes() for path in folder.glob("work/*/*/std*")}
    return answered | {"printed": {"driver": (run.stdout + run.stderr).encode(), **printed}}


@pytest.mark.parametrize("fault", FAULTS)
def test_rows_are_exact_whatever_happened_to_a_task(results: dict[str, Any], often: int, fault: str) -> None:
    exact = {job: results[f"{' '.join(job)} {fault}"] for job in _jobs(often)}

    assert exact == dict.fromkeys(_jobs(often), often)


def test_every_fault_struck(results: dict[str, Any], often: int) -> None:
    assert results["strikes"] == often * len(_jobs(often)) * len(FAULTS)


def test_executors_get_keys_by_sql_for_their_java_and_their_python(results: dict[str, Any]) -> None:
    assert "BatchScan" in results["chosen"]
    assert results["portable"] == list(range(10, 30))


def test_no_key_of_a_file_is_used_twice_or_printed(results: dict[str, Any], cluster_lake: Lake) -> None:
    assert len(results["printed"]) > 4
    for name in ("db.written", "db.merged", "db.protected"):
        table = encrypted_table(cluster_lake.catalog.load_table(name))
        files = data_files(table)
        assert len({key_metadata_of(file).encryption_key.reveal() for file in files}) == len(files)
        assert found(file_keys(table), results["printed"]) == []


def test_what_dead_executors_left_is_found_and_removed(results: dict[str, Any], often: int, cluster_lake: Lake) -> None:
    table = cluster_lake.catalog.load_table("db.written")
    ids = sorted(table.scan().to_arrow()["id"].to_pylist())
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)

    # Of the Python path's killed executors alone: the drivers of the JVM path and of SQL know of every file and remove what is left of it.
    found = remove_orphan_files(table, older_than=soon).found
    assert len([file for file in found if file.location.endswith(".parquet")]) >= often
    assert len(remove_orphan_files(table, older_than=soon, dry_run=False).deleted) == len(found)

    named = {task.file.file_path.rpartition("/")[2] for task in table.refresh().scan().plan_files()}
    assert {path.name for path in (cluster_lake.warehouse / "db" / "written").rglob("*.parquet")} == named
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == ids


def test_statements_leave_no_file_of_tasks_that_died(results: dict[str, Any], cluster_lake: Lake) -> None:
    assert results["strikes"]
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)
    for name in ("db.merged", "db.protected"):
        assert not remove_orphan_files(cluster_lake.catalog.load_table(name), older_than=soon).found
