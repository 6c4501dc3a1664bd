"""A former master key of a column opens files from before the change, and no file that is younger.

The clerk holds `fin`, under which a column honestly was before it came under `pii`: he has the table's key, may commit, and can still write
hidden columns under the former key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate

from tablecrypt import maintenance as m
from tablecrypt.errors import ConfigurationError, KeyIdChangedError, KeyNotFoundError, TamperedFileError
from tablecrypt.keys.key_ring import is_copy
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.replace_files import EncryptedFileSwap
from tablecrypt.table.snapshots import CommitOptions
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.transaction import EncryptedTransaction
from tablecrypt.table.write import write_data_files
from tests.security.test_declarations import commit_by_hand, declare, edit, ssn
from tests.support.protected_tables import COLUMN_KEY, OTHER_COLUMN_KEY, SSN, Clients, loaded, protected_table
from tests.support.tables import metadata_of

PREFIX = f"encryption.column.{SSN}"
FORMER, UNTIL = f"{PREFIX}.former-key-id", f"{PREFIX}.former-until"
HONEST = ["SSN-0001", "SSN-0002"]


def rows(*ssns: str) -> pa.Table:
    return pa.table({"id": list(range(len(ssns))), "ssn": list(ssns)})


def whole_rows(table: EncryptedTable, *ssns: str) -> pa.Table:
    return pa.Table.from_pylist(rows(*ssns).to_pylist(), schema=table.schema().as_arrow())


@pytest.fixture
def people(both: Clients) -> EncryptedTable:
    """The column was under the clerk's key, and its holders moved it to another: a row under each."""
    protected_table(both.payroll, appends=[rows(HONEST[0])], **{"encryption.column-keys": f"{OTHER_COLUMN_KEY}: ssn"})
    declare(both.payroll, "column-keys", f"{COLUMN_KEY}: ssn")
    loaded(both.payroll).append(rows(HONEST[1]))
    return loaded(both.payroll)


def forged_files(table: EncryptedTable) -> list[DataFile]:
    """A file with a row whose ssn is under the former key, as the clerk can write it with his own keys and code."""
    metadata, io = metadata_of(table), table.io
    turned = {name: value for name, value in metadata.properties.items() if not is_copy(name) and name not in (FORMER, UNTIL)}
    turned[f"{PREFIX}.key-id"] = OTHER_COLUMN_KEY
    entries = [entry for entry in metadata.encryption_keys if entry not in metadata.key_ring.column_declarations]
    forged = metadata.model_copy(update={"properties": turned, "encryption_keys": entries})
    return write_data_files(forged, rows("FORGED"), io, io.manager)


def forge(both: Clients) -> None:
    """Append such a file."""
    table = loaded(both.clerk)
    with table.transaction() as transaction:
        cast("EncryptedTransaction", transaction).append_producer(CommitOptions()).commit_files(forged_files(table))


def forge_as_of_before(table: EncryptedTable, files: Iterable[DataFile]) -> None:
    """Put such a file in the place of one from before, whose data sequence number its manifest entry then has."""
    oldest = min(table.refresh().scan().plan_files(), key=lambda task: cast("EncryptedFileScanTask", task).data_sequence_number or 0)
    (file,) = files
    swaps = {oldest.file.file_path: EncryptedDataFile.of(file)}
    with table.transaction() as transaction:
        cast("Any", transaction.update_snapshot()).producer(EncryptedFileSwap, Operation.REPLACE, swaps=swaps).commit()


READS: dict[str, Callable[[EncryptedTable], object]] = {
    "to_arrow": lambda table: table.scan().to_arrow(),
    "batches": lambda table: table.scan().to_arrow_batch_reader().read_all(),
    "filter": lambda table: table.scan("ssn = 'FORGED'").to_arrow(),
    "Polars": lambda table: table.to_polars().select("ssn").collect(),
    "DuckDB": lambda table: table.scan().to_duckdb("people").execute("select max(ssn) from people").fetchall(),
    "delete": lambda table: table.delete("ssn = 'FORGED'"),
    "upsert": lambda table: table.upsert(whole_rows(table, "SSN-0003"), ["ssn"]),
    "compact": lambda table: m.compact(table, rewrite_all=True),
    "reencrypt": m.reencrypt,
}


