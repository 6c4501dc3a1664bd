"""Re-encryption of tables with protected columns: fresh keys for all that the caller may use, and files brought in line.

The careless user declares a column and forgets the files that are there; the adversary has the table's key, and wants a file under it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.manifest import DataFile, ManifestEntryStatus

from tablecrypt import maintenance as m
from tablecrypt.errors import ColumnKeyDeniedError, TamperedFileError
from tablecrypt.keys.column_keys import key_id_in
from tablecrypt.maintenance.columns.footers import inspect_footers
from tablecrypt.maintenance.runner import LocalRunner
from tablecrypt.manifests.records import STATISTICS, key_metadata_of
from tablecrypt.parquet.protected.protected_layout import StoredHiddenColumns
from tablecrypt.table.table import EncryptedTable
from tests.support.interrupted_catalog import InterruptedCatalog, at_commits
from tests.support.protected_tables import (
    COLUMN_KEY,
    EMAIL,
    OTHER_COLUMN_KEY,
    SALARY,
    SSN,
    Clients,
    clients,
    counted_columns,
    declare,
    loaded,
    person,
    persons,
    protected_table,
    write_as_java_does,
)
from tests.support.tables import data_files, folder_of, metadata_of

BOTH_COLUMNS: Final = f"{COLUMN_KEY}: ssn, person.email"


def _all(table: EncryptedTable) -> list[dict[str, Any]]:
    return sorted(table.refresh().scan().to_arrow().to_pylist(), key=lambda row: int(row["id"]))


def _stored(table: EncryptedTable) -> list[StoredHiddenColumns]:
    return list(inspect_footers(table, data_files(table.refresh()), LocalRunner(1)).values())


def _of(both: Clients, who: str, table: EncryptedTable) -> EncryptedTable:
    return loaded(getattr(both, who), table.name())


@pytest.fixture
def both(tmp_path: Path) -> Clients:
    return clients(tmp_path, catalog_class=InterruptedCatalog)


@pytest.fixture
def people(both: Clients) -> EncryptedTable:
    table = protected_table(both.payroll, appends=[persons(*range(6)), persons(*range(6, 10))], **{"write.delete.mode": "merge-on-read"})
    table.delete("id = 5")
    return table


@pytest.fixture
def late(both: Clients) -> EncryptedTable:
    """A table whose columns were declared after its first file, so that it has a file of each kind."""
    table = protected_table(both.payroll, appends=[persons(*range(6))], **{"encryption.column-keys": ""})
    declare(table, BOTH_COLUMNS)
    table.append(persons(*range(6, 10)))
    return table


def test_with_the_right_every_dek_is_fresh_and_rows_are_as_they_were(both: Clients, people: EncryptedTable) -> None:
    before, rows = _stored(people), _all(people)
    deks = {key_metadata_of(file).encryption_key.reveal() for file in data_files(people.refresh())}
    done = m.reencrypt(people)
    assert (done.data_files, done.in_line, done.twins_kept) == (2, 0, 0)
    assert _all(_of(both, "payroll", people)) == rows
    assert deks.isdisjoint(key_metadata_of(file).encryption_key.reveal() for file in data_files(people.refresh()))
    assert {key for each in before for key in each.keys}.isdisjoint(key for each in _stored(people) for key in each.keys)
    assert {row["ssn"] for row in _all(_of(both, "analyst", people))} == {None}
    assert m.verify(people).is_good


def test_without_the_right_everything_but_the_hidden_columns_comes_under_fresh_deks(both: Clients, people: EncryptedTable) -> None:
    before, rows = _stored(people), _all(people)
    deks = {key_metadata_of(file).encryption_key.reveal() for file in data_files(people.refresh())}
    done = m.reencrypt(_of(both, "analyst", people))
    assert (done.data_files, done.twins_kept) == (2, 2)
    assert _all(_of(both, "payroll", people)) == rows
    assert deks.isdisjoint(key_metadata_of(file).encryption_key.reveal() for file in data_files(people.refresh()))
    assert sorted(key for each in _stored(people) for key in each.keys) == sorted(key for each in before for key in each.keys)
    m.reencrypt(people)
    assert _all(people) == rows, "hidden columns that were kept open and come under fresh keys later"


@pytest.mark.parametrize("mask", ["null", "redact", "hash", "truncate(2)", "constant(x)"])
def test_files_from_before_the_declaration_are_brought_in_line(both: Clients, late: EncryptedTable, mask: str) -> None:
    declare(late, ssn=mask)
    done = m.reencrypt(late, out_of_line=True)
    assert done.in_line == (1 if mask == "null" else 2), "a stored mask is made for the files with another one too"
    assert _all(late) == [person(number) for number in range(10)]
    assert {each.protected for each in _stored(late)} == {frozenset({SSN, EMAIL})}
    shown = {row["id"]: row["ssn"] for row in _all(_of(both, "analyst", late))}
    late.append(persons(*range(20, 29)))
    as_written = {row["id"]: row["ssn"] for row in _all(_of(both, "analyst", late)) if row["id"] >= 20}
    assert {"null": None, "redact": "X" * 3 + "-9999", "truncate(2)": "SS", "constant(x)": "x"}.get(mask, as_written and shown[8]) == shown[
        8
    ]
    assert (shown[8] is None) == (as_written[22] is None)
    assert m.reencrypt(late, out_of_line=True).data_files == 0


def test_a_file_that_another_engine_wrote_under_the_tables_key_is_brought_in_line(both: Clients, people: EncryptedTable) -> None:
    write_as_java_does(people, persons(78))
    with pytest.raises(TamperedFileError):
        _all(people)
    m.reencrypt(people, out_of_line=True)
    assert _all(people)[-1] == person(78)
    assert _all(_of(both, "analyst", people))[-1]["ssn"] is None
    for file in data_files(people.refresh()):
        for counts in (file.column_sizes, file.value_counts, file.null_value_counts, file.lower_bounds, file.upper_bounds):
            assert {SSN, EMAIL}.isdisjoint(counts or {})
            assert SALARY in (counts or {}), "other columns keep their statistics"
    exposed = [finding for finding in m.audit(people).tables[0].findings if finding.kind == m.FindingKind.COLUMN_EXPOSED]
    m.shred(people, [each.snapshot_id for each in people.snapshots()[:-1]])
    assert exposed != [f for f in m.audit(people.refresh()).tables[0].findings if f.kind == m.FindingKind.COLUMN_EXPOSED] == []


def test_what_the_page_says_leaves_no_value_of_old_files_to_who_has_the_tables_key(both: Clients) -> None:
    """The snapshot that takes the old files out names them as deleted, with the bounds and the DEKs that they had."""
    table = protected_table(both.payroll, "db.old", appends=[persons(1, 2), persons(3, 4)], **{"encryption.column-keys": ""})
    declare(table, BOTH_COLUMNS)
    m.reencrypt(table, out_of_line=True)

    deleted = _deleted_entries(_of(both, "analyst", table))
    assert len(deleted) == 2
    for file in deleted:
        assert {SSN, EMAIL}.isdisjoint(field_id for name in STATISTICS for field_id in getattr(file, name) or {})
        assert SALARY in file.lower_bounds, "other columns keep their statistics"
    shown = _of(both, "analyst", table).inspect.entries().to_pylist()
    assert all(row["readable_metrics"]["ssn"]["upper_bound"] is None for row in shown if row["status"] == ManifestEntryStatus.DELETED)

    m.shred(table, all_but_heads=True, replace_heads=True)

    analysts = _of(both, "analyst", table)
    assert _deleted_entries(analysts) == []
    assert counted_columns(analysts).isdisjoint({SSN, EMAIL})
    assert len(analysts.metadata.snapshots) == 1


def test_the_entry_of_an_old_file_that_is_deleted_says_nothing_of_a_protected_column_that_was_dropped(both: Clients) -> None:
    table = protected_table(both.payroll, "db.old", appends=[persons(1, 2), persons(3, 4)], **{"encryption.column-keys": ""})
    declare(table, BOTH_COLUMNS)
    with table.refresh().update_schema() as change:
        change.delete_column("ssn")
    table.refresh().delete("id <= 2")

    [file] = _deleted_entries(_of(both, "analyst", table))
    assert {SSN, EMAIL}.isdisjoint({*file.lower_bounds, *file.upper_bounds, *file.value_counts, *file.column_sizes})
    assert SALARY in file.lower_bounds


def _deleted_entries(table: EncryptedTable) -> list[DataFile]:
    head = table.current_snapshot()
    assert head is not None
    entries = [entry for manifest in head.manifests(table.io) for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)]
    return [entry.data_file for entry in entries if entry.status == ManifestEntryStatus.DELETED]


def test_protection_that_was_removed_or_moved_leaves_values_in_their_place(both: Clients, people: EncryptedTable) -> None:
    rows = _all(people)
    declare(people, f"{OTHER_COLUMN_KEY}: salary")
    assert m.reencrypt(people).in_line == 2
    assert {each.protected for each in _stored(people)} == {frozenset({SALARY})}
    seen = _all(_of(both, "analyst", people))
    assert [{**row, "salary": None} for row in rows] == seen
    assert _all(people) == rows


@pytest.mark.parametrize("out_of_line", [False, True])
def test_a_change_of_the_master_key_moves_hidden_columns_to_the_new_one(both: Clients, people: EncryptedTable, out_of_line: bool) -> None:
    rows = _all(people)
    declare(people, f"{OTHER_COLUMN_KEY}: ssn, person.email")
    assert m.FindingKind.COLUMN_UNDER_FORMER_KEY in {finding.kind for finding in m.audit(people).findings}

    assert m.reencrypt(people, out_of_line=out_of_line).data_files
    assert m.reencrypt(people, out_of_line=True).data_files == 0
    people.refresh()
    ring = metadata_of(people).key_ring
    keks = {ring.entry(key_id_in(stored)).encrypted_by_id for each in _stored(people) for _, stored in each.keys}
    assert {ring.entry(str(kek)).encrypted_by_id for kek in keks} == {OTHER_COLUMN_KEY}
    assert _all(_of(both, "payroll", people)) == rows


@pytest.mark.parametrize(
    "declared", ["", f"{BOTH_COLUMNS}; {OTHER_COLUMN_KEY}: salary"], ids=["a hidden column to bring back", "a column to protect"]
)
def test_without_the_right_files_that_have_to_change_are_refused_before_anything_is_written(
    both: Clients, people: EncryptedTable, declared: str
) -> None:
    declare(people, declared)
    analyst = _of(both, "analyst", people)
    before, stored = analyst.metadata.current_snapshot_id, _objects(people)
    for dry_run in (True, False):
        with pytest.raises(ColumnKeyDeniedError):
            m.reencrypt(analyst, dry_run=dry_run)
    assert analyst.refresh().metadata.current_snapshot_id == before
    assert _objects(people) == stored


def test_a_shredded_column_does_not_keep_the_others_from_fresh_keys(both: Clients, people: EncryptedTable) -> None:
    m.shred_column(people, "ssn")
    deks = {key_metadata_of(file).encryption_key.reveal() for file in data_files(people.refresh())}
    assert m.reencrypt(people).twins_kept == 2
    assert deks.isdisjoint(key_metadata_of(file).encryption_key.reveal() for file in data_files(people.refresh()))
    kept = people.refresh().scan(selected_fields=("id", "person")).to_arrow().to_pylist()
    assert sorted(row["id"] for row in kept) == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_a_run_that_was_killed_is_continued_also_where_the_column_was_only_declared(both: Clients, late: EncryptedTable) -> None:
    def killed() -> None:
        raise KeyboardInterrupt

    fresh = protected_table(both.payroll, "db.fresh", appends=[persons(1, 2)], **{"encryption.column-keys": ""})
    declare(fresh, BOTH_COLUMNS)
    for table, resumed in ((late, 2), (fresh, 1)):
        with at_commits(before=killed), pytest.raises(KeyboardInterrupt):
            m.reencrypt(table)
        again = _of(both, "payroll", table)
        assert m.reencrypt(again).resumed == resumed
        assert [row["ssn"] for row in _all(again)] == [person(row["id"])["ssn"] for row in _all(again)]


def test_once_no_snapshot_has_a_file_from_before_a_file_without_a_hidden_column_is_refused(both: Clients, late: EncryptedTable) -> None:
    since = {f"encryption.column.{field_id}.since" for field_id in (SSN, EMAIL)}
    m.reencrypt(late, out_of_line=True)
    m.reencrypt(late, out_of_line=True)
    assert since <= late.refresh().properties.keys(), "time travel still leads to the old file"
    m.shred(late, [each.snapshot_id for each in late.snapshots()[:-1]])
    m.reencrypt(_of(both, "analyst", late), out_of_line=True)
    assert since.isdisjoint(late.refresh().properties)
    assert _all(late) == [person(number) for number in range(10)]
    assert {row["ssn"] for row in _all(_of(both, "analyst", late))} == {None}


def test_a_filter_and_a_dry_run_leave_the_others_as_they_are(late: EncryptedTable) -> None:
    assert m.reencrypt(late, dry_run=True).in_line == 1
    done = m.reencrypt(late, where="id > 7")
    assert (done.data_files, done.in_line) == (1, 0)
    assert sorted(len(each.protected) for each in _stored(late)) == [0, 2]


def _objects(table: EncryptedTable) -> set[str]:
    folder = folder_of(table)
    return {str(path) for path in folder.rglob("*") if path.is_file()}
