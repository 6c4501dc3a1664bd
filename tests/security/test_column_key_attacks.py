"""Attacks on protected columns: by whoever holds the table's key, by whoever writes storage or the catalog, and what careless users do.

Reads are those of `analyst`, who may use the table's key alone, and `payroll`, who may use every key.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from tablecrypt import maintenance as m
from tablecrypt.errors import (
    AuthenticationError,
    ColumnKeyDeniedError,
    ConfigurationError,
    FormatError,
    KeyIdChangedError,
    KeyNotFoundError,
    TablecryptError,
    TamperedFileError,
)
from tablecrypt.keys.key_ring import COLUMN_KEK, ENTRY_PREFIX, EncryptedKey
from tablecrypt.maintenance import FindingKind
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.parquet import thrift
from tablecrypt.parquet.columns_apart import ENTRY
from tablecrypt.parquet.structs import FileMetaData, KeyValue
from tablecrypt.parquet.thrift import structs_of
from tablecrypt.table.deletes import RowDelta
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.protection.write_barrier import METRICS_PREFIX, WRITE_BARRIER
from tablecrypt.table.reader import ReadOptions, TaskReader
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.hidden_column_files import ProtectedFile
from tests.support.protected_tables import SSN, TABLE_KEY, Clients, declare, loaded, opened_by_table_key, protected_table
from tests.support.table_files import TableFiles
from tests.support.tables import data_files, metadata_of, metadata_path, new_table

ROWS = pa.table({"id": [1, 2, 3], "ssn": ["SSN-0001", "SSN-0002", "SSN-0003"], "note": ["a", "b", "c"]})


@pytest.fixture
def people(both: Clients) -> EncryptedTable:
    return protected_table(both.payroll, appends=[ROWS], **{"encryption.column-keys": "pii: ssn"})


def edited(table: EncryptedTable, **changes: Any) -> EncryptedTable:
    """The table as it would be loaded from metadata that somebody has edited, past every pin and check of a commit."""
    metadata = EncryptedTableMetadata.model_validate_json(metadata_of(table).model_copy(update=changes).model_dump_json())
    return EncryptedTable(table.name(), metadata, table.metadata_location, table.io, table.catalog)


def ssn(table: EncryptedTable) -> list[str | None]:
    return cast("list[str | None]", table.scan(selected_fields=("ssn",)).to_arrow()["ssn"].to_pylist())


def masked_or_refused(table: EncryptedTable) -> list[str | None]:
    try:
        return ssn(table)
    except TablecryptError:
        return []


def without_properties(table: EncryptedTable) -> dict[str, str]:
    """Without declaration and engine write barrier."""
    gone = ("encryption.column.", ENTRY_PREFIX, METRICS_PREFIX, *WRITE_BARRIER)
    return {name: value for name, value in table.metadata.properties.items() if not name.startswith(gone)}


def without_copies(table: EncryptedTable) -> dict[str, str]:
    """Without what is left of entries of encryption-keys that are gone."""
    return {name: value for name, value in table.metadata.properties.items() if not name.startswith(ENTRY_PREFIX)}


def without_columns(key: EncryptedKey) -> bool:
    return not key.is_column_key and not key.is_column_kek


def test_the_honest_case(both: Clients, people: EncryptedTable) -> None:
    assert ssn(people) == ["SSN-0001", "SSN-0002", "SSN-0003"]
    assert ssn(loaded(both.analyst)) == [None, None, None]
    with pytest.raises(ColumnKeyDeniedError):
        loaded(both.analyst).append(ROWS)


def _dropped_entries(table: EncryptedTable) -> EncryptedTable:
    keys = [key for key in metadata_of(table).encryption_keys if without_columns(key)]
    return edited(table, properties=without_copies(table), encryption_keys=keys)


def _dropped_properties(table: EncryptedTable) -> EncryptedTable:
    return edited(table, properties=without_properties(table))


def _dropped_both(table: EncryptedTable) -> EncryptedTable:
    keys = [key for key in metadata_of(table).encryption_keys if without_columns(key)]
    return edited(table, properties=without_properties(table), encryption_keys=keys)


def _kek_under_the_tables_key(table: EncryptedTable) -> EncryptedTable:
    keys = [
        key.model_copy(update={"encrypted_by_id": TABLE_KEY}) if key.is_column_kek else key for key in metadata_of(table).encryption_keys
    ]
    return edited(table, encryption_keys=keys)


def _kek_as_one_of_the_table(table: EncryptedTable) -> EncryptedTable:
    keys = [
        key.model_copy(update={"properties": {name: value for name, value in (key.properties or {}).items() if name != COLUMN_KEK}})
        if key.is_column_kek
        else key
        for key in metadata_of(table).encryption_keys
    ]
    return edited(table, encryption_keys=keys)


def _another_master_key(table: EncryptedTable) -> EncryptedTable:
    return edited(table, properties={**table.metadata.properties, f"encryption.column.{SSN}.key-id": "fin"})


def _the_tables_key_as_the_columns(table: EncryptedTable) -> EncryptedTable:
    return edited(table, properties={**table.metadata.properties, f"encryption.column.{SSN}.key-id": TABLE_KEY})


EDITS: dict[str, Callable[[EncryptedTable], EncryptedTable]] = {
    "entries are dropped": _dropped_entries,
    "properties are dropped": _dropped_properties,
    "both are dropped": _dropped_both,
    "the column KEK is said to be under the table's master key": _kek_under_the_tables_key,
    "the column KEK is said to be one of the table": _kek_as_one_of_the_table,
    "another master key is named": _another_master_key,
    "the table's master key is named": _the_tables_key_as_the_columns,
}


@pytest.mark.parametrize("edit", EDITS)
def test_no_value_is_read_as_something_else_from_edited_metadata(both: Clients, people: EncryptedTable, edit: str) -> None:
    with pytest.raises((KeyNotFoundError, KeyIdChangedError, FormatError, ConfigurationError)):
        ssn(EDITS[edit](people))
    assert set(masked_or_refused(EDITS[edit](loaded(both.analyst)))) <= {None}


# In the others, files get new column keys under the master key that is named.
WRITE_REFUSED = (
    "entries are dropped",
    "properties are dropped",
    "both are dropped",
    "the column KEK is said to be one of the table",
    "the table's master key is named",
)


@pytest.mark.parametrize("edit", WRITE_REFUSED)
def test_nothing_is_written_on_edited_metadata(people: EncryptedTable, edit: str) -> None:
    with pytest.raises((KeyNotFoundError, KeyIdChangedError, ConfigurationError, FormatError, AuthenticationError)):
        EDITS[edit](people).append(ROWS)


def test_a_snapshot_that_leaves_the_protection_out_is_refused_by_every_operation_that_follows_it(people: EncryptedTable) -> None:
    """Nobody can edit the authenticated manifest list, which says what was protected."""
    bare = _dropped_both(people)
    uses: list[Callable[[], object]] = [
        lambda: bare.append(ROWS),
        lambda: bare.overwrite(ROWS, "id = 1"),
        lambda: bare.delete("id = 1"),
        lambda: bare.transaction().update_snapshot().fast_append().commit(),
    ]
    for use in uses:
        # What writes files again does not get as far: it cannot read them.
        with pytest.raises((KeyIdChangedError, FormatError), match=r"column 'ssn' was protected when|__protected__\.2 is encrypted"):
            use()
    assert len(people.refresh().metadata.snapshots) == 1


def test_protection_that_its_owner_ends_is_no_attack_and_later_lists_name_it_no_more(people: EncryptedTable) -> None:
    declare(people, "")
    for _ in range(2):
        people.append(ROWS)
    named = [each.authenticated_header(people.io).protected_columns for each in people.metadata.snapshots]
    assert named == [{SSN}, frozenset(), frozenset()]
    assert len(ssn(people)) == 9


def test_a_copy_elsewhere_says_in_its_lists_what_is_protected(both: Clients, people: EncryptedTable, tmp_path: Path) -> None:
    m.relocate(people, f"file://{tmp_path}/copy", register_as="db.moved")
    moved = loaded(both.payroll, "db.moved")
    with pytest.raises(KeyIdChangedError, match="was protected"):
        _dropped_both(moved).append(ROWS)


def test_a_pinned_table_whose_protection_was_edited_away_is_not_loaded(both: Clients, people: EncryptedTable, tmp_path: Path) -> None:
    pinned = EncryptedSqlCatalog("prod", **{**both.payroll.properties, "encryption.pins": str(tmp_path / "pins.json")})
    pinned.load_table(people.name())
    metadata_path(people).write_text(_dropped_both(people).metadata.model_dump_json())
    with pytest.raises(TamperedFileError, match="metadata"):
        pinned.load_table(people.name())


def test_equality_deletes_by_a_protected_column_are_not_read(both: Clients, people: EncryptedTable, tmp_path: Path) -> None:
    files = TableFiles(tmp_path, people.schema())
    files.metadata, files.io = people.metadata, people.io
    delete = files.equality_deletes(pa.table({"ssn": ["SSN-0002"]}), [SSN])
    by_id = files.equality_deletes(pa.table({"id": pa.array([2], pa.int64())}), [1])
    (task,) = people.scan().plan_files()
    for table in (people, loaded(both.analyst)):
        reader = TaskReader(table.metadata, table.io, table.schema(), ALWAYS_TRUE, ReadOptions(masked="mask"))
        with pytest.raises(FormatError, match="by the values of the protected column 'ssn'"):
            list(reader.batches(EncryptedFileScanTask(task.file, {delete}, data_sequence_number=1)))
        batches = list(reader.batches(EncryptedFileScanTask(task.file, {by_id}, data_sequence_number=1)))
        assert pa.Table.from_batches(batches)["id"].to_pylist() == [1, 3]


def test_a_table_with_equality_deletes_by_a_protected_column_is_rolled_back_to_the_snapshot_before(
    both: Clients, people: EncryptedTable, tmp_path: Path
) -> None:
    files = TableFiles(tmp_path, people.schema())
    files.metadata, files.io = people.metadata, people.io
    before = people.metadata.snapshots[-1].snapshot_id
    delete = files.equality_deletes(pa.table({"ssn": ["SSN-0002"]}), [SSN])
    with people.transaction() as transaction:
        transaction.update_snapshot().row_delta(RowDelta(added=[delete])).commit()  # type: ignore[attr-defined]
    with pytest.raises(FormatError, match="Roll the branch back to the snapshot before, and delete the rows through tablecrypt"):
        people.scan().to_arrow()
    [finding] = [each for each in m.audit(people).findings if each.kind == FindingKind.COLUMN_IN_PARTITIONS]
    assert "roll the branch back to the snapshot before, delete the rows through tablecrypt, then shred" in finding.message

    people.manage_snapshots().rollback_to_snapshot(before).commit()
    people.delete("ssn = 'SSN-0002'")
    m.shred(people, all_but_heads=True)

    assert people.refresh().scan().to_arrow()["id"].to_pylist() == [1, 3]
    assert FindingKind.COLUMN_IN_PARTITIONS not in {each.kind for each in m.audit(people).findings}


def test_entries_of_another_table_open_nothing_here(both: Clients, people: EncryptedTable) -> None:
    other = protected_table(both.payroll, "db.other", appends=[ROWS], **{"encryption.column-keys": "pii: ssn"})
    theirs = [key for key in metadata_of(other).encryption_keys if not without_columns(key)]
    own = metadata_of(people).encryption_keys
    with pytest.raises(KeyNotFoundError):
        ssn(edited(people, properties=without_copies(people), encryption_keys=[*(key for key in own if without_columns(key)), *theirs]))
    (mine,), (foreign,) = metadata_of(people).key_ring.column_keys, metadata_of(other).key_ring.column_keys
    renamed = foreign.model_copy(update={"key_id": mine.key_id})
    keks = [key for key in theirs if key.is_column_kek]
    with pytest.raises(AuthenticationError):
        ssn(edited(people, encryption_keys=[*(key for key in own if without_columns(key)), *keks, renamed]))


def test_a_catalog_that_removes_the_protection_is_refused_when_it_is_committed(people: EncryptedTable) -> None:
    names = [name for name in people.metadata.properties if name.startswith("encryption.column.")]
    for update in (
        RemovePropertiesUpdate(removals=names),
        SetPropertiesUpdate(updates={f"encryption.column.{SSN}.key-id": TABLE_KEY}),
    ):
        transaction = people.transaction()
        transaction.apply((cast("TableUpdate", update),))
        with pytest.raises((KeyIdChangedError, ConfigurationError)):
            transaction.commit_transaction()


def test_a_copy_of_the_table_has_no_value_that_its_maker_could_not_read(both: Clients, people: EncryptedTable) -> None:
    analyst = loaded(both.analyst)
    copy = both.analyst.create_table("db.copy", people.schema(), properties={"encryption.key-id": TABLE_KEY})
    copy.append(analyst.scan().to_arrow())
    assert set(copy.scan().to_arrow()["ssn"].to_pylist()) == {None}


def test_a_shredded_column_is_gone_from_every_snapshot_and_the_rest_is_there(both: Clients, people: EncryptedTable) -> None:
    people.append(ROWS)
    snapshots = [snapshot.snapshot_id for snapshot in people.snapshots()]
    assert m.shred_column(people, "ssn").is_complete
    fresh = loaded(both.payroll)
    for snapshot_id in snapshots:
        with pytest.raises(KeyNotFoundError, match="shredded"):
            fresh.scan(snapshot_id=snapshot_id).to_arrow()
        assert fresh.scan(selected_fields=("id", "note"), snapshot_id=snapshot_id).to_arrow().num_rows in (3, 6)
    with fresh.update_schema() as change:
        change.delete_column("ssn")
    assert fresh.scan().to_arrow().num_rows == 6


def test_a_rewrite_brings_files_in_line_after_protection_was_added_and_removed(both: Clients) -> None:
    table = new_table(both.payroll, "db.late", appends=[ROWS], properties={"encryption.key-id": TABLE_KEY})
    declare(table, "pii: ssn")
    assert {finding.kind for finding in m.audit(table).tables[0].findings} >= {FindingKind.COLUMN_EXPOSED}
    m.compact(table, rewrite_all=True)
    m.shred(table, [table.snapshots()[0].snapshot_id])
    of_columns = {finding.kind for finding in m.audit(table).tables[0].findings if finding.kind.name.startswith("COLUMN_")}
    assert of_columns == set()
    assert sorted(map(str, ssn(table))) == ["SSN-0001", "SSN-0002", "SSN-0003"]
    assert set(ssn(loaded(both.analyst, table.name()))) == {None}
    with table.transaction() as transaction:
        transaction.remove_properties("encryption.column-keys")
    m.compact(table, rewrite_all=True)
    assert sorted(map(str, ssn(loaded(both.analyst, table.name())))) == ["SSN-0001", "SSN-0002", "SSN-0003"]


def test_verification_needs_no_right_to_the_column(both: Clients, people: EncryptedTable) -> None:
    for table in (people, loaded(both.analyst)):
        for quick in (True, False):
            assert not m.verify(table, quick=quick).bad


def test_a_copy_elsewhere_reads_as_the_table_does(both: Clients, people: EncryptedTable, tmp_path: Path) -> None:
    m.relocate(loaded(both.analyst), f"file://{tmp_path}/copy", register_as="db.moved")
    assert ssn(loaded(both.payroll, "db.moved")) == ["SSN-0001", "SSN-0002", "SSN-0003"]
    assert ssn(loaded(both.analyst, "db.moved")) == [None, None, None]


@pytest.mark.parametrize("mask", ["null", "redact"])
def test_a_file_whose_footer_holds_no_hidden_columns_any_more_is_refused_as_one_that_another_engine_wrote(both: Clients, mask: str) -> None:
    """Whoever has the table's key can write such a footer; the stored masks would be read as values."""
    people = protected_table(both.payroll, appends=[ROWS], **{"encryption.column-keys": "pii: ssn", "encryption.column-mask.ssn": mask})
    (file,) = data_files(people)
    path = Path(file.file_path.removeprefix("file://"))
    stored = ProtectedFile.of(path.read_bytes(), key_metadata_of(file), {})
    footer = stored.stored_footer()
    kept = [each for each in structs_of(footer, FileMetaData.KEY_VALUE_METADATA) if each.binary(KeyValue.KEY) != ENTRY]
    footer.set(FileMetaData.KEY_VALUE_METADATA, thrift.LIST, kept)

    path.write_bytes(stored.with_footer_as_long(footer))

    for table in (people, loaded(both.analyst)):
        with pytest.raises(TamperedFileError, match="under the table's key"):
            ssn(table)
        assert FindingKind.COLUMN_EXPOSED in {each.kind for each in m.audit(table).tables[0].findings}
        assert m.verify(table).bad
    with pytest.raises(TamperedFileError, match="under the table's key"):
        m.compact(people, rewrite_all=True)


