"""share with update: the partner gets what came and what went since, in one new metadata, and what is stored of a share stays small."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tablecrypt.errors import ConfigurationError, SharedFilesError
from tablecrypt.maintenance import compact, reencrypt, share, shred, unshare, verify
from tablecrypt.maintenance.expiry import expire_snapshots
from tablecrypt.maintenance.sharing.records import live_shares
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.kill_points import MORTAL, Killed, dying_at, mortal_databases
from tests.support.shares import NORTH, Partner
from tests.support.tables import (
    BY_TEAM,
    MERGE_ON_READ,
    TEAM_SCHEMA,
    encrypted_sql_catalog,
    encrypted_table,
    files_below,
    folder_of,
    ids,
    new_table,
    path_of,
    team_rows,
    team_table,
)


@pytest.fixture
def table(catalog: EncryptedSqlCatalog) -> EncryptedTable:
    return team_table(catalog, 0, properties=MERGE_ON_READ)


def named(table: EncryptedTable) -> set[str]:
    return {task.file.file_path for task in table.refresh().scan(NORTH).plan_files()}


def test_an_update_brings_what_came_and_what_went(table: EncryptedTable, partner: Partner) -> None:
    first = share(table, partner.key_id, partner.location, NORTH)
    before = partner.register(first)
    table.append(team_rows(100))
    table.delete("id = 2")
    compact(table, NORTH, rewrite_all=True)
    table.append(team_rows(200))

    result = share(table, partner.key_id, partner.location, update=True)

    assert (result.share_uuid, result.came, result.went) == (first.share_uuid, 2, 1)
    assert ids(before.refresh()) == list(range(0, 20, 2)), "who reads the state before goes on reading it"
    before.catalog.drop_table("db.share")
    theirs = partner.register(result)
    assert ids(theirs) == ids(table.refresh(), row_filter=NORTH)
    assert theirs.metadata.table_uuid == before.metadata.table_uuid
    assert len(theirs.snapshots()) == 1
    assert verify(theirs).is_good
    [record] = live_shares(table.refresh())
    assert set(record.files) == named(table)
    assert (record.row_filter, record.metadata_location) == (NORTH, result.metadata_location)


def test_an_update_of_what_did_not_change_changes_nothing(table: EncryptedTable, partner: Partner) -> None:
    first = share(table, partner.key_id, partner.location, NORTH)
    location = table.refresh().metadata_location
    before = {path: path.read_bytes() for path in files_below(path_of(partner.location))}

    result = share(table, partner.key_id, partner.location, update=True)

    assert (result.metadata_location, result.came, result.went, result.written_bytes) == (first.metadata_location, 0, 0, 0)
    assert {path: path.read_bytes() for path in files_below(path_of(partner.location))} == before
    assert table.refresh().metadata_location == location


def test_an_update_gives_no_column_and_no_bounds_that_the_share_has_kept_from_the_partner(table: EncryptedTable, partner: Partner) -> None:
    share(table, partner.key_id, partner.location, NORTH, rewrite=True, without_columns=["note"], no_statistics=True)
    unchanged = share(table, partner.key_id, partner.location, update=True)
    assert unchanged.withheld == ("note",)
    assert unchanged.summary().startswith("Still shares 0 files of db.t (0 B), and matching rows of 1 more file written once, with ")
    with table.update_schema() as change:
        change.rename_column("note", "remark")
    renamed = team_rows(100).rename_columns(["id", "team", "remark"])
    table.append(renamed)

    updated = share(table, partner.key_id, partner.location, update=True)

    assert (updated.columns, updated.withheld, updated.files) == (("id", "team"), ("remark",), 0)
    theirs = partner.register(updated)
    assert ids(theirs) == ids(table, row_filter=NORTH)
    assert not {field_id for task in theirs.scan().plan_files() for field_id in task.file.lower_bounds or {}}
    with table.update_schema() as change:
        change.delete_column("remark")
    table.append(team_rows(200).select(["id", "team"]))
    # The key of an older file would open the column that was dropped.
    assert share(table, partner.key_id, partner.location, update=True).files == 0


def test_what_an_update_is_to_keep_from_the_partner_goes_although_nothing_else_has_changed(table: EncryptedTable, partner: Partner) -> None:
    first = share(table, partner.key_id, partner.location, NORTH)

    without = share(table, partner.key_id, partner.location, update=True, rewrite=True, without_columns=["note"])
    assert partner.register(without).schema().column_names == ["id", "team"]
    assert without.metadata_location != first.metadata_location
    plain = share(table, partner.key_id, partner.location, update=True, no_statistics=True)
    assert plain.metadata_location != without.metadata_location


def test_many_updates_leave_two_states(table: EncryptedTable, partner: Partner) -> None:
    share(table, partner.key_id, partner.location, NORTH)
    sizes = []
    for number in range(1, 9):
        table.append(team_rows(100 * number))
        share(table, partner.key_id, partner.location, update=True)
        files = files_below(path_of(partner.location))
        sizes.append(len(files))

    assert sizes == [6] * 8
    assert len(live_shares(table.refresh())) == 1


@pytest.fixture
def updated(table: EncryptedTable, partner: Partner) -> EncryptedTable:
    """The state before of a share, as its reader has it: the table has written all of its files again, and the share is up to date."""
    before = partner.register(share(table, partner.key_id, partner.location, NORTH))
    reencrypt(table)
    share(table.refresh(), partner.key_id, partner.location, update=True)
    return before


def test_expiry_keeps_the_files_of_the_state_before_until_the_next_update(
    table: EncryptedTable, partner: Partner, updated: EncryptedTable
) -> None:
    assert expire_snapshots(table, older_than=dt.datetime.now(dt.UTC)).refused
    assert ids(updated.refresh()) == list(range(0, 20, 2))

    share(table, partner.key_id, partner.location, update=True)

    [record] = live_shares(table.refresh())
    assert (set(record.files), record.former_files) == (named(table), ())
    assert len(files_below(path_of(partner.location))) == 3, "nobody is at the state before any more"


def test_shredding_what_only_the_state_before_opens_stops(table: EncryptedTable, partner: Partner, updated: EncryptedTable) -> None:
    with pytest.raises(SharedFilesError, match="update the share once more"):
        shred(table, all_but_heads=True, replace_heads=True)
    assert ids(updated.refresh()) == list(range(0, 20, 2))

    share(table, partner.key_id, partner.location, update=True)

    assert shred(table, all_but_heads=True, replace_heads=True).is_complete
    with pytest.raises(FileNotFoundError):
        updated.refresh().scan().to_arrow()


def test_where_nothing_is_removed_the_files_of_all_states_are_kept(table: EncryptedTable, partner: Partner) -> None:
    theirs = partner.register(share(table, partner.key_id, partner.location, NORTH))
    theirs.append(team_rows(900))
    for _ in range(3):
        reencrypt(table)
        share(table.refresh(), partner.key_id, partner.location, update=True)
        share(table, partner.key_id, partner.location, update=True)

    expire_snapshots(table, older_than=dt.datetime.now(dt.UTC))

    assert ids(theirs.refresh()) == [*range(0, 20, 2), *range(900, 920)]
    [record] = live_shares(table.refresh())
    assert set(unshare(table, partner.location).files) == {*record.files, *record.former_files}
    assert len(record.former_files) == 3


YEAR: Final = 1000
COMPACTED_EVERY: Final = 50


@pytest.mark.campaign
def test_a_year_of_updates_keeps_what_is_stored_of_a_share_bounded(catalog: EncryptedSqlCatalog, partner: Partner, aws: AwsServer) -> None:
    """Each day a few appends and an update after each; the table is compacted and expires now and then, as tables are that live so long."""
    properties = {"encryption.column-keys": f"{aws.new_key()}: note"}
    table = team_table(catalog, 0, properties=properties)
    share(table, partner.key_id, partner.location, NORTH, columns={"note": partner.column_key_id})
    stored: list[tuple[int, int, int]] = []
    for number in range(1, YEAR + 1):
        table.append(team_rows(100 * number, 2))
        if number % COMPACTED_EVERY == 0:
            compact(table, rewrite_all=True)
            expire_snapshots(table, older_than=dt.datetime.now(dt.UTC), retain_last=2)
        result = share(table, partner.key_id, partner.location, update=True)
        if number % COMPACTED_EVERY in (0, COMPACTED_EVERY - 1):
            files = files_below(path_of(partner.location))
            stored.append((len(files), sum(path.stat().st_size for path in files), len(list(record_files(table)))))

    assert {(files, records) for files, _, records in stored} == {(6, 1)}
    assert len(live_shares(table.refresh())) == 1
    for before_compaction in (stored[0::2], stored[1::2]):
        sizes = [size for _, size, _ in before_compaction[1:]]
        assert max(sizes) < 1.1 * min(sizes)
    theirs = partner.register(result)
    assert ids(theirs) == ids(table, row_filter=NORTH)
    assert theirs.scan().to_arrow().num_rows == 10 + YEAR
    assert len(encrypted_table(theirs).metadata.encryption_keys) == 4


def record_files(table: EncryptedTable) -> Iterator[Path]:
    return (path for path in files_below(folder_of(table)) if "_tablecrypt-shares" in str(path))


def test_rows_that_were_written_again_go_with_their_state_and_with_the_share(catalog: EncryptedSqlCatalog, partner: Partner) -> None:
    table = new_table(catalog, schema=TEAM_SCHEMA, appends=[team_rows(0)])
    share(table, partner.key_id, partner.location, NORTH, rewrite=True)
    for number in (1, 2, 3):
        table.append(team_rows(100 * number))
        result = share(table, partner.key_id, partner.location, update=True, rewrite=True)

    written = [path for path in files_below(path_of(partner.location)) if path.suffix == ".parquet"]
    assert len(written) == 3 + 4, "those of the last state and of the one before"
    assert ids(partner.register(result)) == ids(table.refresh(), row_filter=NORTH)
    with pytest.raises(ConfigurationError, match="hold other rows too"):
        share(table.refresh(), partner.key_id, partner.location, snapshot=table.snapshots()[0].snapshot_id, update=True)

    unshare(table, partner.location)
    assert not files_below(path_of(partner.location))


def test_where_a_partner_has_written_to_his_table_nothing_is_removed(table: EncryptedTable, partner: Partner) -> None:
    theirs = partner.register(share(table, partner.key_id, partner.location, NORTH))
    theirs.append(team_rows(900))
    before = set(files_below(path_of(partner.location)))
    for number in (1, 2, 3):
        table.append(team_rows(100 * number))
        share(table, partner.key_id, partner.location, update=True)

    assert before <= set(files_below(path_of(partner.location)))
    assert ids(theirs.refresh()) == [*range(0, 20, 2), *range(900, 920)]


@pytest.mark.parametrize(("key", "place", "message"), [("alias/people", "", "is under"), ("", "-2", "has no share at")])
def test_an_update_of_what_is_no_such_share_is_refused(table: EncryptedTable, partner: Partner, key: str, place: str, message: str) -> None:
    share(table, partner.key_id, partner.location, NORTH)

    with pytest.raises(ConfigurationError, match=message):
        share(table, key or partner.key_id, f"{partner.location}{place}", update=True)


@pytest.fixture
def mortal(tmp_path: Path, aws: AwsServer) -> Iterator[EncryptedSqlCatalog]:
    with mortal_databases():
        yield encrypted_sql_catalog(tmp_path, aws, {**MORTAL, "encryption.kms.cache-ttl-ms": "0"})


UPDATES: Final = 8
"""Of one table, before a new one begins: a table that grows for ever has more and more steps."""


@pytest.mark.slow
def test_killed_at_every_step_of_an_update_the_share_is_as_before_or_after(mortal: EncryptedSqlCatalog, partner: Partner) -> None:
    killed = 0
    for first in range(1, 200, 2 * UPDATES):
        name, place = f"db.t_{first}", f"{partner.location}/{first}"
        table = new_table(mortal, name, TEAM_SCHEMA, appends=[team_rows(0)], partitioned_by=BY_TEAM)
        known, rows_before = share(table, partner.key_id, place, NORTH), list(range(0, 20, 2))
        for step in range(first, first + 2 * UPDATES, 2):
            table.append(team_rows(100 * step))
            wanted = ids(table.refresh(), row_filter=NORTH)
            is_killed = False
            try:
                with dying_at(step):
                    share(table, partner.key_id, place, update=True)
            except Killed:
                is_killed = True

            assert ids(partner.register(known, f"db.before_{step}")) == rows_before
            [record] = live_shares(table.refresh())
            read = partner.catalog.load_table(f"db.before_{step}").scan().plan_files()
            assert set(record.files) >= {task.file.file_path for task in read}
            assert ids(table, row_filter=NORTH) == wanted

            known, rows_before = share(table, partner.key_id, place, update=True), wanted
            assert ids(partner.register(known, f"db.after_{step}")) == wanted
            assert set(live_shares(table.refresh())[0].files) == named(table)
            killed += is_killed
        if not is_killed:
            break
    assert not is_killed
    assert killed >= 10
