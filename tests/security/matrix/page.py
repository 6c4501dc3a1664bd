"""The tables of docs/security-campaign.md, made from the cells of a run over the whole matrix.

A run of the full matrix writes them; a test holds the attacks that the page counts against those that there are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from tests.security.matrix.admissions import ADMISSIONS
from tests.security.matrix.attacks import Attack
from tests.security.matrix.cells import Cell, Outcome
from tests.support.pages import MadePart

OUTCOMES: Final = tuple(Outcome)


class Sentence(Protocol):
    """What the threat model admits, for one matrix or another."""

    @property
    def name(self) -> str:
        """Of it, short."""

    @property
    def sentence(self) -> str:
        """Word by word."""


def part(name: str) -> MadePart:
    """A generated part of the page."""
    return MadePart("security-campaign.md", name)


def place(target: str) -> str:
    """The row of the page in which an object is counted: fields of metadata.json by the first name."""
    document, _, path = target.partition(": ")
    first = re.split(r"[.\[]", path)[0]
    return f"{document}: {first}" if path else document


def attack_counts(attacks: Iterable[Attack]) -> dict[tuple[str, str], int]:
    """How many attacks there are for each attacker and row."""
    return dict(Counter((attack.attacker, place(attack.target)) for attack in attacks))


def written_counts(name: str) -> dict[tuple[str, str], int]:
    """What the page says of that."""
    rows = re.findall(r"^\| ([^|]+) \| `([^|]+)` \| (\d+) \|", part(name).read(), re.MULTILINE)
    return {(attacker, target): int(count) for attacker, target, count in rows}


def rendered(cells: Sequence[Cell], admissions: Sequence[Sentence] = ADMISSIONS) -> str:
    """All tables, in Markdown. Arguments: the cells, and what the threat model admits."""
    by_client = _table(cells, ["attacker", "client"], lambda cell: (cell.attack.attacker, cell.client))
    by_reader = _table(cells, ["reader"], lambda cell: (cell.reader,))
    attacks = attack_counts(dict.fromkeys(cell.attack for cell in cells))
    by_object = _table(
        cells,
        ["attacker", "object", "attacks"],
        lambda cell: (
            cell.attack.attacker,
            f"`{place(cell.attack.target)}`",
            str(attacks[cell.attack.attacker, place(cell.attack.target)]),
        ),
    )
    return "\n".join([by_client, by_reader, by_object, *([_admitted(cells, admissions)] if admissions else [])])


def write(name: str, cells: Sequence[Cell], admissions: Sequence[Sentence] = ADMISSIONS) -> None:
    """Write the tables into the page. Arguments: the part of it, and those of `rendered`."""
    part(name).write(rendered(cells, admissions))


def _table(cells: Sequence[Cell], names: list[str], of: Callable[[Cell], tuple[str, ...]]) -> str:
    counts: dict[tuple[str, ...], Counter[Outcome]] = {}
    for cell in cells:
        counts.setdefault(of(cell), Counter())[cell.outcome] += 1
    head = [" | ".join(["", *names, "cells", *OUTCOMES, ""]).strip(), "|" + "---|" * len(names) + "---:|" * (1 + len(OUTCOMES))]
    total = Counter(cell.outcome for cell in cells)
    rows = [*counts.items(), (("together", *[""] * (len(names) - 1)), total)]
    lines = [
        " | ".join(["", *key, f"{sum(each.values()):,}", *(f"{each[outcome]:,}" for outcome in OUTCOMES), ""]).strip() for key, each in rows
    ]
    return "\n".join([*head, *lines, ""])


def _admitted(cells: Sequence[Cell], admissions: Sequence[Sentence]) -> str:
    counts = Counter(cell.why for cell in cells if cell.outcome == Outcome.ADMITTED)
    rows = [f"| {each.name} | {_plain(each.sentence)} | {counts[each.name]:,} |" for each in admissions if counts[each.name]]
    return "\n".join(["| admitted | the sentence of the threat model | cells |", "|---|---|---:|", *rows, ""])


def _plain(sentence: str) -> str:
    return sentence.replace("*", "").strip()
