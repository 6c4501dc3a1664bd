"""A cluster of several nodes: it keeps no key, and killed workers, nodes without rights and drivers that die do no harm."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import moto.settings
import pyarrow as pa
import pytest
import ray
from pyiceberg.catalog import load_catalog
from ray.cluster_utils import Cluster

import tablecrypt.ray as tcr
from tablecrypt import maintenance
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import KmsAccessDeniedError
from tablecrypt.table.table import EncryptedTable
from tests.ray.conftest import started
from tests.support.aws import CREDENTIALS, REGION, AwsServer
from tests.support.key_search import file_keys, found
from tests.support.observed_calls import observed
from tests.support.plaintext import CANARY
from tests.support.protected_tables import COLUMN_KEY, PEOPLE_SCHEMA, TABLE_KEY
from tests.support.tables import MASTER_KEY, data_paths, ids, key_file_kms, new_table, rows

ROOT = Path(__file__).parents[2]
GOOD = {"resources": {"good": 0.001}}
"""For tasks that run on nodes with rights alone."""
DASHBOARD = (
    *(f"api/v0/{what}?detail=true" for what in ("tasks", "objects", "actors", "workers", "nodes", "runtime_envs", "cluster_events")),
    *("api/jobs/", "api/cluster_status", "nodes?view=summary", "logical/actors", "events", "api/v0/tasks/summarize"),
)
"""What the dashboard shows of tasks, objects, processes and events."""
EVERYTHING_IS_STORED_AND_SPILLED = {"max_direct_call_object_size": 64, "object_spilling_threshold": 0.001, "min_spilling_size": 1}


@pytest.fixture(scope="module")
def server() -> Iterator[AwsServer]:
    """A KMS that looks at who calls, and an AWS_ACCESS_KEY_ID for this process that may do all."""
    server = AwsServer()
    iam = boto3.client("iam", endpoint_url=server.endpoint, region_name=REGION)
    policy = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}'
    environment: dict[str, dict[str, str]] = {}
    for name in ("driver", "outsider"):
        iam.create_user(UserName=name)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        environment[name] = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
    iam.put_user_policy(UserName="driver", PolicyName="all", PolicyDocument=policy)
    server.outsider = environment["outsider"]  # type: ignore[attr-defined]
    os.environ.update(environment["driver"])
    del os.environ["AWS_SESSION_TOKEN"]
    yield server
    os.environ.update(CREDENTIALS)
    server.stop()


@pytest.fixture(scope="module")
def nodes(server: AwsServer) -> Iterator[Cluster]:
    """Two nodes whose workers have the driver's rights, and one whose workers have none; everything that tasks exchange is spilled."""
    head = {"num_cpus": 1, "resources": {"good": 1}, "object_store_memory": 80_000_000, "_system_config": EVERYTHING_IS_STORED_AND_SPILLED}
    cluster = started(lambda: Cluster(initialize_head=True, head_node_args={**head, "include_dashboard": True, "dashboard_port": 0}))
    started(lambda: cluster.add_node(num_cpus=1, resources={"good": 1}, object_store_memory=80_000_000))
    outsider = {**server.outsider, "AWS_SESSION_TOKEN": ""}  # type: ignore[attr-defined]
    started(lambda: cluster.add_node(num_cpus=1, resources={"outside": 1}, object_store_memory=80_000_000, env_vars=outsider))
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def catalog_of(folder: Path, **kms: str) -> Any:
    properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse", **kms}
    catalog = load_catalog("prod", **{"py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog", **properties})
    catalog.create_namespace_if_not_exists("db")
    return catalog


def orphans(table: EncryptedTable) -> set[str]:
    found = maintenance.remove_orphan_files(table, older_than=dt.datetime.now(dt.UTC))
    return {each.location.rpartition("/")[2] for each in found.found if each.location.endswith(".parquet")}


class DiesOnce:
    """A function of batches that kills its worker, the first time that it is called with rows that have this id."""

    def __init__(self, marker: Path, number: int) -> None:
        self.marker, self.number = marker, number

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        if self.number in batch.column("id").to_pylist() and not self.marker.exists():
            yield batch
            self.marker.touch()
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch


