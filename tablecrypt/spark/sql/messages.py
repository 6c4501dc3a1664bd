"""Requests of Spark's driver to the planner, and its responses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tablecrypt.errors import FormatError
from tablecrypt.external_errors import is_external, said_of


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
        # Not isinstance, for which JSON's true is an int.
        if type(value) is not kind:
            raise FormatError(f"a request has no field {name!r} that is a {kind.__name__}")
        return value


@dataclass(frozen=True)
class Response:
    """The fields of a response's JSON object, and the bytes that follow."""

    fields: Mapping[str, Any]
    content: bytes = b""

    def framed(self) -> bytes:
        """Return the length of the JSON (4, big endian), the JSON, and the bytes."""
        encoded = json.dumps(self.fields).encode()
        return len(encoded).to_bytes(4, "big") + encoded + self.content


def described_error(error: Exception) -> dict[str, object]:
    """Return what Java gets of an error: its message, and the names of its class and of those above."""
    kinds = [kind.__name__ for kind in type(error).__mro__ if issubclass(kind, Exception)]
    name = type(error).__name__
    # Texts of other libraries may show a line of a configuration, with the password in it.
    said = said_of(error) if is_external(error) else str(error)
    return {"kinds": kinds, "message": f"{name}: {said.removeprefix(f'{name}: ')}"}
