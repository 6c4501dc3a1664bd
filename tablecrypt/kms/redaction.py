"""Keeps key bytes out of tracebacks that show local variables, and out of the DEBUG logs of the SDKs.

Tracebacks: pytest shows local variables, and error trackers send them elsewhere. A request to a key service holds a key in the clear, and
so do the local variables of every function that it passes through: those of the client, of the SDK and of the HTTP library. An error that
leaves them carries those functions' frames. Functions of this package that call out hold keys as `Secret`, which shows its length alone;
the frames of everything below them are cleared before the error goes on. File names and line numbers stay, so the traceback still says
where it happened.

Logs: boto3 and google-cloud-kms log whole requests and answers at DEBUG, and a request to a KMS holds a key in the clear. While a key call
runs, the loggers that do so stay silent in that thread (or task); their other lines, and other services' calls, are still logged.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_in_key_call: Final = ContextVar("tablecrypt_in_key_call", default=False)


def without_locals(error: BaseException) -> None:
    """Clear the local variables of all finished functions that `error`, and the errors behind it, passed through. The caller's stay."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        # Causes may form a circle.
        if each is None or id(each) in seen:
            continue

        seen.add(id(each))
        traceback.clear_frames(each.__traceback__)
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


class _SilentInKeyCall(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not _in_key_call.get()


_FILTER: Final = _SilentInKeyCall()


def silence_in_key_calls(*logger_names: str) -> None:
    """Have these loggers drop what they are given inside `key_call`. Naming one twice is harmless."""
    for name in logger_names:
        logging.getLogger(name).addFilter(_FILTER)


@contextmanager
def key_call() -> Iterator[None]:
    """Around every request whose body, or whose answer's body, holds a key in the clear."""
    token = _in_key_call.set(True)
    try:
        yield
    finally:
        _in_key_call.reset(token)