@pytest.mark.parametrize("read", READS)
def test_a_younger_file_under_a_former_key_is_read_by_nobody(both: Clients, people: EncryptedTable, read: str) -> None:
    forge(both)
    with pytest.raises((TamperedFileError, duckdb.Error), match=r"former master key 'fin'.*up to sequence number 1"):
        READS[read](loaded(both.payroll))


def test_a_younger_file_under_a_former_key_is_found_by_verify(both: Clients, people: EncryptedTable) -> None:
    assert not m.verify(people).bad
    forge(both)
    (bad,) = m.verify(loaded(both.payroll)).bad
    assert "former master key 'fin'" in str(bad.problems)
    erased = m.erase(loaded(both.payroll), "ssn = 'SSN-0001'", dry_run=True)
    (why,) = erased.not_searched.values()
    assert "former master key 'fin'" in why


def test_snapshots_and_columns_without_the_forged_value_are_read(both: Clients, people: EncryptedTable) -> None:
    before = people.metadata.current_snapshot_id
    forge(both)
    table = loaded(both.payroll)
    assert sorted(table.scan(snapshot_id=before).to_arrow()["ssn"].to_pylist()) == HONEST
    assert table.scan(selected_fields=("id",)).to_arrow().num_rows == 3
    assert ssn(both.analyst) == [None] * 3


def change(keys: str) -> Callable[[Clients, Honest], None]:
    return lambda both, _: declare(both.payroll, "column-keys", keys)


def append(both: Clients, honest: Honest) -> None:
    loaded(both.payroll).append(rows(honest.next()))


def append_on_a_branch(both: Clients, honest: Honest) -> None:
    table = loaded(both.payroll)
    if "side" not in table.refs():
        table.manage_snapshots().create_branch(cast("int", table.metadata.current_snapshot_id), "side").commit()
    loaded(both.payroll).append(rows(f"SIDE-{honest.count}"), branch="side")


def stale_append(both: Clients, honest: Honest) -> None:
    """Rows of a writer who has loaded the table before the last change."""
    assert honest.stale is not None
    honest.stale.append(rows(honest.next()))


def look(both: Clients, honest: Honest) -> None:
    honest.stale = loaded(both.payroll)


def compact(both: Clients, _: Honest) -> None:
    m.compact(loaded(both.payroll), rewrite_all=True)


def reencrypt(both: Clients, _: Honest) -> None:
    m.reencrypt(loaded(both.payroll))


def reencrypt_without_the_keys(both: Clients, _: Honest) -> None:
    m.reencrypt(loaded(both.analyst))


def reencrypt_partly(both: Clients, _: Honest) -> None:
    m.reencrypt(loaded(both.payroll), where="id = 0", out_of_line=True)


def roll_back_and_on(both: Clients, _: Honest) -> None:
    table = loaded(both.payroll)
    (newest, before) = [entry.snapshot_id for entry in reversed(table.metadata.snapshot_log)][:2]
    for snapshot_id in (before, newest):
        loaded(both.payroll).manage_snapshots().set_current_snapshot(snapshot_id=snapshot_id).commit()


def delete_on_read(both: Clients, honest: Honest) -> None:
    loaded(both.payroll).transaction().set_properties({"write.delete.mode": "merge-on-read"}).commit_transaction()
    loaded(both.payroll).delete(f"ssn = '{honest.expected.pop(0)}'")


def upsert(both: Clients, honest: Honest) -> None:
    table = loaded(both.payroll)
    table.upsert(whole_rows(table, honest.expected[0], honest.next()), ["ssn"])


def append_and_change_in_one(both: Clients, honest: Honest) -> None:
    with loaded(both.payroll).transaction() as transaction:
        transaction.append(rows(honest.next()))
        transaction.set_properties({"encryption.column-keys": TO_PII})
        transaction.append(rows(honest.next()))


