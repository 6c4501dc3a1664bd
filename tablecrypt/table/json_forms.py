"""Forms of JSON objects: how a value is written, byte for byte, and which keys it may have.

A form is a function from a parsed value to text. Those of objects, lists and maps also tell which keys of a value they do not know,
whatever else is wrong with it: a reader that ignores such a key ignores something that it does not understand.

Pure. Raises FormatError where a value is not of its form.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from tablecrypt.errors import FormatError

Writer = Callable[[Any], str]


class When(Enum):
    """When a key is written."""

    ALWAYS = auto()
    EVEN_IF_NULL = auto()
    NOT_NULL = auto()
    NOT_EMPTY = auto()


@dataclass(frozen=True)
class Key:
    """One key of a JSON object: how its value is written, and when it is left out."""

    name: str
    write: Writer
    when: When = When.ALWAYS

    def is_left_out(self, value: Any) -> bool:
        """Whether the key is not written with this value."""
        if self.when is When.NOT_EMPTY:
            return not value
        return self.when is When.NOT_NULL and value is None


class Form(ABC):
    """A form whose values may hold keys."""

    @abstractmethod
    def __call__(self, value: Any) -> str:
        """Return a value as text."""

    @abstractmethod
    def stray_keys(self, value: Any, path: str) -> Iterator[str]:
        """Yield the path of each key that the form does not know. A part that is of another kind than the form says has none."""


class ObjectOf(Form):
    """An object with known keys, written in this order."""

    def __init__(self, *keys: Key) -> None:
        self._keys = keys
        self._names = frozenset(key.name for key in keys)
        self._nested = [(key.name, key.write) for key in keys if isinstance(key.write, Form)]

    def __call__(self, value: Any) -> str:
        """Return the object without what is left out.

        Raises:
            FormatError: it is no object, or a key is missing.
        """
        fields = checked(value, dict)
        parts = []
        for key in self._keys:
            item = fields.get(key.name)
            if key.is_left_out(item):
                continue
            if item is None and key.when is not When.EVEN_IF_NULL:
                raise FormatError(f"not readable as table metadata: {key.name} is missing")
            parts.append(f'"{key.name}":{"null" if item is None else key.write(item)}')
        return "{" + ",".join(parts) + "}"

    def stray_keys(self, value: Any, path: str) -> Iterator[str]:
        """Yield the path of each key that is none of these."""
        if not isinstance(value, dict):
            return
        for name in sorted(value.keys() - self._names):
            yield path + name
        for name, form in self._nested:
            if name in value:
                yield from form.stray_keys(value[name], f"{path}{name}.")


@dataclass(frozen=True)
class ListOf(Form):
    """A list of values of one form."""

    item: Writer

    def __call__(self, value: Any) -> str:
        """Return the list. Raises FormatError where it is none."""
        return "[" + ",".join(self.item(item) for item in checked(value, list)) + "]"

    def stray_keys(self, value: Any, path: str) -> Iterator[str]:
        """Yield the stray keys of the items."""
        if isinstance(value, list) and isinstance(self.item, Form):
            for item in value:
                yield from self.item.stray_keys(item, path)


@dataclass(frozen=True)
class MapOf(Form):
    """An object whose keys may be any, with values of one form."""

    item: Writer

    def __call__(self, value: Any) -> str:
        """Return the map. Raises FormatError where it is none."""
        return "{" + ",".join(f"{string(key)}:{self.item(item)}" for key, item in checked(value, dict).items()) + "}"

    def stray_keys(self, value: Any, path: str) -> Iterator[str]:
        """Yield the stray keys of the values."""
        if isinstance(value, dict) and isinstance(self.item, Form):
            for name, item in value.items():
                yield from self.item.stray_keys(item, f"{path}{name}.")


def checked(value: Any, kind: type) -> Any:
    """Return a value that is of a kind.

    Raises:
        FormatError: it is of another. A bool is an int to isinstance, and not here.
    """
    if type(value) is not kind:
        raise FormatError(f"not readable as table metadata: {str(value)[:80]!r} where {kind.__name__} is expected")
    return value


_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
_SHORT_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def _escape(match: re.Match[str]) -> str:
    return _SHORT_ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04X}"


def string(value: Any) -> str:
    """Return a string, escaped as little as JSON allows."""
    return '"' + _ESCAPED.sub(_escape, checked(value, str)) + '"'


def integer(value: Any) -> str:
    """Return an integer."""
    return str(checked(value, int))


def boolean(value: Any) -> str:
    """Return a boolean."""
    return "true" if checked(value, bool) else "false"
