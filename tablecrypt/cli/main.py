"""The `tablecrypt` command: how it runs, what errors look like in a terminal, and what exit codes say.

    tablecrypt --catalog NAME [--property name=value]… COMMAND db.table [options]

    exit code 0    done, and nothing to report
              1    doctor, audit and verify: something was found; orphans and shred: something could not be done
              2    refused, wrong arguments, or the answer to a question was not yes: stderr says what and why
              130  interrupted

An error that is said on purpose, one of storage or of the catalog, is one line on stderr and exit code 2. Anything else is a bug: its
traceback is shown, and the exit code is 2 as well, so that nobody takes it for a finding. No command prints a key.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final, NoReturn
from urllib.parse import urlsplit

from tablecrypt.errors import MissingExtraError, TablecryptError
from tablecrypt.printable import printable

FOUND: Final = 1
REFUSED: Final = 2
INTERRUPTED: Final = 130
_OF_CATALOGS: Final = ("pyiceberg", "sqlalchemy", "botocore", "hive_metastore", "thrift", "strictyaml")
"""Packages whose errors are a catalog's, its database's, its server's or its configuration's."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (`sys.argv` when no arguments are given) and exit."""
    _open_streams()
    try:
        run(arguments)
    except TablecryptError as error:
        _refuse(str(error))
    except KeyboardInterrupt:
        _refuse("interrupted", INTERRUPTED)
    except Exception as error:  # noqa: BLE001  the last place that can tell an error from a finding
        if is_external_error(error):
            _refuse(_said(error))
        sys.stderr.writelines(f"{printable(line)}\n" for line in traceback.format_exc().splitlines())
        raise SystemExit(REFUSED) from None


def _open_streams() -> None:
    """Open what the process was started without, so that no file that is opened later is written to in its place."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  open until the process ends
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  open until the process ends


def run(arguments: Sequence[str] | None = None) -> None:
    """Like `main`, but lets errors through to the caller."""
    try:
        import click
    except ImportError as error:
        raise MissingExtraError.named("the tablecrypt command needs the package click", "cli") from error
    from tablecrypt.cli._output import say_warnings
    from tablecrypt.cli.commands import root

    say_warnings()
    try:
        code = root(args=None if arguments is None else list(arguments), prog_name="tablecrypt", standalone_mode=False)
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.ClickException as wrong:
        wrong.show()
        raise SystemExit(REFUSED) from None
    except SystemExit as end:
        # Commands return their code. click ends with 1 where nobody reads the output to its end, which would say that something was found.
        raise SystemExit(REFUSED if end.code == FOUND else end.code) from None
    raise SystemExit(code or 0)


def is_external_error(error: Exception) -> bool:
    """Whether an error is one of storage, the network or the catalog rather than of this program."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _OF_CATALOGS


def _said(error: Exception) -> str:
    """Return what to say of an error of storage, the network or the catalog: which server or database it is of, where that is known."""
    url = getattr(getattr(error, "request", None), "url", None)
    if isinstance(error, ConnectionError | OSError) and isinstance(url, str):
        address = urlsplit(url)
        return (
            f"the server at {address.scheme}://{address.hostname}:{address.port or address.scheme} cannot be reached ({_root(error)}): "
            "check "
            "that it runs, and the catalog's uri"
        )
    driver = getattr(error, "orig", None)
    if isinstance(driver, Exception):
        return f"the catalog's database refused ({type(driver).__name__}: {driver}): check the catalog's uri"
    if (mark := getattr(error, "problem_mark", None)) is not None:  # the rest of its text shows the line, which may be a password
        return f".pyiceberg.yaml is not YAML that PyIceberg reads: line {mark.line + 1}: {getattr(error, 'problem', None)}"
    if type(error).__name__ == "TTransportException":
        return f"the Hive metastore cannot be reached ({error}): check that it runs, and the catalog's uri"
    if type(error) is OSError and error.strerror:  # the system's own, such as a full disk
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}"
    return f"{type(error).__name__}: {error}"


def _root(error: BaseException) -> str:
    """Return the reason at the end of a chain of errors, in a few words."""
    seen = error
    while (earlier := seen.__cause__ or seen.__context__) is not None:
        seen = earlier
    return getattr(seen, "strerror", None) or type(seen).__name__


def _refuse(message: str, code: int = REFUSED) -> NoReturn:
    sys.stderr.write(f"tablecrypt: {printable(' '.join(message.split()))}\n")
    raise SystemExit(code)
