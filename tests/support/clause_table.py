"""The clauses of an evidence bundle as docs/compliance.md shows them: `python -m tests.support.clause_table` writes them into the page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tablecrypt.maintenance import FindingKind
from tablecrypt.maintenance.report.clauses import CLAUSES
from tests.support.pages import DOCS

PAGE: Final = DOCS / "compliance.md"
_HEAD: Final = "| requirement | what shows it | contradicted by | not fully checked with |\n|---|---|---|---|\n"
_TABLE: Final = re.compile(re.escape(_HEAD) + r"(?:\|.*\n)+")


def clause_table() -> str:
    """The table, with a row for each clause."""
    rows = (f"| {each.requirement} | {each.shown_by} | {_codes(each.kinds)} | {_codes(each.unseen)} |\n" for each in CLAUSES)
    return _HEAD + "".join(rows)


def in_page(page: str) -> str:
    """The table that a page has."""
    (found,) = _TABLE.findall(page)
    return str(found)


def _codes(kinds: Iterable[FindingKind]) -> str:
    return ", ".join(sorted(f"`{kind.code}`" for kind in kinds)) or "nothing"


if __name__ == "__main__":
    PAGE.write_text(_TABLE.sub(lambda _: clause_table(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
