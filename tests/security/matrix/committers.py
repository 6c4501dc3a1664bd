"""What an analyst and a clerk commit, and what a stale writer does, as data.

by_operation     every operation of operations.py, through this package, with their own keys
by_hand          metadata that they edit and commit past this package, and the same at first sight of a client
stale            every operation, loaded or written before a right-holder changed the protection of a column
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from tablecrypt.maintenance import rotate_column_keks
from tablecrypt.table.table import EncryptedTable
from tests.security.matrix.attacks import field_attacks
from tests.security.matrix.column_cells import STALE, Commit
from tests.security.matrix.column_readers import HIDDEN, OTHER_KEY, TABLES_KEY, Hidden
from tests.security.matrix.operations import OPERATIONS, Operation
from tests.security.matrix.people import NOTE_SECRET, SECRET, People, Rows, Value, person
from tests.support.moved_names import MOVES, take
from tests.support.protected_tables import OTHER_COLUMN_KEY, SSN, write_as_java_does
from tests.support.protection_changes import columns, mask, rename, rotate_and_rewrap, shred
from tests.support.weakened_protection import BY_HAND

ATTACKERS: Final = {"analyst": TABLES_KEY, "clerk": OTHER_KEY}
THEIRS: Final[Value] = ("FORGED-SSN", "forged")
FIELDS: Final = "properties/encryption.column"
"""Of metadata.json, what says how columns are protected, and brings keys back. For encryption-keys see test_cleaned_keys.py."""
OWN: Final[Value] = (f"{SECRET}-stale", NOTE_SECRET)
"""What a stale writer writes."""


def by_operation(scene: People) -> Iterator[Commit]:
    """Every operation, by everyone who may commit and has not the column's key."""
    for attacker, client in ATTACKERS.items():
        for operation in OPERATIONS:
            begin = partial(_operate, client=client, operation=operation)
            yield _commit(attacker, operation.group, operation.name, "", begin)


def _commit(attacker: str, target: str, how: str, which: str, begin: Callable[[People], Callable[[], object]], **more: Any) -> Commit:
    return Commit(attacker, target, how, which, act=lambda scene: begin(scene)(), begin=begin, **more)


def _operate(scene: People, client: str, operation: Operation) -> Callable[[], object]:
    table = scene.load(client)
    return partial(_done, table, operation, THEIRS)


def _done(table: EncryptedTable, operation: Operation, value: Value) -> None:
    if not operation.is_staged:
        operation.run(table, value)
        return
    transaction = table.transaction()
    operation.run(transaction, value)
    transaction.commit_transaction()


def by_hand(scene: People) -> Iterator[Commit]:
    """Metadata that another engine commits for the analyst, or that he edits before a client has ever seen the table."""
    for attack in field_attacks(scene, "analyst"):
        if attack.which.startswith(FIELDS):
            yield _commit("analyst", attack.target, attack.how, attack.which, partial(_acted, act=attack.act))
    edits: dict[str, Callable[[People], dict[str, Any]]] = {
        **{f"declared: {name}": partial(_weakened, name=name) for name in BY_HAND},
        "declaration removed, mask that shows values": _undeclared,
        "column keys removed": _without_keys,
        **{f"name taken: {name}": partial(_moved, name=name, forgotten=False) for name in MOVES},
        **{f"name taken, earlier schemas removed: {name}": partial(_moved, name=name, forgotten=True) for name in MOVES},
    }
    for name, edit in edits.items():
        yield _commit("analyst", "metadata.json", name, "committed", partial(_edited, edit=edit, is_new=False))
        yield _commit("analyst", "metadata.json", name, "at first sight", partial(_edited, edit=edit, is_new=True))
    yield _commit("analyst", "data file", "as another engine writes it", "", partial(_written_in_the_clear, client=TABLES_KEY))
    yield _commit("clerk", "data file", "as another engine writes it", "", partial(_written_in_the_clear, client=OTHER_KEY))
    yield _commit("clerk", "metadata.json", "the column under his key", "committed", partial(_edited, edit=_under_his_key, is_new=False))
    yield _commit(
        "clerk", "metadata.json", "the column under his key", "at first sight", partial(_edited, edit=_under_his_key, is_new=True)
    )


def _acted(scene: People, act: Callable[[Any], object]) -> Callable[[], object]:
    return partial(act, scene)


def _edited(scene: People, edit: Callable[[People], dict[str, Any]], is_new: bool) -> Callable[[], object]:
    def run() -> None:
        scene.write_metadata(edit(scene))
        if is_new:
            scene.forget()

    return run


def _weakened(scene: People, name: str) -> dict[str, Any]:
    updates, removals, _ = BY_HAND[name]
    metadata = scene.metadata
    kept = {key: value for key, value in metadata["properties"].items() if key not in removals}
    return {**metadata, "properties": kept | updates}


