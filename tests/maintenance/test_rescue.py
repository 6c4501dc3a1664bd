"""rescue: a key that the metadata lost is found where it still is, believed only if it opens its snapshot, and committed back."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from moto.kms.models import kms_backends
from pyiceberg.table import Table

from tablecrypt.errors import ConfigurationError, KeyNotFoundError, KmsError
from tablecrypt.files.raw_output import RawContent
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.maintenance import rescue, rewrap, rotate_kek
from tablecrypt.table.updates import removed_keys
from tests.support.aws import ACCOUNT, REGION, AwsServer
from tests.support.tables import (
    encrypted_sql_catalog,
    files_below,
    folder_of,
    keks,
    manifest_list_keys,
    memory_catalog,
    metadata_of,
    metadata_path,
    path_of,
    rows,
    state,
    table_with_history,
)

pytestmark = pytest.mark.slow

Change = Callable[[list[EncryptedKey]], list[EncryptedKey]]


def rewritten(table: Table, change: Change, name: str = "00099-00000000-0000-4000-8000-000000000000") -> Table:
    """The table as another tool would leave it: a metadata file more, with other keys."""
    metadata = metadata_of(table)
    broken = metadata.model_copy(update={"encryption_keys": change(list(metadata.encryption_keys))})
    put(table, f"{table.location()}/metadata/{name}.metadata.json", broken.model_dump_json().encode())
    catalog = table.catalog
    catalog.drop_table("db.t")
    return catalog.register_table("db.t", f"{table.location()}/metadata/{name}.metadata.json")


def put(table: Table, location: str, content: bytes) -> None:
    with table.io.raw_output(location, RawContent.METADATA_JSON).create(overwrite=True) as stream:  # type: ignore[attr-defined]
        stream.write(content)


def forget_older(table: Table) -> None:
    """Delete every metadata file but the table's own."""
    for path in files_below(folder_of(table) / "metadata", ".metadata.json") - {metadata_path(table)}:
        path.unlink()


def without_keks(entries: list[EncryptedKey]) -> list[EncryptedKey]:
    return [each for each in entries if not each.is_kek]


def without_first_key(entries: list[EncryptedKey]) -> list[EncryptedKey]:
    first = next(each for each in entries if not each.is_kek)
    return [each for each in entries if each != first]


def nothing(entries: list[EncryptedKey]) -> list[EncryptedKey]:
    return []


@pytest.mark.parametrize("change", [without_keks, without_first_key, nothing])
def test_lost_keys_are_found_in_older_metadata_and_every_snapshot_reads_again(table: Table, change: Change) -> None:
    before, keys = state(table), {key.key_id: key for key in metadata_of(table).encryption_keys}
    broken = rewritten(table, change)
    with pytest.raises(KeyNotFoundError):
        state(broken)

    result = rescue(broken)

    assert state(broken) == before
    assert {key.key_id: key for key in metadata_of(broken).encryption_keys} == keys
    assert set(result.keys) == keys.keys() - {key.key_id for key in change(list(keys.values()))}
    assert len(result.snapshots) == (1 if change is without_first_key else 4)
    assert result.found_in
    broken.append(rows(800))


def test_a_key_of_a_time_before_a_rotation_comes_back_with_its_old_kek(table: Table) -> None:
    before = state(table)
    (old,) = keks(table)
    rotate_kek(table)
    broken = rewritten(table, nothing)
    # What the rotation wrote is gone too: only the files from before it are left.
    newest = next(entry.metadata_file for entry in reversed(metadata_of(broken).metadata_log))
    for path in (folder_of(table) / "metadata").glob("*.metadata.json"):
        if path.name not in {Path(newest).name, Path(broken.metadata_location).name} and f'"{old.key_id}"' not in path.read_text():
            path.unlink(missing_ok=True)

    rescue(broken)

    assert state(broken) == before


def test_a_changed_entry_is_replaced_by_one_that_opens(table: Table) -> None:
    before = state(table)

    def swap_two(entries: list[EncryptedKey]) -> list[EncryptedKey]:
        kek, first, second, *rest = entries
        return [
            kek,
            first.model_copy(update={"encrypted_key_metadata": second.encrypted_key_metadata}),
            second,
            *rest,
        ]

    broken = rewritten(table, swap_two)

    result = rescue(broken)

    assert len(result.snapshots) == 1
    assert state(broken) == before


