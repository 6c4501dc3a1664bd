"""Runs the tests that what changed can affect: what `make test-changed` does.

    python -m tests.support.changed_tests [--base main] [--steps 2] [--list] [options of pytest]

Changed is what differs from the commit where this branch left `base`, committed or not, and what git does not know yet. A file of tests is
chosen, with the reason printed beside it,

- when it changed itself, or lies in the folder that mirrors that of a changed module, or below a changed conftest.py,
- when it reaches something changed in at most `--steps` steps (tests/support/import_reach.py says what a step is).

A change deep in the library reaches nearly every test, so that those farther away are left out, in one line that says how many. The
locked packages, pyproject.toml, the conftest.py of all tests and the plugins that it names reach everything.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from tests.support.durations import known_seconds
from tests.support.import_reach import Reach
from tests.support.java_version import java_problem

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = {"tablecrypt": "tablecrypt", "tablecrypt_catalog": "catalog/tablecrypt_catalog", "tests": "tests"}
MIRRORS: Final = {"tablecrypt/": "tests/", "catalog/tablecrypt_catalog/": "tests/catalog/"}
"""Where the tests of each folder of the library are."""
NEVER_COLLECTED: Final = ("tests/live/", "tests/engines/", "tests/vectors/")
EVERYTHING: Final = ("pyproject.toml", "requirements/dev.txt", "tests/conftest.py")
_LEFT_TO_OTHER_TARGETS: Final = "not campaign and not releases"
_NOTHING_COLLECTED: Final = 5
"""pytest's exit code where the marks left nothing of the files that were chosen."""


@dataclass(frozen=True, order=True)
class Choice:
    """A file of tests, and why it runs."""

    steps: int
    path: str
    reason: str


@dataclass(frozen=True)
class Selection:
    """What runs, nearest first, what is too far away, and what changed but is read by no test.

    Attributes:
        reaches_all: the changed files for which everything runs.
    """

    chosen: tuple[Choice, ...]
    too_far: tuple[Choice, ...] = ()
    unread: tuple[str, ...] = ()
    reaches_all: tuple[str, ...] = ()


def changed_files(root: Path, base: str) -> list[str]:
    """Files below `root` that differ from where this branch left `base`, removed ones among them.

    Raises:
        SystemExit: git does not know `base`, or this is no repository.
    """
    left = _git(root, "merge-base", base, "HEAD").strip()
    changed = _git(root, "diff", "--name-only", "--no-renames", "-z", left).split("\0")
    unknown = _git(root, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    return sorted({*changed, *unknown} - {""})


def _git(root: Path, *arguments: str) -> str:
    run = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"test-changed: git {' '.join(arguments)}: {run.stderr.strip() or 'no such commit'}; try BASE=<a commit>")
    return run.stdout


def selection(reach: Reach, changed: Sequence[str], steps: int, everything: Iterable[str] = EVERYTHING) -> Selection:
    """Choose among the test files of a project for what changed in it."""
    tests = sorted(source.path for source in reach.sources.values() if _is_test(source.path))
    reaches_all = tuple(path for path in changed if path in everything)
    if reaches_all:
        return Selection(tuple(Choice(0, test, f"{reaches_all[0]} changed") for test in tests), reaches_all=reaches_all)
    nearest: dict[str, Choice] = {}
    unread = []
    for path in changed:
        found = [*_beside(path, tests), *_reaching(reach, path)] or _above(path, tests)
        if not found and not _is_test(path):
            unread.append(path)
        for choice in found:
            nearest[choice.path] = min(choice, nearest.get(choice.path, choice))
    ordered = sorted(nearest.values())
    near = tuple(choice for choice in ordered if choice.steps <= steps)
    return Selection(near, tuple(choice for choice in ordered if choice.steps > steps), tuple(unread))


def _is_test(path: str) -> bool:
    return PurePosixPath(path).name.startswith("test_") and path.endswith(".py") and not path.startswith(NEVER_COLLECTED)


