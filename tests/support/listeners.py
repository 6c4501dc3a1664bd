"""Progress listeners: what happens while an operation is under way, such as the commit of another, or the end of the process."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tablecrypt.maintenance import Progress, ProgressListener

When = Callable[[Progress], bool]


def has_begun(step: Progress) -> bool:
    """Whether something is done already."""
    return step.done > 0


def is_done(step: Progress) -> bool:
    """Whether all of it is done."""
    return step.done == step.total


def end_of(operation: str) -> When:
    """At the end of this phase."""
    return lambda step: step.operation == operation and is_done(step)


def once(act: Callable[[], object], when: When = has_begun) -> ProgressListener:
    """Do something once, at the first step of which `when` is true."""
    acts = [act]

    def listen(step: Progress) -> None:
        if acts and when(step):
            acts.pop()()

    return listen


def stopping(when: When = is_done, error: type[BaseException] = KeyboardInterrupt) -> ProgressListener:
    """End the operation at the first step of which `when` is true."""

    def stop(step: Progress) -> None:
        if when(step):
            raise error

    return stop


def stopping_after(steps: int, error: type[BaseException] = KeyboardInterrupt) -> ProgressListener:
    """End the operation at the step that follows so many."""
    heard: list[Progress] = []

    def stop(step: Progress) -> None:
        heard.append(step)
        if len(heard) > steps:
            raise error

    return stop


def threads_at_work() -> list[str]:
    """Return the names of threads of this package that have not ended."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tablecrypt-")]
