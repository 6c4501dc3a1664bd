"""Which PyIceberg comes after the locked one: from real repositories and a folder of packages that pip looks into."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from packaging.version import Version

from tests.support.next_pyiceberg import main_branch, newest_release, next_requirement


@pytest.fixture
def repository(tmp_path: Path) -> str:
    folder = tmp_path / "pyiceberg"
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@localhost")
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", str(folder)], check=True)
    subprocess.run(["git", *identity, "commit", "--quiet", "--allow-empty", "--message", "one"], cwd=folder, check=True)
    return folder.as_uri()


def registry(folder: Path, *versions: str) -> tuple[str, ...]:
    """Options of pip by which it finds these versions of PyIceberg alone. Environments of other interpreters have no pip."""
    pytest.importorskip("pip")
    for version in versions:
        (folder / f"pyiceberg-{version}-py3-none-any.whl").touch()
    return ("--no-index", "--find-links", str(folder))


def test_the_main_branch_comes_first(tmp_path: Path, repository: str) -> None:
    requirement = next_requirement(repository, Version("0.12.0"), *registry(tmp_path, "0.13.0"))

    assert requirement is not None
    assert requirement == main_branch(repository)
    assert requirement.startswith(f"git+{repository}@")
    assert len(requirement.rpartition("@")[2]) == 40


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (["0.12.0", "0.13.0rc1"], "pyiceberg==0.13.0rc1"),
        (["0.12.0", "0.12.0rc2"], None),
        (["0.11.1", "0.12.0", "0.12.1"], "pyiceberg==0.12.1"),
        ([], None),
    ],
)
def test_without_it_only_a_newer_release_or_candidate_counts(tmp_path: Path, versions: list[str], expected: str | None) -> None:
    unreachable = (tmp_path / "nowhere").as_uri()

    assert next_requirement(unreachable, Version("0.12.0"), *registry(tmp_path, *versions)) == expected


def test_pre_releases_are_seen(tmp_path: Path) -> None:
    assert newest_release(*registry(tmp_path, "0.12.0", "0.13.0rc2", "0.13.0rc1")) == Version("0.13.0rc2")
