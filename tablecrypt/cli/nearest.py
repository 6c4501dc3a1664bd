"""What a slip was meant to be: the nearest of the names that there are, for commands, options, tables and catalogs."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_MOST: Final = 3


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question that names what comes near to a name, to stand behind an error; nothing where nothing does."""
    near = get_close_matches(name, list(known), n=_MOST)
    return f"; did you mean {' or '.join(near)}?" if near else ""
