"""A pytest plugin: which tests run where.

- With `--dist loadgroup`, tests in files that use the mark `java` form groups: one in the first tier; else tests/spark/sql, the rest of
  tests/spark, and all others. A file of tests/spark whose tests start processes of their own is a group by itself. Each group runs in one
  worker, so that three processes at most hold a Spark session, and begins before the tests without Java, since it lasts longest. The tests
  of any other file stay together too: what they share is made once. The grouping of pytest-xdist itself cannot be used: it changes node
  ids, which pytest has not allowed since version 9.2, and then groups nothing.
- Without Java 17 those with the mark are skipped with the reason; on a build machine (CI is set) they run and fail.
- On a build machine a skipped test fails the run: a check that did not run proves nothing. With `--other-spark` those may be skipped that
  are of another release of Spark, which the run on that release has.
- A worker that crashes ends the run at once, with a failure that names the test it ran. pytest-xdist would start another worker and give it
  the file again; where the other workers have no more to do, that new worker waits for ever.
"""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.java_version import java_problem
from tests.support.tiers import FIRST

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling
    from xdist.workermanage import WorkerController

_SPARK_FOLDERS: Final = ("tests/spark/sql/", "tests/spark/")
"""Each has Java tests for about as long as all other folders together."""
_JAVA: Final = "java"
_SHARED_SESSION: Final = re.compile(r": (SparkSession|SparkRun|JavaOracle|Views|Pages|Asked)\b")
"""In the arguments of tests that share the session of their worker, or Iceberg Java. Files without it start processes of their own."""

_CRASHED: Final[str] = "???"
"""What pytest-xdist writes for the phase of a test in which its worker died: it cannot know it."""

_LOST_WORKER: Final = pytest.StashKey[bool]()
_OTHER_SPARK: Final = "of another Spark: "


def _on_build_machine() -> bool:
    return bool(os.environ.get("CI"))


def need(problem: str | None) -> None:
    """Skip the test where the machine lacks something, as the sentence says, and fail on a build machine; go on for None."""
    if problem is None:
        return
    if _on_build_machine():
        pytest.fail(problem)
    pytest.skip(problem)


def of_another_spark(why: str) -> str:
    """Return the reason to skip a test for that is not of the release of Spark that it runs on."""
    return _OTHER_SPARK + why


def _skipped_reports(config: pytest.Config) -> int:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    return sum(not (config.getoption("other_spark") and _OTHER_SPARK in str(report.longrepr)) for report in skipped)


@functools.cache
def _marks_in(path: Path) -> frozenset[str]:
    """Read from the source, since the process that hands out tests sees their names and not their marks."""
    return frozenset(re.findall(r"\bpytest\.mark\.(\w+)", _source(path)))


@functools.cache
def _source(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--other-spark", action="store_true", help="the release of Spark is not that of .venv: skip what it does not do")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    java_items = [item for item in items if item.get_closest_marker("java")]
    unseen = sorted({item.nodeid for item in java_items if "java" not in _marks_in(item.path)})
    if unseen:
        raise pytest.UsageError(f"write pytest.mark.java in the file of the tests themselves: {', '.join(unseen)}")
    # Groups of Java last longest. What is left is handed out as it is collected, largest file first.
    tests_of_file = Counter(_file(item.nodeid) for item in items)
    items.sort(key=lambda item: (not group_of(config, _file(item.nodeid)).startswith(_JAVA), -tests_of_file[_file(item.nodeid)]))
    problem = None if _on_build_machine() or not java_items else java_problem()
    if problem:
        for item in java_items:
            item.add_marker(pytest.mark.skip(reason=problem))


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def group_of(config: pytest.Config, file: str) -> str:
    """What runs in one worker: a file, or all files of a group of Java."""
    marks = _marks_in(config.rootpath / file)
    if config.getoption("tier", None) == FIRST:
        return _JAVA if {"java", FIRST} <= marks else file
    if "java" not in marks:
        return file
    if file.startswith(_SPARK_FOLDERS) and not _SHARED_SESSION.search(_source(config.rootpath / file)):
        return f"{_JAVA} of {file}"
    return next((f"{_JAVA} of {folder}" for folder in _SPARK_FOLDERS if file.startswith(folder)), f"{_JAVA} of others")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class JavaScheduling(LoadScopeScheduling):  # type: ignore[misc]
        """Every file is a unit of its own, but those of Java are three."""

        def _split_scope(self, nodeid: str) -> str:
            return group_of(config, _file(nodeid))

    config.option.loadscopereorder = False
    return JavaScheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("maxworkerrestart", None) is None:
        config.option.maxworkerrestart = "0"


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """End the run once the crash is among the failures. Otherwise the other workers would run all that they were given."""
    if report.when == _CRASHED:
        pytest.exit(str(report.longrepr), returncode=pytest.ExitCode.TESTS_FAILED)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController, error: object | None) -> None:
    if error:
        node.config.stash[_LOST_WORKER] = True


def pytest_sessionfinish(session: pytest.Session) -> None:
    # A worker that dies between tests leaves no report.
    if session.config.stash.get(_LOST_WORKER, False):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if _on_build_machine() and session.exitstatus == pytest.ExitCode.OK and _skipped_reports(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    skipped = _skipped_reports(config)
    if _on_build_machine() and skipped:
        terminalreporter.write_line(f"{skipped} skipped: on a build machine every test must run", red=True)
