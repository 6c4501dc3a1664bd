"""How long tests took: kept between runs, whole in every moment, and shown by test, module, folder and tier."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.durations import COMMITTED, KEPT, MARKS, Duration, committed_seconds, keep, known_seconds, read
from tests.support.inner_pytest import inner_command, run_inner
from tests.support.slowest_tests import TIERS, main, rounded, table_of_modules, tier_of
from tests.support.waiting import wait_until

PLUGIN = "tests.support.durations"
TODAY = date(2026, 5, 20)
SUITE = """
import pytest, time

@pytest.fixture
def slow_fixture():
    time.sleep(0.2)
    yield
    time.sleep(0.2)

@pytest.mark.slow
@pytest.mark.parametrize("kind", ["a", "b"])
def test_slow(slow_fixture, kind):
    time.sleep(0.2)

def test_fast():
    pass

def test_failing():
    assert False
"""
ENDLESS = """
import time, pytest

@pytest.mark.parametrize("number", range(5000))
def test_one(number):
    time.sleep(0.05)
"""


def run(folder: Path, *options: str) -> None:
    run_inner(folder, "-p", PLUGIN, *options, test=SUITE)


def seconds(root: Path) -> dict[str, float]:
    return {test.partition("::")[2]: each.seconds for test, each in read(root).items()}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_setup_call_and_teardown_of_each_test_are_counted_together(tmp_path: Path, options: tuple[str, ...]) -> None:
    run(tmp_path, *options)

    kept = read(tmp_path)
    assert seconds(tmp_path).keys() == {"test_slow[a]", "test_slow[b]", "test_fast", "test_failing"}
    assert all(0.6 <= kept[f"test_inner.py::test_slow[{kind}]"].seconds < 30 for kind in "ab")
    assert [kept[f"test_inner.py::{name}"].marks for name in ("test_slow[a]", "test_fast")] == [("slow",), ()]


@pytest.mark.nightly
@pytest.mark.slow
def test_a_run_of_some_tests_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    run(tmp_path)
    before = seconds(tmp_path)
    run(tmp_path, "test_inner.py::test_fast", "test_inner.py::test_slow[a]")

    after = seconds(tmp_path)
    assert after.keys() == before.keys()
    assert after["test_slow[b]"] == before["test_slow[b]"]


@pytest.mark.nightly
@pytest.mark.slow
def test_a_night_with_more_examples_is_not_taken_for_what_tests_take(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.support.example_counts import register_profiles\nregister_profiles()\n")
    run(tmp_path, "--hypothesis-profile=nightly")
    assert read(tmp_path) == {}

    run(tmp_path, "--hypothesis-profile=quick")
    assert len(read(tmp_path)) == 4


@pytest.mark.nightly
@pytest.mark.slow
def test_a_killed_run_keeps_what_it_measured(tmp_path: Path) -> None:
    (tmp_path / "test_endless.py").write_text(ENDLESS)
    arguments, environment = inner_command(tmp_path, "-p", PLUGIN)
    with subprocess.Popen(arguments, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as process:
        wait_until((tmp_path / KEPT).exists, f"no {KEPT} came to be")
        process.send_signal(signal.SIGKILL)

    assert 0 < len(read(tmp_path)) < 5000


def measured(tests: dict[str, float], *marks: str, day: date = TODAY) -> dict[str, Duration]:
    return {test: Duration(each, marks, day.isoformat()) for test, each in tests.items()}


def test_what_several_runs_measure_at_once_is_all_kept(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").touch()
    with ThreadPoolExecutor(8) as runs:
        for done in [runs.submit(keep, tmp_path, measured({f"test_one.py::test_{number}": 1.0}), TODAY) for number in range(24)]:
            done.result()

    assert len(read(tmp_path)) == 24
    assert {path.name for path in (tmp_path / KEPT).parent.iterdir()} <= {"durations.json", "durations.lock"}


def test_tests_of_files_that_are_gone_or_that_no_run_had_for_a_month_are_forgotten(tmp_path: Path) -> None:
    for name in ("test_here.py", "test_gone.py"):
        (tmp_path / name).touch()
    keep(tmp_path, measured({"test_here.py::test_a": 1.0, "test_gone.py::test_a": 1.0}), TODAY)
    keep(tmp_path, measured({"test_here.py::test_old": 1.0}, day=TODAY - timedelta(days=31)), TODAY)
    (tmp_path / "test_gone.py").unlink()
    keep(tmp_path, measured({"test_here.py::test_b": 1.0}, day=TODAY + timedelta(days=30)), TODAY + timedelta(days=30))

    assert read(tmp_path).keys() == {"test_here.py::test_a", "test_here.py::test_b"}


def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(options, tmp_path) == 0
    return capsys.readouterr().out


def test_the_slowest_tests_modules_folders_and_tiers_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("tests/keys/test_a.py", "tests/spark/test_b.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    keep(tmp_path, measured({"tests/keys/test_a.py::test_x": 30.0, "tests/keys/test_a.py::test_y": 10.0}), TODAY)
    keep(tmp_path, measured({"tests/spark/test_b.py::test_x[1]": 120.0}, "java", "slow"), TODAY)

    text = shown(tmp_path, capsys, "--count", "2")

    assert text.startswith("3 tests, 2:40 min of one process, measured on ")
    assert "Slowest 2 tests\n 2:00 min   75%  tests/spark/test_b.py::test_x[1]\n   30.0 s   19%  tests/keys/test_a.py::test_x\n\n" in text
    assert "Slowest 2 modules\n 2:00 min   75%  tests/spark/test_b.py\n   40.0 s   25%  tests/keys/test_a.py\n" in text
    assert "Folders\n 2:00 min   75%  tests/spark\n   40.0 s   25%  tests/keys\n" in text
    assert "Tiers\n 2:00 min   75%  with Java\n   40.0 s   25%  without Java, and quick\n" in text


def test_before_the_first_run_it_says_what_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], tmp_path) == 1
    assert capsys.readouterr().err == "build/durations.json is not there yet: `make test` writes it\n"


def test_every_test_is_in_one_tier() -> None:
    for count in range(len(MARKS) + 1):
        for marks in itertools.combinations(MARKS, count):
            assert [name for name, holds in TIERS.items() if holds(frozenset(marks))] == [tier_of(marks)]


def test_the_committed_table_has_the_seconds_of_each_module_by_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tests").mkdir()
    for name in ("test_a.py", "test_b.py", "test_quick.py"):
        (tmp_path / "tests" / name).touch()
    keep(tmp_path, measured({"tests/test_a.py::test_1": 0.4, "tests/test_a.py::test_2": 0.7, "tests/test_quick.py::test_1": 0.1}), TODAY)
    keep(tmp_path, measured({"tests/test_a.py::test_3": 11.0}, "slow"), TODAY)
    keep(tmp_path, measured({"tests/test_b.py::test_1": 90.0}, "java", "slow"), TODAY)
    keep(tmp_path, measured({"tests/test_b.py::test_2": 900.0}, "campaign", "java"), TODAY)

    assert shown(tmp_path, capsys, "--commit") == ""

    assert committed_seconds(tmp_path) == {"tests/test_a.py": {"fast": 1, "slow": 10}, "tests/test_b.py": {"java": 100}}
    assert "Seconds" in json.loads((tmp_path / COMMITTED).read_text())["about"]
    assert known_seconds(["tests/test_a.py", "tests/test_unknown.py"], tmp_path) == pytest.approx(12.1)
    (tmp_path / KEPT).unlink()
    assert known_seconds(["tests/test_a.py", "tests/test_b.py"], tmp_path) == 111


def test_a_module_that_was_not_measured_stays_in_the_table_and_one_that_lost_its_slow_tests_loses_them() -> None:
    former = {"test_a.py": {"fast": 2.0, "slow": 50.0}, "test_b.py": {"java": 100.0}}

    table = table_of_modules(measured({"test_a.py::test_1": 2.3}), former)

    assert table == {"test_a.py": {"fast": 2.0}, "test_b.py": {"java": 100.0}}


@given(st.floats(0.5, 50_000), st.floats(0.51, 1.99))
def test_a_number_of_the_table_does_not_change_with_a_busy_hour(measurement: float, factor: float) -> None:
    first = rounded(measurement, None)

    assert max(first / measurement, measurement / first) <= 1.6
    assert rounded(first * factor, first) == first
    assert rounded(first * 2.3, first) > first
    assert rounded(first / 2.3, first) < first
