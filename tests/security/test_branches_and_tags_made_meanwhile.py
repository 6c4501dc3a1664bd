"""Somebody makes a branch or a tag right before another removes the snapshot that it points to: it keeps the snapshot, with its rows.

What is planned goes by the branches and tags that there are, and no requirement of Iceberg's says that there is no further one. PyIceberg
and REST servers take a branch or tag away with its snapshot, so that its rows were deleted without a word to whoever had made it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import erase, migrate, shred
from tablecrypt.maintenance.expiry import expire_snapshots
from tablecrypt.table.table import EncryptedTable, plain_tables_opened
from tests.support.interrupted_catalog import InterruptedCatalog, at_commits, once
from tests.support.protected_tables import TABLE_KEY, Clients, clients, loaded, persons, protected_table
from tests.support.restricting_server import RestrictingServer
from tests.support.tables import SCHEMA, ids, rows

NAME: Final = "keep"
REMOVALS: Final[dict[str, Callable[[EncryptedTable], object]]] = {
    "expire_snapshots": lambda table: expire_snapshots(table, dt.datetime(2100, 1, 1, tzinfo=dt.UTC)),
    "PyIceberg's expiry": lambda table: table.maintenance.expire_snapshots().older_than(dt.datetime(2100, 1, 1)).commit(),
    "shred": lambda table: shred(table, [table.metadata.snapshots[0].snapshot_id]),
    "shred all but heads": lambda table: shred(table, all_but_heads=True),
    "erase": lambda table: erase(table, "id = 1"),
}
PLAN_AGAIN: Final = {"expire_snapshots"}
each_kind = pytest.mark.parametrize("kind", ["branch", "tag"])


@pytest.fixture
def both(tmp_path: Path) -> Clients:
    return clients(tmp_path, catalog_class=InterruptedCatalog)


def _named(table: Table, kind: str) -> None:
    management: Any = table.manage_snapshots()
    getattr(management, f"create_{kind}")(table.metadata.snapshots[0].snapshot_id, NAME).commit()


@each_kind
@pytest.mark.parametrize("removal", REMOVALS)
def test_it_keeps_its_snapshot(both: Clients, removal: str, kind: str) -> None:
    table = protected_table(both.payroll)
    table.append(persons(1))
    table.overwrite(persons(2))

    names_it = pytest.raises((CommitFailedException, ConfigurationError), match=f"{kind} .*{NAME}")
    with nullcontext() if removal in PLAN_AGAIN else names_it, at_commits(before=once(lambda: _named(loaded(both.payroll), kind))):
        REMOVALS[removal](table)

    after = loaded(both.payroll)
    assert after.scan().use_ref(NAME).to_arrow()["id"].to_pylist() == [1]
    assert ids(after) == [2]


@each_kind
def test_so_it_does_on_a_rest_server(both: Clients, kind: str) -> None:
    table = protected_table(both.payroll)
    table.append(persons(1))
    table.overwrite(persons(2))
    with RestrictingServer(both.payroll) as server:
        own = {name: both.payroll.properties[name] for name in ("encryption.kms-type", "kms.memory.name")}
        stale = loaded(server.client(**own))
        _named(loaded(both.payroll), kind)
        with pytest.raises(CommitFailedException, match=f"{kind} '{NAME}' points to snapshot"):
            REMOVALS["PyIceberg's expiry"](stale)

    assert loaded(both.payroll).scan().use_ref(NAME).to_arrow()["id"].to_pylist() == [1]


def test_what_points_to_plain_snapshots_stops_a_migration(both: Clients) -> None:
    plain = both.payroll.create_table("db.plain", SCHEMA)
    plain.append(rows(0))

    def named() -> None:
        with plain_tables_opened():
            _named(both.payroll.load_table("db.plain"), "tag")

    with at_commits(before=once(named)), pytest.raises(ConfigurationError, match="branches or tags that would keep plaintext"):
        migrate(plain, TABLE_KEY)

    assert both.payroll.load_table("db.plain").scan().use_ref(NAME).to_arrow()["id"].to_pylist() == list(range(20))
    migrate(both.payroll.load_table("db.plain"), TABLE_KEY, drop_refs=True)
    assert ids(both.payroll.load_table("db.plain")) == list(range(20))


@pytest.mark.parametrize("change", ["move", "remove"])
def test_a_tag_that_is_moved_or_removed_while_its_rows_are_erased_is_not_put_back(both: Clients, change: str) -> None:
    table = protected_table(both.payroll, appends=[persons(1, 2)])
    _named(table, "tag")
    table.overwrite(persons(3))
    begun: list[str] = []

    def meanwhile() -> None:
        # The first commit makes the branch on which the tag's rows are erased.
        begun.append(change)
        if len(begun) == 2:
            other = loaded(both.payroll)
            management = other.manage_snapshots()
            head = other.metadata.snapshots[-1].snapshot_id
            (management.remove_tag(NAME) if change == "remove" else management.create_tag(head, NAME)).commit()

    with at_commits(before=meanwhile), pytest.raises(CommitFailedException, match=f"others moved or removed the tag {NAME}"):
        erase(table, "id = 1")

    assert erase(table, "id = 1").is_complete
    after = loaded(both.payroll)
    assert after.metadata.refs.keys() == ({"main"} if change == "remove" else {"main", NAME})
    assert ids(after) == [3]
    if change == "move":
        assert after.scan().use_ref(NAME).to_arrow()["id"].to_pylist() == [3]
