"""`tablecrypt activate` and `deactivate`: one file among the packages of an environment, which registers every Python process in it.

Python executes a line that begins with `import` in files *.pth there at its start. Ours imports tablecrypt_catalog.registration, which
imports nothing, and nothing happens where tablecrypt is no longer installed. Installing tablecrypt never writes the file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

import click

from tablecrypt._atomic_file import atomic_file
from tablecrypt.cli._framework import OPENS_NONE, DocumentedCommand, confirm, yes_option
from tablecrypt.cli._output import say
from tablecrypt.errors import ConfigurationError

FILE_NAME: Final = "tablecrypt-activated.pth"
_FIRST_LINE: Final = "# Written by `tablecrypt activate`, and removed by `tablecrypt deactivate`."
_REGISTER: Final = "\n".join(
    (
        "try:",
        "    from tablecrypt_catalog.registration import at_start",
        "except ModuleNotFoundError:",
        "    pass",
        "else:",
        "    at_start()",
    )
)
CONTENT: Final = f"{_FIRST_LINE}\nimport sys; exec({_REGISTER!r})\n"
_PROBE: Final = "from tablecrypt_catalog.registration import is_registered; raise SystemExit(not is_registered())"
_PROBE_SECONDS: Final = 60
IN_EFFECT: Final = "PyIceberg's own load_catalog knows type: tablecrypt in every Python program of this environment"


@click.command(
    cls=DocumentedCommand,
    takes_no_catalog=OPENS_NONE,
    examples=[("In a Dockerfile, or for a virtual environment", "tablecrypt activate --yes")],
    needs="The right to write into the environment's packages. Not an environment that the system's package manager keeps.",
)
@yes_option
def activate(yes: bool) -> None:
    """Let every Python program of this environment open encrypted tables.

    Writes a file of two lines beside the environment's packages. From then on every Python process that starts there does what
    tablecrypt.register() does: PyIceberg's own load_catalog opens encrypting catalogs. Removing tablecrypt leaves the file without effect;
    deactivate removes it.
    """
    path = _file()
    if path.is_file() and _content(path) == CONTENT:
        say(f"{path} is there already: {IN_EFFECT}")
        return

    # Every Python of the environment executes the file: one of another origin is looked at, and not replaced.
    _refuse_foreign(path)
    refusal = kept_by_the_system(sys.executable, sys.prefix != sys.base_prefix, Path(sysconfig.get_path("stdlib")))
    if refusal is not None:
        raise ConfigurationError(refusal)

    confirm(f"Write {path}, so that {IN_EFFECT}?", yes, dry_run=False)
    with atomic_file(path, private=False) as file:
        file.write(CONTENT.encode())
    _check_in_effect(path)
    say(f"wrote {path}: {IN_EFFECT}")


@click.command(
    cls=DocumentedCommand, takes_no_catalog=OPENS_NONE, examples=[("Before tablecrypt is removed", "tablecrypt deactivate --yes")]
)
@yes_option
def deactivate(yes: bool) -> None:
    """Undo activate.

    Removes the file that activate wrote, and nothing else. PyIceberg's own load_catalog then refuses type: tablecrypt again, but for
    programs that call tablecrypt.register() or run under tablecrypt run.
    """
    path = _file()
    if not os.path.lexists(path):
        say(f"there is no {path}: this environment is not activated")
        return

    _refuse_foreign(path)
    confirm(
        f"Remove {path}, so that PyIceberg's own load_catalog no longer knows type: tablecrypt in this environment?", yes, dry_run=False
    )
    path.unlink()
    say(f"removed {path}")


def _file() -> Path:
    return Path(sysconfig.get_path("purelib")) / FILE_NAME


def _content(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _refuse_foreign(path: Path) -> None:
    """Refuse to replace or remove what activate did not write, in this release or another."""
    if os.path.lexists(path) and not (path.is_file() and _content(path).startswith(_FIRST_LINE)):
        raise ConfigurationError(f"{path} is not what tablecrypt activate writes: look at it, and remove it by hand")


def kept_by_the_system(python: str, in_virtual_environment: bool, standard_library: Path) -> str | None:
    """Return why an environment in which pip would refuse to install is none to activate: system programs run in it. None for others.

    Args:
        python: the environment's interpreter.
        in_virtual_environment: whether it is one of a virtual environment, which has its packages to itself.
        standard_library: the folder of its standard library, where the system leaves its mark (PEP 668).
    """
    mark = standard_library / "EXTERNALLY-MANAGED"
    if in_virtual_environment or not mark.is_file():
        return None
    return f"{python} belongs to the system's package manager ({mark}): activate a virtual environment, or use tablecrypt run"


def _check_in_effect(path: Path) -> None:
    """Start a Python process of this environment, without this one's variables, and take the file back if it has no effect there."""
    # Isolated: the PYTHONPATH of this shell may lead to tablecrypt where other programs have none.
    probe = [sys.executable, "-I", "-c", _PROBE]
    if subprocess.run(probe, capture_output=True, check=False, timeout=_PROBE_SECONDS).returncode != 0:
        # Left there, it would do nothing, and the user would believe that programs open encrypted tables.
        path.unlink()
        raise ConfigurationError(
            f"{path} had no effect, and was removed: {sys.executable} does not find tablecrypt among its packages. Install it there first"
        )
