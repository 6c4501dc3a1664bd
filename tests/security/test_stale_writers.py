"""A writer that began before the protection of a column changed commits nothing that the change was to prevent: nobody attacks here.

change      what another client commits after this one has loaded the table, or written its files
loaded      the writer has loaded the table before, and writes and commits after the change
staged      it has written its files before, and commits them after the change
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.types import StringType

from tablecrypt import maintenance
from tablecrypt.errors import ColumnKeyDeniedError, KeyIdChangedError
from tablecrypt.maintenance.columns.key_changes import rotate_column_keks
from tablecrypt.table.protection.writing import StaleWriteError
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.transaction import EncryptedTransaction
from tablecrypt_catalog import EncryptedRestCatalog, EncryptedSqlCatalog
from tests.support.memory_metastore import MemoryHiveCatalog
from tests.support.protected_tables import Clients, clients, loaded, opened_by_table_key, protected_table
from tests.support.protection_changes import columns, mask, rename, rotate_and_rewrap, shred
from tests.support.restricting_server import RestrictingServer

NAME: Final = "db.people"
KEPT: Final = "KEPT"
SSN: Final = "078-05-SECRET"
NOTE: Final = "NOTE-SECRET"


def person(number: int, ssn: str, note: str) -> pa.Table:
    return pa.table({"id": [number], "ssn": [ssn], "note": [note]})


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


def table_with_a_row(both: Clients) -> EncryptedTable:
    return protected_table(both.payroll, appends=[person(1, KEPT, "n")], **{"encryption.column-mask.ssn": "truncate(3)"})


@pytest.fixture(params=["sql", *(pytest.param(name, marks=pytest.mark.slow) for name in ("rest", "hive"))])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Clients:
    """Clients of a catalog on SQLite, or of the kind that the writer's catalog is of."""
    if "kind" in request.fixturenames and request.getfixturevalue("kind") == "hive":
        return clients(tmp_path, catalog_class=cast("type[EncryptedSqlCatalog]", MemoryHiveCatalog))
    return clients(tmp_path)


@pytest.fixture
def people(both: Clients) -> EncryptedTable:
    """A table with a row, a column under a key with stored masks, and another column that is not protected."""
    return table_with_a_row(both)


@pytest.fixture
def catalog(kind: str, both: Clients, people: EncryptedTable) -> Iterator[Catalog]:
    """The writer's, who may use every key."""
    if kind != "rest":
        yield both.payroll
        return
    with RestrictingServer(both.payroll) as server:
        yield rest_client(server, both)


def rest_client(server: RestrictingServer, both: Clients) -> EncryptedRestCatalog:
    own = ("encryption.kms-type", "kms.memory.name")
    return server.client(**{name: both.payroll.properties[name] for name in own})


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


PREVENTED: Final = {name: change for name, change in CHANGES.items() if change.is_refused}
each_refused = pytest.mark.parametrize("change", PREVENTED.values(), ids=PREVENTED)


def replacement(transaction: EncryptedTransaction, rows: pa.Table) -> None:
    """What REPLACE TABLE AS SELECT stages."""
    files = transaction._write(rows, uuid.uuid4(), "main")
    with transaction.update_snapshot().replacement() as producer:
        for file in files:
            producer.append_data_file(file)


@each_refused
@pytest.mark.parametrize(
    "write",
    [
        replacement,
        lambda transaction, rows: transaction.append(rows, branch="audit"),
        lambda transaction, rows: transaction.append(rows, branch=None),
        lambda transaction, rows: transaction.append(pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())),
        lambda transaction, rows: transaction.delete("id = 3"),
    ],
    ids=["replace table", "branch", "staged snapshot", "stream", "delete that writes files again"],
)
def test_every_kind_of_snapshot_is_held_against_the_change(
    both: Clients, people: EncryptedTable, change: Change, write: Callable[[EncryptedTransaction, pa.Table], object]
) -> None:
    people.append(pa.concat_tables([person(3, "x", "y"), person(4, "x", "y")]))
    with people.transaction() as changing:
        changing.set_properties({"write.delete.mode": "copy-on-write"})
    people.manage_snapshots().create_branch(people.metadata.snapshots[-1].snapshot_id, "audit").commit()
    transaction = loaded(both.payroll).transaction()
    write(transaction, person(2, SSN, NOTE))
    change.make(loaded(both.payroll))
    before = loaded(both.payroll).metadata

    with pytest.raises(StaleWriteError):
        transaction.commit_transaction()

    assert loaded(both.payroll).metadata == before


REWRITES: Final[dict[str, Callable[..., object]]] = {
    "compact": partial(maintenance.compact, rewrite_all=True),
    "compact by parts": partial(maintenance.compact, rewrite_all=True, partial_progress=1),
    "reencrypt": maintenance.reencrypt,
}


