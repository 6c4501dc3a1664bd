"""Requests of Spark's driver to the planner, its responses, and what requests refer to by handle."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, Generic, TypeVar

from tablecrypt.errors import ConfigurationError, FormatError

T = TypeVar("T")
_HANDLE_LENGTH: Final = 16
_FORGOTTEN: Final = "the planner was restarted, or no longer has the plan of this query: run the query again"


@dataclass(frozen=True)
class Request:
    """One request: the fields of its JSON object, and the bytes that follow."""

    fields: Mapping[str, Any]
    content: bytes = b""

    def text(self, name: str) -> str:
        """Return a field that must be a string. FormatError if it is not."""
        return str(self._of_type(name, str))

    def optional_text(self, name: str) -> str | None:
        """Return a field that may be missing or null."""
        return None if self.fields.get(name) is None else self.text(name)

    def number(self, name: str) -> int:
        """Return a field that must be an integer. FormatError if it is not."""
        return int(self._of_type(name, int))

    def optional_number(self, name: str) -> int | None:
        """Return a field that may be missing or null."""
        return None if self.fields.get(name) is None else self.number(name)

    def numbers(self, name: str) -> list[int]:
        """Return a field that must be a list of integers. FormatError if it is not."""
        values = self.items(name)
        if not all(type(value) is int for value in values):
            raise FormatError(f"the field {name!r} of a request is not a list of integers")
        return values

    def flag(self, name: str) -> bool:
        """Return a field that must be true or false. FormatError where it is neither."""
        return bool(self._of_type(name, bool))

    def texts(self, name: str) -> list[str]:
        """Return a field that must be a list of strings. FormatError if it is not."""
        values = self.items(name)
        if not all(isinstance(value, str) for value in values):
            raise FormatError(f"the field {name!r} of a request is not a list of strings")
        return values

    def items(self, name: str) -> list[Any]:
        """Return a field that must be a list. FormatError if it is not."""
        return list(self._of_type(name, list))

    def mapping(self, name: str) -> dict[str, Any]:
        """Return a field that must be an object. FormatError if it is not."""
        return dict(self._of_type(name, dict))

    @property
    def identifier(self) -> tuple[str, ...]:
        """The table, view or procedure that the request is about: its namespace and its name."""
        return (*self.texts("namespace"), self.text("name"))

    def _of_type(self, name: str, kind: type) -> Any:
        value = self.fields.get(name)
        if type(value) is not kind:
            raise FormatError(f"a request has no field {name!r} that is a {kind.__name__}")
        return value


@dataclass(frozen=True)
class Response:
    """The fields of a response's JSON object, and the bytes that follow."""

    fields: Mapping[str, Any]
    content: bytes = b""


class Handles(Generic[T]):
    """Values that later requests refer to, each by a random name. At most `most` are kept; those that were used longest ago go first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[str, T] = OrderedDict()
        self._lock = Lock()

    def add(self, value: T) -> str:
        """Keep a value and return its handle."""
        handle = secrets.token_hex(_HANDLE_LENGTH)
        with self._lock:
            self._values[handle] = value
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return handle

    def __getitem__(self, handle: str) -> T:
        """Return the value. ConfigurationError where it is not kept any more."""
        with self._lock:
            if handle not in self._values:
                raise ConfigurationError(_FORGOTTEN)
            self._values.move_to_end(handle)
            return self._values[handle]

    def pop(self, handle: str) -> T:
        """Return the value and keep it no longer. ConfigurationError where it is not kept any more."""
        with self._lock:
            if handle not in self._values:
                raise ConfigurationError(_FORGOTTEN)
            return self._values.pop(handle)

    def pop_all(self) -> list[T]:
        """Return all values and keep none of them."""
        with self._lock:
            values = list(self._values.values())
            self._values.clear()
            return values

    def __len__(self) -> int:
        return len(self._values)
