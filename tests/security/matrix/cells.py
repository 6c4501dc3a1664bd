"""Each cell of the matrix: one attack, one client, one reader, and what came of it.

    refused      an error of tablecrypt/errors.py, an operation that reports the damage, the word of the store or catalog that nothing is
                 there, or PyIceberg's that a column, a sort order or a property cannot be used
    unchanged    the right rows: the reader does not need what was attacked
    admitted     something else, which the threat model says this attacker can bring about (admissions.py)
    accepted     something else without an error: the test fails
    crashed      an error that says nothing to the caller: the test fails

A client that has pinned the current metadata file has to refuse every change to it, be the rows right or not; and an action that is to look
at a file has to report that it was changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from pyiceberg.exceptions import NoSuchTableError, ValidationError
from pyiceberg.table import Table

from tablecrypt.errors import TablecryptError
from tests.security.matrix.attacks import Attack
from tests.security.matrix.clients import FIRST_USE, Loading
from tests.security.matrix.readers import Answer, Reader
from tests.security.matrix.scene import Scene

SHOWN: Final = 60


class Outcome(StrEnum):
    """What came of a cell."""

    REFUSED = "refused"
    UNCHANGED = "unchanged"
    ADMITTED = "admitted"
    ACCEPTED = "accepted"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Cell:
    """One cell. `why` is the admission's name, or the error."""

    attack: Attack
    client: str
    reader: str
    outcome: Outcome
    why: str = ""

    def __str__(self) -> str:
        attack = self.attack
        return f"{self.outcome}: {attack.attacker}, {attack.target} {attack.how} ({attack.which}), {self.client}, {self.reader}: {self.why}"


@dataclass
class Matrix:
    """The scene with its clients and readers, and what they answer where nobody attacks."""

    scene: Scene
    clients: Loading
    names: Sequence[str]
    readers: Sequence[Reader]
    honest: dict[tuple[str, str], Answer] = field(default_factory=dict)

    def learn(self) -> None:
        """Ask every reader of every client about the untouched table."""
        for client in self.names:
            for reader in self.readers:
                answer = reader.ask(self.clients.load(client))
                assert reader.expected is None or answer == reader.expected(self.scene.now), (client, reader.name)
                self.honest[client, reader.name] = answer
                self.scene.restore()

    def run(self, attacks: Iterable[Attack]) -> Iterator[Cell]:
        """Every cell of these attacks."""
        for attack in attacks:
            for client in self.names:
                with self.scene.attacked(attack.act):
                    yield from self._cells(attack, client)

    def _cells(self, attack: Attack, client: str) -> Iterator[Cell]:
        try:
            table = self.clients.load(client)
        except Exception as error:  # noqa: BLE001  what it is, is the question
            yield from (Cell(attack, client, reader.name, *outcome_of_error(error)) for reader in self.readers)
            return
        for reader in self.readers:
            yield Cell(attack, client, reader.name, *self._outcome(attack, client, reader, table))

    def _outcome(self, attack: Attack, client: str, reader: Reader, table: Table) -> tuple[Outcome, str]:
        from tests.security.matrix.admissions import admission_of

        try:
            answer = reader.ask(table)
        except Exception as error:  # noqa: BLE001  what it is, is the question
            return outcome_of_error(error)
        if answer == self.honest[client, reader.name]:
            if attack.is_on_metadata and attack.attacker != "REST server" and client != FIRST_USE:
                return Outcome.ACCEPTED, "pins let changed metadata pass"
            if attack.is_on_file and reader.must_notice(attack.target, attack.how):
                return Outcome.ACCEPTED, "the damage is not reported"
            return Outcome.UNCHANGED, ""
        if reader.reports(answer, self.honest[client, reader.name]):
            return Outcome.REFUSED, "reported"
        admission = admission_of(self.scene, attack, client, reader, answer, self.honest[client, reader.name])
        return (Outcome.ACCEPTED, _shown(answer)) if admission is None else (Outcome.ADMITTED, admission)


_SAID: Final = (
    *("Could not find field with name", "Could not parse table property", "Mismatch in fields"),
    *("Unsupported metrics mode", "Unsupported compression", "Can not validate empty avro name"),
)
"""What PyIceberg and Arrow say of a filter on a column that is not there, of rows with other columns, and of properties."""


def check(cells: Iterable[Cell]) -> None:
    """Fail where a cell is accepted or crashed, and show the first of them; and where none is refused: then no attack came to a reader."""
    every = list(cells)
    failed = [str(cell) for cell in every if cell.outcome in {Outcome.ACCEPTED, Outcome.CRASHED}]
    if failed:
        raise AssertionError("\n".join([f"{len(failed)} cells:", *failed[:SHOWN]]))
    if not any(cell.outcome == Outcome.REFUSED for cell in every):
        raise AssertionError(f"none of {len(every)} cells was refused")


def outcome_of_error(error: Exception) -> tuple[Outcome, str]:
    """Whether an error says what is wrong."""
    is_said = isinstance(error, TablecryptError | OSError | NoSuchTableError | ValidationError) or str(error).startswith(_SAID)
    return Outcome.REFUSED if is_said else Outcome.CRASHED, f"{type(error).__name__}: {error}"


def _shown(answer: Any) -> str:
    rows = f"{len(answer)} rows, " if isinstance(answer, tuple) and answer and isinstance(answer[0], tuple) else ""
    return f"{rows}{str(answer)[:200]}"
