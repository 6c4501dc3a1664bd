"""What the command prints: lines, results and progress. Rows are printed by _rows.py.

    lines       each goes through `say`, which lets nothing through that commands a terminal
    results     on stdout: lines and tables for people, or JSON for programs
    progress    on stderr, with questions, errors and the wait for the key service

People see moments in the local time of their machine, with its offset; JSON has them as the result has: epoch milliseconds, or UTC.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from tablecrypt.printable import bytes_shown, json_form, local_moment, printable, shown_fields

if TYPE_CHECKING:
    from rich.progress import TaskID

    from tablecrypt.cli.settings import Settings
    from tablecrypt.kms.resilient import Retry
    from tablecrypt.maintenance import Progress, ProgressListener

_LOGGED: Final = "%(levelname)s: %(message)s"
_EPOCH: Final = "_ms"
_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?\+00:00")
_KEK: Final = re.compile(r"\bkek(?=s?\b)")
_FEWEST_COLUMNS: Final = 2
_TENTHS: Final = 10
_FIRST_RATE: Final = 1.0
"""Seconds from which on a rate is shown: before, it says how fast the first file was opened."""
_MOST_ITEMS: Final = 3
_SHORT: Final = 60


def say(line: str, err: bool = False) -> None:
    """Print one line to stdout, or to stderr."""
    click.echo(printable(line), err=err)


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        # Libraries quote names and paths from metadata and servers.
        return "\n".join(printable(line) for line in super().format(record).split("\n"))


def say_warnings() -> None:
    """Have warnings that libraries log printed in the same way, where nobody has set up logging."""
    # The handler of last resort alone: logging that the user has set up stays as it is.
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_OneLine(_LOGGED))
        # It logs every way to log in, over many lines and at each attempt, before the error that says that there is none.
        logging.getLogger("azure.identity").setLevel(logging.ERROR)


def show(result: Any, as_json: bool, said: str = "") -> None:
    """Print a command's result as JSON, or for people.

    Args:
        result: a result of an operation, which sums itself up in a sentence and says which of its fields people see; or a layout of fields.
        as_json: whether to print JSON: all fields.
        said: for people, this instead of the fields.

    Raises:
        OSError: stdout takes no more, as on a full disk. It says that the command itself is done.
    """
    try:
        _print(result, as_json, said)
    except BrokenPipeError:
        raise
    except OSError as error:
        what = "stdout took no more of the result, and what the command did is done"
        raise OSError(error.errno, f"{error.strerror}: {what}") from error


def _print(result: Any, as_json: bool, said: str) -> None:
    if as_json:
        import json  # here, as --help needs none of it

        click.echo(json.dumps(json_form(result), indent=2))
    elif said:
        say(said)
    elif hasattr(result, "summary"):
        say(result.summary())
        _say_details(result)
    else:
        _say_fields(json_form(result))


def _say_details(result: Any) -> None:
    """Print what follows the sentence: what is short beside its label, then lists below theirs."""
    short: list[tuple[str, str]] = []
    lists: list[tuple[str, list[str]]] = []
    for how, value in shown_fields(result):
        items = _items(value)
        if items is None:
            short.append((f"  {how.label}", _shown_number(value, how.unit)))
        elif len(items) == 1 and len(items[0]) <= _SHORT:
            short.append((f"  {how.label}", items[0]))
        elif how.is_whole or len(items) <= _MOST_ITEMS:
            lists.append((how.label, items))
        else:
            short.append((f"  {how.label}", f"{len(items):,} (--json lists them)"))

    say_table(None, short)
    for label, items in lists:
        say(f"  {label}:")
        for item in items:
            say(f"    {item}")


def _items(value: Any) -> list[str] | None:
    """Return the items of a list or a mapping; None for what is neither."""
    if isinstance(value, dict):
        return [f"{name}: {_one_line(json_form(each))}" for name, each in value.items()]
    return list(map(str, value)) if isinstance(value, tuple) else None


def _shown_number(value: Any, unit: str) -> str:
    if unit == "bytes":
        return bytes_shown(value)
    return f"{value:,}" if unit == "count" else str(value)


def _say_fields(values: dict[str, Any]) -> None:
    width = max((len(name) for name in values), default=0)
    for name, value in values.items():
        for at, line in enumerate(_lines(value)):
            label = f"{_label(name)}:" if at == 0 else ""
            say(f"{label:<{width + 2}}{line}")


def _lines(value: Any) -> list[str]:
    if isinstance(value, list) and _is_table(value):
        return _table(value)
    if isinstance(value, list):
        return [line for each in value for line in _item_lines(each)] or ["none"]
    if isinstance(value, dict):
        return [f"{name}: {_one_line(each)}" for name, each in value.items()] or ["none"]
    return [_one_line(value)]


def _is_table(items: list[Any]) -> bool:
    """Whether all items have the same fields, and no more in them than lists of single values."""
    first = items[0] if items else None
    if not isinstance(first, dict) or len(first) < _FEWEST_COLUMNS:
        return False
    return all(isinstance(each, dict) and each.keys() == first.keys() and not _nested(each) for each in items)


def _nested(item: dict[str, Any]) -> bool:
    return any(isinstance(part, (list, dict)) for each in item.values() for part in (each if isinstance(each, list) else [each]))


def _table(items: list[dict[str, Any]]) -> list[str]:
    """Return items as rows under a head, numbers to the right."""
    rows = [[_shown(name, each) for name, each in item.items()] for item in items]
    right = {at for at, name in enumerate(items[0]) if not name.endswith(_EPOCH) and all(type(item[name]) is int for item in items)}
    return _aligned([[_label(name) for name in items[0]], *rows], range(len(items[0])), right)


def say_table(head: Sequence[str] | None, rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> None:
    """Print rows below a head. Columns in which no row has anything are left out.

    Args:
        head: the columns' titles; None for none.
        rows: their cells.
        right: the numbers of columns that are aligned to the right.
    """
    # Before widths are computed: what is escaped is longer.
    cells = [[printable(cell) for cell in row] for row in rows]
    kept = [at for at in range(len(cells[0])) if any(row[at] for row in cells)] if cells else []
    for line in _aligned([*([head] if head is not None else ()), *cells], kept, right):
        say(line)


def _aligned(lines: Sequence[Sequence[str]], kept: Iterable[int], right: Collection[int]) -> list[str]:
    """Return some columns of lines of cells, below each other."""
    widths = {at: max(_width(line[at]) for line in lines) for at in kept}
    return ["  ".join(_padded(line[at], width, at in right) for at, width in widths.items()).rstrip() for line in lines]


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes: wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else not unicodedata.combining(each) for each in text)


def _padded(cell: str, width: int, right: bool) -> str:
    space = " " * (width - _width(cell))
    return f"{space}{cell}" if right else f"{cell}{space}"


def _label(name: str) -> str:
    return _KEK.sub("KEK", name.removesuffix(_EPOCH).replace("_", " "))


def _shown(name: str, value: Any) -> str:
    """Return a field's value for people: an epoch by the name of the field, a moment by its form."""
    if name.endswith(_EPOCH) and str(value).isdecimal():
        try:
            return local_moment(dt.datetime.fromtimestamp(int(value) / 1000, dt.UTC))
        except (OverflowError, ValueError, OSError):
            return str(value)
    return _one_line(value)


