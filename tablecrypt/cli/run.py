"""`tablecrypt run`: a program and its child processes, in which PyIceberg's own load_catalog knows encrypting catalogs.

Python imports a module `sitecustomize` at its start if it finds one. Ours is in a folder that comes first on the program's PYTHONPATH,
which its child processes inherit. PYICEBERG_HOME names the home folder if .pyiceberg.yaml is there: PyIceberg reads the same file as
without it, and so do programs that look for the file themselves. The program takes the place of this process: its exit code, its signals
and its terminal are its own.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path
from typing import Final

import click

import tablecrypt_catalog
from tablecrypt.cli._framework import DocumentedCommand
from tablecrypt.cli.main import REFUSED
from tablecrypt.errors import ConfigurationError

_PYTHON: Final = re.compile(r"(python|pypy)[0-9.]*[a-z]?")
_LONGEST_FIRST_LINE: Final = 512
_WITH_VALUE: Final = ("W", "X")
_LONG_WITH_VALUE: Final = "--check-hash-based-pycs"
_PROGRAM_FOLLOWS: Final = ("c", "m")
_PYTHON_PATH: Final = "PYTHONPATH"
_CONFIGURATION_FOLDER: Final = "PYICEBERG_HOME"
_IGNORED_BY_PYTHON: Final = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)]
"""Signals that a program would go on to ignore: what is ignored stays so when a process is given to another program."""
_AT_START: Final = str(Path(tablecrypt_catalog.__file__).parent / "at_start")
_DEAF: Final = {
    "E": "ignores PYTHONPATH, by which run reaches a program: leave out -E, or use tablecrypt activate",
    "I": "ignores PYTHONPATH, by which run reaches a program: leave out -I, or use tablecrypt activate",
    "S": "imports no sitecustomize, by which run reaches a program: leave out -S, or call tablecrypt.register() in it",
}


@click.command(
    cls=DocumentedCommand,
    # The program loads its catalog itself: options that reach nothing would leave it with a plain one.
    takes_no_catalog="give the program its catalog, tablecrypt run PROGRAM …",
    context_settings={"allow_interspersed_args": False},
    examples=[
        ("PyIceberg's own command", "tablecrypt run pyiceberg --catalog prod files db.orders"),
        ("A script, and the processes that it starts", "tablecrypt run python pipeline.py"),
        ("A module", "tablecrypt run python -m pipeline"),
    ],
    needs="tablecrypt in the program's environment, and a catalog with type: tablecrypt in .pyiceberg.yaml or the environment.",
    codes={0: "success of the program; its other codes are its own too", REFUSED: "the program cannot be run, and stderr says why"},
)
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(program: str, arguments: tuple[str, ...]) -> None:
    """Run a program in which PyIceberg opens encrypted tables.

    In PROGRAM, and in the Python processes that it starts, PyIceberg's own load_catalog opens encrypting catalogs, as after
    tablecrypt.register(). PROGRAM is a command, looked for beside tablecrypt and then on the PATH, the path of one, or a Python script.
    What follows it is the program's, and so is the exit code.
    """
    command = [*_found(program), *arguments]
    _refuse_deaf(command)
    _become(command)


def _found(program: str) -> list[str]:
    """Return the path of a program, behind that of this Python if it is a script of Python's.

    Raises:
        ConfigurationError: there is none, or it may not be executed.
    """
    path = Path(program)
    # By this interpreter, which has tablecrypt: the one in the script's first line need not.
    if path.suffix == ".py" and path.is_file():
        return [sys.executable, program]
    if os.sep in program and not path.is_file():
        raise ConfigurationError(f"there is no program {program}")
    if os.sep in program and not os.access(path, os.X_OK):
        raise ConfigurationError(f"{program} may not be executed: chmod +x it, or name what runs it before it")

    # Beside tablecrypt is what was installed with it, also where nobody activated the environment.
    own = str(Path(sys.executable).parent)
    found = shutil.which(program, path=own) or shutil.which(program)
    if found is None:
        raise ConfigurationError(f"there is no program {program!r}, neither in {own} nor on the PATH")

    return [found]


def _refuse_deaf(command: list[str]) -> None:
    """Refuse a Python that would not hear of us: the program would run, and make plain catalogs."""
    program = command[0]
    words = command if _is_python(program) else _first_line(Path(program))
    python = list(dropwhile(lambda word: not _is_python(word), words))
    letter = next((each for each in _single_letters(python[1:]) if each in _DEAF), None)
    if letter is not None:
        begins = "" if words is command else f"{program} begins with #!{' '.join(words)}: "
        raise ConfigurationError(f"{begins}{Path(python[0]).name} -{letter} {_DEAF[letter]}")


def _is_python(word: str) -> bool:
    return _PYTHON.fullmatch(Path(word).name) is not None


def _first_line(script: Path) -> list[str]:
    """Return the words after #! in a script; none of another program."""
    with script.open("rb") as file:
        line = file.readline(_LONGEST_FIRST_LINE)
    return os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []


def _single_letters(arguments: list[str]) -> Iterator[str]:
    """Yield Python's own options of one letter: those before the program, each without its value."""
    words = iter(arguments)
    for word in words:
        if word == _LONG_WITH_VALUE:
            next(words, None)
        elif not word.startswith("-") or word in ("-", "--"):
            return
        elif not word.startswith("--"):
            letters, value = _before_value(word[1:])
            yield from letters
            if letters[-1:] in _PROGRAM_FOLLOWS:
                return
            if letters[-1:] in _WITH_VALUE and not value:
                next(words, None)


def _before_value(cluster: str) -> tuple[str, str]:
    """Divide the letters of a word such as -bWerror into options, the last of which may have a value, and that value."""
    end = next((number for number, letter in enumerate(cluster, 1) if letter in (*_WITH_VALUE, *_PROGRAM_FOLLOWS)), len(cluster))
    return cluster[:end], cluster[end:]


def _become(command: list[str]) -> None:
    """Give this process to the program.

    Raises:
        ConfigurationError: the system cannot run it.
    """
    variables = {**os.environ, _PYTHON_PATH: _with_ours_first(os.environ.get(_PYTHON_PATH, "")), **_configuration_at_home()}
    for ignored in _IGNORED_BY_PYTHON:
        # Else a program that writes into a closed pipe would not end quietly, as it does from a shell.
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execve(command[0], command, variables)
    except OSError as error:
        raise ConfigurationError(f"{command[0]} cannot be run: {error.strerror}") from error


def _configuration_at_home() -> dict[str, str]:
    """Name the home folder to programs that look for .pyiceberg.yaml themselves, and not there as PyIceberg does: dlt."""
    home = os.path.expanduser("~")
    return {_CONFIGURATION_FOLDER: home} if not os.environ.get(_CONFIGURATION_FOLDER) and Path(home, ".pyiceberg.yaml").is_file() else {}


def _with_ours_first(python_path: str) -> str:
    """Return PYTHONPATH with the folder of our sitecustomize before the others."""
    # Ours only once, also where a program that `run` has started calls `run`.
    places = [place for place in python_path.split(os.pathsep) if place and place != _AT_START]
    return os.pathsep.join([_AT_START, *places])
