"""A pytest plugin: which tests run where.

- With `--dist loadgroup`, tests in files that use the mark `java` form three groups: tests/spark/sql, the rest of tests/spark, and all
  others. Each group runs in one worker, so that three processes at most hold a Spark session. The tests of any other file stay together
  too: what they share is made once. The grouping of pytest-xdist itself cannot be used: it changes node ids, which pytest has not allowed
  since version 9.2, and then groups nothing.
- Without Java 17 those with the mark are skipped with the reason; on a build machine (CI is set) they run and fail.
- On a build machine a skipped test fails the run: a check that did not run proves nothing.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.java_version import java_problem

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

_SPARK_FOLDERS: Final = ("tests/spark/sql/", "tests/spark/")
"""Each has Java tests for about as long as all other folders together."""


def _on_build_machine() -> bool:
    return bool(os.environ.get("CI"))


def _skipped_reports(config: pytest.Config) -> int:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return len(reporter.stats.get("skipped", [])) if reporter else 0


@functools.cache
def _uses_java_mark(path: Path) -> bool:
    """Read from the source, since the process that hands out tests sees their names and not their marks."""
    return "pytest.mark.java" in path.read_text(encoding="utf-8")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    java_items = [item for item in items if item.get_closest_marker("java")]
    unseen = sorted({item.nodeid for item in java_items if not _uses_java_mark(item.path)})
    if unseen:
        raise pytest.UsageError(f"write pytest.mark.java in the file of the tests themselves: {', '.join(unseen)}")
    problem = None if _on_build_machine() or not java_items else java_problem()
    if problem:
        for item in java_items:
            item.add_marker(pytest.mark.skip(reason=problem))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class JavaScheduling(LoadScopeScheduling):  # type: ignore[misc]
        """Every file is a unit of its own, but those of Java are three."""

        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if not _uses_java_mark(config.rootpath / file):
                return file
            return next((f"java of {folder}" for folder in _SPARK_FOLDERS if file.startswith(folder)), "other java")

    return JavaScheduling(config, log)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _on_build_machine() and session.exitstatus == pytest.ExitCode.OK and _skipped_reports(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    skipped = _skipped_reports(config)
    if _on_build_machine() and skipped:
        terminalreporter.write_line(f"{skipped} skipped: on a build machine every test must run", red=True)
