"""What a slip was meant to be: the nearest of the names that there are, for commands, options, tables and catalogs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

_MOST: Final = 3


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the names that come near to a name, the nearest first."""
    return get_close_matches(name, list(known), n=_MOST)


def question(names: Sequence[str]) -> str:
    """Return a question that names what may have been meant, to stand behind an error; nothing without a name."""
    return f"; did you mean {' or '.join(names)}?" if names else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the question of which of some names was meant."""
    return question(nearest(name, known))
