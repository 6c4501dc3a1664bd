"""Tables that have encryption.key-id and are not encrypted: another writer made them. They are opened for audit and migration alone.

Everybody else is refused such a table (PlaintextRefusedError): the property promises what is not there. What commits to it is refused
outside of this context too, so that a table opened in it is no way to write plaintext.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_OPENED: Final[ContextVar[bool]] = ContextVar("tablecrypt-plain-tables", default=False)


@contextmanager
def plain_tables_opened() -> Iterator[None]:
    """Let catalogs give out, in this block of this thread, tables that have encryption.key-id and are not encrypted, as plain ones."""
    token = _OPENED.set(True)
    try:
        yield
    finally:
        _OPENED.reset(token)


def are_plain_tables_opened() -> bool:
    """Whether the caller is in such a block."""
    return _OPENED.get()
