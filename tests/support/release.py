"""`make release TAG=v1.2.3`: check that a tag is a release, and build its files into dist/.

    dist/tablecrypt-1.2.3-py3-none-any.whl
    dist/tablecrypt-1.2.3.tar.gz
    dist/SHA256SUMS            of these two and of the bill of materials, which `make sbom` wrote
    dist/RELEASE_NOTES.md      the section of CHANGELOG.md

What is built is the commit, not the folder. It is built twice, from copies in other places and with other times, and the wheel once more
from the source distribution: every time the same bytes, or nothing is written.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SBOM: Final = "tablecrypt.cdx.json"
NO_FRAGMENTS: Final = {"README.md", "template.md.jinja"}
_HEADING: Final = re.compile(r"^## (?P<version>\S+), (?P<date>\d{4}-\d{2}-\d{2}|unreleased)$", re.MULTILINE)


class NotARelease(Exception):
    """The commit, its tag, its version and its changelog do not belong together. The message says what to do."""


def check(root: Path, tag: str) -> None:
    """Raise NotARelease unless this commit is what the tag says."""
    version = _version(root)
    if tag != f"v{version}":
        raise NotARelease(f"tag {tag!r}: pyproject.toml has version {version}; the tag of that is v{version}")

    changed = _git(root, "status", "--porcelain")
    if changed:
        raise NotARelease(f"{changed.splitlines()[0].strip()}: commit or remove what is not committed")

    left = sorted(path.name for path in (root / "changes").iterdir() if path.name not in NO_FRAGMENTS)
    if left:
        raise NotARelease(f"changes/{left[0]} is not in CHANGELOG.md: run `make changelog`")

    release_notes((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)


def release_notes(changelog: str, version: str) -> str:
    """Return the section of this version, which is the newest, has a date and is the only one of the version, without its heading."""
    headings = list(_HEADING.finditer(changelog))
    if [each["version"] for each in headings].count(version) != 1 or headings[0]["version"] != version:
        raise NotARelease(f"CHANGELOG.md: its newest section, and no other, must be of version {version}: run `make changelog`")
    if headings[0]["date"] == "unreleased":
        raise NotARelease(f"CHANGELOG.md: version {version} has no date: run `make changelog`")

    end = headings[1].start() if len(headings) > 1 else len(changelog)
    return changelog[headings[0].end() : end].strip() + "\n"


def build(root: Path, target: Path) -> None:
    """Write the wheel, the source distribution and their hashes into `target`. Raises NotARelease if two builds differ."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = _built(_checked_out(root, folder / "one", 1_000_000_000), umask=0o022)
        second = _built(_checked_out(root, folder / "another" / "deeper", 1_700_000_000), umask=0o077)
        (packed,) = [path for path in first if path.name.endswith(".tar.gz")]
        third = _built(_unpacked(packed, folder / "sources"), umask=0o022)

        for others in (second, third):
            for path, other in zip(first, others, strict=True):
                if (path.name, path.read_bytes()) != (other.name, other.read_bytes()):
                    raise NotARelease(f"{path.name}: two builds of this commit differ; compare them with diffoscope")

        target.mkdir(exist_ok=True)
        for path in first:
            shutil.copyfile(path, target / path.name)

    hashed = sorted([*(path.name for path in first), SBOM])
    sums = [f"{hashlib.sha256((target / each).read_bytes()).hexdigest()}  {each}\n" for each in hashed]
    (target / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Check and build. Return 1, with one line that says why, where the tag is no release."""
    tag = arguments[0] if arguments else ""
    try:
        check(ROOT, tag)
        build(ROOT, ROOT / "dist")
    except NotARelease as refused:
        sys.stderr.write(f"no release: {refused}\n")
        return 1

    notes = release_notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), _version(ROOT))
    (ROOT / "dist" / "RELEASE_NOTES.md").write_text(notes, encoding="utf-8")
    sys.stdout.write((ROOT / "dist" / "SHA256SUMS").read_text(encoding="utf-8"))
    return 0


def _version(root: Path) -> str:
    version: str = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return version


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, encoding="utf-8").stdout


def _checked_out(root: Path, folder: Path, modified: int) -> Path:
    """A copy of the commit whose files have this time of modification."""
    folder.mkdir(parents=True)
    packed = folder.parent / f"{folder.name}.tar"
    _git(root, "archive", f"--output={packed}", "HEAD")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    for path in folder.rglob("*"):
        os.utime(path, (modified, modified))
    return folder


def _unpacked(packed: Path, folder: Path) -> Path:
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    (top,) = folder.iterdir()
    return top


def _built(sources: Path, umask: int) -> list[Path]:
    """Wheel and source distribution, in the order of their names."""
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    target = sources.parent / f"{sources.name}-built"
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--target", "sdist", "--directory", str(target)]
    subprocess.run(command, cwd=sources, env=environment, check=True, capture_output=True, umask=umask)
    return sorted(target.iterdir())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
