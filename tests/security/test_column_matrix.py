"""The matrix of protected columns: analyst, clerk and stale writer × every operation × every reader of a table with protected columns.

What the parts are stands in tests/security/matrix/. Here a sample runs. The campaign runs every commit, and writes tables of
docs/security-campaign.md.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.security.matrix.cells import Outcome, check
from tests.security.matrix.column_admissions import COLUMN_ADMISSIONS, admission_of
from tests.security.matrix.column_cells import ColumnMatrix, Commit
from tests.security.matrix.column_readers import HIDDEN
from tests.security.matrix.committers import ATTACKERS, CHANGES, by_hand, by_operation, stale
from tests.security.matrix.operations import OPERATIONS, stale_names, unnamed
from tests.security.matrix.page import attack_counts, write, written_counts
from tests.security.matrix.people import People
from tests.support.plaintext_scan import Registry

THREAT_MODEL: Final = Path(__file__).parents[2] / "docs" / "threat-model.md"
PAGE: Final = "columns matrix"
SAMPLED: Final = {by_operation: 23, by_hand: 31, stale: 67}
"""Every how many commits one is in the sample."""

slow = pytest.mark.slow
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory, plaintext_registry: Registry) -> Iterator[People]:
    logging.disable(logging.WARNING)
    yield People.make(tmp_path_factory.mktemp("people"))
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def matrix(people: People) -> ColumnMatrix:
    """The readers, and what they find where nobody has changed the table."""
    matrix = ColumnMatrix(people, admission_of)
    matrix.learn("", lambda _: None, HIDDEN)
    return matrix


def _learn_changes(matrix: ColumnMatrix, commits: list[Commit]) -> None:
    """And what they find after each change of its protection that somebody has slept through."""
    for name in dict.fromkeys(commit.change for commit in commits if commit.change):
        matrix.learn(name, lambda scene, name=name: CHANGES[name].make(scene.load()), CHANGES[name].hidden)  # type: ignore[misc]


@slow
@pytest.mark.parametrize("kind", SAMPLED, ids=lambda kind: kind.__name__)
def test_no_sampled_commit_shows_loses_or_changes_a_value(matrix: ColumnMatrix, kind: object) -> None:
    commits = list(kind(matrix.scene))[:: SAMPLED[kind]]  # type: ignore[operator, index]
    _learn_changes(matrix, commits)
    cells = list(matrix.run(commits))
    check(cells)
    assert {Outcome.REFUSED, Outcome.UNCHANGED} <= {cell.outcome for cell in cells}


@pytest.mark.campaign
@pytest.mark.timeout(7200)
def test_no_commit_shows_loses_or_changes_a_value_and_the_page_says_what_came_of_each(matrix: ColumnMatrix) -> None:
    commits = _every_commit(matrix.scene)
    _learn_changes(matrix, commits)
    cells = list(matrix.run(commits))
    write(PAGE, cells, COLUMN_ADMISSIONS)
    check(cells)


def test_every_operation_that_changes_a_table_has_its_cells(people: People) -> None:
    assert list(unnamed()) == []
    assert list(stale_names()) == []
    tried = {(commit.attacker, commit.how.rpartition(", ")[0] or commit.how) for commit in stale(people)}
    tried |= {(commit.attacker, commit.how) for commit in by_operation(people)}
    attackers = {*ATTACKERS, "stale writer"}
    assert {(attacker, each.name) for attacker in attackers for each in OPERATIONS if not each.repeats} <= tried


def test_the_page_counts_the_commits_that_there_are(people: People) -> None:
    """Where its tables do not, `make campaign` writes them again."""
    there, written = attack_counts(_every_commit(people)), written_counts(PAGE)
    assert {row: there.get(row) for row in written} == written


def test_the_threat_model_says_what_is_admitted_word_by_word() -> None:
    text = re.sub(r"\s+", " ", THREAT_MODEL.read_text(encoding="utf-8"))
    assert [each.name for each in COLUMN_ADMISSIONS if each.sentence not in text] == []


def _every_commit(people: People) -> list[Commit]:
    return [*by_operation(people), *by_hand(people), *stale(people)]