def _undeclared(scene: People) -> dict[str, Any]:
    metadata = _weakened(scene, "a mask that shows values")
    return _without(metadata, lambda key: key.get("properties", {}).get("tablecrypt.kind") == "declaration")


def _without_keys(scene: People) -> dict[str, Any]:
    metadata = scene.metadata
    of_lists = {each["key-id"] for each in metadata["snapshots"]}
    return _without(metadata, lambda key: key["key-id"] not in of_lists and "KEY_TIMESTAMP" not in key.get("properties", {}))


def _without(metadata: dict[str, Any], is_gone: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Metadata without some entries of encryption-keys and their copies in the properties."""
    gone = [key["key-id"] for key in metadata["encryption-keys"] if is_gone(key)]
    properties = {name: value for name, value in metadata["properties"].items() if not any(key_id in name for key_id in gone)}
    keys = [key for key in metadata["encryption-keys"] if key["key-id"] not in gone]
    return {**metadata, "properties": properties, "encryption-keys": keys}


def _under_his_key(scene: People) -> dict[str, Any]:
    """The column under the clerk's master key, with the column key of his own column copied for it."""
    metadata = _without_keys(scene)
    properties = metadata["properties"] | {f"encryption.column.{SSN}.key-id": OTHER_COLUMN_KEY}
    return {**metadata, "properties": properties}


def _moved(scene: People, name: str, forgotten: bool) -> dict[str, Any]:
    transaction = scene.load(TABLES_KEY).transaction()
    take(transaction, MOVES[name])
    metadata = cast("dict[str, Any]", json.loads(transaction.table_metadata.model_dump_json()))
    if forgotten:
        metadata["schemas"] = [each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"]]
    return metadata


def _written_in_the_clear(scene: People, client: str) -> Callable[[], object]:
    return lambda: write_as_java_does(scene.load(client), person(10, *map(str, THEIRS)))


@dataclass(frozen=True)
class Change:
    """What a right-holder changes, what has to be hidden of what is written after it, and whether it changes how columns are protected."""

    make: Callable[[EncryptedTable], object]
    hidden: Hidden = HIDDEN
    is_of_columns: bool = True


CHANGES: Final[Mapping[str, Change]] = {
    "another column is declared": Change(columns("pii: ssn, person.email, note; fin: salary"), Hidden((SECRET, NOTE_SECRET))),
    "another master key": Change(columns("fin: ssn, salary; pii: person.email"), Hidden(readers=(TABLES_KEY,))),
    "protection is removed": Change(columns("pii: person.email; fin: salary"), Hidden(())),
    "column KEKs are rotated": Change(rotate_column_keks),
    "the table's KEK is rotated": Change(rotate_and_rewrap, is_of_columns=False),
    "the column is renamed": Change(rename),
    "mask error": Change(mask("error")),
    "mask null": Change(mask("null")),
    "the column is shredded": Change(shred),
}
STAGED: Final = frozenset({"rows", "columns", "protection"})
LEADING: Final = "another column is declared"


def stale(scene: People) -> Iterator[Commit]:
    """Every operation by a writer who had loaded the table before a change, or had staged it before.

    What writes no rows is tried around one change alone, that a column more is declared; what changes the protection of columns is tried
    around every one that does so too.
    """
    for changed, change in CHANGES.items():
        tried = {"rows", *(("protection",) if change.is_of_columns else ())}
        for operation in (each for each in OPERATIONS if not each.repeats and (each.group in tried or changed == LEADING)):
            for is_written in (False, True) if operation.is_staged and operation.group in STAGED else (False,):
                begin = partial(_late, operation=operation, change=change, is_written=is_written)
                how = f"{operation.name}, {'written' if is_written else 'loaded'} before"
                leaves = None if operation.leaves is None else partial(_left, operation=operation)
                hidden = Hidden(()) if operation.shows else change.hidden
                yield _commit(STALE, operation.group, how, changed, begin, change=changed, leaves=leaves, hidden=hidden)


def _left(rows: Rows, operation: Operation) -> Rows:
    assert operation.leaves is not None
    return operation.leaves(rows, OWN)


def _late(scene: People, operation: Operation, change: Change, is_written: bool) -> Callable[[], object]:
    table = scene.load()
    if not is_written:
        change.make(scene.load())
        return partial(_done, table, operation, OWN)
    transaction = table.transaction()
    try:
        operation.run(transaction, OWN)
    except Exception as error:  # noqa: BLE001  what is refused before the change is refused after it
        return partial(_raise, error)
    change.make(scene.load())
    return transaction.commit_transaction


def _raise(error: Exception) -> None:
    raise error