def _beside(path: str, tests: Sequence[str]) -> list[Choice]:
    """Tests that mirror the place of a changed file of the library, or lie below a changed conftest.py."""
    if path.endswith("/conftest.py"):
        below = path.removesuffix("conftest.py")
        return [Choice(0, test, f"below {path}") for test in tests if test.startswith(below)]
    for library, mirror in MIRRORS.items():
        if path.startswith(library):
            folder = str(PurePosixPath(mirror + path.removeprefix(library)).parent)
            own = f"{mirror}test_{PurePosixPath(path).stem.lstrip('_')}.py"
            mirrored = [test for test in tests if test == own or (folder != mirror.rstrip("/") and test.startswith(f"{folder}/"))]
            return [Choice(0, test, f"mirrors {path}") for test in mirrored]
    return []


def _above(path: str, tests: Sequence[str]) -> list[Choice]:
    """Tests of the nearest folder that mirrors one around a file of the library: for what is loaded by its name alone."""
    for library, mirror in MIRRORS.items():
        if not path.startswith(library):
            continue
        for folder in PurePosixPath(mirror + path.removeprefix(library)).parents:
            around = [test for test in tests if test.startswith(f"{folder}/")]
            if around:
                return [Choice(0, test, f"mirrors a folder around {path}") for test in around]
    return []


def _reaching(reach: Reach, path: str) -> Iterator[Choice]:
    """Tests that a changed file can affect. The readers of a file that is no module are one step away from it, as are the modules of a
    package, since importing them runs its `__init__.py`."""
    if PurePosixPath(path).name == "conftest.py":
        return
    module = reach.module(path)
    if module:
        yield from _reached(reach, path, {module}, 0, "imports")
        yield from _reached(reach, path, reach.modules_in(module), 1, "imports")
    else:
        yield from _reached(reach, path, reach.readers(path), 1, "reads")


def _reached(reach: Reach, path: str, start: set[str], first: int, verb: str) -> Iterator[Choice]:
    for name, steps in reach.steps(start).items():
        test = reach.sources[name].path
        if _is_test(test):
            far = steps + first
            yield Choice(far, test, "changed" if test == path else f"{verb} {path}" if far == 1 else f"{far} steps from {path}")


def _shown(choices: Sequence[Choice], root: Path) -> str:
    seconds = known_seconds([choice.path for choice in choices], root)
    clock = f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} s"
    return f"{len(choices)} files of tests, about {clock}"


def main(arguments: Sequence[str] | None = None, root: Path = ROOT, packages: Mapping[str, str] = PACKAGES) -> int:
    """Print what was chosen and why, and run it. The exit code is that of pytest, and 0 where nothing was chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="main", help="the branch or commit to compare with (main)")
    parser.add_argument("--steps", type=int, default=2, help="how far away a test may be (2)")
    parser.add_argument("--list", action="store_true", help="print the choice and run nothing")
    known, options = parser.parse_known_args(arguments)

    reach = Reach(root, packages)
    changed = changed_files(root, known.base)
    plugins = {reach.sources[name].path for name in reach.plugins("tests.conftest")}
    selected = selection(reach, changed, known.steps, {*EVERYTHING, *plugins})
    problem = java_problem()
    sys.stdout.write("\n".join([*_lines(selected, root), f"Changed since {known.base}: {len(changed)} files"]) + "\n")
    if problem:
        sys.stdout.write(f"Left out are the tests marked java: {problem}\n")
    sys.stdout.flush()
    if known.list or not selected.chosen:
        return 0
    return _run(root, selected, f"{_LEFT_TO_OTHER_TARGETS} and not java" if problem else _LEFT_TO_OTHER_TARGETS, options)


def _lines(selected: Selection, root: Path) -> Iterator[str]:
    if selected.reaches_all:
        yield f"Everything, since each test depends on {', '.join(selected.reaches_all)}: {_shown(selected.chosen, root)}"
        return
    yield from (f"{choice.path}  ({choice.reason})" for choice in selected.chosen)
    yield f"Chosen: {_shown(selected.chosen, root)}"
    if selected.too_far:
        first, last = selected.too_far[0].steps, selected.too_far[-1].steps
        yield f"Left out, as {first} to {last} steps away: {_shown(selected.too_far, root)}; STEPS={last} runs them too"
    if selected.unread:
        yield f"No test reads {', '.join(selected.unread)}"


def _run(root: Path, selected: Selection, marks: str, options: Sequence[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-m", marks, *options, *(choice.path for choice in selected.chosen)]
    code = subprocess.run(command, cwd=root, check=False).returncode
    return 0 if code == _NOTHING_COLLECTED else code


if __name__ == "__main__":
    sys.exit(main())
