"""Makes the environments of the programs, each with the newest release beside this checkout: what `make test-programs` begins with.

    python -m tests.programs.environments [dlt …]

Without names, all. They are .venv-programs-dlt and so on: the packages come from uv's cache as links, and are not locked.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from tests.programs.programs import PROGRAMS, Program

ROOT: Final = Path(__file__).parents[2]
_UV: Final = Path(sys.executable).with_name("uv")


def chosen(names: Sequence[str]) -> tuple[Program, ...]:
    """Return the programs of these names, or all.

    Raises:
        SystemExit: there is no program of a name.
    """
    known = {program.slug: program for program in PROGRAMS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"no program is named {', '.join(unknown)}: {', '.join(known)}")
    return tuple(known[name] for name in names) or PROGRAMS


def executables(program: Program) -> Path:
    """Return the folder with the python of a program's environment."""
    return ROOT / f".venv-programs-{program.slug}" / "bin" if program.installs else Path(sys.executable).parent


def release(program: Program) -> str:
    """Return the release that is in a program's environment."""
    (library,) = executables(program).parent.glob("lib/python3.*/site-packages")
    return next(each.version for each in distributions(name=program.package, path=[str(library)]))


def make(program: Program) -> None:
    """Make a program's environment, or bring it up to date. Raises CalledProcessError if uv cannot."""
    if not program.installs:
        return
    python = executables(program) / "python"
    if not python.exists():
        subprocess.run([_UV, "venv", "--quiet", "--python", sys.executable, python.parents[1]], check=True)
    requirements = [*program.installs, "--editable", f"{ROOT}[cli]"]
    subprocess.run([_UV, "pip", "install", "--quiet", "--upgrade", "--python", str(python), *requirements], check=True)


def main(names: Sequence[str]) -> None:
    """Make those that are named, or all."""
    for program in chosen(names):
        make(program)
        sys.stdout.write(f"{program.name}: {program.package} {release(program)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
