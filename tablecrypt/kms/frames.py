"""Keeps key bytes out of tracebacks that show local variables, such as pytest's or those that error trackers send elsewhere.

A request to a key service holds a key in the clear, and so do the local variables of every function that it passes through: those of the
client, of the SDK and of the HTTP library. An error that leaves them carries those functions' frames. Functions of this package that call
out hold keys as `Secret`, which shows its length alone; the frames of everything below them are cleared before the error goes on. File
names and line numbers stay, so the traceback still says where it happened.
"""

from __future__ import annotations

import traceback


def without_locals(error: BaseException) -> None:
    """Clear the local variables of all finished functions that `error`, and the errors behind it, passed through. The caller's stay."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        traceback.clear_frames(each.__traceback__)
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
