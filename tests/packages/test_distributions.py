"""The wheel and the source distribution are the same bytes wherever they are built, and hold what they should and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import pytest

from tests.support.distributions import PROJECT, ROOT, build, copy_sources
from tests.support.plaintext_scan import unwatch

NAME: Final = f"tablecrypt-{PROJECT['version']}"
PRIVATE: Final = re.compile(
    r"(^|/)(\.(?!gitignore$|gitkeep$|editorconfig$|pre-commit-config\.yaml$)[^/]*|__pycache__|[^/]*\.(py[co]|keys|pem|key|db|log|class|swp|orig))$"
)
"""Caches, editors' copies, hidden files, keys, databases and logs: nothing of that kind is for others."""


@pytest.fixture(scope="module")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    # The conformance kit has the rows of its tables beside them.
    unwatch(folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return folder / NAME


def _members(archive: Path) -> list[str]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.namelist()
    with tarfile.open(archive) as sdist:
        return [member.name.removeprefix(f"{NAME}/") for member in sdist.getmembers()]


def test_the_source_distribution_is_the_same_bytes_from_another_folder_at_another_time(sdist: Path, tmp_path: Path) -> None:
    copy_sources(tmp_path / "deeper", modified=1_700_000_000)
    again = build(tmp_path / "deeper", "sdist", umask=0o077)

    assert again.name == sdist.name
    assert again.read_bytes() == sdist.read_bytes()


def test_the_wheel_of_the_source_distribution_is_that_of_the_sources(wheel: Path, unpacked: Path) -> None:
    again = build(unpacked, "wheel")

    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


def test_the_wheel_holds_the_modules_the_java_sources_and_the_types(wheel: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "tablecrypt", "catalog/tablecrypt_catalog"], cwd=ROOT, capture_output=True, check=True)
    sources = {name.removeprefix("catalog/") for name in listed.stdout.decode().splitlines()}
    members = set(_members(wheel))

    assert {name for name in members if not name.startswith(f"{NAME}.dist-info/")} == sources
    assert {"tablecrypt/py.typed", "tablecrypt_catalog/py.typed", f"{NAME}.dist-info/licenses/LICENSE"} <= members
    assert any(name.endswith(".java") for name in members)


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_nothing_private_is_in_a_distribution(kind: str, wheel: Path, sdist: Path) -> None:
    members = _members(wheel if kind == "wheel" else sdist)

    assert [name for name in members if PRIVATE.search(name) and not name.startswith("tests/vectors/")] == []


@pytest.mark.parametrize("name", ["a/__pycache__", ".env", "x/.netrc", "orders.keys", "a/server.key", "b.pyc", "catalog.db", "x.py.orig"])
def test_what_is_private_is_known_by_its_name(name: str) -> None:
    assert PRIVATE.search(name)


def test_the_metadata_is_what_an_index_takes(wheel: Path, sdist: Path) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", wheel, sdist], capture_output=True, encoding="utf-8", check=False
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.count("PASSED") == 2


def test_the_tests_of_the_source_distribution_are_those_of_the_repository(unpacked: Path) -> None:
    """And collecting them needs no file beside it."""
    assert _collected(unpacked) == _collected(ROOT)


def _collected(folder: Path) -> list[str]:
    """The tests that pytest finds in a folder, without those of these packages."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if "::" in line]
