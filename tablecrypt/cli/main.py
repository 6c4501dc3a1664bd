"""The `tablecrypt` command: the group that every verb joins, and what errors look like in a terminal.

    exit code 0   done
              1   interrupted
              2   refused: one line on stderr says what and why (click uses the same code for wrong arguments)

A verb is a click command in a module of its own under tablecrypt/cli/, added to `commands` below. It raises TablecryptError, and never
prints a key.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tablecrypt.errors import MissingExtraError, TablecryptError

EXIT_REFUSED = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (`sys.argv` when no arguments are given) and exit."""
    try:
        run(arguments)
    except TablecryptError as error:
        _refuse(error)


def run(arguments: Sequence[str] | None = None) -> None:
    """Like `main`, but lets a TablecryptError through to the caller."""
    try:
        import click
    except ImportError as error:
        raise MissingExtraError('the tablecrypt command needs the package click: pip install "tablecrypt[cli]"') from error
    from tablecrypt.cli.keygen import keygen

    commands: list[click.Command] = [keygen]
    group = click.Group(
        "tablecrypt",
        commands=commands,
        help="Encrypted Apache Iceberg tables: keys, and what happens to tables under them.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group(args=list(arguments) if arguments is not None else None, prog_name="tablecrypt")


def _refuse(error: TablecryptError) -> None:
    message = " ".join(str(error).split())
    sys.stderr.write(f"tablecrypt: {message}\n")
    raise SystemExit(EXIT_REFUSED)
