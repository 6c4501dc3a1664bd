"""A column's protection changes between what an operation has done and its commit: of operations that write no rows of their own.

Rows are in test_stale_writers.py, and in the matrix of protected columns, where every operation begins before a change. Here somebody else
changes the protection in the last moment before the operation's first commit. Either it is refused and nothing is committed, or afterwards
right-holders read every value, nobody else finds one, and an audit finds no more than after the change alone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.types import LongType

from tablecrypt import maintenance as m
from tablecrypt.errors import ColumnKeyDeniedError, TablecryptError
from tablecrypt.table.table import EncryptedTable
from tests.support.interrupted_catalog import InterruptedCatalog, at_commits, once
from tests.support.protected_tables import Clients, clients, loaded, opened_by_table_key, protected_table
from tests.support.protection_changes import columns, mask, shred
from tests.support.restricting_server import RestrictingServer

NAME: Final = "db.people"
SSNS: Final = {1: "078-05-SECRET-1", 2: "078-05-SECRET-2"}
SHREDDED: Final = "shredded"
CHANGES: Final[dict[str, Callable[[EncryptedTable], object]]] = {
    "declared": columns("pii: ssn, person.email, note"),
    "another key": columns("fin: ssn; pii: person.email"),
    "mask null": mask("null"),
    SHREDDED: shred,
}


def _expired(table: EncryptedTable) -> None:
    table.maintenance.expire_snapshots().older_than(dt.datetime(2100, 1, 1)).commit()


def _with_a_column(table: EncryptedTable) -> None:
    with table.update_schema() as update:
        update.add_column("more", LongType())


OPERATIONS: Final[dict[str, Callable[[EncryptedTable], object]]] = {
    "compact with deletes": lambda table: m.compact(table, apply_deletes=True, workers=1),
    "reencrypt": lambda table: m.reencrypt(table, workers=1),
    "erase": lambda table: m.erase(table, "id = 11", delete_below=[table.location()], workers=1),
    "rotate_kek": m.rotate_kek,
    "rewrap": m.rewrap,
    "rotate_column_keks": m.rotate_column_keks,
    "rewrap_column_keks": m.rewrap_column_keks,
    "shred old snapshots": lambda table: m.shred(table, all_but_heads=True),
    "shred another column": lambda table: m.shred_column(table, "person.email", delete_below=[table.location()]),
    "relocate": lambda table: m.relocate(table, f"{table.location()}-copy", register_as="db.copy", workers=1),
    "expire": _expired,
    "add a column": _with_a_column,
    "branch": lambda table: table.manage_snapshots().create_branch(table.metadata.snapshots[0].snapshot_id, "side").commit(),
    "roll back and on": lambda table: table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[-2].snapshot_id).commit(),
}


SHREDS: Final = {"shred another column": {"COLUMN_KEY_MISSING"}}


def _people(both: Clients) -> EncryptedTable:
    table = protected_table(both.payroll, **{"encryption.column-mask.ssn": "truncate(3)", "write.delete.mode": "merge-on-read"})
    for number, ssn in SSNS.items():
        table.append(pa.table({"id": [number, number + 10], "ssn": [ssn, ssn], "note": ["n", "n"]}))
    table.delete("id >= 10")
    return table


def _values(both: Clients, name: str = NAME) -> dict[int, str]:
    rows = loaded(both.payroll, name).scan(selected_fields=("id", "ssn"), masked="error").to_arrow().to_pylist()
    return {row["id"]: row["ssn"] for row in rows if row["id"] < 10}


def _findings(table: EncryptedTable) -> set[str]:
    return {finding.kind.name for finding in m.audit(table).findings if finding.kind.name.startswith("COLUMN_")}


def _check(both: Clients, change: str, allowed: set[str]) -> None:
    table = loaded(both.payroll)
    names = {".".join(name) for name in both.payroll.list_tables("db")}
    if change == SHREDDED:
        assert sorted(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())[:2] == [1, 2]
        table.append(pa.table({"id": [50], "ssn": ["later"], "note": ["n"]}))
        assert table.scan("id = 50", masked="error").to_arrow()["ssn"].to_pylist() == ["later"]
    else:
        assert all(_values(both, name) == SSNS for name in names)
    for name in names:
        seen = b"".join(opened_by_table_key(loaded(both.analyst, name)))
        assert not [ssn for ssn in SSNS.values() if ssn.encode() in seen]
    assert _findings(table) <= allowed


@pytest.fixture
def both(tmp_path: Path) -> Clients:
    return clients(tmp_path, catalog_class=InterruptedCatalog)


def _operate(both: Clients, table: EncryptedTable, operation: str, change: str) -> set[str]:
    """Do it with the change right before its first commit, and return what an audit may find: what it finds after the change alone."""
    allowed: list[set[str]] = []

    def meanwhile() -> None:
        CHANGES[change](loaded(both.payroll))
        allowed.append(_findings(loaded(both.payroll)))

    with at_commits(before=once(meanwhile)):
        try:
            OPERATIONS[operation](table)
        except (CommitFailedException, ValidationException, TablecryptError) as error:
            assert not isinstance(error, ColumnKeyDeniedError), error
    [found] = allowed
    return found | SHREDS.get(operation, set())


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_change_right_before_an_operations_commit_shows_and_loses_no_value(both: Clients, operation: str, change: str) -> None:
    table = _people(both)
    _check(both, change, _operate(both, table, operation, change))


@pytest.mark.parametrize("operation", ["reencrypt", "rotate_column_keks"])
def test_so_it_is_on_a_rest_server(both: Clients, operation: str) -> None:
    _people(both)
    with RestrictingServer(both.payroll) as server:
        own = {name: both.payroll.properties[name] for name in ("encryption.kms-type", "kms.memory.name")}
        table = loaded(server.client(**own))
        _check(both, "another key", _operate(both, table, operation, "another key"))
