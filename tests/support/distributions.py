"""The wheel and the source distribution, built from a copy of the sources, and empty environments to install them into."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from tests.support.plaintext_scan import unwatch

ROOT: Final = Path(__file__).parents[2]
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_FOR_USERS: Final = {"dev", "tests", "demo", "fuzz", "mutation", "bench", "packages"}
"""Extras that a target of the Makefile needs."""
LOCKED_APART: Final = {"daft"}
"""Extras for users that do not fit beside the newest of what the others need."""
EXTRAS: Final = sorted(set(PROJECT["optional-dependencies"]) - NOT_FOR_USERS)

Kind = Literal["wheel", "sdist"]
_TIMEOUT: Final = 600


def copy_sources(folder: Path, modified: int = 1_000_000_000) -> None:
    """Copy every file that the repository has, with this time of modification."""
    # Each case of the kit has its rows in plaintext beside its table.
    unwatch(folder / "conformance" / "cases")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, listed):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
        os.utime(folder / name, (modified, modified))


def build(folder: Path, kind: Kind, umask: int = 0o022, *, with_java: bool = False, environment: Mapping[str, str] | None = None) -> Path:
    """Build a wheel or a source distribution from the sources in a folder, and return it.

    Args:
        folder: with the sources.
        kind: what is built.
        umask: of the process that builds.
        with_java: compile the Java classes into the wheel, where there is a Java.
        environment: in place of this process's.
    """
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind]
    kept = {name: value for name, value in (environment or os.environ).items() if name != "SOURCE_DATE_EPOCH"}
    if not with_java:
        kept["HATCH_BUILD_NO_HOOKS"] = "true"
    subprocess.run(command, cwd=folder, env=kept, check=True, capture_output=True, umask=umask)
    (built,) = (folder / "dist").glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


@dataclass(frozen=True)
class Environment:
    """An environment that has the wheel with some extras, and what they bring.

    Attributes:
        folder: its own, with an empty folder beside its executables, in which programs run.
        extras: those that it was installed with.
    """

    folder: Path
    extras: tuple[str, ...] = ()

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def run(self, program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs, where neither the repository nor the user's configuration can be seen."""
        (self.folder / "empty").mkdir(exist_ok=True)
        return subprocess.run(
            [str(self.folder / "bin" / program), *arguments],
            cwd=self.folder / "empty",
            env=_outside(self.folder) | variables,
            capture_output=True,
            encoding="utf-8",
            timeout=_TIMEOUT,
            check=False,
        )

    def problems(self) -> str:
        """What `pip check` says of packages that lack another or do not fit; nothing if all is well."""
        done = uv("pip", "check", "--python", str(self.python), may_fail=True)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def remove(self, package: str) -> None:
        """Uninstall a package."""
        uv("pip", "uninstall", "--python", str(self.python), package)


def install(wheel: Path, folder: Path, extras: Sequence[str], interpreter: str = sys.executable) -> Environment:
    """Install a wheel with extras into a new, empty environment, in the versions that are locked for users."""
    uv("venv", "--python", interpreter, str(folder))
    wanted = f"tablecrypt[{','.join(extras)}] @ {wheel.as_uri()}"
    apart = LOCKED_APART & set(extras)
    locked = str(ROOT / "requirements" / f"{apart.pop() if apart else 'runtime'}.txt")
    uv("pip", "install", "--python", str(folder / "bin" / "python"), "--constraint", locked, "--reinstall-package", "tablecrypt", wanted)
    return Environment(folder, tuple(extras))


def uv(*arguments: str, may_fail: bool = False) -> subprocess.CompletedProcess[str]:
    """Run uv; an AssertionError says what it said if it fails and may not."""
    command = [sys.executable, "-m", "uv", *arguments]
    done = subprocess.run(command, cwd=ROOT.parent, capture_output=True, encoding="utf-8", timeout=_TIMEOUT, check=False)
    assert done.returncode == 0 or may_fail, f"uv {' '.join(arguments)}\n{done.stderr}"
    return done


def _outside(folder: Path) -> dict[str, str]:
    hidden = ("PYTHON", "PYICEBERG", "VIRTUAL_ENV", "COVERAGE", "PYTEST")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return kept | {"HOME": str(folder / "empty"), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8", "COLUMNS": "120"}
