"""A pytest plugin: what Hypothesis found in a run with random examples becomes text that can be pasted above the test.

build/nightly/failing_examples.txt gets, for each example that failed in the profile `nightly`,

    tests/keys/test_key_ring.py::test_name
    @example(number=100, data=b'')
    @reproduce_failure('6.170.15', b'AEFkYA==')

The first decorator is to stay in the test when the fault is mended; the second fails again at once, and only until then. Where `@example`
cannot say it (`st.data()`, a state machine, a value that cannot be written), Hypothesis's own words stand there as a comment. The file
grows, with each example once; it is written when the test fails, so that a killed run keeps what it found.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Generator, Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

REPORT: Final = Path("build", "nightly", "failing_examples.txt")
"""Below the folder of pytest's configuration."""
_PROPERTY: Final = "failing_example"
_NOTE: Final = re.compile(r"(?:Failing test case|Falsifying example):\s*(.*)", re.DOTALL)
_ARGUMENT: Final = re.compile(r"^    (?=\w+=)", re.MULTILINE)
_BLOB: Final = re.compile(r"@reproduce_failure\(.*\)")


def as_decorators(note: str, not_given: Collection[str]) -> str | None:
    """What to paste for a note that Hypothesis added to an error, or None for one that shows no failing example.

    Args:
        not_given: the arguments that come from pytest, which `@example` does not take.
    """
    found = _NOTE.match(note)
    if found is None:
        return None
    call = found[1]
    given = [each for each in _ARGUMENT.split(call.rpartition(")")[0])[1:] if each.partition("=")[0] not in not_given]
    try:
        written = ast.parse(f"example({''.join(given)}\n)", mode="eval").body
    except SyntaxError:
        return _as_comment(call)
    unspoken = any(isinstance(node, ast.Constant) and node.value is ... for node in ast.walk(written))
    return _as_comment(call) if unspoken or not given else f"@{ast.unparse(written)}"


def _as_comment(text: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in text.splitlines())


def _notes(error: BaseException) -> Iterator[str]:
    """Those of an error, and of each error of a group."""
    yield from getattr(error, "__notes__", ())
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _notes(each)


def _decorators(item: pytest.Item, error: BaseException) -> Iterator[str]:
    not_given = {"self", *getattr(item, "fixturenames", ())}
    for note in _notes(error):
        if decorators := as_decorators(note, not_given):
            yield decorators
        elif blob := _BLOB.search(note):
            yield blob[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call" and call.excinfo is not None and settings.get_current_profile_name() == "nightly":
        found = "\n".join(_decorators(item, call.excinfo.value))
        if found:
            report.user_properties.append((_PROPERTY, f"{item.nodeid}\n{found}\n"))
    return report


class _Keeper:
    """Writes what the workers found; registered in the process that hears of all of them."""

    def __init__(self, config: pytest.Config) -> None:
        self._report = config.rootpath / REPORT
        self._kept = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call":
            return
        for name, value in report.user_properties:
            if name == _PROPERTY:
                self._keep(str(value))

    def _keep(self, found: str) -> None:
        self._kept += 1
        former = self._report.read_text(encoding="utf-8") if self._report.exists() else ""
        if found in former:
            return
        self._report.parent.mkdir(parents=True, exist_ok=True)
        with self._report.open("a", encoding="utf-8") as report:
            report.write(f"{found}\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._kept:
            terminalreporter.write_line(f"{self._kept} tests failed for an example that is kept in {REPORT}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Keeper(config), "failing_examples_keeper")
