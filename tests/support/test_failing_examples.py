"""The profiles of Hypothesis: how many examples a test runs in each, and what the nightly one keeps of a failure."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.example_counts import nightly_count, quick_count
from tests.support.failing_examples import REPORT, as_decorators
from tests.support.inner_pytest import run_inner

CONFTEST = """
from pathlib import Path
from tests.support.example_counts import register_profiles

pytest_plugins = ["tests.support.failing_examples"]
register_profiles(Path(__file__).with_name("database"))
"""
COUNTED = """
import atexit, json, pathlib
from collections import Counter
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

COUNTS, VALUES = Counter(), []
SHARED = settings(max_examples=30)

@given(st.integers())
def test_unsaid(number):
    COUNTS["unsaid"] += 1
    VALUES.append(number)

@settings(max_examples=40)
@given(st.integers())
def test_said(number):
    COUNTS["said"] += 1

@settings(SHARED, deadline=None)
@given(st.integers())
def test_said_by_a_parent(number):
    COUNTS["parent"] += 1

@settings(max_examples=2)
@given(st.integers())
def test_few(number):
    COUNTS["few"] += 1

def test_inside():
    @settings(max_examples=60)
    @given(st.integers())
    def inner(number):
        COUNTS["inside"] += 1
    inner()

class Machine(RuleBasedStateMachine):
    name = "machine"

    @initialize()
    def begin(self):
        COUNTS[self.name] += 1

    @rule(number=st.integers())
    def step(self, number):
        pass

@settings(max_examples=12, stateful_step_count=2)
class DecoratedMachine(Machine):
    name = "decorated machine"

TestDecorated = DecoratedMachine.TestCase

class AssignedMachine(Machine):
    name = "assigned machine"

TestAssigned = AssignedMachine.TestCase
TestAssigned.settings = settings(max_examples=14, stateful_step_count=2)

def test_machine():
    run_state_machine_as_test(Machine, settings=settings(max_examples=10, stateful_step_count=2))

def test_last():
    pathlib.Path(__file__).with_name("counts.json").write_text(json.dumps([COUNTS, VALUES]))
"""
FAILING = """
import os, pytest
from hypothesis import example, given, settings, strategies as st

@pytest.mark.parametrize("kind", ["one"])
@settings(max_examples=25)
@given(number=st.integers(), data=st.binary())
def test_small(kind, number, data, tmp_path_factory):
    assert number < 100

def test_without_examples():
    assert False
"""


def run(folder: Path, test: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a suite of its own, with the profiles, in another process."""
    (folder / "conftest.py").write_text(CONFTEST)
    return run_inner(folder, *options, test=test, **variables)


def counts(folder: Path, *options: str) -> tuple[dict[str, int], list[int]]:
    import json

    ended = run(folder, COUNTED, *options)
    assert ended.returncode == pytest.ExitCode.OK, ended.stdout + ended.stderr
    found, values = json.loads((folder / "counts.json").read_text())
    return found, values


@pytest.mark.nightly
@pytest.mark.slow
def test_each_profile_counts_by_the_number_that_a_test_says(tmp_path: Path) -> None:
    own = {"unsaid": 100, "said": 40, "parent": 30, "few": 2, "inside": 60, "machine": 10, "decorated machine": 12, "assigned machine": 14}

    assert counts(tmp_path)[0] == own
    assert counts(tmp_path, "--hypothesis-profile=quick")[0] == {name: quick_count(number) for name, number in own.items()}
    assert counts(tmp_path, "--hypothesis-profile=nightly")[0] == {name: nightly_count(number) for name, number in own.items()}


@pytest.mark.nightly
@pytest.mark.slow
def test_only_the_nightly_profile_sees_new_examples_in_each_run(tmp_path: Path) -> None:
    def values(profile: str) -> list[int]:
        return counts(tmp_path, f"--hypothesis-profile={profile}")[1]

    assert values("tests") == values("tests")
    assert values("quick") == values("quick")
    assert values("nightly") != values("nightly")


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_a_failure_of_the_night_is_kept_as_an_example_that_fails_again(tmp_path: Path, options: tuple[str, ...]) -> None:
    first = run(tmp_path, FAILING, "--hypothesis-profile=nightly", *options)

    kept = (tmp_path / REPORT).read_text()
    name, example, blob, *rest = kept.splitlines()
    assert first.returncode == pytest.ExitCode.TESTS_FAILED
    assert f"1 tests failed for an example that is kept in {REPORT}" in first.stdout
    assert (name, example, rest) == ("test_inner.py::test_small[one]", "@example(number=100, data=b'')", [""])
    assert blob.startswith("@reproduce_failure(")
    assert any((tmp_path / "database").iterdir())

    assert run(tmp_path, FAILING, "--hypothesis-profile=nightly", *options).returncode == pytest.ExitCode.TESTS_FAILED
    assert (tmp_path / REPORT).read_text() == kept

    with_example = FAILING.replace("@given", f"{example}\n@given").replace("max_examples=25", "max_examples=1")
    again = run(tmp_path, with_example)
    assert "assert 100 < 100" in again.stdout


@pytest.mark.nightly
@pytest.mark.slow
def test_a_kept_failure_is_tried_first_in_the_next_night(tmp_path: Path) -> None:
    often = FAILING.replace("number < 100", 'number < 100 or number not in (100, int(os.environ.get("FAILS", number)))')
    night = ("--hypothesis-profile=nightly", "-k", "small")
    rare = {"FAILS": "100"}

    assert run(tmp_path, often, "-k", "small", **rare).returncode == pytest.ExitCode.OK
    assert run(tmp_path, often, *night).returncode == pytest.ExitCode.TESTS_FAILED
    assert run(tmp_path, often, *night, **rare).returncode == pytest.ExitCode.TESTS_FAILED


@pytest.mark.nightly
@pytest.mark.slow
def test_the_usual_profile_keeps_no_file(tmp_path: Path) -> None:
    run(tmp_path, FAILING)

    assert not (tmp_path / REPORT).exists()


@pytest.mark.parametrize(
    ("note", "decorators"),
    [
        ("Failing test case: test_one(\n    number=1,  # or any other generated value\n    data=b'',\n)", "@example(number=1, data=b'')"),
        ("Failing test case: test_one(\n    self=<test.A at 0x7f>,\n    aws=Server(\n     x=<b>),\n    number=1,\n)", "@example(number=1)"),
        ("Falsifying example: test_one(\n    text='a)b',\n)", "@example(text='a)b')"),
        ("Failing test case: test_one(\n    data=data(...),\n)", "# test_one(\n#     data=data(...),\n# )"),
        ("Failing test case: test_one(\n    what=<object object at 0x7f>,\n)", "# test_one(\n#     what=<object object at 0x7f>,\n# )"),
        ("Failing test case:\nstate = Machine()\nstate.step()", "# state = Machine()\n# state.step()"),
        ("Draw 1: 7", None),
    ],
)
def test_what_hypothesis_says_of_a_failure_becomes_a_decorator_or_a_comment(note: str, decorators: str | None) -> None:
    assert as_decorators(note, {"self", "aws"}) == decorators
