"""Another engine drops every entry of encryption-keys that no snapshot leads to: protected columns stay what they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ServerError

from tablecrypt import maintenance as m
from tablecrypt.errors import AuthenticationError, ConfigurationError, KeyNotFoundError
from tablecrypt.keys.key_ring import ENTRY_PREFIX, GONE_PREFIX
from tablecrypt.spark.sql.planner import LoadedTable
from tablecrypt.spark.sql.staging import StagedTable
from tablecrypt.spark.sql.writes.python_writes import with_column_keys
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.table.replacement import stage_replacement
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.write import write_data_files
from tablecrypt_catalog import EncryptedSqlCatalog, encrypted
from tests.support.edited_metadata import edited, read_metadata
from tests.support.protected_tables import COLUMN_KEY, OTHER_COLUMN_KEY, SSN, TABLE_KEY, Clients, clients, declare, loaded, protected_table
from tests.support.restricting_server import RestrictingServer
from tests.support.tables import metadata_of

ONE_COLUMN: Final = {"encryption.column-keys": f"{COLUMN_KEY}: ssn"}
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
    entries = read_metadata(table).get("encryption-keys", ())
    return {key["key-id"] for key in entries if any(name.startswith("tablecrypt.") for name in key.get("properties", ()))}


def copies(table: EncryptedTable) -> set[str]:
    return {name.removeprefix(ENTRY_PREFIX) for name in read_metadata(table)["properties"] if name.startswith(ENTRY_PREFIX)}


def ssns(table: EncryptedTable) -> dict[int, Any]:
    read = table.scan(selected_fields=("id", "ssn")).to_arrow()
    return dict(zip(read["id"].to_pylist(), read["ssn"].to_pylist(), strict=True))


def test_every_column_entry_has_a_copy_from_its_commit_on(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[people(0)], **HASHED)
    assert len(own_entries(table)) == 6
    assert copies(table) == own_entries(table)


def test_a_column_is_read_and_written_under_its_key_after_the_entries_are_gone(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[people(0)], **HASHED)
    before = own_entries(table)
    cleaned = clean(table)
    assert own_entries(cleaned) == set()
    assert ssns(cleaned) == {each: f"ssn-{each}" for each in range(3)}
    cleaned.append(people(3))
    assert own_entries(cleaned) == before
    assert ssns(cleaned) == {each: f"ssn-{each}" for each in range(6)}


def test_a_table_from_before_the_copies_gets_them_with_its_next_commit(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[people(0)])
    old = without_copies(table)
    assert copies(old) == set()
    old.transaction().set_properties({"owner": "payroll"}).commit_transaction()
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
    table = protected_table(both.payroll, appends=[people(0)])
    folder = Path(table.location().removeprefix("file://")) / "metadata"
    entries = {
        key["key-id"]: key["encrypted-key-metadata"]
        for key in read_metadata(table)["encryption-keys"]
        if key["key-id"] in own_entries(table)
    }
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
    revived.transaction().set_properties({"owner": "payroll"}).commit_transaction()
    assert gone.isdisjoint(own_entries(revived) | copies(revived))


def test_a_key_that_a_declaration_has_made_since_a_key_was_lost_is_none_to_write_under(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[people(0)], **ONE_COLUMN)
    before = own_entries(table)
    lost = without_copies(clean(table))
    declare(lost, ssn="truncate(2)")
    assert metadata_of(lost).key_ring.column_keys
    for _ in range(2):
        with pytest.raises(KeyNotFoundError, match=r"column key .* of column 'ssn'.*no new key is made beside it.*rescue"):
            lost.append(people(3))
        # Its manifest list names the lost key still, and the new one not yet.
        lost.delete("id = 0")
    assert set(m.rescue(lost).keys) >= before
    lost.append(people(3))
    assert ssns(lost) == {each: f"ssn-{each}" for each in range(1, 6)}


def test_a_table_that_spark_replaces_gets_no_new_key_beside_one_that_is_gone(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[people(0)], **ONE_COLUMN)
    lost = without_copies(clean(table))
    transaction = lost.transaction()
    stage_replacement(transaction, lost.schema(), lost.spec(), {})
    located = LocatedTable(both.payroll, "db.people", lost)
    staged = StagedTable(transaction, replaces=True)
    keyed = with_column_keys(LoadedTable(located, "prod", "main", None, True, staged), write_only=False)
    writing = keyed.loaded.located.table
    staged.keep(write_data_files(metadata_of(writing), people(3), lost.io, lost.io.manager), {})
    with pytest.raises(KeyNotFoundError, match="no new key is made beside it"):
        staged.commit()
    m.rescue(lost)
    assert ssns(lost) == {each: f"ssn-{each}" for each in range(3)}


def test_no_new_key_is_made_beside_one_that_is_gone(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[people(0)])
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
    table = protected_table(both.payroll, appends=[people(0)])
    m.shred_column(table, "ssn", delete_below=[table.location()])
    table.delete("id >= 0")
    table.append(people(3))
    assert ssns(table) == {each: f"ssn-{each}" for each in range(3, 6)}


def test_rescue_brings_back_the_keys_of_columns_that_both_places_have_lost(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[people(0)], **HASHED)
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
    table = protected_table(both.payroll, appends=[people(0), people(3)])
    lost = without_copies(clean(table))
    analyst = both.analyst.load_table("db.people")
    result = m.rescue(analyst)
    assert result.keys == ()
    assert len(result.column_keys_left) == 2
    assert set(m.rescue(lost).keys) >= set(result.column_keys_left)


def test_rescue_brings_back_no_column_that_was_shredded(both: Clients, tmp_path: Path) -> None:
    table = protected_table(both.payroll, appends=[people(0)])
    backup = tmp_path / "backup.metadata.json"
    backup.write_bytes(Path(table.metadata_location.removeprefix("file://")).read_bytes())
    result = m.shred_column(table, "ssn", delete_below=[table.location()])
    assert not set(m.rescue(table, [f"file://{backup}"]).keys) & {*result.column_keys, *result.retired_keks}
    with pytest.raises(KeyNotFoundError, match="shredded"):
        ssns(table)


def test_no_new_mask_key_is_made_beside_one_that_is_gone(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[people(0)], **HASHED)

    def drop_mask_keys(metadata: dict[str, Any]) -> None:
        gone = [key["key-id"] for key in metadata["encryption-keys"] if "tablecrypt.mask-key" in key.get("properties", ())]
        assert gone
        metadata["encryption-keys"] = [key for key in metadata["encryption-keys"] if key["key-id"] not in gone]
        for key_id in gone:
            del metadata["properties"][ENTRY_PREFIX + key_id]

    lost = cast("EncryptedTable", edited(table, drop_mask_keys))
    with pytest.raises(KeyNotFoundError, match="rescue"):
        lost.append(people(3))


def _rename(table: EncryptedTable) -> None:
    for old, new in (("ssn", "number"), ("number", "ssn")):
        with table.update_schema() as change:
            change.rename_column(old, new)


def _shred_snapshots(table: EncryptedTable) -> None:
    m.shred(table, all_but_heads=True, delete_below=[table.location()])


def _restore(table: EncryptedTable) -> None:
    """Roll main back to the snapshot before, and forward again."""
    current, earlier = table.metadata.snapshots[-1].snapshot_id, table.metadata.snapshots[-1].parent_snapshot_id
    if earlier is not None and table.metadata.snapshot_by_id(earlier) is not None:
        table.manage_snapshots().create_branch(earlier, "earlier").commit()
        table.manage_snapshots().remove_branch("earlier").commit()
    assert table.refresh().metadata.current_snapshot_id == current


OPERATIONS: Final[dict[str, Callable[[EncryptedTable], object]]] = {
    "append": lambda table: table.append(people(3)),
    "overwrite": lambda table: table.overwrite(people(0), "id < 3"),
    "delete": lambda table: table.delete("id = 5"),
    "append again": lambda table: table.append(people(5, 1)),
    "upsert": lambda table: table.upsert(people(4), ["id"]),
    "compact": lambda table: m.compact(table, rewrite_all=True),
    "reencrypt": m.reencrypt,
    "rotate_kek": m.rotate_kek,
    "rotate_column_keks": m.rotate_column_keks,
    "rewrap": m.rewrap,
    "rewrap_column_keks": m.rewrap_column_keks,
    "prune_keys": m.prune_keys,
    "branch": _restore,
    "shred snapshots": _shred_snapshots,
    "rename": _rename,
    "declare": lambda table: declare(table, f"{COLUMN_KEY}: ssn, note"),
    "append with more": lambda table: table.append(people(7, 1)),
    "undeclare": lambda table: declare(table, f"{COLUMN_KEY}: ssn"),
    "declare again": lambda table: declare(table, f"{COLUMN_KEY}: ssn, note"),
    "another master key": lambda table: declare(table, f"{COLUMN_KEY}: ssn; {OTHER_COLUMN_KEY}: note"),
    "reencrypt under it": m.reencrypt,
    "append under it": lambda table: table.append(people(8, 1)),
}


def test_columns_stay_readable_and_masked_when_keys_are_cleaned_after_every_operation(both: Clients) -> None:
    declared = {"encryption.key-id": TABLE_KEY, "encryption.column-keys": f"{COLUMN_KEY}: ssn", **HASHED}
    table = cast("EncryptedTable", both.payroll.create_table("db.people", people(0).schema, properties=declared))
    table.append(people(0))
    hashes: dict[int, Any] = {}
    for name, operation in OPERATIONS.items():
        table = clean(table)
        operation(table)
        table = clean(loaded(both.payroll))
        read = table.scan(selected_fields=("id", "ssn", "note")).to_arrow().to_pylist()
        assert all(row["ssn"] == f"ssn-{row['id']}" and row["note"] == f"note-{row['id']}" for row in read), name
        masked = ssns(loaded(both.analyst))
        assert masked.keys() == {row["id"] for row in read}, name
        assert not any(str(value).startswith("ssn-") for value in masked.values()), name
        assert {each: hashes.setdefault(each, value) for each, value in masked.items()} == masked, name
    assert len(masked) == 9


def test_a_table_is_cleaned_ten_times_in_turn(both: Clients) -> None:
    table = protected_table(both.payroll, **HASHED)
    for turn in range(10):
        table.append(people(turn, 1))
        before = own_entries(table)
        table = clean(table)
        assert copies(table) == before
    assert ssns(table) == {each: f"ssn-{each}" for each in range(10)}
    assert len(before) == 6


def test_a_copy_of_the_table_elsewhere_has_the_copies_of_its_own_entries(both: Clients, tmp_path: Path) -> None:
    table = protected_table(both.payroll, appends=[people(0)], **HASHED)
    m.relocate(clean(table), f"file://{tmp_path}/moved", register_as="db.moved")
    moved = clean(loaded(both.payroll, "db.moved"))
    assert len(copies(moved)) == 6
    assert ssns(moved) == {each: f"ssn-{each}" for each in range(3)}


def test_an_entry_counts_where_its_copy_says_otherwise(both: Clients) -> None:
    """A release that knows no copies changes entries alone."""
    table = protected_table(both.payroll, appends=[people(0)])
    stale = {name: value for name, value in read_metadata(table)["properties"].items() if name.startswith(ENTRY_PREFIX)}
    m.rotate_column_keks(table)
    rotated = cast("EncryptedTable", edited(table, lambda metadata: metadata["properties"].update(stale)))
    assert ssns(rotated) == {each: f"ssn-{each}" for each in range(3)}
    rotated.append(people(3))
    assert copies(rotated) == own_entries(rotated)
    under_keks = {name: value for name, value in stale.items() if "tablecrypt.column-declaration" not in value}
    assert all(read_metadata(rotated)["properties"].get(name) != value for name, value in under_keks.items())


@pytest.mark.parametrize(
    "value", ["", "null", "[]", "{}", '{"encrypted-key-metadata":"AAAA","encrypted-by-id":"orders","properties":{"KEY_TIMESTAMP":"1"}}']
)
def test_a_copy_that_is_none_brings_no_key(both: Clients, value: str) -> None:
    table = protected_table(both.payroll, appends=[people(0)])
    before = {key.key_id for key in metadata_of(table).key_ring.entries}
    changed = cast("EncryptedTable", edited(table, lambda metadata: metadata["properties"].update({ENTRY_PREFIX + "made up": value})))
    assert {key.key_id for key in metadata_of(changed).key_ring.entries} == before
    changed.append(people(3))
    assert copies(changed) == own_entries(changed)


def test_a_copy_with_changed_bytes_opens_nothing(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[people(0)])
    (mine,) = [entry for entry in metadata_of(table).key_ring.column_keys if entry.field_id == SSN]
    other = next(entry for entry in metadata_of(table).key_ring.column_keys if entry.field_id != SSN)

    def exchange(metadata: dict[str, Any]) -> None:
        metadata["properties"][ENTRY_PREFIX + mine.key_id] = json.dumps(
            {"encrypted-key-metadata": other.encrypted_key_metadata, "encrypted-by-id": mine.encrypted_by_id, "properties": mine.properties}
        )

    with pytest.raises(AuthenticationError):
        ssns(cast("EncryptedTable", edited(clean(table), exchange)))


def test_copies_of_twenty_columns_stay_small_however_often_keks_are_rotated(both: Clients) -> None:
    schema = pa.schema([("id", pa.int64()), *((f"c{each}", pa.string()) for each in range(20))])
    columns = ", ".join(f"c{each}" for each in range(20))
    declared = {"encryption.key-id": TABLE_KEY, "encryption.column-keys": f"{COLUMN_KEY}: {columns}"}
    table = cast("EncryptedTable", both.payroll.create_table("db.wide", schema, properties=declared))
    table.append(pa.table({"id": [1], **{f"c{each}": ["x"] for each in range(20)}}, schema=schema))
    for _ in range(5):
        m.rotate_column_keks(table)
    kept = {name: value for name, value in read_metadata(table)["properties"].items() if name.startswith((ENTRY_PREFIX, GONE_PREFIX))}
    assert sum(name.startswith(ENTRY_PREFIX) for name in kept) == 41
    assert sum(len(name) + len(value) for name, value in kept.items()) < 16 * 1024


@pytest.mark.parametrize("cleaned", [False, True])
def test_a_rest_server_is_sent_copies_with_their_entries(both: Clients, cleaned: bool) -> None:
    sent: list[dict[str, Any]] = []

    class Noting(RestrictingServer):
        def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
            sent.extend(json.loads(body).get("updates", ()) if body else ())
            return super().answer(method, path, body)

    table = protected_table(both.payroll, **HASHED)
    if cleaned:
        table.append(people(0))
        table = clean(table)
    with Noting(both.payroll) as server:
        client = server.client(**{name: value for name, value in both.payroll.properties.items() if "kms" in name})
        remote = loaded(client)
        remote.append(people(3))
        added = {each["encryption-key"]["key-id"] for each in sent if each["action"] == "add-encryption-key"} & own_entries(
            cast("EncryptedTable", table.refresh())
        )
        assert len(added) == (6 if cleaned else 2)
        m.shred_column(remote, "ssn", delete_below=[table.location()])
        with pytest.raises(KeyNotFoundError, match="shredded"):
            ssns(remote)
    written = {name for each in sent if each["action"] == "set-properties" for name in each["updates"]}
    removed = {name for each in sent if each["action"] == "remove-properties" for name in each["removals"]}
    assert len({name for name in written if name.startswith(ENTRY_PREFIX)}) >= (2 if cleaned else 4)
    assert len({name for name in written if name.startswith(GONE_PREFIX)}) == 4
    assert len({name for name in removed if name.startswith(ENTRY_PREFIX)}) == 4


def test_a_stale_writer_of_a_rest_server_brings_no_shredded_key_back(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[people(0)])
    cleaned = clean(table)
    with RestrictingServer(both.payroll) as server:
        client = server.client(**{name: value for name, value in both.payroll.properties.items() if "kms" in name})
        stale = loaded(client)
        result = m.shred_column(cleaned, "ssn", delete_below=[table.location()])
        with pytest.raises((KeyNotFoundError, ServerError, CommitFailedException, CommitStateUnknownException)):
            stale.transaction().set_properties({"owner": "payroll"}).commit_transaction()
    assert not {*result.column_keys, *result.retired_keks} & (own_entries(cast("EncryptedTable", table.refresh())) | copies(table))
    with pytest.raises(KeyNotFoundError, match="shredded"):
        ssns(table)


def test_a_description_leaves_copies_and_marks_out(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[people(0)])
    m.rotate_column_keks(table)
    stored, shown = read_metadata(table)["properties"], m.describe(table).properties
    assert {name for name in stored if name not in shown} == {name for name in stored if name.startswith((ENTRY_PREFIX, GONE_PREFIX))}