def plasma_of(cluster: Cluster) -> dict[str, bytes]:
    """The object stores of all nodes, as the raylets have them in memory."""
    found: dict[str, bytes] = {}
    for node in cluster.list_all_nodes():
        [process] = node.all_processes["raylet"]
        for descriptor in Path(f"/proc/{process.process.pid}/fd").iterdir():
            if "plasma" in os.readlink(descriptor) and os.access(descriptor, os.R_OK) and descriptor.stat().st_size:
                found[str(descriptor)] = descriptor.read_bytes()
    return found


def files_of(cluster: Cluster) -> dict[str, bytes]:
    """Every file of the session: logs, spilled objects and what else there is."""
    folder = Path(cluster.head_node.get_session_dir_path())
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def answers_of_dashboard(cluster: Cluster) -> Iterator[dict[str, bytes]]:
    """What the dashboard answers while the block runs, asked again and again."""
    answers: dict[str, bytes] = {}
    is_over = threading.Event()

    def ask() -> None:
        number = 0
        while not is_over.wait(0.2):
            number += 1
            for path in DASHBOARD:
                with urllib.request.urlopen(f"http://{cluster.webui_url}/{path}", timeout=60) as answer:
                    answers[f"{path} {number}"] = answer.read()

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield answers
    finally:
        is_over.set()
        asking.join()


def spilled_of(cluster: Cluster) -> dict[str, bytes]:
    return {name: content for name, content in files_of(cluster).items() if "spill" in name}


def spilled_with(cluster: Cluster, planted: bytes) -> list[str]:
    """The spilled objects in which the search finds these bytes, once they are there."""
    until = time.monotonic() + 60
    while not (names := found([planted], spilled_of(cluster))) and time.monotonic() < until:
        time.sleep(0.5)
    return names


@pytest.fixture
def secrets() -> Iterator[set[bytes]]:
    """Every key that this process makes or opens."""
    seen: set[bytes] = set()
    with observed(Secret.__init__, lambda names: seen.add(bytes(names["value"]))):
        yield seen


def test_no_key_is_in_object_stores_spilled_objects_logs_or_the_dashboard(nodes: Cluster, tmp_path: Path, secrets: set[bytes]) -> None:
    catalog = catalog_of(tmp_path, **key_file_kms(tmp_path / "keys.json", TABLE_KEY, COLUMN_KEY))
    properties = {"encryption.column-keys": f"{COLUMN_KEY}: ssn", "write.merge.mode": "copy-on-write"}
    table = new_table(catalog, "db.t", schema=PEOPLE_SCHEMA, properties={"encryption.key-id": TABLE_KEY, **properties})
    people = [rows(first, 1500, PEOPLE_SCHEMA) for first in range(0, 6000, 1500)]

    with answers_of_dashboard(nodes) as answers:
        written = ray.data.from_arrow(people).map_batches(DiesOnce(tmp_path / "first", 1505), batch_format="pyarrow", batch_size=None)
        written.write_datasink(tcr.datasink(table), ray_remote_args=GOOD)
        assert ids(table.refresh()) == list(range(6000))
        ray.data.from_arrow(people[:1]).map_batches(changed, batch_format="pyarrow").write_datasink(
            tcr.datasink(table, "upsert", keys=["id"]), ray_remote_args=GOOD
        )
        dataset = tcr.read_table(table.refresh(), override_num_blocks=4, **GOOD)
        kept = dataset.map_batches(DiesOnce(tmp_path / "second", 300), batch_format="pyarrow", batch_size=None, **GOOD).materialize()
        assert sorted(row["id"] for row in kept.take_all()) == list(range(6000))
    assert (tmp_path / "first").exists()
    assert (tmp_path / "second").exists()
    planted = os.urandom(32)
    held = ray.put(bytes(100_000) + planted)
    assert spilled_with(nodes, planted), "the search finds a key in a spilled object"
    del held
    time.sleep(2)

    haystacks = files_of(nodes) | plasma_of(nodes) | answers
    keys = [*{*secrets, *file_keys(table)}]
    spilled = [content for name, content in haystacks.items() if "spill" in name]
    assert len(keys) >= 20
    assert any(CANARY.encode() in content for content in spilled), "rows were spilled"
    for path in DASHBOARD:
        assert any(content for name, content in answers.items() if name.startswith(path)), path
    assert any(b"EncryptedTable" in content for name, content in answers.items() if "tasks" in name), "the dashboard shows the tasks"
    assert sum("plasma" in os.readlink(name) for name in haystacks if name.startswith("/proc")) >= 3
    assert found(keys, haystacks) == []


