"""Which rights an operation needs: what docs/how-to/permissions.md shows, and each command's help says in a sentence.

    unwrap, wrap               with a master key: the table's, or those of its protected columns
    read, write, list, delete  files: in the table's folder `metadata`, or data files and all else that is in the table's folder

A test runs every operation with the rights that are named here and no others, and without each one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

PLACES: Final[Mapping[str, str]] = {
    "table": "the table's master key",
    "column": "the columns' master keys",
    "metadata": "the table's metadata files",
    "data": "its data files",
}
"""What the rights are on, in the order of the page."""
_WITH: Final = ("unwrap", "wrap")
_KINDS: Final = (*_WITH, "read", "write", "list", "delete")


@dataclass(frozen=True)
class Rights:
    """The rights that an operation needs, each an action and the place that it is on: "unwrap table, read metadata".

    Attributes:
        needs: without one of these it is refused.
        due: needed as well where a KEK has reached its lifespan, and a new one takes its place.
        more: without one of these it runs, and does less.
    """

    needs: str = ""
    due: str = ""
    more: str = ""

    @property
    def sentences(self) -> str:
        """What the help of a command says of them."""
        said = (("Permission", self.needs), ("Once a KEK is due, also", self.due), ("For all that it can do, also", self.more))
        return " ".join(f"{begins} to {_listed(rights_in(rights))}." for begins, rights in said if rights)


def rights_in(text: str) -> frozenset[str]:
    """Return the rights that a text lists, with commas between them."""
    return frozenset(text.split(", ")) if text else frozenset()


def actions(rights: Iterable[str], place: str) -> list[str]:
    """Return what some rights allow in a place."""
    allowed = {action for action, _, where in (right.partition(" ") for right in rights) if where == place}
    return sorted(allowed, key=_KINDS.index)


def _listed(rights: Iterable[str]) -> str:
    phrases = []
    for place, called in PLACES.items():
        if found := actions(rights, place):
            phrases.append(f"{_joined(found)}{' with' if found[0] in _WITH else ''} {called}")
    return ", and to ".join((", to ".join(phrases[:-1]), phrases[-1])) if len(phrases) > 1 else phrases[0]


def _joined(words: list[str]) -> str:
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]
