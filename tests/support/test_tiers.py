"""The tiers together run every test with all its examples, and the first one touches the whole product."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.inner_pytest import run_inner
from tests.support.tiers import FIRST

ROOT: Final = Path(__file__).parents[2]
SUITE: Final = """
import pytest
from hypothesis import given, settings, strategies as st

@pytest.mark.parametrize("mark", [pytest.param(mark, marks=getattr(pytest.mark, mark)) for mark in ("slow", "java", "browser")])
def test_later(mark):
    assert mark

@pytest.mark.first
@pytest.mark.java
@pytest.mark.slow
def test_chosen():
    pass

@pytest.mark.campaign
def test_campaign():
    pass

@pytest.mark.nightly
@pytest.mark.slow
def test_tools():
    pass

@pytest.mark.releases
@pytest.mark.java
def test_releases():
    pass

@given(st.integers())
def test_examples(number):
    assert isinstance(number, int)

def test_plain():
    pass
"""


RUN_ELSEWHERE: Final = {"tablecrypt.ray", "tablecrypt_catalog.at_start"}
"""Ray has an environment of its own, which `make ray` makes; and what begins a process is run by processes, in tests/cli/test_run.py."""


def _collected(folder: Path, *options: str) -> set[str]:
    ran = run_inner(folder, "-p", "tests.support.tiers", "--collect-only", "-q", *options, test=SUITE)
    assert ran.returncode == pytest.ExitCode.OK, ran.stderr
    return {line.partition("::")[2].partition("[")[0] for line in ran.stdout.splitlines() if "::" in line}


def test_the_first_tier_leaves_nothing_that_the_others_do_not_run(tmp_path: Path) -> None:
    everything = _collected(tmp_path)
    first, rest, examples = (_collected(tmp_path, "--tier", tier) for tier in ("first", "rest", "all-examples"))

    assert first == {"test_chosen", "test_examples", "test_plain"}
    assert rest == {"test_later"}
    assert examples == {"test_examples"}
    assert everything == first | rest | {"test_campaign", "test_releases", "test_tools"}


def test_the_first_tier_touches_every_folder_of_the_product(request: pytest.FixtureRequest) -> None:
    files = _with_support(_files_of_the_first_tier(request))
    imported = {name for file in files for name in _imported(ROOT / file)}
    imported |= {deeper for name in imported for deeper in _imported_by_product(name)}

    untouched = {package for package in _packages() if not any(f"{name}.".startswith(f"{package}.") for name in imported)}
    assert untouched == RUN_ELSEWHERE


def _files_of_the_first_tier(request: pytest.FixtureRequest) -> set[str]:
    """From the run that this test is part of, or from a collection where that one is of something else."""
    options = request.config.option
    if options.tier == FIRST and not options.file_or_dir and not options.shard:
        return {item.nodeid.partition("::")[0] for item in request.session.items}
    command = [sys.executable, "-m", "pytest", "--tier", FIRST, "--collect-only", "-q", "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return {line.partition("::")[0] for line in ran.stdout.splitlines() if line.startswith("tests/") and "::" in line}


def _imported_by_product(name: str) -> set[str]:
    """What a module of the product imports, or a package brings, where the name is one."""
    if not name.startswith("tablecrypt"):
        return set()
    stem = name.replace(".", "/")
    places = [top / relative for top in (ROOT, ROOT / "catalog") for relative in (f"{stem}.py", f"{stem}/__init__.py")]
    found = [path for path in places if path.is_file()]
    return _imported(found[0]) if found else set()


def _packages() -> Iterator[str]:
    """Every package of the product that has a module of its own."""
    for top, package in ((ROOT, "tablecrypt"), (ROOT / "catalog", "tablecrypt_catalog")):
        for folder in sorted({path.parent for path in (top / package).rglob("*.py") if path.name != "__init__.py"}):
            yield ".".join(folder.relative_to(top).parts)


def _with_support(files: set[str]) -> set[str]:
    """The files, and what they import of the tests' own modules, from each to the next."""
    found: set[str] = set()
    waiting = set(files) | {"tests/conftest.py"}
    while waiting:
        file = waiting.pop()
        found.add(file)
        own = {f"{name.replace('.', '/')}.py" for name in _imported(ROOT / file) if name.startswith("tests.")}
        waiting |= {each for each in own if (ROOT / each).is_file()} - found
    return found


def _imported(path: Path) -> set[str]:
    """Modules, and names in modules, which may be modules themselves."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names