@each_refused
@pytest.mark.parametrize("rewrite", REWRITES.values(), ids=REWRITES)
def test_files_that_were_written_again_before_a_change_do_not_take_the_place_of_those_that_it_found(
    both: Clients, people: EncryptedTable, change: Change, rewrite: Callable[..., object]
) -> None:
    people.append(person(2, SSN, NOTE))
    seen: list[str] = []

    def make(_: object) -> None:
        if not seen:
            change.make(loaded(both.payroll))
            seen.append(loaded(both.payroll).metadata_location)

    with suppress(StaleWriteError):
        rewrite(loaded(both.payroll), progress=make)

    assert seen == [loaded(both.payroll).metadata_location]


def test_a_stream_is_not_written_again_and_the_error_says_what_to_do(both: Clients, people: EncryptedTable) -> None:
    writer = loaded(both.payroll)
    CHANGES["declared"].make(people)
    rows = person(2, SSN, NOTE)

    with pytest.raises(StaleWriteError, match=r"column 'note' was declared protected since.*Load the table and write them again"):
        writer.append(pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches()))

    check_rows(both, CHANGES["declared"], is_written=False)


def test_rows_are_not_written_again_into_columns_that_have_other_names_now(both: Clients, people: EncryptedTable) -> None:
    writer = loaded(both.payroll)
    with people.update_schema() as update:
        update.rename_column("note", "remark")
    CHANGES["mask null"].make(people)
    with people.update_schema() as update:
        update.add_column("note", StringType())

    with pytest.raises(StaleWriteError, match="column 'ssn' has got another mask"):
        writer.append(person(2, SSN, NOTE))

    assert loaded(both.payroll).scan().count() == 1


def test_who_may_not_use_the_key_of_a_column_that_was_declared_commits_nothing(both: Clients, people: EncryptedTable) -> None:
    CHANGES["removed"].make(people)
    columns("")(loaded(both.payroll))
    analyst = loaded(both.analyst)
    CHANGES["declared"].make(loaded(both.payroll))

    with pytest.raises(ColumnKeyDeniedError):
        analyst.append(person(2, SSN, NOTE))

    check_rows(both, CHANGES["declared"], is_written=False)


def test_a_transaction_that_declares_before_or_after_its_rows_commits_both(both: Clients, people: EncryptedTable) -> None:
    for number, is_first in ((2, True), (3, False)):
        with loaded(both.payroll).transaction() as transaction:
            for step in (True, False) if is_first else (False, True):
                if step:
                    transaction.set_properties({"encryption.column-keys": f"pii: ssn, person.email{', note' if is_first else ''}"})
                else:
                    transaction.append(person(number, SSN, NOTE))

    rows = loaded(both.payroll).scan(masked="error").to_arrow().to_pylist()
    assert {row["id"]: row["note"] for row in rows} == {1: "n", 2: NOTE, 3: NOTE}


def test_rows_that_a_transaction_wrote_before_it_declares_stay_readable_where_others_commit_first(
    both: Clients, people: EncryptedTable
) -> None:
    transaction = loaded(both.payroll).transaction()
    transaction.append(person(2, SSN, NOTE))
    transaction.set_properties({"encryption.column-keys": "pii: ssn, person.email, note"})
    people.append(person(3, KEPT, "n"))

    with pytest.raises(CommitFailedException):
        transaction.commit_transaction()

    rows = loaded(both.payroll).scan(masked="error").to_arrow().to_pylist()
    assert {row["id"]: row["note"] for row in rows} == {1: "n", 3: "n"}


OTHERWISE: Final = "otherwise now than when this change was prepared; nothing was committed"
UNAWARE: Final[dict[str, dict[str, str]]] = {
    "what is declared already": {"encryption.column-keys": "pii: ssn, person.email"},
    "one column more": {"encryption.column-keys": "pii: ssn, person.email, note"},
    "nothing": {"encryption.column-keys": ""},
    "another column's mask": {"encryption.column-mask.person.email": "redact"},
    "a tag": {"encryption.column-tags": "money: fin"},
}
OF_PROTECTION: Final = {name: CHANGES[name] for name in ("declared", "another key", "removed", "mask error", "mask null")}
each_unaware = pytest.mark.parametrize("declared", UNAWARE.values(), ids=UNAWARE)
loaded_or_staged = pytest.mark.parametrize("is_staged", [False, True], ids=["loaded", "staged"])


@pytest.mark.parametrize("change", OF_PROTECTION.values(), ids=OF_PROTECTION)
@loaded_or_staged
@each_unaware
def test_who_declares_columns_undoes_no_change_that_he_did_not_know_of(
    both: Clients, people: EncryptedTable, change: Change, declared: dict[str, str], is_staged: bool
) -> None:
    declare_unaware(both, people.catalog, change, declared, is_staged)


