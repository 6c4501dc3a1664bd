"""What a session lacks is said in one sentence before anything starts, and no partition has much more to read than another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.engines.spreading import balanced
from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.network import check_credentials_stay_private, kms_properties
from tablecrypt.spark.session import check_java, check_spark_version, java_major_version, partition_count

ROOT = Path(__file__).parents[2]


def fake_java(folder: Path, banner: str) -> None:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    java.chmod(0o755)


def test_a_missing_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConfigurationError, match="needs Java 17 or newer, and there is no java"):
        check_java()


@pytest.mark.parametrize("banner", ['openjdk version "11.0.20" 2023-07-18', 'java version "1.8.0_392"', "no version"])
def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, banner: str) -> None:
    fake_java(tmp_path, banner)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(ConfigurationError, match=r"needs Java 17 or newer, and .*java is"):
        check_java()


def test_a_new_java_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path, 'openjdk version "21" 2023-09-19')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    check_java()


def test_versions_are_read_in_both_styles() -> None:
    assert [java_major_version(text) for text in ('version "17.0.15"', 'version "1.8.0_392"', "?")] == [17, 8, None]


@pytest.mark.parametrize("version", ["3.5.6", "2.4", "unknown"])
def test_an_old_spark_is_refused(version: str) -> None:
    with pytest.raises(ConfigurationError, match=r"needs Spark 4\.0 or newer, and this session runs"):
        check_spark_version(version)


@pytest.mark.parametrize("version", ["4.0.0", "4.1.4", "5.0.0-preview1", "10.2.0"])
def test_a_new_spark_will_do(version: str) -> None:
    check_spark_version(version)


def test_without_pyspark_the_import_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from tablecrypt.errors import MissingExtraError\n"
        "try:\n    import tablecrypt.spark\nexcept MissingExtraError as error:\n    print(error)\n"
    )
    search_path = os.pathsep.join([str(ROOT), str(ROOT / "catalog")])

    run = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": search_path}, capture_output=True, text=True, check=True
    )

    assert 'pip install "…[spark]"' in run.stdout


def test_executors_get_what_the_kms_client_reads_and_nothing_else() -> None:
    properties = {
        "uri": "postgresql://user:password@host/db",
        "s3.secret-access-key": "x",
        "encryption.kms-type": "aws",
        "kms.endpoint": "http://localhost:5000",
        "client.region": "us-east-1",
        "client.assume-role.tags.team": "a",
    }

    assert set(kms_properties(properties)) == {"encryption.kms-type", "kms.endpoint", "client.region", "client.assume-role.tags.team"}


def test_a_kms_in_the_drivers_memory_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="lives in the driver's process alone"):
        kms_properties({"encryption.kms-type": "memory"})


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ({"spark.master": "local[2]"}, True),
        ({"spark.master": "local"}, True),
        ({"spark.master": "local-cluster[2,1,1024]"}, False),
        ({"spark.master": "yarn"}, False),
        ({"spark.master": "yarn", "spark.authenticate": "true"}, False),
        ({"spark.master": "yarn", "spark.authenticate": "true", "spark.network.crypto.enabled": "true"}, True),
        ({}, False),
    ],
)
def test_credentials_leave_the_machine_only_over_an_encrypted_channel(settings: dict[str, str], allowed: bool) -> None:
    properties = {"client.access-key-id": "a", "client.secret-access-key": "s3cr3t"}

    check_credentials_stay_private({"client.region": "us-east-1"}, settings.get)
    if allowed:
        check_credentials_stay_private(properties, settings.get)
        return
    with pytest.raises(ConfigurationError, match=r"client\.secret-access-key would travel") as caught:
        check_credentials_stay_private(properties, settings.get)
    assert "s3cr3t" not in str(caught.value)


SIZES = st.lists(st.integers(0, 10**9), min_size=1, max_size=200)


@given(sizes=SIZES, count=st.integers(1, 20))
def test_every_task_is_in_one_partition_and_loads_differ_by_one_task_at_most(sizes: list[int], count: int) -> None:
    tasks = list(enumerate(sizes))
    count = min(count, len(tasks))

    parts = balanced(tasks, lambda task: task[1], count)

    assert sorted(task for part in parts for task in part) == tasks
    assert all(parts)
    loads = [sum(max(size, 1) for _, size in part) for part in parts]
    assert max(loads) - min(loads) <= max(*sizes, 1)


@given(sizes=SIZES, cores=st.integers(1, 64))
def test_there_are_never_more_partitions_than_tasks(sizes: list[int], cores: int) -> None:
    count = partition_count(sizes, cores=cores, partition_bytes=2**27, open_cost=2**22)

    assert 1 <= count <= len(sizes)
    assert count >= min(cores, len(sizes))


def test_large_files_get_partitions_of_their_own() -> None:
    assert partition_count([2**27] * 10, cores=2, partition_bytes=2**27, open_cost=0) == 10


def test_small_files_share_partitions() -> None:
    assert partition_count([1000] * 1000, cores=2, partition_bytes=2**27, open_cost=2**22) == 32