def test_add_files_refuses_a_table_with_protected_columns(people: EncryptedTable) -> None:
    location = next(iter(people.scan().plan_files())).file.file_path
    with pytest.raises(ConfigurationError, match=r"^add_files does not support tables with protected columns"):
        people.add_files([location], check_duplicate_files=False)


REWRITES: dict[str, Callable[[EncryptedTable], object]] = {
    "reencrypt": m.reencrypt,
    "compact": lambda table: m.compact(table, rewrite_all=True),
    "erase": lambda table: m.erase(table, "id = 3"),
    "relocate": lambda table: m.relocate(table, f"{table.location()}-copy", register_as="db.copy"),
}


@pytest.mark.parametrize("mask", ["null", "truncate(2)", "hash"])
@pytest.mark.parametrize("rewrite", REWRITES)
def test_a_column_that_an_analyst_dropped_stays_protected_where_right_holders_write_its_files_again(
    both: Clients, rewrite: str, mask: str
) -> None:
    declared = {"encryption.column-keys": "pii: ssn, person.email", "encryption.column-mask.ssn": mask}
    table = protected_table(both.payroll, appends=[ROWS], **declared, **{"write.parquet.compression-codec": "uncompressed"})
    with loaded(both.analyst, table.name()).update_schema() as change:
        change.delete_column("ssn")
    for _ in range(2):
        REWRITES[rewrite](loaded(both.payroll))
    names = [name for name in ("db.people", "db.copy") if both.analyst.table_exists(name)]
    found = [content for name in names for content in opened_by_table_key(loaded(both.analyst, name))]
    assert found and not any(b"SSN-000" in content for content in found)
    first = table.snapshots()[0].snapshot_id
    if rewrite in {"reencrypt", "compact"}:
        assert sorted(str(each) for each in table.scan(snapshot_id=first).to_arrow()["ssn"].to_pylist())[0] == "SSN-0001"