@loaded_or_staged
@each_unaware
def test_so_it_is_in_every_catalog(both: Clients, catalog: Catalog, declared: dict[str, str], is_staged: bool) -> None:
    declare_unaware(both, catalog, CHANGES["mask null"], declared, is_staged)


def declare_unaware(both: Clients, catalog: Catalog, change: Change, declared: dict[str, str], is_staged: bool) -> None:
    transaction = loaded(catalog).transaction()
    if is_staged:
        transaction.set_properties(declared)
    change.make(loaded(both.payroll))
    before = loaded(both.payroll).metadata

    with pytest.raises(StaleWriteError, match=OTHERWISE):
        if not is_staged:
            transaction.set_properties(declared)
        transaction.commit_transaction()

    assert loaded(both.payroll).metadata == before
    check_rows(both, change, is_written=False)


def test_a_declaration_that_began_before_another_writer_s_rows_does_not_make_them_unreadable(both: Clients, catalog: Catalog) -> None:
    transaction = loaded(catalog).transaction()
    transaction.set_properties({"encryption.column-keys": "pii: ssn, person.email, note"})
    loaded(both.payroll).append(person(2, SSN, NOTE))

    with pytest.raises(CommitFailedException, match=r"rows were committed since the protection of column 'note' \(field \d\) was declared"):
        transaction.commit_transaction()
    CHANGES["declared"].make(loaded(catalog))

    rows = loaded(both.payroll).scan(masked="error").to_arrow().to_pylist()
    assert {row["id"]: row["note"] for row in rows} == {1: "n", 2: NOTE}


class SwappingSqlCatalog(EncryptedSqlCatalog):
    """A catalog in which somebody else commits after a writer has compared, and before it swaps the metadata in."""

    before_swap: Callable[[], object] | None = None

    def swap_location(self, *arguments: Any) -> bool:
        before, self.before_swap = self.before_swap, None
        if before is not None:
            before()
        return super().swap_location(*arguments)


@each_refused
@pytest.mark.parametrize("catalog_class", [SwappingSqlCatalog, MemoryHiveCatalog])
def test_what_is_compared_is_what_the_swap_replaces(tmp_path: Path, change: Change, catalog_class: Any) -> None:
    both = clients(tmp_path, catalog_class=catalog_class)
    other = catalog_class(both.payroll.name, **both.payroll.properties)
    table_with_a_row(both)
    writer = loaded(both.payroll)
    swapping = both.payroll if catalog_class is SwappingSqlCatalog else MemoryHiveCatalog.metastores[both.payroll.properties["warehouse"]]
    cast("Any", swapping).before_swap = lambda: change.make(loaded(other))

    writer.append(person(2, SSN, NOTE))

    check_rows(both, change, is_written=True)


class ServerWithAWindow(RestrictingServer):
    """A server that applies what somebody else has sent just before a commit of rows, and after that writer's last look at the table."""

    change: Callable[[], object] | None = None

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Answer one request."""
        if method == "POST" and self.change is not None:
            change, self.change = self.change, None
            change()
        return super().answer(method, path, body)


@each_refused
def test_a_rest_server_that_changed_the_table_in_the_last_moment_is_found_by_its_answer(
    both: Clients, people: EncryptedTable, change: Change
) -> None:
    with ServerWithAWindow(both.payroll) as server:
        writer = loaded(rest_client(server, both))
        server.change = lambda: change.make(loaded(both.payroll))

        with pytest.raises(KeyIdChangedError, match="The commit stands: go back to snapshot"):
            writer.append(person(2, SSN, NOTE))

    assert loaded(both.payroll).metadata.snapshots[-1].parent_snapshot_id == people.metadata.current_snapshot_id


def test_what_files_were_written_under_is_told_to_no_server(both: Clients, people: EncryptedTable) -> None:
    sent: list[dict[str, Any]] = []

    class Server(RestrictingServer):
        def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
            if method == "POST":
                sent.append(json.loads(body))
            return super().answer(method, path, body)

    with Server(both.payroll) as server:
        loaded(rest_client(server, both)).append(person(2, SSN, NOTE))

    [added] = [update for commit in sent for update in commit["updates"] if update["action"] == "add-snapshot"]
    assert added.keys() == {"action", "snapshot"}


def test_two_declarations_of_a_column_at_once_leave_a_table_that_right_holders_read(both: Clients, catalog: Catalog) -> None:
    late = loaded(catalog).transaction()
    late.set_properties({"encryption.column-keys": "pii: ssn, person.email; fin: note"})
    CHANGES["declared"].make(loaded(both.payroll))

    with pytest.raises(StaleWriteError, match=OTHERWISE):
        late.commit_transaction()

    loaded(catalog).append(person(2, SSN, NOTE))
    rows = loaded(both.payroll).scan(masked="error").to_arrow().to_pylist()
    assert {row["id"]: row["note"] for row in rows} == {1: "n", 2: NOTE}