def changed(batch: pa.Table) -> pa.Table:
    return batch.set_column(batch.column_names.index("note"), "note", pa.array([f"{CANARY} changed"] * len(batch)))


def test_rows_of_a_task_that_is_killed_while_it_writes_are_committed_once(nodes: Cluster, server: AwsServer, tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path, **server.kms_properties)
    table = new_table(catalog, properties={"write.parquet.row-group-limit": "1000"})
    source = ray.data.from_arrow([rows(0, 5000), rows(5000, 5000)])

    dying = source.map_batches(DiesOnce(tmp_path / "died", 5000), batch_format="pyarrow", batch_size=None)
    dying.write_datasink(tcr.datasink(table), ray_remote_args=GOOD)

    assert (tmp_path / "died").exists()
    assert ids(table.refresh()) == list(range(10000))
    left = {path.name for path in tmp_path.rglob("*.parquet")} - {path.name for path in data_paths(table)}
    assert orphans(table) == left


@pytest.fixture
def who_calls_is_looked_at() -> Iterator[None]:
    """From here on, moto holds each call against the caller's policies."""
    before, moto.settings.INITIAL_NO_AUTH_ACTION_COUNT = moto.settings.INITIAL_NO_AUTH_ACTION_COUNT, 0
    yield
    moto.settings.INITIAL_NO_AUTH_ACTION_COUNT = before


@pytest.mark.usefixtures("who_calls_is_looked_at")
def test_a_node_without_the_right_is_named_in_one_line(nodes: Cluster, server: AwsServer, tmp_path: Path) -> None:
    outside = next(node for node in ray.nodes() if "outside" in node["Resources"])
    catalog = catalog_of(tmp_path, **server.kms_properties)
    table = new_table(catalog, appends=[rows(0)])
    there = {"resources": {"outside": 0.001}}

    with pytest.raises(KmsAccessDeniedError) as reading:
        tcr.read_table(table, **there).take_all()
    with pytest.raises(KmsAccessDeniedError) as writing:
        ray.data.from_arrow(rows(20)).write_datasink(tcr.datasink(table), ray_remote_args=there)

    for raised in (reading, writing):
        [line] = [each for each in str(raised.value).splitlines() if MASTER_KEY in each]
        assert outside["NodeID"] in line
        assert outside["NodeManagerAddress"] in line
    assert len(str(writing.value).splitlines()) == 1
    assert len(str(reading.value).splitlines()) < 10
    assert len(table.refresh().snapshots()) == 1
    assert len(tcr.read_table(table, **GOOD).take_all()) == 20


DRIVER = """
import os, pathlib, signal, sys
import ray
import tablecrypt.ray as tcr
from tests.ray.test_cluster import catalog_of
from tests.support.tables import rows

address, folder, endpoint = sys.argv[1:]
kms = {"encryption.kms-type": "aws", "kms.endpoint": endpoint, "client.region": "us-east-1"}
table = catalog_of(pathlib.Path(folder), **kms).load_table("db.t")
ray.init(address=address, log_to_driver=False)
sink = tcr.datasink(table)
sink.on_write_complete = lambda result: os.kill(os.getpid(), signal.SIGKILL)
ray.data.from_arrow([rows(100), rows(120)]).write_datasink(sink, ray_remote_args={"resources": {"good": 0.001}})
"""


def test_a_driver_that_dies_before_its_commit_leaves_orphan_files_alone(nodes: Cluster, server: AwsServer, tmp_path: Path) -> None:
    table = new_table(catalog_of(tmp_path, **server.kms_properties), appends=[rows(0)])

    path = {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "catalog")))}
    command = [sys.executable, "-c", DRIVER, nodes.address, str(tmp_path), server.endpoint]
    died = subprocess.run(command, env={**os.environ, **path}, capture_output=True, text=True, timeout=180, check=False)

    assert died.returncode == -signal.SIGKILL, died.stderr
    assert len(table.refresh().snapshots()) == 1
    assert len(list(tmp_path.rglob("*.parquet"))) == 3
    assert orphans(table) == {path.name for path in tmp_path.rglob("*.parquet")} - {path.name for path in data_paths(table)}
    assert ids(table) == list(range(20))
