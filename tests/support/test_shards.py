"""Every selected test is in exactly one part, and the parts are the same wherever they are cut."""

from __future__ import annotations

import argparse
import random
import subprocess
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.inner_pytest import run_inner
from tests.support.shards import cut, parse_shard, weights_of

WEIGHTS: Final = st.dictionaries(st.text(max_size=8), st.integers(1, 500), max_size=40)


@given(weights=WEIGHTS, total=st.integers(1, 9))
def test_every_file_is_in_exactly_one_part(weights: dict[str, int], total: int) -> None:
    parts = cut(weights, total)

    assert len(parts) == total
    assert sorted(file for part in parts for file in part) == sorted(weights)


@given(weights=WEIGHTS, total=st.integers(1, 9), order=st.randoms(use_true_random=False))
def test_the_order_in_which_files_are_found_changes_no_part(weights: dict[str, int], total: int, order: random.Random) -> None:
    shuffled = list(weights.items())
    order.shuffle(shuffled)

    assert cut(dict(shuffled), total) == cut(weights, total)


@given(weights=WEIGHTS, total=st.integers(1, 9))
def test_no_two_parts_differ_by_more_than_the_heaviest_file(weights: dict[str, int], total: int) -> None:
    loads = [sum(weights[file] for file in part) for part in cut(weights, total)]

    assert max(loads) - min(loads) <= max(weights.values(), default=0)


def test_a_file_weighs_what_its_selected_tests_were_measured_to_take_and_others_what_is_estimated() -> None:
    tests = [("a.py", "java"), ("a.py", "java"), ("a.py", "fast"), ("b.py", "slow"), ("b.py", "fast")]
    measured = {"a.py": {"java": 40.5, "slow": 90.0}, "b.py": {"slow": 0.75}}

    assert weights_of(tests, measured) == {"a.py": 40_500 + 100, "b.py": 750 + 100}
    assert weights_of(tests, {}) == {"a.py": 2 * 3000 + 100, "b.py": 2000 + 100}


@pytest.mark.parametrize("text", ["0/4", "5/4", "4", "1/", "/4", "-1/4", "1/0", "a/b", "1/4/2", "1.0/4", "½/4"])
def test_a_part_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="such as 2/4"):
        parse_shard(text)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Three files with tests, of which one has a group of parametrised ones, under the plugin alone."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.support.shards"]\n', encoding="utf-8")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "durations.json").write_text('{"modules": {"test_three.py": {"fast": 60.0}}}', encoding="utf-8")
    (tmp_path / "test_one.py").write_text("def test_a(): pass\ndef test_b(): pass\n", encoding="utf-8")
    (tmp_path / "test_two.py").write_text(
        "import pytest\n@pytest.mark.java\n@pytest.mark.parametrize('n', range(5))\ndef test_c(n): pass\n", encoding="utf-8"
    )
    (tmp_path / "test_three.py").write_text("def test_d(): pass\n", encoding="utf-8")
    return tmp_path


def _run(suite: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_inner(suite, "-v", "-p", "xdist", *arguments, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", COLUMNS="200")


def _passed(run: subprocess.CompletedProcess[str]) -> list[str]:
    return [next(word for word in line.split() if "::" in word) for line in run.stdout.splitlines() if "PASSED" in line]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("--numprocesses=2",)], ids=["one process", "workers"])
def test_the_parts_together_run_every_test_once(suite: Path, workers: tuple[str, ...]) -> None:
    whole = _passed(_run(suite, *workers))
    runs = [_run(suite, *workers, f"--shard={number}/4") for number in range(1, 5)]

    assert len(whole) == 8
    assert [run.returncode for run in runs] == [0, 0, 0, 0], "\n".join(run.stdout for run in runs)
    assert sorted(test for run in runs for test in _passed(run)) == sorted(whole)
    assert _passed(runs[0]) == ["test_three.py::test_d"], "the longest file is in the first part"
    assert not _passed(runs[3]), "three files fill three parts"


def test_a_selection_that_fits_no_test_still_fails_without_parts(suite: Path) -> None:
    assert _run(suite, "-m", "nothing").returncode == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_part_that_fails_fails_its_run(suite: Path) -> None:
    (suite / "test_one.py").write_text("def test_a(): assert False\n", encoding="utf-8")

    assert sorted(_run(suite, f"--shard={number}/3").returncode for number in (1, 2, 3)) == [0, 0, 1]


def test_a_misspelt_part_ends_the_run_with_one_sentence(suite: Path) -> None:
    refused = _run(suite, "--shard=5/4")

    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--shard takes a part and how many there are, such as 2/4, and not '5/4'" in refused.stderr