def test_a_damaged_manifest_list_is_told_from_a_lost_key(table: Table) -> None:
    snapshot = metadata_of(table).snapshots[0]
    path = path_of(snapshot.manifest_list)
    stored = path.read_bytes()
    path.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))

    result = rescue(table, expire_lost=True)

    assert result.damaged == (snapshot.snapshot_id,)
    assert (result.snapshots, result.expired) == ((), ())


def test_an_entry_that_opens_another_snapshots_list_is_not_believed(table: Table) -> None:
    """An older file in which two snapshots' keys are exchanged: both open under the KEK, neither opens its own list."""
    ids = list(manifest_list_keys(table))
    broken = rewritten(table, without_first_key)
    folder = folder_of(table) / "metadata"
    forget_older(broken)
    metadata = metadata_of(table)
    swapped = [
        key.model_copy(update={"key_id": ids[0]}) if key.key_id == ids[1] else key
        for key in metadata.encryption_keys
        if key.key_id != ids[0]
    ]
    put(
        table,
        f"{folder.as_uri()}/00050-x.metadata.json",
        metadata.model_copy(update={"encryption_keys": swapped}).model_dump_json().encode(),
    )

    with pytest.raises(KeyNotFoundError, match="in no metadata file"):
        rescue(broken)


def test_a_given_file_from_elsewhere_is_enough(table: Table, tmp_path: Path) -> None:
    before = state(table)
    backup = tmp_path / "backup.json"
    backup.write_bytes(metadata_path(table).read_bytes())
    broken = rewritten(table, nothing)
    forget_older(broken)
    with pytest.raises(KeyNotFoundError, match="in no metadata file"):
        rescue(broken)

    result = rescue(broken, backup.as_uri())

    assert result.found_in == (backup.as_uri(),)
    assert state(broken) == before


def test_half_written_and_foreign_metadata_files_are_passed_over(table: Table, aws: AwsServer, tmp_path: Path) -> None:
    broken = rewritten(table, nothing)
    other = table_with_history(table.catalog, "db.other")
    folder = f"{table.location()}/metadata"
    put(table, f"{folder}/00097-half.metadata.json", b'{"format-version": 3, "table-uuid"')
    put(table, f"{folder}/00096-other.metadata.json", metadata_of(other).model_dump_json().encode())
    path_of(f"{folder}/00095-bad.gz.metadata.json").write_bytes(b"no gzip")

    result = rescue(broken)

    assert {location.rpartition("/")[2] for location in result.unreadable} <= {"00097-half.metadata.json", "00095-bad.gz.metadata.json"}
    assert len(state(broken)) == 4


def test_a_given_file_of_another_table_is_refused(table: Table) -> None:
    broken = rewritten(table, nothing)
    other = table_with_history(table.catalog, "db.other")
    for location in (other.metadata_location, f"{table.location()}/metadata/nowhere.metadata.json"):
        with pytest.raises(ConfigurationError, match=r"is not there, or is not metadata of db\.t"):
            rescue(broken, [location])


def test_snapshots_whose_keys_are_nowhere_can_go_while_the_others_come_back(table: Table) -> None:
    """Neither a rescue alone nor an expiry alone would pass the rule that every commit holds every key."""
    before = state(table)
    side, *_, first = reversed(metadata_of(table).snapshots)
    nowhere = {str(first.key_id)}
    backup = f"{table.location()}/metadata/00098-backup.metadata.json"
    metadata = metadata_of(table)
    kept = [key for key in metadata.encryption_keys if key.key_id not in nowhere]
    broken = rewritten(table, nothing)
    forget_older(broken)
    put(table, backup, metadata.model_copy(update={"encryption_keys": kept}).model_dump_json().encode())
    with pytest.raises(KeyNotFoundError, match=str(first.snapshot_id)):
        rescue(broken)

    result = rescue(broken, expire_lost=True)

    assert result.expired == (first.snapshot_id,)
    assert state(broken) == {snapshot_id: found for snapshot_id, found in before.items() if snapshot_id != first.snapshot_id}
    assert side.snapshot_id in state(broken)


