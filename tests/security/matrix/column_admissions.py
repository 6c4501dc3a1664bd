"""What the threat model admits of who may commit to a table with protected columns: see admissions.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.security.matrix.column_cells import Case


@dataclass(frozen=True)
class ColumnAdmission:
    """One thing that the threat model admits.

    Attributes:
        name: of it, short.
        sentence: of docs/threat-model.md, word by word.
        covers: whether what was found is that thing.
    """

    name: str
    sentence: str
    covers: Callable[[Case], bool]


def admission_of(case: Case) -> str | None:
    """Return the name of the admission that covers what was found."""
    return next((each.name for each in COLUMN_ADMISSIONS if each.covers(case)), None)


def _is_deleted(case: Case) -> bool:
    """Fewer rows, or columns, and of what is left the right values."""
    return not case.found.shown and case.is_some_of(case.scene.rows)


def _is_brought_back(case: Case) -> bool:
    """Rows of earlier states, each once."""
    return not case.found.shown and case.is_some_of(*case.scene.earlier)


def _is_repeated(case: Case) -> bool:
    """Each row is one of the table's, as often as somebody has added its file."""
    known = {number: value for state in (*case.scene.earlier, case.scene.rows) for number, value in state.items()}
    return not case.found.shown and "once more" in case.commit.how and case.is_made_of(known)


def _is_name_forgotten(case: Case) -> bool:
    return "earlier schemas removed" in case.commit.how and case.commit.which == "at first sight"


COLUMN_ADMISSIONS: Final = (
    ColumnAdmission("rows and columns taken away", "This attacker can delete rows and drop columns", _is_deleted),
    ColumnAdmission("an earlier state", "bring back rows that the table had before", _is_brought_back),
    ColumnAdmission("rows repeated", "add data files of the table once more, so that their rows are there twice", _is_repeated),
    ColumnAdmission(
        "names forgotten", "Somebody who edits metadata can remove earlier schemas; pins remember the names.", _is_name_forgotten
    ),
)
