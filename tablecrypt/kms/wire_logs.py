"""Keeps key bytes out of the DEBUG logs of the SDKs.

boto3 and google-cloud-kms log whole requests and answers at DEBUG, and a request to a KMS holds a key in the clear. While a key call runs,
the loggers that do so stay silent in that thread (or task); their other lines, and other services' calls, are logged as ever.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_in_key_call: Final = ContextVar("tablecrypt_in_key_call", default=False)


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
