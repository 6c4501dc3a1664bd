"""What the threat model admits: for each admission the sentence that says so, and the attacks and answers that it covers.

An admission covers an answer, not a field: who may roll a table back may have a reader see the rows of an earlier state, and no others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.security.matrix.attacks import Attack
from tests.security.matrix.clients import BY_CATALOG, FIRST_USE
from tests.security.matrix.readers import Answer, Audited, Reader
from tests.security.matrix.scene import Row, Rows, Scene, ordered


@dataclass(frozen=True)
class Case:
    """What an admission is asked about: an attack on a client, and what a reader answered where it answers `honest` otherwise."""

    scene: Scene
    attack: Attack
    client: str
    reader: Reader
    answer: Answer
    honest: Answer

    @property
    def remembers_nothing(self) -> bool:
        """Whether no pin stands against the attack: there is none, or the attacker can write it."""
        is_catalogs = self.attack.attacker == "catalog" and self.client == BY_CATALOG
        return self.client == FIRST_USE or (is_catalogs and "pins" in self.attack.how + self.attack.target)

    def is_of(self, *states: Rows) -> bool:
        """Whether a reader answered as for one of these states of a table. An operation counts files, so that it answers for any."""
        return self.reader.expected is None or any(self.answer == self.reader.expected(state) for state in states)


@dataclass(frozen=True)
class Admission:
    """One thing that the threat model admits.

    Attributes:
        name: of it, short.
        sentence: of docs/threat-model.md, word by word.
        covers: whether an answer is that thing.
    """

    name: str
    sentence: str
    covers: Callable[[Case], bool]


def admission_of(scene: Scene, attack: Attack, client: str, reader: Reader, answer: Answer, honest: Answer) -> str | None:
    """Return the name of the admission that covers an answer."""
    case = Case(scene, attack, client, reader, answer, honest)
    return next((each.name for each in ADMISSIONS if each.covers(case)), None)


def _is_rollback(case: Case) -> bool:
    is_by_catalog = case.attack.target.startswith("pointer") and "older" in case.attack.how
    is_by_storage = case.attack.how in {"replaced by an older one", "rolled back", "put back as it was"}
    is_head_moved = _is_field(case, "current-snapshot-id", "refs", "snapshots", "snapshot-log")
    return case.remembers_nothing and (is_by_catalog or is_by_storage or is_head_moved) and case.is_of(*case.scene.earlier)


def _is_another_table(case: Case) -> bool:
    is_pointed = case.attack.target.startswith("pointer") and "another table" in case.attack.how
    is_in_place = case.attack.is_on_metadata and "another table" in case.attack.how
    return case.remembers_nothing and (is_pointed or is_in_place) and case.is_of(case.scene.foreign)


def _is_forged_under_a_known_kek(case: Case) -> bool:
    """Rows of an earlier state, or of now, and those that the former holder added."""
    attack = case.attack
    is_forgery = attack.attacker == "former key holder" and "his own rows" in attack.how
    states = [ordered([*map(dict, state), *map(dict, case.scene.forged_rows)]) for state in (*case.scene.earlier, case.scene.now)]
    return is_forgery and case.remembers_nothing and case.is_of(*states)


def _is_plain(case: Case) -> bool:
    return case.client == FIRST_USE and case.attack.how == "made that of a plain table" and case.is_of(case.scene.plain_rows)


def _is_hidden(case: Case) -> bool:
    """An operation that counts other snapshots and files than there were."""
    return (
        case.remembers_nothing and _is_field(case, "snapshots", "refs", "encryption-keys", "metadata-log") and case.reader.expected is None
    )


def _is_beside_the_data(case: Case) -> bool:
    """An audit that finds less."""
    if not isinstance(case.answer, Audited) or not case.remembers_nothing:
        return False
    return (case.answer.snapshots, case.answer.files) == (case.honest.snapshots, case.honest.files)


def _is_other_schema(case: Case) -> bool:
    """Another schema is current: columns are renamed, missing, or filled with another default; rows and the other values are the same."""
    if not (case.remembers_nothing and _is_field(case, "schemas", "current-schema-id")):
        return False
    if case.reader.expected is None or not isinstance(case.answer, tuple):
        return case.reader.expected is None
    expected = case.reader.expected(case.scene.now)
    return len(case.answer) == len(expected) and _values(case.answer) <= _values(expected) | {None}


def _values(rows: tuple[Row, ...]) -> set[object]:
    return {value for row in rows for _, value in row}


def _is_field(case: Case, *names: str) -> bool:
    return any(case.attack.target.startswith(f"metadata.json: {name}") for name in names)


ADMISSIONS: Final = (
    Admission(
        "rollback",
        "roll the table back**: restore an older metadata.json, or select another current snapshot in the current one.",
        _is_rollback,
    ),
    Admission("another table", "point a table's name at another table under a master key that the reader may use.", _is_another_table),
    Admission(
        "forged under a known KEK", "encrypt new rows under that KEK and name the KEK in metadata.json", _is_forged_under_a_known_kek
    ),
    Admission("plain table", "make the table a plain one**: remove *every* trace of encryption.", _is_plain),
    Admission(
        "hidden from view",
        "drop snapshots, branches and tags** from view, or delete files, if the attacker has the permission.",
        _is_hidden,
    ),
    Admission(
        "beside the data",
        "change what it says beside the data**: properties, summaries, sort order, and a *new* schema.",
        _is_beside_the_data,
    ),
    Admission(
        "another schema",
        "An older schema of the table, made current, hides columns that were added later. A schema under an id that no compared manifest "
        "has, made current, looks like a schema evolution.",
        _is_other_schema,
    ),
)
