"""Ctrl-C at a chosen place: KeyboardInterrupt is raised in the middle of a call, as Python does with a signal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def interrupted_in(function: str, number: int, event: str = "call", error: type[BaseException] = KeyboardInterrupt) -> Iterator[None]:
    """Raise KeyboardInterrupt where functions of this name are called, or return, for the n-th time, as Python does with a signal.

    Another error is one that a program's own handler of a signal raises.
    """
    came = 0

    def look(frame: FrameType, happens: str, _argument: Any) -> None:
        nonlocal came
        if happens == event and frame.f_code.co_qualname.endswith(function):
            came += 1
            if came == number:
                raise error

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)
    assert came >= number
