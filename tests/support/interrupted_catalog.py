"""A catalog that stops at each commit and registration and lets a test do something: have another commit first, or have the client die."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyiceberg.table import CommitTableResponse, Table

from tablecrypt_catalog import EncryptedSqlCatalog

INTERRUPTED = {"py-catalog-impl": f"{__name__}.InterruptedCatalog"}
"""With these a job loads this catalog in place of its own."""

_before: list[Callable[[], object]] = []
_after: list[Callable[[], object]] = []


class InterruptedCatalog(EncryptedSqlCatalog):
    """Calls what `at_commits` was given."""

    def commit_table(self, *arguments: Any) -> CommitTableResponse:
        with _interrupted():
            return super().commit_table(*arguments)

    def register_table(self, *arguments: Any, **options: Any) -> Table:
        with _interrupted():
            return super().register_table(*arguments, **options)


@contextmanager
def _interrupted() -> Iterator[None]:
    for act in _before:
        act()
    yield
    for act in _after:
        act()


@contextmanager
def at_commits(*, before: Callable[[], object] | None = None, after: Callable[[], object] | None = None) -> Iterator[None]:
    """Call a function before or after each commit in this block."""
    _before.extend([before] if before else [])
    _after.extend([after] if after else [])
    try:
        yield
    finally:
        _before.clear()
        _after.clear()


def once(act: Callable[[], object]) -> Callable[[], None]:
    """Only at the first commit: what it does may commit too."""
    left = [act]

    def first() -> None:
        if left:
            left.pop()()

    return first