def shred_old_snapshots(both: Clients, _: Honest) -> None:
    m.shred(loaded(both.payroll), all_but_heads=True)


class Honest:
    """The rows that a table is to have, after honest moves."""

    def __init__(self) -> None:
        self.count = 0
        self.expected: list[str] = []
        self.stale: EncryptedTable | None = None

    def next(self) -> str:
        self.count += 1
        self.expected.append(f"SSN-{self.count}")
        return self.expected[-1]


TO_FIN, TO_PII = f"{OTHER_COLUMN_KEY}: ssn", f"{COLUMN_KEY}: ssn"
fin, pii, nothing = change(TO_FIN), change(TO_PII), change("")
SEQUENCES: dict[str, tuple[Callable[[Clients, Honest], None], ...]] = {
    "there and back, twice": (append, pii, append, fin, append, pii, append, fin, append),
    "rewritten": (
        append,
        pii,
        append,
        reencrypt_without_the_keys,
        compact,
        append,
        fin,
        reencrypt_partly,
        append,
        reencrypt,
        reencrypt,
        append,
    ),
    "moved about": (append, append, roll_back_and_on, pii, append, append_on_a_branch, roll_back_and_on, upsert, delete_on_read, append),
    "unprotected in between": (append, nothing, append, look, pii, stale_append, append, delete_on_read, reencrypt),
    "a writer from before the end of protection": (append, look, nothing, stale_append, append, pii, append, append_on_a_branch, compact),
    "stale writers": (append, look, pii, stale_append, append, look, fin, stale_append, append),
    "in one transaction": (append, append_and_change_in_one, append, reencrypt, shred_old_snapshots, reencrypt, append),
    "before there is a file": (pii, append, fin, pii, append),
}


@pytest.mark.parametrize("moves", SEQUENCES.values(), ids=SEQUENCES)
def test_no_honest_row_is_taken_for_a_forged_one(both: Clients, moves: tuple[Callable[[Clients, Honest], None], ...]) -> None:
    protected_table(both.payroll, **{"encryption.column-keys": TO_FIN})
    honest = Honest()
    for move in moves:
        move(both, honest)
        assert sorted(cast("list[str]", ssn(both.payroll))) == sorted(honest.expected)
    table = loaded(both.payroll)
    for ref in table.refs():
        table.scan().use_ref(ref).to_arrow()
    for snapshot in table.snapshots():
        table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    assert not m.verify(table).bad


def test_a_key_change_that_began_before_another_writer_s_rows_does_not_make_them_unreadable(both: Clients, people: EncryptedTable) -> None:
    transaction = people.transaction()
    transaction.set_properties({"encryption.column-keys": TO_FIN})
    loaded(both.payroll).append(rows("SSN-0003"))
    with pytest.raises(CommitFailedException, match=r"rows were committed since the protection of column 'ssn' \(field \d\) was declared"):
        transaction.commit_transaction()
    fin(both, Honest())
    assert sorted(cast("list[str]", ssn(both.payroll))) == [*HONEST, "SSN-0003"]


@pytest.mark.parametrize("who", ["analyst", "clerk", "an edit of metadata.json"])
def test_nobody_makes_a_former_key_count_longer(both: Clients, people: EncryptedTable, tmp_path: Path, who: str) -> None:
    forge(both)
    if who.startswith("an edit"):
        edit(both, tmp_path, lambda metadata: metadata["properties"].update({UNTIL: "9"}))
    else:
        commit_by_hand(both.analyst if who == "analyst" else both.clerk, SetPropertiesUpdate(updates={UNTIL: "9"}))
    said = f"former master key 'fin' in files up to sequence number 9 now, which was 1 before.*{UNTIL}"
    for operation in (
        lambda: ssn(both.payroll),
        lambda: loaded(both.payroll).append(rows("SSN-0003")),
        lambda: m.compact(loaded(both.payroll), rewrite_all=True),
        lambda: m.verify(loaded(both.payroll)),
    ):
        with pytest.raises(KeyIdChangedError, match=said):
            operation()


