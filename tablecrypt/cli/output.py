"""How the command prints: every line of text goes through `say`, which lets nothing through that commands a terminal."""

from __future__ import annotations

import logging
from typing import Final

import click

from tablecrypt.printable import printable

_FORMAT: Final = "%(levelname)s: %(message)s"


def say(line: str, err: bool = False) -> None:
    """Print one line to stdout, or to stderr."""
    click.echo(printable(line), err=err)


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(printable(line) for line in super().format(record).split("\n"))


def say_warnings() -> None:
    """Have warnings that libraries log printed in the same way, where nobody has set up logging."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_OneLine(_FORMAT))