def _item_lines(value: Any) -> list[str]:
    """Return a list's item as a line, and what lists of its own have below that."""
    if not isinstance(value, dict):
        return [_one_line(value)]
    below = {name: each for name, each in value.items() if isinstance(each, list) and each and isinstance(each[0], dict)}
    own = {name: each for name, each in value.items() if name not in below}
    return [_one_line(own), *(f"  {_one_line(each)}" for items in below.values() for each in items)]


def _one_line(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{_label(name)}: {_shown(name, each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_one_line, value)) or "none"
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        return local_moment(dt.datetime.fromisoformat(value))

    return str(value)


@contextmanager
def progress_shown(settings: Settings, clock: Callable[[], float] = time.monotonic) -> Iterator[ProgressListener]:
    """Yield a listener that shows progress where it is wanted."""
    if sys.stderr.isatty() and not settings.quiet:
        with _bars() as listener:
            yield listener
    elif settings.progress:
        yield _Lines(clock).hear
    else:
        from tablecrypt.maintenance.operation import no_progress

        yield no_progress


@contextmanager
def retries_shown(settings: Settings) -> Iterator[None]:
    """While the block runs, show that the key service is asked again, unless --quiet is given by then."""
    from tablecrypt.kms.resilient import retries_heard

    with retries_heard(_Retries(settings).hear):
        yield


class _Retries:
    """Shows one retry for each second. Several threads may call it at once; at worst that prints a line too many."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._shown: int | None = None

    def hear(self, retry: Retry) -> None:
        left = round(retry.seconds_left)
        if self._settings.quiet or left == self._shown:
            return
        self._shown = left
        say(f"KMS unavailable, retrying, {left} s left: {retry.problem}", err=True)


@contextmanager
def _bars() -> Iterator[ProgressListener]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[shown]}"), TimeRemainingColumn())

    with RichProgress(*columns, console=Console(stderr=True), transient=False) as bars:
        tasks: dict[str, TaskID] = {}
        started: dict[str, float] = {}

        def hear(step: Progress) -> None:
            if step.operation not in tasks:
                tasks[step.operation] = bars.add_task(step.operation, total=step.total, shown="")
                started[step.operation] = time.monotonic()
            shown = _amounts(step, time.monotonic() - started[step.operation])
            bars.update(tasks[step.operation], completed=step.done, total=step.total, shown=shown)

        yield hear


class _Lines:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started: dict[str, float] = {}
        self._tenth: dict[str, int] = {}

    def hear(self, step: Progress) -> None:
        started = self._started.setdefault(step.operation, self._clock())
        tenth = _TENTHS if step.total == 0 else step.done * _TENTHS // step.total
        if tenth <= self._tenth.get(step.operation, -1):
            return
        self._tenth[step.operation] = tenth
        say(f"{step.operation}: {_amounts(step, self._clock() - started)}", err=True)


def _amounts(step: Progress, seconds: float) -> str:
    rate = step.done / seconds if seconds >= _FIRST_RATE and step.done else None
    if step.unit == "bytes":
        amounts = f"{bytes_shown(step.done)} of {bytes_shown(step.total)}"
        return amounts if rate is None else f"{amounts}, {bytes_shown(int(rate))}/s"
    amounts = f"{step.done:,} of {step.total:,} {step.unit}"
    return amounts if rate is None else f"{amounts}, {rate:,.0f}/s"
