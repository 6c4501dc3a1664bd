"""What a verb prints: its result as lines and tables for people, or as JSON for programs. Progress and questions go to stderr.

People see moments in the local time of their machine, with its offset; JSON has them as the result has: epoch milliseconds, or UTC.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
from enum import Enum
from typing import Any, Final

import click

from tablecrypt.cli.output import say

_EPOCH: Final = "_ms"
_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?\+00:00")
_FEWEST_COLUMNS: Final = 2


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
    if isinstance(value, list) and _is_table(value):
        return _table(value)
    if isinstance(value, list):
        return [line for each in value for line in _item_lines(each)] or ["none"]
    if isinstance(value, dict):
        return [f"{name}: {_one_line(each)}" for name, each in value.items()] or ["none"]
    return [_one_line(value)]


def _is_table(items: list[Any]) -> bool:
    """Whether all items have the same fields, and no lists in them."""
    first = items[0] if items else None
    if not isinstance(first, dict) or len(first) < _FEWEST_COLUMNS:
        return False
    return all(isinstance(each, dict) and each.keys() == first.keys() and not _nested(each) for each in items)


def _nested(item: dict[str, Any]) -> bool:
    return any(isinstance(each, (list, dict)) for each in item.values())


def _table(items: list[dict[str, Any]]) -> list[str]:
    """Return items as rows under a head, numbers to the right."""
    head = [_label(name) for name in items[0]]
    rows = [[_shown(name, each) for name, each in item.items()] for item in items]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    right = [not name.endswith(_EPOCH) and all(type(item[name]) is int for item in items) for name in items[0]]
    return ["  ".join(map(_aligned, row, widths, right)).rstrip() for row in (head, *rows)]


def _aligned(cell: str, width: int, right: bool) -> str:
    return f"{cell:>{width}}" if right else f"{cell:<{width}}"


def _label(name: str) -> str:
    return name.removesuffix(_EPOCH).replace("_", " ")


def _shown(name: str, value: Any) -> str:
    """Return a field's value for people: an epoch by the name of the field, a moment by its form."""
    if name.endswith(_EPOCH) and str(value).isdecimal():
        try:
            return _local(dt.datetime.fromtimestamp(int(value) / 1000, dt.UTC))
        except (OverflowError, ValueError, OSError):
            return str(value)
    return _one_line(value)


def _local(moment: dt.datetime) -> str:
    try:
        return moment.astimezone().isoformat(" ", timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return moment.isoformat()


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
        return ", ".join(f"{_label(name)}: {_shown(name, each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_one_line, value)) or "none"
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        return _local(dt.datetime.fromisoformat(value))
    return str(value)
