"""Another engine drops every entry of encryption-keys that no snapshot leads to: protected columns stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tablecrypt import maintenance as m
from tablecrypt.errors import ColumnKeyDeniedError, ConfigurationError, KeyNotFoundError
from tablecrypt.keys.column_entries import ENTRY_PREFIX, GONE_PREFIX
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog, encrypted
from tests.support.edited_metadata import edited, read_metadata
from tests.support.protected_tables import COLUMN_KEY, OTHER_COLUMN_KEY, SSN, Clients, clients, protected_table
from tests.support.tables import metadata_of

HASHED: Final = {"encryption.column-mask.ssn": "hash"}


@pytest.fixture
def both(tmp_path: Path) -> Clients:
    # One that pins nothing: metadata is edited in place here.
    return clients(tmp_path, catalog_class=cast("type[EncryptedSqlCatalog]", encrypted(SqlCatalog)))


def people(first: int, count: int = 3) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "ssn": [f"ssn-{each}" for each in range(first, first + count)],
            "note": [f"note-{each}" for each in range(first, first + count)],
        }
    )


def clean(table: EncryptedTable) -> EncryptedTable:
    """Do what Iceberg Java's expire_snapshots may do: keep the entries that a snapshot's key-id leads to, and no other."""

    def drop_unreachable(metadata: dict[str, Any]) -> None:
        above = {key["key-id"]: key.get("encrypted-by-id") for key in metadata.get("encryption-keys", ())}
        reached: set[str | None] = set()
        for snapshot in metadata.get("snapshots", ()):
            key_id = snapshot.get("key-id")
            while key_id is not None and key_id not in reached:
                reached.add(key_id)
                key_id = above.get(key_id)
        metadata["encryption-keys"] = [key for key in metadata.get("encryption-keys", ()) if key["key-id"] in reached]

    return cast("EncryptedTable", edited(table, drop_unreachable))


def without_copies(table: EncryptedTable) -> EncryptedTable:
    """Remove the copies in the properties, too."""

    def drop(metadata: dict[str, Any]) -> None:
        metadata["properties"] = {name: value for name, value in metadata["properties"].items() if not name.startswith(ENTRY_PREFIX)}

    return cast("EncryptedTable", edited(table, drop))


def own_entries(table: EncryptedTable) -> set[str]:
    return {key["key-id"] for key in read_metadata(table).get("encryption-keys", ()) if any("tablecrypt." in each for each in key.get("properties", ()))}


def copies(table: EncryptedTable) -> set[str]:
    return {name.removeprefix(ENTRY_PREFIX) for name in read_metadata(table)["properties"] if name.startswith(ENTRY_PREFIX)}


def ssns(table: EncryptedTable) -> dict[int, Any]:
    read = table.scan(selected_fields=("id", "ssn")).to_arrow()
    return dict(zip(read["id"].to_pylist(), read["ssn"].to_pylist(), strict=True))


def test_every_column_entry_has_a_copy_from_its_commit_on(both: Clients) -> None:
    table = protected_table(both.payroll, **HASHED)
    table.append(people(0))
    assert len(own_entries(table)) == 4
    assert copies(table) == own_entries(table)


def test_a_column_is_read_and_written_under_its_key_after_the_entries_are_gone(both: Clients) -> None:
    table = protected_table(both.payroll, **HASHED)
    table.append(people(0))
    before = own_entries(table)
    cleaned = clean(table)
    assert own_entries(cleaned) == set()
    assert ssns(cleaned) == {each: f"ssn-{each}" for each in range(3)}
    cleaned.append(people(3))
    assert own_entries(cleaned) == before
    assert ssns(cleaned) == {each: f"ssn-{each}" for each in range(6)}


def test_a_table_from_before_the_copies_gets_them_with_its_next_commit(both: Clients) -> None:
    table = protected_table(both.payroll)
    table.append(people(0))
    old = without_copies(table)
    assert copies(old) == set()
    with old.transaction() as transaction:
        transaction.set_properties({"owner": "payroll"})
    assert copies(old) == own_entries(old) != set()


@pytest.mark.parametrize("name", [ENTRY_PREFIX + "a", GONE_PREFIX + "a"])
def test_a_copy_and_a_mark_are_neither_set_nor_removed_by_hand(both: Clients, name: str) -> None:
    table = protected_table(both.payroll)
    with pytest.raises(ConfigurationError, match="by hand"):
        table.transaction().set_properties({name: "{}"})
    with pytest.raises(ConfigurationError, match="by hand"):
        table.transaction().remove_properties(name)
    with pytest.raises(ConfigurationError, match="by hand"):
        protected_table(both.payroll, "db.other", **{name: "{}"})


def test_shredding_destroys_the_copy_everywhere_and_nothing_brings_the_key_back(both: Clients) -> None:
    table = protected_table(both.payroll)
    table.append(people(0))
    folder = Path(table.location().removeprefix("file://")) / "metadata"
    entries = {key["key-id"]: key["encrypted-key-metadata"] for key in read_metadata(table)["encryption-keys"] if key["key-id"] in own_entries(table)}
    old = read_metadata(table)
    result = m.shred_column(table, "ssn", delete_below=[table.location()])
    assert result.is_complete
    gone = {*result.column_keys, *result.retired_keks}
    stored = b"".join(path.read_bytes() for path in folder.iterdir())
    assert not any(value.encode() in stored for key_id, value in entries.items() if key_id in gone)

    def put_back(metadata: dict[str, Any]) -> None:
        present = {key["key-id"] for key in metadata["encryption-keys"]}
        metadata["encryption-keys"] += [key for key in old["encryption-keys"] if key["key-id"] not in present]
        metadata["properties"] |= {name: value for name, value in old["properties"].items() if name.startswith(ENTRY_PREFIX)}

    revived = cast("EncryptedTable", edited(table, put_back))
    with pytest.raises(KeyNotFoundError, match="shredded"):
        ssns(revived)
    with revived.transaction() as transaction:
        transaction.set_properties({"owner": "payroll"})
    assert gone.isdisjoint(own_entries(revived) | copies(revived))


def test_no_new_key_is_made_beside_one_that_is_gone(both: Clients) -> None:
    table = protected_table(both.payroll)
    table.append(people(0))
    lost = without_copies(clean(table))
    with pytest.raises(KeyNotFoundError, match="rescue"):
        lost.append(people(3))
    lost.delete("id >= 0")
    with pytest.raises(KeyNotFoundError, match="rescue"):
        lost.append(people(3))
    m.shred_column(lost, "ssn", delete_below=[lost.location()])
    m.shred_column(lost, "person.email", delete_below=[lost.location()])
    lost.append(people(3))
    assert ssns(lost) == {each: f"ssn-{each}" for each in range(3, 6)}


def test_a_column_that_was_shredded_is_written_under_a_new_key(both: Clients) -> None:
    table = protected_table(both.payroll)
    table.append(people(0))
    m.shred_column(table, "ssn", delete_below=[table.location()])
    table.delete("id >= 0")
    table.append(people(3))
    assert ssns(table) == {each: f"ssn-{each}" for each in range(3, 6)}


def test_rescue_brings_back_the_keys_of_columns_that_both_places_have_lost(both: Clients) -> None:
    table = protected_table(both.payroll, **HASHED)
    table.append(people(0))
    before = own_entries(table)
    table.append(people(3))
    lost = without_copies(clean(table))
    with pytest.raises(KeyNotFoundError, match="rescue"):
        ssns(lost)
    assert set(m.rescue(lost, dry_run=True).keys) == before
    assert set(m.rescue(lost).keys) == before
    assert own_entries(lost) == copies(lost) == before
    lost.append(people(6))
    assert ssns(lost) == {each: f"ssn-{each}" for each in range(9)}
    assert m.rescue(lost).keys == ()


def test_rescue_by_somebody_without_the_column_key_says_what_stays_lost(both: Clients) -> None:
    table = protected_table(both.payroll)
    table.append(people(0))
    table.append(people(3))
    lost = without_copies(clean(table))
    analyst = both.analyst.load_table("db.people")
    result = m.rescue(analyst)
    assert result.keys == ()
    assert len(result.column_keys_left) == 2
    assert set(m.rescue(lost).keys) >= set(result.column_keys_left)


def test_rescue_brings_back_no_column_that_was_shredded(both: Clients, tmp_path: Path) -> None:
    table = protected_table(both.payroll)
    table.append(people(0))
    backup = tmp_path / "backup.metadata.json"
    backup.write_bytes(Path(table.metadata_location.removeprefix("file://")).read_bytes())
    result = m.shred_column(table, "ssn", delete_below=[table.location()])
    assert not set(m.rescue(table, [f"file://{backup}"]).keys) & {*result.column_keys, *result.retired_keks}
    with pytest.raises(KeyNotFoundError, match="shredded"):
        ssns(table)


def test_no_new_mask_key_is_made_beside_one_that_is_gone(both: Clients) -> None:
    table = protected_table(both.payroll, **HASHED)
    table.append(people(0))

    def drop_mask_keys(metadata: dict[str, Any]) -> None:
        gone = [key["key-id"] for key in metadata["encryption-keys"] if "tablecrypt.mask-key" in key.get("properties", ())]
        assert gone
        metadata["encryption-keys"] = [key for key in metadata["encryption-keys"] if key["key-id"] not in gone]
        for key_id in gone:
            del metadata["properties"][ENTRY_PREFIX + key_id]

    lost = cast("EncryptedTable", edited(table, drop_mask_keys))
    with pytest.raises(KeyNotFoundError, match="rescue"):
        lost.append(people(3))