def test_a_lost_snapshot_that_a_branch_points_to_is_never_removed(table: Table) -> None:
    broken = rewritten(table, nothing)
    forget_older(broken)
    with pytest.raises(KeyNotFoundError, match=r"\(main\)"):
        rescue(broken, expire_lost=True)


def test_a_kek_whose_old_wrapping_the_kms_refuses_is_found_as_it_was_rewrapped(tmp_path: Path, aws: AwsServer) -> None:
    """Older files hold a KEK as several versions of the master key wrapped it, of which one is gone."""
    alias, old = f"alias/rescue-{uuid.uuid4()}", aws.new_key()
    aws.kms.create_alias(AliasName=alias, TargetKeyId=old)
    table = table_with_history(encrypted_sql_catalog(tmp_path, aws, {"encryption.kms.cache-ttl-ms": "0"}), "db.t", alias)
    before, first = state(table), table.metadata_location
    aws.kms.update_alias(AliasName=alias, TargetKeyId=aws.new_key())
    rewrap(table, from_key_id=old)
    del kms_backends[ACCOUNT][REGION].keys[old]
    broken = rewritten(table, nothing)

    result = rescue(broken, metadata=first)

    assert state(broken) == before
    assert first not in result.found_in
    for path in (folder_of(table) / "metadata").glob("*.metadata.json"):
        if path.name not in {Path(first).name, Path(broken.metadata_location).name}:
            path.unlink()
    lost = rewritten(broken, nothing, "00199-00000000-0000-4000-8000-000000000000")
    (folder_of(table) / "metadata" / Path(broken.metadata_location).name).unlink(missing_ok=True)
    with pytest.raises(KmsError):
        rescue(lost, metadata=first, expire_lost=True)


def test_a_dry_run_says_what_would_come_back(table: Table) -> None:
    broken = rewritten(table, without_keks)
    location = broken.metadata_location

    result = rescue(broken, dry_run=True)

    assert result.dry_run
    assert result.keys == (keks(table)[0].key_id,)
    assert broken.refresh().metadata_location == location


def test_a_table_that_has_lost_nothing_is_left_alone(table: Table) -> None:
    location = table.metadata_location
    result = rescue(table)
    assert (result.snapshots, result.keys, result.found_in) == ((), (), ())
    assert table.refresh().metadata_location == location


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_given_file_that_is_not_there_is_refused_also_where_nothing_is_lost(table: Table, dry_run: bool) -> None:
    location = f"{table.location()}/metadata/00041-typo.metadata.json"
    with pytest.raises(ConfigurationError, match=r"00041-typo\.metadata\.json is not there, or is not metadata of db\.t"):
        rescue(table, metadata=[table.metadata_location, location], dry_run=dry_run)


@pytest.mark.parametrize("loses", [without_keks, list])
def test_a_given_file_that_is_no_metadata_is_refused(table: Table, tmp_path: Path, loses: Change) -> None:
    table = rewritten(table, loses)
    half = tmp_path / "half.metadata.json"
    half.write_bytes(metadata_path(table).read_bytes()[:300])
    with pytest.raises(
        ConfigurationError, match=r"half\.metadata\.json is not metadata of db\.t: FormatError: not readable as table metadata$"
    ):
        rescue(table, metadata=half.as_uri())


def test_no_commit_leaves_a_snapshot_without_its_key_in_any_kind_of_catalog(aws: AwsServer, tmp_path: Path) -> None:
    """The rule stands below the catalogs: it is asked of what a commit would write, whoever staged it."""
    for catalog in (memory_catalog(tmp_path / "memory"), encrypted_sql_catalog(tmp_path, aws)):
        table = table_with_history(catalog, "db.t")
        for entry in metadata_of(table).encryption_keys:
            transaction = table.transaction()
            transaction.apply(removed_keys([entry.key_id]))  # type: ignore[attr-defined]
            with pytest.raises(KeyNotFoundError):
                transaction.commit_transaction()
        assert len(state(table)) == 4
