"""The distributions that are tested, built once, and an empty environment for each test of an installation."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.distributions import EXTRAS, Environment, build, copy_sources, install

OTHER_PYTHONS: Final = os.environ.get("OTHER_PYTHONS", "").split()
"""Interpreters that `make test-packages` found beside that of the tests."""
INSTALLATIONS: Final[list[tuple[str, tuple[str, ...]]]] = [
    *((sys.executable, extras) for extras in [(), *((extra,) for extra in EXTRAS)]),
    *((python, extras) for python in OTHER_PYTHONS for extras in [(), ("aws", "cli")]),
]


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources-of-sdist")
    copy_sources(folder)
    return build(folder, "sdist")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources-of-wheel")
    copy_sources(folder)
    return build(folder, "wheel")


@pytest.fixture(
    scope="module",
    params=INSTALLATIONS,
    ids=lambda each: f"{'' if each[0] == sys.executable else Path(each[0]).name + '-'}{'+'.join(each[1]) or 'no extra'}",
)
def environment(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The wheel with no extra, with each extra alone, and on the other Pythons with none and with two."""
    interpreter, extras = request.param
    installed = install(wheel, tmp_path_factory.mktemp("environments") / "it", extras, interpreter)
    yield installed
    shutil.rmtree(installed.folder)
