"""What a verb is doing, on stderr: how far it is, and that it waits for the key service.

--quiet          nothing
a terminal       bars with rates; a line for each second or so that the key service is asked again
--progress       the same, with a line for each tenth of the way instead of bars where stderr is no terminal
else             the key service alone: a log or a mail is to tell what went wrong, not how far something was
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tablecrypt.cli.output import say

if TYPE_CHECKING:
    from rich.progress import TaskID

    from tablecrypt.cli.settings import Settings
    from tablecrypt.kms.resilient import Retry
    from tablecrypt.maintenance import Progress, ProgressListener

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_TENTHS: Final = 10


@contextmanager
def progress_shown(settings: Settings, clock: Callable[[], float] = time.monotonic) -> Iterator[ProgressListener]:
    """Yield a listener that shows what it hears, as far as it is wanted."""
    if sys.stderr.isatty() and not settings.quiet:
        with _bars() as listener:
            yield listener
    elif settings.progress:
        yield _Lines(clock).hear
    else:
        yield _unheard


@contextmanager
def retries_shown(settings: Settings) -> Iterator[None]:
    """Show while the block runs that the key service is asked again, unless --quiet is given before it is."""
    from tablecrypt.kms.resilient import retries_heard

    with retries_heard(_Retries(settings).hear):
        yield


class _Retries:
    """Shows retries, of one second one. Threads may tell it at once: then a line too many is the worst."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._shown: int | None = None

    def hear(self, retry: Retry) -> None:
        left = round(retry.seconds_left)
        if self._settings.quiet or left == self._shown:
            return
        self._shown = left
        say(f"KMS unavailable, retrying, {left} s left: {retry.problem}", err=True)


def _unheard(step: Progress) -> None:
    """Show nothing."""


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
            if step.verb not in tasks:
                tasks[step.verb] = bars.add_task(step.verb, total=step.total, shown="")
                started[step.verb] = time.monotonic()
            shown = _shown(step, time.monotonic() - started[step.verb])
            bars.update(tasks[step.verb], completed=step.done, total=step.total, shown=shown)

        yield hear


class _Lines:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started: dict[str, float] = {}
        self._tenth: dict[str, int] = {}

    def hear(self, step: Progress) -> None:
        started = self._started.setdefault(step.verb, self._clock())
        tenth = _TENTHS if step.total == 0 else step.done * _TENTHS // step.total
        if tenth <= self._tenth.get(step.verb, -1):
            return
        self._tenth[step.verb] = tenth
        say(f"{step.verb}: {_shown(step, self._clock() - started)}", err=True)


def _shown(step: Progress, seconds: float) -> str:
    rate = step.done / seconds if seconds > 0 and step.done else None
    if step.unit == "bytes":
        amounts = f"{bytes_shown(step.done)} of {bytes_shown(step.total)}"
        return amounts if rate is None else f"{amounts}, {bytes_shown(int(rate))}/s"
    amounts = f"{step.done:,} of {step.total:,} {step.unit}"
    return amounts if rate is None else f"{amounts}, {rate:,.0f}/s"


def bytes_shown(length: int) -> str:
    """Return a number of bytes with three significant digits."""
    value, unit = float(length), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{length} B" if unit == 0 else f"{value:.3g} {_UNITS[unit]}"
