"""What a verb did: a frozen value that people read by its repr and machines as JSON. No key is ever in it."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class VerbResult:
    """What every verb's result says.

    Attributes:
        table: the table's name.
        dry_run: whether the verb only looked: then the rest says what it would have done.
    """

    table: str
    dry_run: bool

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON's types."""
        return {name: _plain(value) for name, value in asdict(self).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list, set, frozenset)):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    return value.isoformat() if isinstance(value, dt.datetime) else value
