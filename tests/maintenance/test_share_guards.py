"""What deletes files keeps those that a live share names, or stops and says so; only break_shares takes them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tablecrypt.errors import ConfigurationError, SharedFilesError, ShareRecordError
from tablecrypt.maintenance import compact, erase, reencrypt, remove_orphan_files, shred
from tablecrypt.maintenance.expiry import expire_snapshots
from tablecrypt.maintenance.operation import reload
from tablecrypt.maintenance.sharing.records import ShareRecord, forget_share, live_shares, remember_share
from tablecrypt.table.shares import named_records
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.interrupted_catalog import INTERRUPTED, at_commits, once
from tests.support.restricting_server import RestrictingServer
from tests.support.shares import PARTNER_KEY, record_of, shared
from tests.support.tables import (
    BY_REGION,
    MERGE_ON_READ,
    REGION_SCHEMA,
    encrypted_sql_catalog,
    encrypted_table,
    ids,
    new_table,
    path_of,
    rows,
)

NOW: dict[str, Any] = {"older_than": dt.datetime(2100, 1, 1, tzinfo=dt.UTC)}


@pytest.fixture
def table(catalog: EncryptedSqlCatalog) -> EncryptedTable:
    """Two regions, and deletes that write vectors."""
    appends = [rows(0, 20, REGION_SCHEMA), rows(20, 20, REGION_SCHEMA)]
    return new_table(catalog, schema=REGION_SCHEMA, partitioned_by=BY_REGION, appends=appends, properties=MERGE_ON_READ)


@pytest.fixture
def share(table: EncryptedTable) -> ShareRecord:
    """A share of the region north."""
    return shared(table, "region = 'north'")


def is_whole(record: ShareRecord) -> bool:
    return all(path_of(location).exists() for location in record.files)


def replaced(table: EncryptedTable) -> None:
    """No current snapshot names a file of before."""
    reencrypt(table)
    table.refresh()


def test_expiry_keeps_what_a_share_names_and_takes_the_rest(table: EncryptedTable, share: ShareRecord) -> None:
    others = {task.file.file_path for task in table.scan("region = 'south'").plan_files()}
    replaced(table)

    expired = expire_snapshots(table, **NOW)

    assert is_whole(share)
    assert expired.refused.keys() == {*share.files}
    assert all(share.share_uuid in reason and PARTNER_KEY in reason for reason in expired.refused.values())
    assert not any(path_of(location).exists() for location in others)
    assert live_shares(table.refresh()) == [share]


def test_expiry_goes_on_every_night(table: EncryptedTable, share: ShareRecord) -> None:
    for _ in range(3):
        replaced(table)
        assert expire_snapshots(table, **NOW).deleted
    assert is_whole(share)


def test_expiry_takes_shared_files_when_it_is_to_break_shares(table: EncryptedTable, share: ShareRecord) -> None:
    replaced(table)
    expired = expire_snapshots(table, **NOW, break_shares=True)
    assert not expired.refused
    assert not any(path_of(location).exists() for location in share.files)


@pytest.fixture
def interrupted(tmp_path: Path, aws: AwsServer) -> EncryptedTable:
    """A table of a catalog that stops at commits."""
    return new_table(encrypted_sql_catalog(tmp_path, aws, INTERRUPTED), appends=[rows(0)])


def test_a_share_that_is_remembered_while_snapshots_expire_keeps_its_files(interrupted: EncryptedTable) -> None:
    record = record_of(interrupted)
    replaced(interrupted)

    with at_commits(before=once(lambda: remember_share(reload(interrupted), record))):
        expired = expire_snapshots(interrupted, **NOW)

    assert expired.refused.keys() == {*record.files}
    assert is_whole(record)


def test_a_share_of_snapshots_that_expire_meanwhile_is_refused(interrupted: EncryptedTable) -> None:
    record = record_of(interrupted)
    replaced(interrupted)

    with (
        pytest.raises(ConfigurationError, match="share again"),
        at_commits(before=once(lambda: expire_snapshots(reload(interrupted), **NOW))),
    ):
        remember_share(interrupted, record)

    assert live_shares(reload(interrupted)) == []


def test_shared_files_that_the_table_needs_no_more_are_no_orphans(table: EncryptedTable, share: ShareRecord) -> None:
    replaced(table)
    expire_snapshots(table, **NOW)

    found = remove_orphan_files(table, **NOW, dry_run=False)

    assert not {file.location for file in found.found} & {*share.files, *(named.location for named in named_records(table.metadata))}
    assert found.refused.keys() == {*share.files}
    assert (is_whole(share), live_shares(table)) == (True, [share])


def test_shared_files_are_orphans_once_the_share_is_forgotten(table: EncryptedTable, share: ShareRecord) -> None:
    replaced(table)
    expire_snapshots(table, **NOW)
    forget_share(table, share.share_uuid)

    found = remove_orphan_files(table, **NOW, dry_run=False)

    assert {*share.files} <= {file.location for file in found.found}
    assert not any(path_of(location).exists() for location in share.files)


def test_orphans_that_are_shared_go_when_they_are_to_break_shares(table: EncryptedTable, share: ShareRecord) -> None:
    replaced(table)
    expire_snapshots(table, **NOW)
    remove_orphan_files(table, **NOW, dry_run=False, break_shares=True)
    assert not any(path_of(location).exists() for location in share.files)
    assert live_shares(table) == [share]


def test_records_that_nothing_names_are_orphans(table: EncryptedTable, share: ShareRecord) -> None:
    """What a run that was killed between two steps leaves."""
    (named,) = named_records(table.metadata)
    left = path_of(named.location).with_name("00000000-0000-4000-8000-000000000000.entries")
    left.write_bytes(path_of(named.location).read_bytes())

    remove_orphan_files(table, **NOW, dry_run=False)

    assert not left.exists()
    assert live_shares(table) == [share]


@pytest.mark.parametrize("operation", [compact, reencrypt])
def test_what_replaces_files_deletes_none_that_is_shared(
    table: EncryptedTable, share: ShareRecord, operation: Callable[..., object]
) -> None:
    before = ids(table)
    operation(table)
    assert (is_whole(share), ids(table), live_shares(table.refresh())) == (True, before, [share])


def test_erasing_shared_rows_stops_before_anything_is_changed(table: EncryptedTable, share: ShareRecord) -> None:
    location, before = table.metadata_location, ids(table)
    with pytest.raises(SharedFilesError, match="--break-shares") as raised:
        erase(table, "id = 2")
    assert share.share_uuid in str(raised.value)
    assert PARTNER_KEY in str(raised.value)
    assert (table.refresh().metadata_location, ids(table), is_whole(share)) == (location, before, True)


def test_erasing_rows_that_are_not_shared_goes_on_and_names_the_shares(table: EncryptedTable, share: ShareRecord) -> None:
    """The folder of a share may hold copies of rows, which no file of the table tells."""
    erased = erase(table, "id = 3")
    assert erased.is_complete
    assert is_whole(share)
    assert any(share.share_uuid in each for each in erased.outside)


def test_erasing_shared_rows_on_request_says_who_had_them(table: EncryptedTable, share: ShareRecord) -> None:
    erased = erase(table, "id = 2", break_shares=True)
    assert erased.is_complete
    assert not is_whole(share)
    assert any(share.share_uuid in each for each in erased.outside)
    assert 2 not in ids(table.refresh())


def test_erasing_does_not_pass_over_files_that_only_a_share_needs(table: EncryptedTable, share: ShareRecord) -> None:
    """No manifest of the table has their keys any more, so whether such rows are in them is not known."""
    replaced(table)
    expire_snapshots(table, **NOW)
    shred(table, all_but_heads=True, replace_heads=True, break_shares=True)
    with pytest.raises(SharedFilesError, match=share.share_uuid):
        erase(table, "id = 3")


def test_a_dry_run_of_an_erasure_says_what_a_share_keeps(table: EncryptedTable, share: ShareRecord) -> None:
    assert any(share.share_uuid in reason for reason in erase(table, "id = 2", dry_run=True).refused.values())


def test_shredding_what_is_shared_stops_before_anything_is_changed(table: EncryptedTable, share: ShareRecord) -> None:
    replaced(table)
    location = table.metadata_location
    with pytest.raises(SharedFilesError, match=share.share_uuid):
        shred(table, all_but_heads=True, replace_heads=True)
    assert table.refresh().metadata_location == location


def test_shredding_what_is_shared_is_not_complete(table: EncryptedTable, share: ShareRecord) -> None:
    replaced(table)

    foretold = shred(table, all_but_heads=True, replace_heads=True, dry_run=True)
    done = shred(table, all_but_heads=True, replace_heads=True, break_shares=True)

    assert share.share_uuid in "".join(foretold.shared)
    assert not done.is_complete
    assert any(share.share_uuid in each for each in done.incomplete_because)
    assert live_shares(table.refresh()) == [share]


def test_shredding_what_is_shared_meanwhile_destroys_no_key(interrupted: EncryptedTable) -> None:
    record = record_of(interrupted)
    for _ in range(2):
        replaced(interrupted)

    with (
        pytest.raises(SharedFilesError, match="while this ran"),
        at_commits(before=once(lambda: remember_share(reload(interrupted), record))),
    ):
        shred(interrupted, [record.snapshot_id])

    fresh = reload(interrupted)
    assert live_shares(fresh) == [record]
    assert fresh.scan(snapshot_id=record.snapshot_id).count() == 20


def test_shredding_what_is_not_shared_goes_on(table: EncryptedTable) -> None:
    record = shared(table, "region = 'north'")
    reencrypt(table, where="region = 'south'")
    assert shred(table, all_but_heads=True, replace_heads=True).is_complete
    assert live_shares(table.refresh()) == [record]


def test_a_table_that_shares_is_not_purged(table: EncryptedTable, catalog: EncryptedSqlCatalog, share: ShareRecord) -> None:
    with pytest.raises(SharedFilesError, match=share.share_uuid):
        catalog.purge_table("db.t")
    assert is_whole(share)
    assert len(ids(catalog.load_table("db.t"))) == 40


def test_a_purge_that_breaks_shares_leaves_no_record(table: EncryptedTable, catalog: EncryptedSqlCatalog, share: ShareRecord) -> None:
    record = path_of(named_records(table.metadata)[0].location)
    catalog.purge_files("db.t", break_shares=True)
    assert not record.exists()
    assert not is_whole(share)


GUARDED: dict[str, Callable[..., object]] = {
    "expire": lambda table, **options: expire_snapshots(table, **NOW, **options),
    "orphans": lambda table, **options: remove_orphan_files(table, **NOW, dry_run=False, **options),
    "erase": lambda table, **options: erase(table, "id = 2", **options),
    "shred": lambda table, **options: shred(table, all_but_heads=True, **options),
    "purge": lambda table, **options: table.catalog.purge_files("db.t", **options),
}


@pytest.mark.parametrize("operation", GUARDED.values(), ids=GUARDED)
def test_a_lost_record_stops_what_deletes_until_it_is_to_break_shares(
    table: EncryptedTable, share: ShareRecord, operation: Callable[..., object]
) -> None:
    path_of(named_records(table.metadata)[0].location).unlink()
    location = table.metadata_location
    with pytest.raises(ShareRecordError, match="unshare"):
        operation(table)
    assert table.refresh().metadata_location == location
    assert is_whole(share)

    operation(table, break_shares=True)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_snapshot_that_expires_on_a_rest_server_while_it_is_shared_is_not_shared(
    catalog: EncryptedSqlCatalog, table: EncryptedTable, is_known: bool
) -> None:
    """The server takes the commit that remembers the share, although the snapshot has gone since it was planned."""
    before = record_of(table)
    replaced(table)
    after = record_of(table, share_uuid=before.share_uuid)
    compact(table, rewrite_all=True)
    if is_known:
        remember_share(table, replace(before, snapshot_id=record_of(table).snapshot_id))

    class ExpiringServer(RestrictingServer):
        is_done = False

        def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
            if b"encryption.share." in body and not self.is_done:
                self.is_done = True
                expire_snapshots(catalog.load_table(table.name()), **NOW)
            return super().answer(method, path, body)

    said = table.metadata.properties
    with ExpiringServer(catalog) as server:
        own = {name: value for name, value in catalog.properties.items() if name.startswith(("encryption.", "kms.", "s3."))}
        remote = encrypted_table(server.client(**own).load_table(table.name()))
        with pytest.raises(ConfigurationError, match=f"has no snapshot {after.snapshot_id} any more"):
            remember_share(remote, after)

    assert server.is_done and not any(path_of(location).exists() for location in after.files)
    assert [each.files for each in live_shares(table.refresh())] == ([before.files] if is_known else [])
    assert table.metadata.properties == said
