"""Running the tablecrypt command in tests: in this process, or as a process of its own, with a terminal or without."""

from __future__ import annotations

import io
import os
import pty
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyiceberg.catalog import Catalog

from tablecrypt.cli.main import main

ROOT = Path(__file__).parents[2]
_TIMEOUT = 300


@dataclass(frozen=True)
class Done:
    """What a run came to."""

    code: int
    stdout: str
    stderr: str
    raw: bytes = b""


_SHARED: Final[tuple[str, ...]] = ("uri", "warehouse", "encryption.kms-type", "kms.endpoint", "client.region", "kms.memory.name")


@dataclass(frozen=True)
class Command:
    """The program with what belongs before the command: a catalog's name and properties."""

    properties: Mapping[str, str]
    catalog: str = "prod"

    @classmethod
    def of(cls, catalog: Catalog) -> Command:
        """The program with the catalog's database, warehouse and KMS."""
        properties = {name: str(catalog.properties[name]) for name in _SHARED if name in catalog.properties}
        return cls({"py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog", **properties})

    @property
    def leading(self) -> list[str]:
        """The arguments before the command."""
        pairs = [part for name, value in self.properties.items() for part in ("--property", f"{name}={value}")]
        return ["--catalog", self.catalog, *pairs]

    def run(self, *arguments: str) -> Done:
        """Run in this process, without a terminal."""
        return run(*self.leading, *arguments)

    def run_process(self, *arguments: str) -> Done:
        """Run as a process of its own, without a terminal."""
        return run_process(*self.leading, *arguments)

    def run_terminal(self, *arguments: str, answer: str = "") -> tuple[int, str]:
        """Run as a process of its own on a terminal, where `answer` is typed; return the exit code and what the terminal showed."""
        return run_terminal(*self.leading, *arguments, answer=answer)


def run(*arguments: str) -> Done:
    """Run the command in this process, without a terminal."""
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code = 0
    with redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            main(list(arguments))
        except SystemExit as ended:
            code = int(ended.code or 0)
    raw = stdout.buffer.getvalue()
    return Done(code, raw.decode(errors="replace"), stderr.buffer.getvalue().decode(), raw)


def run_process(*arguments: str) -> Done:
    """Run the command as a process of its own, without a terminal."""
    done = subprocess.run(_line(arguments), capture_output=True, check=False, timeout=_TIMEOUT, stdin=subprocess.DEVNULL, env=environment())
    return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(), done.stdout)


def new_database(path: Path) -> None:
    """Make a SQLite database, which a catalog may put its tables into: one without a byte is refused."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (value text)")
        connection.commit()


def in_shell(line: str, *arguments: str) -> Done:
    """Run a line of bash in which `"$@"` is the command with these arguments."""
    words = ["bash", "-c", line, "-", *_line(arguments)]
    done = subprocess.run(words, capture_output=True, check=False, timeout=_TIMEOUT, env=environment())
    return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(), done.stdout)


def run_terminal(*arguments: str, answer: str = "") -> tuple[int, str]:
    """Run the command as a process of its own on a terminal."""
    ours, theirs = pty.openpty()
    terminal = environment() | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(_line(arguments), stdin=theirs, stdout=theirs, stderr=theirs, env=terminal, close_fds=True) as process:
        os.close(theirs)
        os.write(ours, answer.encode())
        shown = _read_all(ours)
        code = process.wait(_TIMEOUT)
    os.close(ours)
    return code, shown


def _read_all(terminal: int) -> str:
    pieces: list[bytes] = []
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # Linux says so when nobody holds the other end any more.
            piece = b""
        if not piece:
            return b"".join(pieces).decode(errors="replace")
        pieces.append(piece)


def _line(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "tablecrypt.cli", *arguments]


def environment() -> dict[str, str]:
    """That of a process which finds the packages of this repository."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "catalog")])}
