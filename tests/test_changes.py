"""What is in changes/ becomes a section of CHANGELOG.md: each file has a name, a type and one sentence."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.support.release import NO_FRAGMENTS, release_notes

ROOT: Final = Path(__file__).parents[1]
CHANGES: Final = ROOT / "changes"
SETTINGS: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
TYPES: Final = [each["directory"] for each in SETTINGS["type"]]
NAME: Final = re.compile(rf"[a-z0-9]+(-[a-z0-9]+)*\.({'|'.join(TYPES)})\.md")
LONGEST: Final = 300
CODE: Final = re.compile(r"`[^`]*`")
END_OF_A_SENTENCE: Final = re.compile(r"[.!?]\s+\S")


def problem(name: str, text: str) -> str | None:
    """What is wrong with a file of changes/, or None."""
    if not NAME.fullmatch(name):
        return f"the name is what-it-is-about.TYPE.md, and TYPE one of {', '.join(TYPES)}"
    sentence = text.removesuffix("\n")
    if not sentence.endswith(".") or sentence != sentence.strip() or "\n" in sentence:
        return "it holds one line, a sentence with a full stop at its end"
    if END_OF_A_SENTENCE.search(CODE.sub("code", sentence)):
        return "it holds one sentence"
    if len(sentence) > LONGEST:
        return f"it is longer than {LONGEST} characters"
    if not (sentence[0].isupper() or sentence[0] == "`"):
        return "a sentence begins with a capital letter or with code"
    return None


def test_every_file_of_changes_is_a_sentence_of_a_known_type() -> None:
    files = [path for path in CHANGES.iterdir() if path.name not in NO_FRAGMENTS]

    assert [f"{path.name}: {why}" for path in files if (why := problem(path.name, path.read_text(encoding="utf-8")))] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pins-in-postgres.added.md", "Pins can be kept in PostgreSQL.\n"),
        ("a.fixed.md", "`audit --html x.y` names `a. B`, and version 0.2 does not end the sentence.\n"),
        ("a.security.md", "A server cannot choose a class.\n"),
    ],
)
def test_a_sentence_of_a_known_type_is_right(name: str, text: str) -> None:
    assert problem(name, text) is None


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("pins.feature.md", "Pins.\n", "TYPE one of added, changed, fixed, security"),
        ("Pins.added.md", "Pins.\n", "the name is"),
        ("pins.md", "Pins.\n", "the name is"),
        ("pins.added.rst", "Pins.\n", "the name is"),
        ("pins.added.md", "", "one line"),
        ("pins.added.md", "Pins can be kept\n", "a full stop"),
        ("pins.added.md", "Pins can be\nkept.\n", "one line"),
        ("pins.added.md", "- Pins can be kept. They stay.\n", "one sentence"),
        ("pins.added.md", "pins can be kept.\n", "capital letter"),
        ("pins.added.md", f"Pins {'can ' * 90}be kept.\n", "longer than"),
    ],
)
def test_anything_else_is_named(name: str, text: str, why: str) -> None:
    assert why in (problem(name, text) or "")


def test_the_types_are_those_that_the_pages_name() -> None:
    table = (CHANGES / "README.md").read_text(encoding="utf-8")

    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == TYPES == ["added", "changed", "fixed", "security"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What `make changelog` needs, with three sentences."""
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    (tmp_path / "changes").mkdir()
    for name in NO_FRAGMENTS:
        shutil.copyfile(CHANGES / name, tmp_path / "changes" / name)
    for name, text in {"b.added.md": "Two.\n", "a.added.md": "One.\n", "c.security.md": "Three.\n"}.items():
        (tmp_path / "changes" / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def _changelog(project: Path, version: str) -> str:
    """Run the recipe of `make changelog`, with this version as the project's."""
    recipe = re.findall(r"^changelog: setup\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[0]
    bin_folder = Path(sys.executable).parent
    command = recipe.replace("$(BIN)/hatchling version", f"echo {version}").replace("$(BIN)", str(bin_folder)).replace("$$", "$")
    subprocess.run(["sh", "-ec", command.replace("\t@", "")], cwd=project, check=True, capture_output=True)
    return (project / "CHANGELOG.md").read_text(encoding="utf-8")


def test_a_release_moves_the_sentences_into_the_changelog(project: Path) -> None:
    before = (project / "CHANGELOG.md").read_text(encoding="utf-8")

    after = _changelog(project, "9.9.0")

    assert release_notes(after, "9.9.0") == "### Added\n\n- One.\n- Two.\n\n### Security\n\n- Three.\n"
    assert after.partition("<!-- Newest release -->\n")[0] == before.partition("<!-- Newest release -->\n")[0]
    assert after.endswith(before.partition("<!-- Newest release -->\n")[2])
    assert {path.name for path in (project / "changes").iterdir()} == NO_FRAGMENTS


def test_what_was_written_by_hand_for_a_version_becomes_a_part_of_its_section(project: Path) -> None:
    changelog = project / "CHANGELOG.md"
    changelog.write_text(
        "# Changelog\n\n<!-- Newest release -->\n\n## 0.2.0, unreleased\n\n- By hand.\n\n## 0.1.0, unreleased\n", encoding="utf-8"
    )

    notes = release_notes(_changelog(project, "0.2.0"), "0.2.0")

    assert notes == "### Added\n\n- One.\n- Two.\n\n### Security\n\n- Three.\n\n### Earlier\n\n- By hand.\n"
