"""Ending a share: nothing opens by it any more, none of the table's files goes, and the result says whose keys were given."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from tablecrypt.errors import ConfigurationError, ShareRecordError
from tablecrypt.maintenance import Shared, reencrypt, remove_orphan_files, share, shares, unshare
from tablecrypt.maintenance.expiry import expire_snapshots
from tablecrypt.maintenance.operation import reload
from tablecrypt.maintenance.sharing.records import live_shares, remember_share
from tablecrypt.table.shares import named_records
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.maintenance.test_share_guards import NOW
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edited
from tests.support.refusing_services import IO, refused
from tests.support.shares import Partner
from tests.support.tables import (
    BY_REGION,
    MASTER_KEY,
    MERGE_ON_READ,
    REGION_SCHEMA,
    current_snapshot,
    files_below,
    ids,
    key_file_kms,
    new_table,
    path_of,
    rows,
    unpinned_catalog,
)

NORTH = "region = 'north'"


@pytest.fixture
def table(catalog: EncryptedSqlCatalog) -> EncryptedTable:
    appends = [rows(0, 20, REGION_SCHEMA), rows(20, 20, REGION_SCHEMA)]
    table = new_table(catalog, schema=REGION_SCHEMA, partitioned_by=BY_REGION, appends=appends, properties=MERGE_ON_READ)
    table.delete("id = 4")
    return table


@pytest.fixture
def shared(table: EncryptedTable, partner: Partner) -> Shared:
    return share(table, partner.key_id, partner.location, NORTH)


def test_an_ended_share_leaves_none_of_its_files_and_all_of_the_tables(table: EncryptedTable, shared: Shared, partner: Partner) -> None:
    of_partner = partner.register(shared)
    assert len(ids(of_partner)) == 19
    (record,) = live_shares(reload(table))

    ended = unshare(table, shared.share_uuid)

    assert files_below(path_of(shared.location)) == set()
    assert (ended.is_complete, ended.files, ended.left, ended.key_id) == (True, record.files, (), partner.key_id)
    assert live_shares(table) == []
    assert len(ids(table)) == 39
    with pytest.raises(FileNotFoundError):
        ids(of_partner)


def test_a_share_is_named_by_its_location_too(table: EncryptedTable, shared: Shared) -> None:
    assert unshare(table, f"{shared.location}/").share_uuid == shared.share_uuid


def test_an_unknown_share_is_refused_with_those_that_there_are(table: EncryptedTable, shared: Shared) -> None:
    with pytest.raises(ConfigurationError, match=shared.share_uuid):
        unshare(table, "s3://nowhere")
    assert len(live_shares(reload(table))) == 1


def test_a_dry_run_ends_nothing(table: EncryptedTable, shared: Shared, partner: Partner) -> None:
    stored = files_below(path_of(shared.location))
    foretold = unshare(table, shared.share_uuid, dry_run=True)
    assert {path_of(each) for each in foretold.deleted} == stored
    assert f"--shared-with {shared.share_uuid}" in foretold.advice
    assert files_below(path_of(shared.location)) == stored
    assert len(ids(partner.register(shared))) == 19


def test_a_name_that_others_put_into_the_folder_hides_no_state_of_the_share(table: EncryptedTable, shared: Shared) -> None:
    """The highest number that the name of a metadata file has room for."""
    first = path_of(shared.metadata_location)
    planted = first.with_name(f"999999999999999-{uuid.uuid4()}.metadata.json")
    planted.write_bytes(first.read_bytes())
    table.append(rows(40, 20, REGION_SCHEMA))
    update = share(table, shared.to_key_id, shared.location, update=True)

    ended = unshare(table, shared.share_uuid)

    assert {first, path_of(update.metadata_location)} <= {path_of(each) for each in ended.deleted}
    assert files_below(path_of(shared.location)) == {planted}


def test_no_state_gets_a_number_that_its_name_has_no_room_for(table: EncryptedTable, shared: Shared) -> None:
    first = path_of(shared.metadata_location)
    last = first.with_name(first.name.replace("00000-", "999999999999999-"))
    first.rename(last)
    table.append(rows(40, 20, REGION_SCHEMA))

    with pytest.raises(ConfigurationError, match=f"{last.name} has the highest number that there is: move it away"):
        share(table, shared.to_key_id, shared.location, update=True)


def test_what_others_wrote_into_the_folder_stays_and_is_told(table: EncryptedTable, shared: Shared, partner: Partner) -> None:
    """The partner may write to his table, and keep other things beside it."""
    partner.register(shared).append(rows(100, 2, REGION_SCHEMA))
    note = path_of(shared.location) / "note.txt"
    note.write_text("of the partner")
    before = files_below(path_of(shared.location))

    ended = unshare(table, shared.share_uuid)

    left = {path_of(each) for each in ended.left}
    assert note in left
    assert left == files_below(path_of(shared.location))
    assert before - left == {path_of(each) for each in ended.deleted}
    assert not any(shared.metadata_location.rpartition("/")[2][6:42] in path.name for path in left)
    assert any(path.name.startswith("00001-") for path in left)
    assert any(path.suffix == ".parquet" for path in left)


def test_an_earlier_state_of_a_share_goes_with_it(table: EncryptedTable, shared: Shared) -> None:
    """What an update that was killed leaves: the record says the new state, and the old one is whole still."""
    (record,) = live_shares(reload(table))
    new = f"{record.location}/metadata/00001-11111111-1111-4111-8111-111111111111.metadata.json"
    remember_share(table, replace(record, metadata_location=new))

    assert unshare(table, shared.share_uuid).is_complete
    assert files_below(path_of(shared.location)) == set()


def test_a_share_whose_metadata_the_store_keeps_is_remembered(tmp_path: Path) -> None:
    catalog = EncryptedSqlCatalog(
        "prod",
        **{"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/warehouse", "py-io-impl": IO},
        **key_file_kms(tmp_path / "a.keys", MASTER_KEY, "partner"),
    )
    catalog.create_namespace("db")
    table = new_table(catalog, appends=[rows(0)])
    made = share(table, "partner", f"file://{tmp_path}/share")
    refused.add("delete")
    try:
        ended = unshare(table, made.share_uuid)
    finally:
        refused.remove("delete")

    assert ended.failed.keys() == {made.metadata_location}
    assert "not ended" in ended.summary()
    assert len(live_shares(reload(table))) == 1
    assert unshare(table, made.share_uuid).is_complete


def test_a_lost_record_is_named_by_its_uuid_to_whoever_gives_a_location(table: EncryptedTable, shared: Shared) -> None:
    path_of(named_records(reload(table).metadata)[0].location).unlink()

    with pytest.raises(ConfigurationError, match=f"it has {shared.share_uuid} whose record cannot be read: its uuid with only_forget"):
        unshare(table, shared.location, only_forget=True)
    unshare(table, shared.share_uuid, only_forget=True)
    with pytest.raises(ConfigurationError, match=r"it has none$"):
        unshare(table, shared.location, only_forget=True)


def test_a_property_of_a_share_that_cannot_be_read_is_forgotten_on_request_alone(
    unwatched_warehouse: Path, aws: AwsServer, partner: Partner
) -> None:
    table = new_table(unpinned_catalog(unwatched_warehouse, aws), appends=[rows(0)])
    shared = share(table, partner.key_id, partner.location, manifests_below=[f"{table.location()}/metadata"])
    [named] = named_records(reload(table).metadata)
    broken = edited(reload(table), lambda metadata: metadata["properties"].update({named.name: "{}"}))
    with pytest.raises(ShareRecordError, match="cannot be read"):
        unshare(broken, shared.share_uuid)

    unshare(broken, shared.share_uuid, only_forget=True)

    assert live_shares(broken) == []


def test_a_lost_record_is_forgotten_on_request_alone(table: EncryptedTable, shared: Shared, partner: Partner) -> None:
    path_of(named_records(reload(table).metadata)[0].location).unlink()
    with pytest.raises(ShareRecordError, match="only_forget"):
        unshare(table, shared.share_uuid)

    ended = unshare(table, shared.share_uuid, only_forget=True)

    assert (ended.location, ended.deleted) == ("", ())
    assert "lost" in ended.summary()
    assert live_shares(table) == []
    assert len(ids(partner.register(shared))) == 19


def test_a_share_is_re_encrypted_alone_while_it_lives(table: EncryptedTable, shared: Shared, partner: Partner) -> None:
    record = live_shares(reload(table))[0]
    before = {task.file.file_path for task in table.scan().plan_files()}

    done = reencrypt(table, shared_with=shared.share_uuid)

    after = {task.file.file_path for task in table.scan().plan_files()}
    assert before - after == before & {*record.files}
    assert done.data_files == 2
    assert len(ids(partner.register(shared))) == 19


def test_exactly_the_files_of_an_ended_share_are_re_encrypted(table: EncryptedTable, shared: Shared) -> None:
    before = {task.file.file_path for task in table.scan().plan_files()}
    ended = unshare(table, shared.share_uuid)
    reencrypt(table, files=ended.files)
    after = {task.file.file_path for task in table.scan().plan_files()}
    assert before - after == before & {*ended.files}


@pytest.mark.parametrize("share", ["3f0c5a86-6e0f-5c1e-8d1c-2a9a4b3c1d5e", ""])
def test_re_encrypting_an_unknown_share_is_refused(table: EncryptedTable, share: str) -> None:
    with pytest.raises(ConfigurationError, match="no live share"):
        reencrypt(table, shared_with=share)


def test_what_a_share_kept_goes_once_it_has_ended(table: EncryptedTable, shared: Shared) -> None:
    record = live_shares(reload(table))[0]
    reencrypt(table, shared_with=shared.share_uuid)
    expire_snapshots(table, **NOW)
    assert all(path_of(each).exists() for each in record.files)

    unshare(table, shared.share_uuid)
    remove_orphan_files(table, **NOW, dry_run=False)

    assert not any(path_of(each).exists() for each in record.files)
    assert len(ids(table.refresh())) == 39


def test_shares_are_listed_with_whom_they_are_for(table: EncryptedTable, shared: Shared, partner: Partner) -> None:
    listed = shares(table)
    (one,) = listed.shares
    assert (one.share_uuid, one.key_id, one.location, one.row_filter) == (shared.share_uuid, partner.key_id, partner.location, NORTH)
    assert one.since.tzinfo is not None
    assert json.loads(json.dumps(listed.to_json()))["shares"][0]["files"] == one.files
    assert "1 live share" in listed.summary()


def test_rows_that_were_written_for_a_share_go_with_it(table: EncryptedTable, partner: Partner) -> None:
    made = share(table, partner.key_id, partner.location, "id < 11", rewrite=True)
    assert len(ids(partner.register(made))) == 10
    assert any(path.suffix == ".parquet" for path in files_below(path_of(made.location)))

    assert unshare(table, made.share_uuid).left == ()

    assert files_below(path_of(made.location)) == set()
    assert len(ids(reload(table))) == 39


@pytest.mark.parametrize("place", ["metadata/sub", "data/region=far", "metadata/00009-11111111-1111-4111-8111-111111111111.metadata.json"])
def test_links_of_the_partner_end_no_share_later_and_lose_nothing_behind_them(
    catalog: EncryptedSqlCatalog, table: EncryptedTable, shared: Shared, place: str
) -> None:
    other = new_table(catalog, "db.other", appends=[rows(0)])
    of_other = files_below(path_of(other.location()))
    link = path_of(shared.location) / place
    behind = {"data/region=far": path_of(other.location()) / "data", "metadata/sub": path_of(other.location()) / "metadata"}
    (link.parent / "odd*name?.txt").touch()
    link.symlink_to(behind.get(place, path_of(other.metadata_location)))

    ended = unshare(table, shared.share_uuid)

    assert ended.is_complete and not path_of(shared.metadata_location).exists()
    assert live_shares(reload(table)) == []
    assert files_below(path_of(other.location())) == of_other
    assert {path_of(each).relative_to(path_of(shared.location)).parts[0] for each in ended.left} == {place.partition("/")[0]}


def test_a_share_whose_metadata_folder_is_a_link_is_not_forgotten(table: EncryptedTable, shared: Shared, tmp_path: Path) -> None:
    folder = path_of(shared.location) / "metadata"
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")

    with pytest.raises(ConfigurationError, match="a link leads from the share's folder to another one: put the folder itself in"):
        unshare(table, shared.share_uuid)
    assert len(live_shares(reload(table))) == 1

    folder.unlink()
    (tmp_path / "moved").rename(folder)
    assert unshare(table, shared.share_uuid).is_complete


@pytest.mark.parametrize("names_a_write_of_the_other", [False, True])
def test_a_record_that_was_made_up_ends_nothing_in_a_folder_that_no_share_has_marked(
    catalog: EncryptedSqlCatalog, table: EncryptedTable, shared: Shared, tmp_path: Path, names_a_write_of_the_other: bool
) -> None:
    elsewhere = {"write.metadata.path": (tmp_path / "elsewhere").as_uri()}
    other = new_table(catalog, "db.other", appends=[rows(0)], properties=elsewhere)
    before = files_below(path_of(other.location()))
    (of_other,) = before
    write = of_other.name.removesuffix(".parquet").split("-", 2)[2]
    generation = write if names_a_write_of_the_other else str(uuid.uuid4())
    named = f"{other.location()}/metadata/00000-{generation}.metadata.json"
    (record,) = live_shares(reload(table))
    remember_share(table, replace(record, share_uuid=str(uuid.uuid4()), location=other.location(), metadata_location=named))

    with pytest.raises(
        ConfigurationError, match=r"nothing at .* says that the share is there, and files are: .*share again.*--only-forget"
    ):
        unshare(table, other.location())

    assert files_below(path_of(other.location())) == before


def test_a_commit_of_the_partners_that_the_store_answers_cut_is_his_all_the_same(
    table: EncryptedTable, shared: Shared, partner: Partner
) -> None:
    of_partner = partner.register(shared)
    of_partner.append(rows(100, 5, REGION_SCHEMA))
    metadata, before = path_of(of_partner.metadata_location), ids(of_partner)
    own = [task.file.file_path for task in of_partner.scan("id >= 100").plan_files()]
    own.append(current_snapshot(of_partner).manifest_list)
    whole = metadata.read_bytes()

    for _ in range(2):
        metadata.write_bytes(whole[: len(whole) // 2])
        table.append(rows(40, 20, REGION_SCHEMA))
        share(table, partner.key_id, partner.location, update=True)
        metadata.write_bytes(whole)
        assert ids(of_partner) == before
    metadata.write_bytes(whole[: len(whole) // 2])
    unshare(table, shared.share_uuid)

    assert all(path_of(location).exists() for location in own)
