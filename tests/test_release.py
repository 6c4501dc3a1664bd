"""`make release` builds the same files anywhere, and refuses what is no release."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import pytest

from tests.support.release import SBOM, NotARelease, build, check, main, release_notes

ROOT: Final = Path(__file__).parents[1]
CHANGELOG: Final = "# Changelog\n\n## 1.2.3, 2026-12-01\n\n### Added\n\n- One.\n\n## 1.2.2, 2026-11-01\n\n- Older.\n"


def _git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, encoding="utf-8").stdout


def _commit(folder: Path) -> None:
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--message", "A release")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose commit is the release 1.2.3."""
    folder = tmp_path / "repository"
    (folder / "changes").mkdir(parents=True)
    (folder / "changes" / "README.md").write_text("# Changes\n", encoding="utf-8")
    (folder / "CHANGELOG.md").write_text(CHANGELOG, encoding="utf-8")
    (folder / "pyproject.toml").write_text('[project]\nname = "tablecrypt"\nversion = "1.2.3"\n', encoding="utf-8")
    _git(folder.parent, "init", "--quiet", str(folder))
    _commit(folder)
    return folder


def test_a_commit_with_its_version_and_its_changes_is_a_release(repository: Path) -> None:
    check(repository, "v1.2.3")


@pytest.mark.parametrize("tag", ["", "1.2.3", "v1.2.4", "v1.2.3 ", "refs/tags/v1.2.3", "v1.2.3-rc1"])
def test_a_tag_of_another_version_is_refused(repository: Path, tag: str) -> None:
    with pytest.raises(NotARelease, match=r"the tag of that is v1\.2\.3"):
        check(repository, tag)


@pytest.mark.parametrize("name", ["CHANGELOG.md", "new.py"])
def test_files_that_are_not_committed_are_refused(repository: Path, name: str) -> None:
    with (repository / name).open("a", encoding="utf-8") as file:
        file.write("\n")

    with pytest.raises(NotARelease, match=rf"{name}: commit or remove"):
        check(repository, "v1.2.3")


def test_a_sentence_that_is_left_is_refused(repository: Path) -> None:
    (repository / "changes" / "pins.added.md").write_text("Pins.\n", encoding="utf-8")
    _commit(repository)

    with pytest.raises(NotARelease, match=r"changes/pins\.added\.md is not in CHANGELOG\.md: run `make changelog`"):
        check(repository, "v1.2.3")


@pytest.mark.parametrize(
    ("changelog", "why"),
    [
        (CHANGELOG.replace("2026-12-01", "unreleased"), "has no date"),
        (CHANGELOG.replace("1.2.3", "1.2.4"), "its newest section"),
        (CHANGELOG.replace("## 1.2.2", "## 1.2.3"), "and no other"),
        (CHANGELOG.replace("## 1.2.3, 2026-12-01", "## 1.2.4, 2026-12-01\n\n## 1.2.3, 2026-12-01"), "its newest section"),
        ("# Changelog\n", "its newest section"),
    ],
)
def test_a_changelog_whose_newest_section_is_not_of_the_version_is_refused(repository: Path, changelog: str, why: str) -> None:
    (repository / "CHANGELOG.md").write_text(changelog, encoding="utf-8")
    _commit(repository)

    with pytest.raises(NotARelease, match=why):
        check(repository, "v1.2.3")


def test_the_notes_are_the_newest_section_alone() -> None:
    assert release_notes(CHANGELOG, "1.2.3") == "### Added\n\n- One.\n"


def test_what_is_no_release_ends_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 1

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("no release: tag '': pyproject.toml has version")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make release` makes of the commit of this clone."""
    target = tmp_path_factory.mktemp("release") / "dist"
    target.mkdir()
    (target / SBOM).write_text("{}\n", encoding="utf-8")
    build(ROOT, target)
    return target


@pytest.mark.nightly
@pytest.mark.slow
def test_the_sums_are_those_of_all_files(files: Path) -> None:
    lines = (files / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}

    assert sums == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files.iterdir() if path.name != "SHA256SUMS"}
    assert len(sums) == 3


@pytest.mark.nightly
@pytest.mark.slow
def test_the_source_distribution_has_what_contributors_need_and_nothing_that_the_commit_has_not(files: Path) -> None:
    (packed,) = files.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers()}
    committed = set(_git(ROOT, "ls-tree", "-r", "--name-only", "HEAD").splitlines())

    assert names - committed == {"PKG-INFO"}
    assert {"changes/README.md", ".github/workflows/test.yml", ".pre-commit-config.yaml", "Makefile", "tests/conftest.py"} <= names


@pytest.mark.nightly
@pytest.mark.slow
def test_the_wheel_has_the_library_alone(files: Path) -> None:
    (packed,) = files.glob("*.whl")
    with zipfile.ZipFile(packed) as wheel:
        tops = {name.partition("/")[0] for name in wheel.namelist()}

    assert {top for top in tops if not top.endswith(".dist-info")} == {"tablecrypt", "tablecrypt_catalog"}


@pytest.mark.nightly
@pytest.mark.slow
def test_a_build_that_depends_on_its_place_is_no_release(repository: Path, tmp_path: Path) -> None:
    (repository / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "tablecrypt"\nversion = "1.2.3"\n'
        '[tool.hatch.build.targets.wheel]\npackages = ["tablecrypt"]\n[tool.hatch.build.hooks.custom]\n',
        encoding="utf-8",
    )
    (repository / "hatch_build.py").write_text(
        "from pathlib import Path\nfrom hatchling.builders.hooks.plugin.interface import BuildHookInterface\n"
        "class Hook(BuildHookInterface):\n"
        "    def initialize(self, version, build_data):\n"
        "        Path(self.root, 'tablecrypt', 'place.py').write_text(repr(self.root))\n",
        encoding="utf-8",
    )
    (repository / "tablecrypt").mkdir()
    (repository / "tablecrypt" / "__init__.py").write_text("", encoding="utf-8")
    _commit(repository)

    with pytest.raises(NotARelease, match="two builds of this commit differ"):
        build(repository, tmp_path / "dist")

    assert not (tmp_path / "dist").exists()


def test_the_module_is_what_the_makefile_runs() -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "tests.support.release", "v0"], cwd=ROOT, capture_output=True, encoding="utf-8", check=False
    )

    assert refused.returncode == 1
    assert refused.stderr.startswith("no release: tag 'v0'")
