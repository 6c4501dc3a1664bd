"""Writers who may wrap under a column's master key and not unwrap: they append, delete by position, and never see a value.

The adversary is such a writer: what others write must not come under a key that he knows. The careless user lets many of them write.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from tablecrypt import maintenance
from tablecrypt.errors import ColumnKeyDeniedError, KeyNotFoundError
from tablecrypt.keys.key_ring import EncryptedKey, is_copy
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.forking import holds_in_forked_child
from tests.support.protected_tables import SSN, TABLE_KEY, Clients, loaded, write_only
from tests.support.tables import folder_of, metadata_of


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": list(numbers), "ssn": [f"SSN-{number}" for number in numbers], "salary": [f"{number}00" for number in numbers]})


@pytest.fixture
def table(both: Clients) -> EncryptedTable:
    """Of the one who may do everything, with rows 1 and 2."""
    declared = {"encryption.key-id": TABLE_KEY, "encryption.column-keys": "pii: ssn, salary"}
    made = cast("EncryptedTable", both.payroll.create_table("db.people", rows(1).schema, properties=declared))
    made.append(rows(1, 2))
    return made


@pytest.fixture
def writer(both: Clients, table: EncryptedTable) -> EncryptedSqlCatalog:
    assert table.metadata.snapshots
    return write_only(both)


def ssn(table: EncryptedTable) -> list[str | None]:
    found = table.scan(selected_fields=("id", "ssn")).to_arrow().sort_by("id")
    return cast("list[str | None]", found["ssn"].to_pylist())


def marked(table: EncryptedTable) -> tuple[list[EncryptedKey], list[EncryptedKey]]:
    ring = metadata_of(table.refresh()).key_ring
    return [key for key in ring.column_keks if key.is_write_only], [key for key in ring.column_keys if key.is_write_only]


def appended_by_another_process(catalog: EncryptedSqlCatalog, number: int) -> bool:
    def append() -> bool:
        catalog.engine.dispose(close=False)
        loaded(catalog).append(rows(number))
        return True

    return holds_in_forked_child(append)


def test_a_writer_without_any_right_to_the_column_leaves_nothing_that_would_have_to_be_deleted(
    both: Clients, table: EncryptedTable, caplog: pytest.LogCaptureFixture
) -> None:
    before = {task.file.file_path for task in table.scan().plan_files()}
    with pytest.raises(ColumnKeyDeniedError):
        loaded(both.analyst).append(rows(3))
    stored = {f"file://{path}" for path in folder_of(table).rglob("*.parquet")}
    assert stored == before
    assert "could not delete" not in caplog.text
    assert len(table.refresh().metadata.snapshots) == 1


def test_who_may_wrap_alone_appends_and_reads_masks_even_of_his_own_rows(table: EncryptedTable, writer: EncryptedSqlCatalog) -> None:
    appending = loaded(writer)
    appending.append(rows(3))
    assert ssn(appending) == [None, None, None]
    with pytest.raises(ColumnKeyDeniedError):
        appending.scan("ssn = 'SSN-3'").to_arrow()
    table.refresh()
    assert table.scan().to_arrow().sort_by("id").to_pylist() == rows(1, 2, 3).to_pylist()


def test_he_may_write_the_first_rows_of_a_table(both: Clients) -> None:
    declared = {"encryption.key-id": TABLE_KEY, "encryption.column-keys": "pii: ssn; fin: salary"}
    both.payroll.create_table("db.people", rows(1).schema, properties=declared)
    loaded(write_only(both)).append(rows(1))
    assert loaded(both.payroll).scan().to_arrow().to_pylist() == rows(1).to_pylist()
    assert ssn(loaded(both.analyst)) == [None]


def test_he_deletes_by_position_and_rewrites_nothing(table: EncryptedTable, writer: EncryptedSqlCatalog) -> None:
    changing = loaded(writer)
    changing.append(rows(3))
    changing.delete("id = 2")
    for refused in (
        lambda: changing.delete("ssn = 'SSN-1'"),
        lambda: changing.upsert(rows(3), join_cols=["id"]),
        lambda: maintenance.compact(changing, rewrite_all=True),
        lambda: maintenance.rotate_column_keks(changing),
    ):
        with pytest.raises(ColumnKeyDeniedError):
            refused()
    table.refresh()
    assert ssn(table) == ["SSN-1", "SSN-3"]


def test_a_process_makes_one_kek_and_a_key_for_each_column_however_often_it_appends(
    table: EncryptedTable, writer: EncryptedSqlCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3, 8):
        loaded(writer).append(rows(number))
    keks, keys = marked(table)
    assert (len(keks), sorted(key.field_id for key in keys)) == (1, [2, 3])
    assert [record.name for record in caplog.records].count("tablecrypt.keys.write_only_keys") == 1
    assert appended_by_another_process(writer, 8)
    keks, keys = marked(table)
    assert (len(keks), len(keys)) == (2, 4)
    assert ssn(table) == [f"SSN-{number}" for number in range(1, 9)]


@pytest.mark.parametrize("rotated", [False, True], ids=["as written", "after a rotation"])
def test_nobody_else_writes_under_a_key_that_such_a_writer_knows(both: Clients, rotated: bool) -> None:
    declared = {"encryption.key-id": TABLE_KEY, "encryption.column-keys": "pii: ssn"}
    both.payroll.create_table("db.people", rows(1).schema, properties=declared)
    loaded(write_only(both)).append(rows(1))
    if rotated:
        maintenance.rotate_column_keks(loaded(both.payroll))
        assert not marked(loaded(both.payroll))[0], "a KEK that he knows was kept"
    loaded(both.payroll).append(rows(2))
    table = loaded(both.payroll)
    assert ssn(table) == ["SSN-1", "SSN-2"]
    unknown_to_him = [key for key in metadata_of(table).encryption_keys if not key.is_write_only]
    properties = {name: value for name, value in table.metadata.properties.items() if not is_copy(name)}
    metadata = metadata_of(table).model_copy(update={"encryption_keys": unknown_to_him, "properties": properties})
    stripped = EncryptedTable(table.name(), metadata, table.metadata_location, table.io, table.catalog)
    assert stripped.scan("id = 2").to_arrow()["ssn"].to_pylist() == ["SSN-2"]
    with pytest.raises(KeyNotFoundError):
        stripped.scan("id = 1").to_arrow()


def test_a_rotation_makes_him_take_a_new_key_and_a_shredding_ends_what_he_wrote(
    both: Clients, table: EncryptedTable, writer: EncryptedSqlCatalog, tmp_path: Path
) -> None:
    loaded(writer).append(rows(3))
    before = {key.key_id for key in marked(table)[1]}
    maintenance.rotate_column_keks(loaded(both.payroll))
    loaded(writer).append(rows(4))
    after = {key.key_id for key in marked(table)[1]}
    assert before < after
    assert ssn(table) == ["SSN-1", "SSN-2", "SSN-3", "SSN-4"]
    maintenance.shred_column(loaded(both.payroll), "ssn", delete_below=[f"file://{tmp_path}/warehouse"])
    loaded(writer).append(rows(5))
    assert SSN in {key.field_id for key in marked(table)[1] if key.key_id not in after}


def test_hashes_need_the_key_of_the_column(both: Clients) -> None:
    declared = {"encryption.key-id": TABLE_KEY, "encryption.column-keys": "pii: ssn", "encryption.column-mask.ssn": "hash"}
    both.payroll.create_table("db.people", rows(1).schema, properties=declared)
    with pytest.raises(ColumnKeyDeniedError):
        loaded(write_only(both)).append(rows(1))
    assert not loaded(both.payroll).metadata.snapshots


def test_masks_that_need_no_key_are_stored_by_him(both: Clients) -> None:
    declared = {"encryption.key-id": TABLE_KEY, "encryption.column-keys": "pii: ssn", "encryption.column-mask.ssn": "redact"}
    both.payroll.create_table("db.people", rows(1).schema, properties=declared)
    loaded(write_only(both)).append(rows(1))
    assert (ssn(loaded(both.analyst)), ssn(loaded(both.payroll))) == (["X" * 3 + "-9"], ["SSN-1"])


def test_an_audit_and_pruning_leave_his_keys_alone(table: EncryptedTable, writer: EncryptedSqlCatalog) -> None:
    loaded(writer).append(rows(3))
    assert not maintenance.audit(loaded(writer)).findings
    maintenance.prune_keys(loaded(writer))
    maintenance.rotate_kek(loaded(writer))
    assert [len(keys) for keys in marked(table)] == [1, 2]
    assert ssn(table.refresh()) == ["SSN-1", "SSN-2", "SSN-3"]  # type: ignore[arg-type]
