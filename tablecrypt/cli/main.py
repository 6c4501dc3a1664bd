"""The `tablecrypt` command: how it runs, what errors look like in a terminal, and what exit codes say.

    tablecrypt --catalog NAME [--property name=value]… COMMAND db.table [options]

    exit code 0    done, and nothing to report
              1    doctor, audit and verify: something was found; orphans and shred: something could not be done
              2    refused, wrong arguments, or the answer to a question was not yes: stderr says what and why
              130  interrupted
              141  nobody read the output to its end, as of `| head`: the code of a program that SIGPIPE ends
              143  terminated (SIGTERM), after what was begun is cleaned up as after an interruption

An error that is said on purpose, one of storage or of the catalog, is one line on stderr and exit code 2. Anything else is a bug: its
traceback is shown, and the exit code is 2 as well, so that nobody takes it for a finding. No command prints a key.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn

from tablecrypt.errors import MissingExtraError, TablecryptError
from tablecrypt.external_errors import is_external, said_of
from tablecrypt.printable import one_line, printable

FOUND: Final = 1
REFUSED: Final = 2
INTERRUPTED: Final = 130
UNREAD: Final = 141
TERMINATED: Final = 143


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (`sys.argv` when no arguments are given) and exit."""
    _open_streams()
    try:
        with _ended_by_signals():
            run(arguments)
    except TablecryptError as error:
        _refuse(str(error))
    except KeyboardInterrupt:
        _refuse("interrupted", INTERRUPTED)
    except Exception as error:  # noqa: BLE001  the last place that can tell an error from a finding
        # Errors of storage and catalogs are the user's to mend, and say so without a traceback.
        if is_external(error):
            _refuse(said_of(error))
        # Line by line through `printable`: an error may quote names from metadata, which could command the terminal.
        _say_at_the_end("".join(f"{printable(line)}\n" for line in traceback.format_exc().splitlines()))
        raise SystemExit(REFUSED) from None


def _open_streams() -> None:
    """Open what the process was started without, so that no file that is opened later is written to in its place.

    A character that the encoding of stdout has not, as in the name of a table, is printed as its number, as it is on stderr.
    """
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  open until the process ends
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  open until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Have SIGTERM, by which schedulers and containers stop a process, clean up as an interruption does: it ended the process at once.

    What the process was doing may make another error of its end, which it quotes, as pydantic does where it writes JSON. It is the end all
    the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    came: list[BaseException] = []

    def terminate(*_: object) -> NoReturn:
        # A second one ends the process at once.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        came.append(SystemExit(TERMINATED))
        _refuse("terminated", TERMINATED)

    def interrupt(*_: object) -> NoReturn:
        came.append(KeyboardInterrupt())
        raise KeyboardInterrupt

    # Where one is ignored, or a caller of this module has a handler, it stays so.
    handlers = {signal.SIGTERM: (signal.SIG_DFL, terminate), signal.SIGINT: (signal.default_int_handler, interrupt)}
    ours = {number: before for number, (before, _) in handlers.items() if signal.getsignal(number) is before}
    for number in ours:
        signal.signal(number, handlers[number][1])
    try:
        yield
    except Exception:
        if came:
            raise came[0] from None
        raise
    finally:
        for number, before in ours.items():
            signal.signal(number, before)


def run(arguments: Sequence[str] | None = None) -> None:
    """Like `main`, but lets errors through to the caller."""
    try:
        import click
    except ImportError as error:
        raise MissingExtraError.named("the tablecrypt command needs the package click", "cli") from error

    # Not at the top: without click there is one line that names the extra, and no traceback.
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
        raise SystemExit(UNREAD if end.code == FOUND else end.code) from None

    raise SystemExit(code or 0)


def _refuse(message: str, code: int = REFUSED) -> NoReturn:
    # One line, whatever the error quotes: scripts read it, and a terminal must not obey it.
    _say_at_the_end(f"tablecrypt: {printable(one_line(message))}\n")
    raise SystemExit(code)


def _say_at_the_end(text: str) -> None:
    """Write to stderr, or nowhere if that cannot be written to: the exit code of such an error would say that something was found."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        # Python writes what is left once more as it exits, and would end with a code of its own.
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  open until the process ends
