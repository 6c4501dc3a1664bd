"""Iceberg's own test classes for Spark 4.1, run as they are in front of our SQL catalog.

Their jars come from Maven Central. The classes in java/ take the place of Iceberg's catalog and extensions under their names, and an
agent changes what little has to be another (Agent.java says what). The tests' own Hive metastore holds the tables; Iceberg Java looks into
the same tables with the same master key: what a test asserts of metadata, manifests and files is Iceberg's reading of what we wrote.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.support.java_version import java_executable
from tests.support.maven_jars import fetched_jars, pyspark_jars
from tests.support.spark_jar import spark_jar

RELEASE: Final = "1.11.0"
"""The newest release whose tests for Spark 4.1 are on Maven Central."""
_FOLDER: Final = Path(__file__).parent
_PACKAGE: Final = "org.apache.iceberg.spark"
_KEY: Final = "0123456789abcdef"
_OPENED: Final = (
    *("java.io", "java.lang", "java.lang.invoke", "java.lang.reflect", "java.net", "java.nio", "java.util", "java.util.concurrent"),
    *("java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)


@dataclass(frozen=True)
class Outcome:
    """What became of a class: its tests that passed, and those that did not, with what each said. Skipped ones are neither."""

    passed: frozenset[str]
    failed: dict[str, str]


def run_class(name: str, folder: Path, timeout: float, left_out: Iterable[str] = ()) -> Outcome:
    """Run one class, named behind `org.apache.iceberg.spark.`, but for tests that are left out. `folder` takes its log and its report."""
    key_file = folder / "master.keys"
    keys = {name: {"1": base64.b64encode(_KEY.encode()).decode()} for name in ("orders", "keyA", "keyB")}
    key_file.write_text(json.dumps({"format": "tablecrypt-key-file", "version": 1, "keys": keys}))
    key_file.chmod(0o600)

    settings = {
        "": f"{_PACKAGE}.SparkCatalog",
        ".python": sys.executable,
        ".py-catalog-impl": "tablecrypt_catalog.EncryptedHiveCatalog",
        ".encryption.kms-type": "local",
        ".kms.local.key-file": str(key_file),
        ".encryption.default-key-id": "orders",
    }
    ours = _compiled()
    command = [
        *(java_executable() or "java", "-Xmx2500m", f"-javaagent:{ours / 'agent.jar'}", f"-Djudge.key={_KEY}"),
        *(f"-Dspark.sql.catalog.testhive{setting}={value}" for setting, value in settings.items()),
        *(f"-Djava.io.tmpdir={folder}", "-Djdk.reflect.useDirectMethodHandle=false"),
        *(f"--add-opens=java.base/{opened}=ALL-UNNAMED" for opened in _OPENED),
        *("-cp", os.pathsep.join([str(ours), str(spark_jar()), *_class_path()])),
        *("org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner", f"--reports-dir={folder}"),
        f"--select-class={_PACKAGE}.{name}",
        *(f"--exclude-methodname=.*#{test}" for test in left_out),
    ]
    with (folder / "run.log").open("wb") as log:
        subprocess.run(command, stdout=log, stderr=log, cwd=folder, timeout=timeout, check=False)
    return _outcome(folder / "TEST-junit-jupiter.xml")


def _outcome(report: Path) -> Outcome:
    passed, failed = set(), {}
    for test in ElementTree.parse(report).iter("testcase"):
        name = test.attrib["name"].partition("(")[0]
        fault = next((found for kind in ("failure", "error") if (found := test.find(kind)) is not None), None)
        if fault is not None:
            failed[name] = " ".join(fault.attrib.get("message", "").split())[:300]
        elif test.find("skipped") is None:
            passed.add(name)
    return Outcome(frozenset(passed - failed.keys()), failed)


@functools.cache
def _compiled() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tablecrypt-iceberg-classes-"))
    sources = [str(source) for source in sorted((_FOLDER / "java").glob("*.java"))]
    java = Path(java_executable() or "java")
    class_path = os.pathsep.join([str(spark_jar()), *_class_path()])
    subprocess.run([java.with_name("javac"), "-nowarn", "-d", folder, "-cp", class_path, *sources], check=True, timeout=300)
    manifest = folder / "manifest"
    manifest.write_text("Premain-Class: tablecrypt.judge.Agent\nCan-Redefine-Classes: true\nCan-Retransform-Classes: true\n")
    # The classes come from the class path: in the agent's own jar alone they would be there twice.
    subprocess.run([java.with_name("jar"), "cfm", folder / "agent.jar", manifest], check=True, timeout=60)
    return folder


def _class_path() -> tuple[str, ...]:
    """What pyspark brings comes first, so that Spark meets no library in another release than its own."""
    fetched = fetched_jars(_FOLDER / "ivy.xml", f"iceberg-classes-{RELEASE}", {"iceberg": RELEASE})
    return f"{pyspark_jars()}/*", f"{fetched}/*"
