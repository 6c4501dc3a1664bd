"""What is missing is said in one sentence, before anything starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.kms_access import check_credentials_stay_private, kms_properties
from tablecrypt.spark.requirements import check_java, check_spark_version, java_major_version

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

    assert 'pip install "tablecrypt[spark]"' in run.stdout


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
