"""Each cell of the matrix of protected columns: somebody commits, somebody reads, and what came of it.

The outcomes are those of cells.py. Wrong are: other values than the right ones; a row that is gone without an error, and that nobody took
out; a value that somebody finds without the column's key; and, after a commit of a writer who attacks nobody, a table that a right-holder
can read or write no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

from tests.security.matrix.attacks import Attack
from tests.security.matrix.cells import Cell, Outcome, outcome_of_error
from tests.security.matrix.column_readers import HIDDEN, LATER, LATER_VALUE, READERS, ColumnReader, Found, Hidden
from tests.security.matrix.people import DROPPED, SECRET, People, Read, Rows, as_read
from tests.security.matrix.saved import State

STALE: Final = "stale writer"


@dataclass(frozen=True)
class Commit(Attack):
    """What somebody commits.

    Attributes:
        begin: does what comes first, and returns the last step.
        change: what a right-holder changes in between, or before; its name, empty for nothing.
        leaves: the rows after it, where it is committed; None where it takes the table or its values away.
        hidden: what has to be hidden afterwards.
    """

    begin: Callable[[People], Callable[[], object]]
    change: str = ""
    leaves: Callable[[Rows], Rows] | None = lambda rows: rows
    hidden: Hidden = HIDDEN

    @property
    def is_honest(self) -> bool:
        """Whether a right-holder makes it, who may do what it does."""
        return self.attacker == STALE


@dataclass(frozen=True)
class Case:
    """What an admission is asked about: what an attacker has committed, and what a reader found who finds `honest` otherwise."""

    scene: People
    commit: Commit
    reader: ColumnReader
    found: Found

    def is_made_of(self, rows: Rows) -> bool:
        """Whether each row that was read is one of these, with its values, however often it is there."""
        return all(_is_among((row,), _expected(self.reader, rows)) for row in self.found.rows or ())

    def is_some_of(self, *states: Rows) -> bool:
        """Whether each row that was read is one of a state, with its values, but for columns that are gone."""
        return any(_is_among(self.found.rows or (), _expected(self.reader, state)) for state in states)


@dataclass
class ColumnMatrix:
    """The scene with its readers, and what they find where nobody attacks."""

    scene: People
    admitted: Callable[[Case], str | None]
    readers: Sequence[ColumnReader] = READERS
    honest: dict[tuple[str, str, str], Found | Exception] = field(default_factory=dict)

    def learn(self, change: str, make: Callable[[People], object], hidden: Hidden) -> None:
        """Ask every reader about a table that somebody has changed, and nobody attacked."""
        make(self.scene)
        before = self.scene.state()
        for reader in self.readers:
            try:
                self.honest[change, reader.client, reader.name] = reader.ask(self.scene, hidden)
            except Exception as error:  # noqa: BLE001  what it is, is the question
                self.honest[change, reader.client, reader.name] = error
            self.scene.put_back(before)
        self.scene.restore()

    def run(self, commits: Iterable[Commit]) -> Iterator[Cell]:
        """Every cell of these."""
        for commit in commits:
            yield from self._cells(commit)
            self.scene.restore()

    def _cells(self, commit: Commit) -> Iterator[Cell]:
        last_step = commit.begin(self.scene)
        before = self.scene.state()
        try:
            last_step()
        except Exception as error:  # noqa: BLE001  what it is, is the question
            if _is_as_before(before, self.scene.state()):
                outcome, why = _outcome_of_commit(error)
                yield from (Cell(commit, reader.client, reader.name, outcome, why) for reader in self.readers)
                return
        after = self.scene.state()
        for reader in self.readers:
            yield Cell(commit, reader.client, reader.name, *self._outcome(commit, reader))
            if reader.commits:
                self.scene.put_back(after)

    def _outcome(self, commit: Commit, reader: ColumnReader) -> tuple[Outcome, str]:
        honest = self.honest[commit.change, reader.client, reader.name]
        try:
            found = reader.ask(self.scene, commit.hidden)
        except Exception as error:  # noqa: BLE001  what it is, is the question
            outcome, why = outcome_of_error(error)
            is_harm = commit.is_honest and commit.leaves is not None and not isinstance(honest, Exception)
            return (Outcome.ACCEPTED, f"a right-holder can do that no more: {why}") if is_harm else (outcome, why)
        wrong = self._wrong(commit, reader, found)
        if wrong is None:
            is_reported = isinstance(honest, Found) and bool(found.findings - honest.findings)
            if is_reported and commit.is_honest and commit.leaves is not None:
                return Outcome.ACCEPTED, f"the audit complains: {sorted(found.findings)}"
            return (Outcome.REFUSED, "reported") if is_reported else (Outcome.UNCHANGED, "")
        admission = self.admitted(Case(self.scene, commit, reader, found))
        return (Outcome.ACCEPTED, wrong) if admission is None else (Outcome.ADMITTED, admission)

    def _wrong(self, commit: Commit, reader: ColumnReader, found: Found) -> str | None:
        """Say what is wrong with what was found, or None."""
        if found.shown:
            return f"found without the column's key: {sorted(found.shown)}"
        if found.rows is None:
            return None
        states = [self.scene.rows]
        if commit.is_honest:
            states.append({} if commit.leaves is None else commit.leaves(self.scene.rows))
        is_right = any(found.rows == _expected(reader, state) for state in states)
        # A right-holder who drops or moves a column knows that it is gone, or has another name.
        is_right |= commit.is_honest and (
            commit.how.startswith("name taken") or any(_projected(found.rows, _expected(reader, state)) for state in states)
        )
        return None if is_right else f"rows: {str(found.rows)[:300]}"


def _outcome_of_commit(error: Exception) -> tuple[Outcome, str]:
    """PyIceberg refuses arguments by Python's own errors; nothing was committed."""
    if isinstance(error, CommitFailedException | TableAlreadyExistsError | ValueError | NotImplementedError):
        return Outcome.REFUSED, f"{type(error).__name__}: {error}"
    return outcome_of_error(error)


def _is_as_before(before: State, after: State) -> bool:
    """Whether nothing was committed: no row of the catalog and no file of before is another one. There may be new files."""
    return before.rows == after.rows and all(after.files.get(path) == content for path, content in before.files.items())


def _expected(reader: ColumnReader, state: Rows) -> Read:
    rows = {**state, LATER: LATER_VALUE} if reader.adds else dict(state)
    if reader.name in {"new rows", "append"}:
        rows = {number: value for number, value in rows.items() if number >= 10}
    if reader.name == "filter by the column":
        rows = {number: value for number, value in rows.items() if value[0] == f"{SECRET}-1"}
    return as_read(rows)


def _projected(found: Read, expected: Read) -> bool:
    return len(found) == len(expected) and _is_among(found, expected)


def _is_among(found: Read, expected: Read) -> bool:
    """Whether each row is one of those that are expected, each at most once, if columns that are gone are left out of both."""
    left = list(expected)
    for row in found:
        same = next((each for each in left if all(one in (other, DROPPED) for one, other in zip(row, each, strict=True))), None)
        if same is None:
            return False
        left.remove(same)
    return True
