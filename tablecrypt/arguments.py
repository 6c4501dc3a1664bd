"""Arguments of public functions, looked at before anything is done: the one place that decides what a list of names may be.

names_of("columns", "id")            ("id",)     one name is one name, never its letters
names_of("columns", ["id", "x"])     ("id", "x")
names_of("columns", 3)               ConfigurationError
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tablecrypt.errors import ConfigurationError


def names_of(argument: str, given: Any) -> tuple[str, ...]:
    """Return the names that an argument lists.

    Args:
        argument: the argument's name, for the error.
        given: one name, or some of them; a mapping counts as its keys nowhere.

    Raises:
        ConfigurationError: it is something else, or one of them is no text.
    """
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, Iterable) or isinstance(given, (bytes, bytearray, memoryview, dict)):
        raise ConfigurationError(f"{argument} is {described(given)}; it must be a name or a list of names")
    names = tuple(given)
    for each in names:
        if not isinstance(each, str):
            raise ConfigurationError(f"{argument} holds {described(each)}; it must be a list of names")
    return names


def described(value: object) -> str:
    """Return what a value is, without what it holds: an argument in the wrong place may be a key."""
    return "None" if value is None else f"a {type(value).__name__}"
