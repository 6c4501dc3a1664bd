"""What a verb prints: its result as lines for people, or as JSON for programs. Progress and questions go to stderr."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from enum import Enum
from typing import Any

import click

from tablecrypt.cli.output import say


def show(result: Any, as_json: bool) -> None:
    """Print a verb's result: a dataclass, as `name: value` lines or as JSON."""
    values = plain(result)
    if as_json:
        click.echo(json.dumps(values, indent=2))
        return
    width = max((len(name) for name in values), default=0)
    for name, value in values.items():
        for at, line in enumerate(_lines(value)):
            label = f"{name.replace('_', ' ')}:" if at == 0 else ""
            say(f"{label:<{width + 2}}{line}")


def plain(value: Any) -> Any:
    """Return a result as JSON's types. A dataclass that knows its own form says it."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each) for each in value]
    if isinstance(value, (dt.datetime, dt.date)):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def _lines(value: Any) -> list[str]:
    if isinstance(value, list):
        return [line for each in value for line in _item_lines(each)] or ["none"]
    if isinstance(value, dict):
        return [f"{name}: {_one_line(each)}" for name, each in value.items()] or ["none"]
    return [_one_line(value)]


def _item_lines(value: Any) -> list[str]:
    """Return a list's item as a line, and what lists of its own have below that."""
    if not isinstance(value, dict):
        return [_one_line(value)]
    below = {name: each for name, each in value.items() if isinstance(each, list) and each and isinstance(each[0], dict)}
    own = {name: each for name, each in value.items() if name not in below}
    return [_one_line(own), *(f"  {_one_line(each)}" for items in below.values() for each in items)]


def _one_line(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')}: {_one_line(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_one_line, value)) or "none"
    return str(value)
