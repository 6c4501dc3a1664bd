"""Calls that the product makes, as the interpreter's profiling hook sees them: nothing is replaced, and the calls do what they always do.

    with observed(os.fsync, look): ...      look(names) before each call from Python, with the caller's local variables by name
    with observed(Parser.parse, look): ...  look(names) when the function is entered, with its arguments by name

Calls of this thread are seen, and of those that start meanwhile; not of others that run already.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, FunctionType
from typing import Any


@contextmanager
def observed(function: Callable[..., Any], look: Callable[[Mapping[str, Any]], object]) -> Iterator[None]:
    """Call `look` at each call of a function of Python or C in this block."""
    code = function.__code__ if isinstance(function, FunctionType) else None

    def on_event(frame: FrameType, event: str, argument: Any) -> None:
        if (event == "call" and frame.f_code is code) or (event == "c_call" and argument is function):
            look(frame.f_locals)

    before, before_in_threads = sys.getprofile(), threading.getprofile()
    threading.setprofile(on_event)
    sys.setprofile(on_event)
    try:
        yield
    finally:
        sys.setprofile(before)
        threading.setprofile(before_in_threads)
