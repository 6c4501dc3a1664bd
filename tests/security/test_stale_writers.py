"""A writer that began before the protection of a column changed commits nothing that the change was to prevent: nobody attacks here.

change      what another client commits after this one has loaded the table, or written its files
loaded      the writer has loaded the table before, and writes and commits after the change
staged      it has written its files before, and commits them after the change
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from tablecrypt import maintenance
from tablecrypt.maintenance.columns.keys import rotate_column_keks, shred_column
from tablecrypt.table.protection.written_under import StaleWriteError
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.transaction import EncryptedTransaction
from tablecrypt_catalog import EncryptedRestCatalog
from tests.support.protected_tables import Clients, clients, opened_by_table_key, protected_table
from tests.support.restricting_server import RestrictingServer

NAME: Final = "db.people"
KEPT: Final = "KEPT"
SSN: Final = "078-05-SECRET"
NOTE: Final = "NOTE-SECRET"


def person(number: int, ssn: str, note: str) -> pa.Table:
    return pa.table({"id": [number], "ssn": [ssn], "note": [note]})


def columns(text: str) -> Callable[[EncryptedTable], object]:
    def change(table: EncryptedTable) -> None:
        with table.transaction() as transaction:
            transaction.set_properties({"encryption.column-keys": text})

    return change


def mask(text: str) -> Callable[[EncryptedTable], object]:
    def change(table: EncryptedTable) -> None:
        with table.transaction() as transaction:
            transaction.set_properties({"encryption.column-mask.ssn": text})

    return change


def rotate_and_rewrap(table: EncryptedTable) -> None:
    maintenance.rotate_kek(table)
    maintenance.rewrap(table)


def rename(table: EncryptedTable) -> None:
    with table.update_schema() as update:
        update.rename_column("ssn", "social")


def shred(table: EncryptedTable) -> None:
    shred_column(table, "ssn", delete_below=[table.location()])


@dataclass(frozen=True)
class Change:
    """What somebody else commits.

    Attributes:
        make: makes it.
        is_refused: whether files from before it are.
        hidden: values of the writer's row that whoever has the table's key alone must not find afterwards.
    """

    make: Callable[[EncryptedTable], object]
    is_refused: bool
    hidden: tuple[str, ...] = (SSN,)


CHANGES: Final = {
    "declared": Change(columns("pii: ssn, person.email, note"), is_refused=True, hidden=(SSN, NOTE)),
    "another key": Change(columns("fin: ssn; pii: person.email"), is_refused=True),
    "removed": Change(columns("pii: person.email"), is_refused=False, hidden=()),
    "column KEKs rotated": Change(rotate_column_keks, is_refused=False),
    "table KEK rotated": Change(rotate_and_rewrap, is_refused=False),
    "renamed": Change(rename, is_refused=False),
    "mask error": Change(mask("error"), is_refused=True),
    "mask null": Change(mask("null"), is_refused=True),
    "shredded": Change(shred, is_refused=True),
}
WRITES: Final[dict[str, Callable[[EncryptedTable | EncryptedTransaction, pa.Table], object]]] = {
    "append": lambda to, rows: to.append(rows),
    "overwrite": lambda to, rows: to.overwrite(rows, "id = 2"),
    "upsert": lambda to, rows: to.upsert(rows, ["id"]),
}
each_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
each_write = pytest.mark.parametrize("write", WRITES)


@pytest.fixture
def both(tmp_path: Path) -> Clients:
    return clients(tmp_path)


@pytest.fixture
def people(both: Clients) -> EncryptedTable:
    """A table with a row, a column under a key with stored masks, and another column that is not protected."""
    table = protected_table(both.payroll, **{"encryption.column-mask.ssn": "truncate(3)"})
    table.append(person(1, KEPT, "n"))
    return table


@pytest.fixture(params=["sql", "rest"])
def catalog(request: pytest.FixtureRequest, both: Clients, people: EncryptedTable) -> Iterator[Catalog]:
    """The writer's, who may use every key."""
    if request.param == "sql":
        yield both.payroll
        return
    with RestrictingServer(both.payroll) as server:
        yield rest_client(server, both)


def rest_client(server: RestrictingServer, both: Clients) -> EncryptedRestCatalog:
    own = ("encryption.kms-type", "kms.memory.name")
    return server.client(**{name: both.payroll.properties[name] for name in own})


def loaded(catalog: Catalog) -> EncryptedTable:
    return cast("EncryptedTable", catalog.load_table(NAME))


def check_rows(both: Clients, change: Change, is_written: bool) -> None:
    """Right-holders read every row, and nobody else finds a value that is protected now."""
    rows = loaded(both.payroll).scan(masked="error").to_arrow() if change is not CHANGES["shredded"] else None
    found = loaded(both.payroll).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
    assert sorted(found) == ([1, 2] if is_written else [1])
    if rows is not None:
        ssn = "social" if "social" in rows.column_names else "ssn"
        read = {row["id"]: (row[ssn], row["note"]) for row in rows.to_pylist()}
        assert read == {1: (KEPT, "n")} | ({2: (SSN, NOTE)} if is_written else {})

    seen = b"".join(opened_by_table_key(loaded(both.analyst)))
    for value in change.hidden:
        assert value.encode() not in seen
        assert value[:10].encode() not in seen


@each_change
@each_write
def test_rows_of_a_writer_that_had_loaded_the_table_are_protected_as_it_is_now(
    both: Clients, catalog: Catalog, change: Change, write: str
) -> None:
    writer = loaded(catalog)
    change.make(loaded(both.payroll))

    WRITES[write](writer, person(2, SSN, NOTE))

    check_rows(both, change, is_written=True)
    if change is CHANGES["shredded"]:
        rows = loaded(both.payroll).scan("id = 2", masked="error").to_arrow()
        assert rows["ssn"].to_pylist() == [SSN]


@each_change
@each_write
def test_files_from_before_a_change_are_committed_only_where_they_fit_it(
    both: Clients, catalog: Catalog, change: Change, write: str
) -> None:
    transaction = loaded(catalog).transaction()
    WRITES[write](transaction, person(2, SSN, NOTE))
    change.make(loaded(both.payroll))
    before = loaded(both.payroll).metadata

    if change.is_refused:
        with pytest.raises(StaleWriteError, match="since the rows were written; nothing was committed"):
            transaction.commit_transaction()
        assert loaded(both.payroll).metadata == before
    else:
        transaction.commit_transaction()

    check_rows(both, change, is_written=not change.is_refused)
