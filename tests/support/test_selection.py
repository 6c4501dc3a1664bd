"""Where tests run: each group of Java tests on one worker, no skipped test on a build machine, and nothing after a crash."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.inner_pytest import run_inner
from tests.support.java_version import java_executable, java_problem, parse_version
from tests.support.selection import group_of

pytestmark = [pytest.mark.nightly, pytest.mark.slow]

SKIPPING_TEST = """
import pytest

def test_one():
    pass

def test_two():
    pytest.skip("not here")
"""
JAVA_TEST = """
from __future__ import annotations

import os, pathlib, pytest

@pytest.fixture
def spark():
    return None

@pytest.mark.java
@pytest.mark.parametrize("number", range(4))
def test_java(spark: SparkSession, number):
    with open(pathlib.Path(__file__).with_name("workers"), "a") as workers:
        workers.write(os.environ.get("PYTEST_XDIST_WORKER", "none") + " ")
"""
OTHER_TEST = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_other(number):
    pass
"""
CRASHING_TEST = """
import os, signal

def test_before():
    pass

def test_crashing():
    os.kill(os.getpid(), signal.SIGSEGV)

def test_after():
    pass
"""
CRASHING_MODULE = """
import os, signal

os.kill(os.getpid(), signal.SIGSEGV)
"""
PATIENT_TEST = """
import time, pytest

@pytest.mark.parametrize("number", range(100))
def test_patient(number):
    time.sleep(3)
"""
MARKING_CONFTEST = """
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.java)
"""


def _run(folder: Path, test: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a suite of its own, with the plugin, beside another module."""
    (folder / "test_other.py").write_text(OTHER_TEST)
    return run_inner(folder, "-p", "tests.support.selection", *options, test=test, **variables)


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_a_skipped_test_fails_the_run_on_a_build_machine(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert _run(tmp_path, SKIPPING_TEST, *options).returncode == pytest.ExitCode.OK

    run = _run(tmp_path, SKIPPING_TEST, *options, CI="true")

    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 skipped: on a build machine every test must run" in run.stdout


def test_a_test_of_another_spark_may_be_skipped_where_the_run_is_on_another(tmp_path: Path) -> None:
    of_another = SKIPPING_TEST.replace("not here", "of another Spark: 4.0 has none of it")

    assert _run(tmp_path, of_another, "--other-spark", CI="true").returncode == pytest.ExitCode.OK
    assert _run(tmp_path, of_another, CI="true").returncode == pytest.ExitCode.TESTS_FAILED
    assert _run(tmp_path, SKIPPING_TEST, "--other-spark", CI="true").returncode == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("folder", [".", "tests/spark", "tests/spark/sql"])
def test_java_tests_of_a_group_share_one_worker(tmp_path: Path, folder: str) -> None:
    group = tmp_path / folder
    group.mkdir(parents=True, exist_ok=True)
    for name in ("test_java.py", "test_more_java.py"):
        (group / name).write_text(JAVA_TEST)

    run = _run(tmp_path, OTHER_TEST, "-n", "3", "--dist", "loadgroup", CI="true")

    assert run.returncode == pytest.ExitCode.OK, run.stdout
    workers = (group / "workers").read_text().split()
    assert len(workers) == 8
    assert len(set(workers)) == 1


@pytest.mark.parametrize("workers", ["1", "2", "3"])
def test_a_worker_that_crashes_ends_the_run_with_the_name_of_its_test(tmp_path: Path, workers: str) -> None:
    run = _run(tmp_path, CRASHING_TEST, "-n", workers, "--dist", "loadgroup")

    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert "crashed while running 'test_inner.py::test_crashing'" in run.stdout
    assert "FAILED test_inner.py::test_crashing" in run.stdout


def test_a_crash_does_not_wait_for_what_other_workers_have_still_to_run(tmp_path: Path) -> None:
    """The other worker has tests for longer than the run may take."""
    (tmp_path / "test_a_patient.py").write_text(PATIENT_TEST)

    run = _run(tmp_path, CRASHING_TEST, "-n", "2", "--dist", "loadgroup")

    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert "FAILED test_inner.py::test_crashing" in run.stdout


@pytest.mark.parametrize("workers", ["1", "2"])
def test_workers_that_crash_before_their_first_test_fail_the_run(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_crashing_module.py").write_text(CRASHING_MODULE)

    run = _run(tmp_path, OTHER_TEST, "-n", workers, "--dist", "loadgroup")

    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert "crashed and worker restarting disabled" in run.stdout


def test_a_java_mark_that_the_file_does_not_show_is_refused(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(MARKING_CONFTEST)

    run = _run(tmp_path, JAVA_TEST)

    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_other.py" in run.stderr + run.stdout


def test_without_java_its_tests_are_skipped_except_on_a_build_machine(tmp_path: Path) -> None:
    here = _run(tmp_path, JAVA_TEST, JAVA_HOME=str(tmp_path))
    there = _run(tmp_path, JAVA_TEST, JAVA_HOME=str(tmp_path), CI="true")

    assert "4 passed, 4 skipped" in here.stdout
    assert "8 passed" in there.stdout


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('java version "1.8.0_392"', 8),
        ("bash: java: command not found", None),
    ],
)
def test_the_version_of_java_is_read_from_its_banner(banner: str, version: int | None) -> None:
    assert parse_version(banner) == version


def test_a_home_without_java_is_named_as_the_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert java_executable() is None
    assert "no java" in (java_problem() or "")


@pytest.mark.parametrize(("version", "fits"), [("11.0.2", False), ("17.0.1", True), ("21.0.3", True)])
def test_java_older_than_17_is_named_as_the_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, fits: bool) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert (java_problem() is None) == fits


def test_a_file_that_starts_its_own_processes_waits_for_no_session(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "spark"
    folder.mkdir(parents=True)
    (folder / "test_own.py").write_text("@pytest.mark.java\ndef test_one(tmp_path: Path) -> None: ...\n")
    (folder / "test_shared.py").write_text("@pytest.mark.java\ndef test_one(spark: SparkSession) -> None: ...\n")
    config = cast("pytest.Config", SimpleNamespace(rootpath=tmp_path, getoption=lambda name, default=None: default))

    assert group_of(config, "tests/spark/test_own.py") == "java of tests/spark/test_own.py"
    assert group_of(config, "tests/spark/test_shared.py") == "java of tests/spark/"