def test_an_end_is_set_by_no_hand(both: Clients, people: EncryptedTable) -> None:
    for value in ("9", "0"):
        with pytest.raises(ConfigurationError, match="cannot be set or removed by hand"), loaded(both.payroll).transaction() as transaction:
            transaction.set_properties({UNTIL: value})
    with pytest.raises(ConfigurationError, match="cannot be set or removed by hand"), loaded(both.payroll).transaction() as transaction:
        transaction.remove_properties(UNTIL)


@pytest.mark.parametrize("edit", ["gone", "later"])
def test_declaring_again_restores_an_end(both: Clients, people: EncryptedTable, edit: str) -> None:
    """Where it is gone, files from before are refused until then, with a line that says what to do."""
    update = RemovePropertiesUpdate(removals=[UNTIL]) if edit == "gone" else SetPropertiesUpdate(updates={UNTIL: "9"})
    commit_by_hand(both.analyst, update)
    with pytest.raises(KeyIdChangedError, match=rf"{UNTIL}.*declare the column"):
        ssn(both.payroll)
    declare(both.payroll, "column-keys", f"{COLUMN_KEY}: ssn")
    assert loaded(both.payroll).properties[UNTIL] == "1"
    assert sorted(cast("list[str]", ssn(both.payroll))) == HONEST
    forge(both)
    with pytest.raises(TamperedFileError):
        ssn(both.payroll)


def test_reencrypt_and_shredding_end_what_a_holder_of_the_former_key_can_pass_off_as_from_before(
    both: Clients, people: EncryptedTable
) -> None:
    """How old a file is, manifests say, which he may write. What he has put in until then is there, as the threat model says."""
    clerks = loaded(both.clerk)
    forge_as_of_before(clerks, forged_files(clerks))
    assert sorted(cast("list[str]", ssn(both.payroll))) == ["FORGED", HONEST[1]]
    kept = forged_files(loaded(both.clerk))
    people.refresh().manage_snapshots().rollback_to_snapshot(people.metadata.snapshots[-2].snapshot_id).commit()

    m.reencrypt(loaded(both.payroll))
    m.shred(loaded(both.payroll), all_but_heads=True)
    m.reencrypt(loaded(both.payroll))
    assert sorted(cast("list[str]", ssn(both.payroll))) == HONEST
    forge_as_of_before(loaded(both.clerk), kept)

    with pytest.raises(KeyNotFoundError):
        ssn(both.payroll)


def test_reencrypt_forgets_the_end_with_the_key(both: Clients, people: EncryptedTable) -> None:
    m.compact(people, rewrite_all=True)
    m.shred(loaded(both.payroll), all_but_heads=True)
    m.reencrypt(loaded(both.payroll))
    assert not {FORMER, UNTIL} & loaded(both.payroll).properties.keys()
    assert sorted(cast("list[str]", ssn(both.payroll))) == HONEST


def test_no_column_key_of_before_is_left_after_the_steps_that_end_a_leak(both: Clients) -> None:
    """docs/how-to/after-a-leak.md: who knew a column key opens no file with it, neither of before nor of later."""
    people = protected_table(both.payroll, appends=[rows(*HONEST)], **{"encryption.column-mask.ssn": "hash"})
    leaked = {entry.key_id for entry in metadata_of(people).key_ring.column_keys}
    declare(both.payroll, "column-keys", f"{OTHER_COLUMN_KEY}: ssn, person.email")

    m.reencrypt(people)
    m.shred(people, all_but_heads=True, replace_heads=True)
    m.reencrypt(people, out_of_line=True)
    loaded(both.payroll).append(rows("SSN-0003"))

    assert leaked.isdisjoint(entry.key_id for entry in metadata_of(loaded(both.payroll)).key_ring.column_keys)
    assert sorted(map(str, ssn(both.payroll))) == [*HONEST, "SSN-0003"]
