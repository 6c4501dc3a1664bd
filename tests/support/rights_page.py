"""The tables of rights in docs/how-to/permissions.md, from the declarations: `python -m tests.support.rights_page` writes them there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tablecrypt.operations import OPERATIONS
from tablecrypt.operations.rights import PLACES, Rights, actions, rights_in
from tests.support.pages import MadePart

PART: Final = MadePart("how-to/permissions.md", "rights")
_READS: Final = frozenset({"unwrap table", "read metadata", "list metadata", "read data", "list data"})
_WRITES: Final = _READS | {"wrap table", "unwrap column", "wrap column", "write metadata", "write data"}
ROLES: Final[Mapping[str, frozenset[str]]] = {
    "reader": _READS | {"unwrap column"},
    "masked-analyst": _READS,
    "auditor": _READS,
    "writer": _WRITES,
    "key administrator": _WRITES - {"read data", "write data", "list data"},
    "operator": _WRITES | {"delete metadata", "delete data"},
}
"""Who has which rights. A key administrator's policy on storage is for the folder `metadata` alone."""


def allowed_to(rights: Rights, role: frozenset[str]) -> str:
    """Whether somebody of a role may run an operation that needs these rights: yes, in part or no."""
    needed = rights_in(rights.needs) | rights_in(rights.due)
    if not role >= needed:
        return "no"
    return "yes" if role >= needed | rights_in(rights.more) else "in part"


def tables() -> str:
    """Which rights each operation needs, and who may run it, as Markdown."""
    return "\n".join((*_needed(), "", *_who(), ""))


def _needed() -> Iterator[str]:
    yield from _head("operation", "the table's key", "columns' keys", "metadata files", "data files")
    for name, each in OPERATIONS.items():
        yield _row((f"`{name}`", *(_cell(each.rights, place) for place in PLACES)))


def _who() -> Iterator[str]:
    yield from _head("operation", *ROLES)
    for name, each in OPERATIONS.items():
        yield _row((f"`{name}`", *(allowed_to(each.rights, role) for role in ROLES.values())))


def _cell(rights: Rights, place: str) -> str:
    """The actions in a place: what is needed, in brackets what a new KEK needs, in parentheses that without which it does less."""
    parts = ((rights.needs, "{}"), (rights.due, "[{}]"), (rights.more, "({})"))
    return ", ".join(form.format(", ".join(found)) for text, form in parts if (found := actions(rights_in(text), place)))


def _head(*columns: str) -> Iterator[str]:
    yield from (_row(columns), f"|{'---|' * len(columns)}")


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PART.write(tables())
