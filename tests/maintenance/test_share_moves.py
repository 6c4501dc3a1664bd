"""accept_update: the partner's table moves to the next state of its share in one commit, and to no other metadata."""

from __future__ import annotations

import base64
import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import (
    AuthenticationError,
    ConfigurationError,
    FormatError,
    KeyIdChangedError,
    MetadataRollbackError,
    TamperedFileError,
)
from tablecrypt.maintenance import FindingKind, Shared, accept_update, audit, share, verify
from tablecrypt.maintenance.sharing.acceptance import accept
from tablecrypt.maintenance.sharing.metadata import ShareWriter
from tablecrypt.maintenance.sharing.records import live_shares, remember_share
from tablecrypt.maintenance.sharing.sealing import create_key_pair
from tablecrypt.maintenance.sharing.states import SHARED_AT
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.updates import NextShareStateUpdate
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.shares import NORTH, Partner, state_of
from tests.support.tables import current_snapshot, encrypted_sql_catalog, encrypted_table, ids, metadata_of, path_of, team_rows, team_table


@pytest.fixture
def table(catalog: EncryptedSqlCatalog, aws: AwsServer) -> EncryptedTable:
    properties = {"encryption.column-keys": f"{aws.new_key()}: note"}
    return team_table(catalog, 0, properties=properties)


@pytest.fixture
def theirs(table: EncryptedTable, partner: Partner) -> EncryptedTable:
    return partner.register(share(table, partner.key_id, partner.location, NORTH, columns={"note": partner.column_key_id}))


def updated(table: EncryptedTable, partner: Partner, **options: Any) -> Shared:
    table.append(team_rows(100 * len(table.snapshots()), 20))
    return share(table, partner.key_id, partner.location, update=True, **options)


def secret_of(theirs: EncryptedTable) -> Secret | None:
    return current_snapshot(theirs).authenticated_header(theirs.io).share_secret


def same_rows(theirs: EncryptedTable, table: EncryptedTable) -> bool:
    return bool(theirs.scan().to_arrow().sort_by("id") == table.scan(NORTH).to_arrow().sort_by("id"))


def test_the_table_moves_and_reads_the_new_rows(theirs: EncryptedTable, table: EncryptedTable, partner: Partner) -> None:
    for _ in range(3):
        result = updated(table, partner)

        moved = accept_update(theirs, result.metadata_location)

        assert (moved.moved, moved.share_uuid, moved.rows) == (True, result.share_uuid, result.rows)
        assert same_rows(encrypted_table(partner.catalog.load_table("db.share")), table)
        assert same_rows(theirs, table)
        assert len(theirs.snapshots()) == 1
        assert verify(theirs).is_good
        assert {finding.kind for each in audit(theirs).tables for finding in each.findings} <= {FindingKind.ORPHANS, FindingKind.STALE_KEYS}
        assert not accept_update(theirs, result.metadata_location).moved


def test_a_dry_run_moves_nothing(theirs: EncryptedTable, table: EncryptedTable, partner: Partner) -> None:
    before = theirs.metadata_location
    assert accept_update(theirs, updated(table, partner).metadata_location, dry_run=True).moved
    assert theirs.refresh().metadata_location == before


def test_columns_of_the_source_that_came_and_were_renamed_come_with_it(
    theirs: EncryptedTable, table: EncryptedTable, partner: Partner
) -> None:
    with table.update_schema() as schema:
        schema.rename_column("note", "remark")
    accept_update(theirs, updated(table, partner).metadata_location)

    assert same_rows(theirs, table)
    assert theirs.schema().fields == table.schema().fields


def test_an_older_state_is_refused(theirs: EncryptedTable, table: EncryptedTable, partner: Partner) -> None:
    first = theirs.metadata_location
    accept_update(theirs, updated(table, partner).metadata_location)

    with pytest.raises(MetadataRollbackError, match="older state"):
        accept_update(theirs, first)
    assert same_rows(encrypted_table(theirs.refresh()), table)


def test_another_share_is_refused(theirs: EncryptedTable, table: EncryptedTable, partner: Partner) -> None:
    other = share(table, partner.key_id, f"{partner.location}-other", "team = 'south'")

    with pytest.raises(ConfigurationError, match="is of share"):
        accept_update(theirs, other.metadata_location)


EDITS = ["schema", "property", "moment", "uuid", "ref", "key", "key twice", "number", "last number", "schema of the snapshot", "code"]


@pytest.mark.parametrize("edit", EDITS)
def test_a_state_that_somebody_edits_is_refused(theirs: EncryptedTable, table: EncryptedTable, partner: Partner, edit: str) -> None:
    other = share(table, partner.key_id, f"{partner.location}-other", "team = 'south'")
    result = updated(table, partner)
    stored = path_of(other.metadata_location if edit == "uuid" else result.metadata_location)
    metadata = json.loads(stored.read_text(encoding="utf-8"))
    keys: list[dict[str, Any]] = metadata["encryption-keys"]
    edits: dict[str, Any] = {
        "schema": lambda: metadata["schemas"][0]["fields"][1].update(name="region"),
        "property": lambda: metadata["properties"].update({"gc.enabled": "true"}),
        "moment": lambda: metadata["properties"].update({"tablecrypt.shared-at-ms": "99999999999999"}),
        "uuid": lambda: metadata.update({"table-uuid": result.share_uuid}),
        "ref": lambda: metadata["refs"].update({"side": metadata["refs"]["main"]}),
        "key": lambda: keys.append({**keys[0], "key-id": "c3RyYW5nZXI=", "encrypted-by-id": "stranger"}),
        "key twice": lambda: keys.append(keys[0]),
        "number": lambda: metadata["snapshots"][0].update({"sequence-number": 1}),
        "last number": lambda: metadata.update({"last-sequence-number": 10**15}),
        "schema of the snapshot": lambda: metadata["snapshots"][0].update({"schema-id": 77}),
        "code": lambda: metadata["properties"].update({"write.py-location-provider.impl": "pydoc.pipepager"}),
    }
    edits[edit]()
    stored.write_text(json.dumps(metadata), encoding="utf-8")
    before = theirs.metadata_location

    for is_dry_run in (True, False):
        with pytest.raises((TamperedFileError, ConfigurationError)):
            accept_update(theirs, f"file://{stored}", dry_run=is_dry_run)
    assert theirs.refresh().metadata_location == before


def test_a_state_for_somebody_else_does_not_open(theirs: EncryptedTable, table: EncryptedTable, partner: Partner, aws: AwsServer) -> None:
    result = updated(table, partner)
    stranger = Partner.of(path_of(partner.location).parent, aws)
    other = share(table, stranger.key_id, f"{partner.location}-other", NORTH)
    assert other.share_uuid != result.share_uuid
    stored = path_of(other.metadata_location)
    stored.write_text(stored.read_text(encoding="utf-8").replace(other.share_uuid, result.share_uuid), encoding="utf-8")

    with pytest.raises((AuthenticationError, KeyIdChangedError)):
        accept_update(theirs, other.metadata_location)


def test_a_table_with_commits_of_the_partners_does_not_move(theirs: EncryptedTable, table: EncryptedTable, partner: Partner) -> None:
    theirs.append(team_rows(900))

    with pytest.raises(ConfigurationError, match="of its own"):
        accept_update(theirs, updated(table, partner).metadata_location)


def test_a_table_that_is_no_share_does_not_move(table: EncryptedTable, theirs: EncryptedTable) -> None:
    with pytest.raises(ConfigurationError, match="is no share"):
        accept_update(table, theirs.metadata_location)


def test_a_state_with_other_protected_columns_is_to_be_registered(theirs: EncryptedTable, table: EncryptedTable, partner: Partner) -> None:
    with pytest.raises(ConfigurationError, match=r"column 'note' is under another key.*register this metadata"):
        accept_update(theirs, updated(table, partner, columns={}).metadata_location)

    theirs.catalog.drop_table("db.share")
    theirs = partner.register(share(table, partner.key_id, partner.location, update=True))
    with pytest.raises(ConfigurationError, match="column 'note' is under another key"):
        accept_update(theirs, updated(table, partner, columns={"note": partner.column_key_id}).metadata_location)
    assert not theirs.refresh().metadata.metadata_log


def test_what_the_partner_has_set_for_his_table_goes_on(theirs: EncryptedTable, table: EncryptedTable, partner: Partner) -> None:
    theirs.transaction().set_properties({"owner": "somebody", "gc.enabled": "true"}).commit_transaction()

    accept_update(theirs, updated(table, partner).metadata_location)

    assert same_rows(theirs, table)
    assert (theirs.properties["owner"], theirs.properties["gc.enabled"]) == ("somebody", "false")


def test_further_shares_are_still_known(theirs: EncryptedTable, table: EncryptedTable, partner: Partner, aws: AwsServer) -> None:
    third = aws.new_key()
    keys = f"{partner.key_id},{partner.column_key_id},{third}"
    mine = encrypted_sql_catalog(partner.home, aws, {"encryption.allowed-key-ids": keys}).load_table("db.share")
    further = share(mine, third, f"{partner.location}-further", columns={})

    accept_update(mine, updated(table, partner).metadata_location)

    assert [record.share_uuid for record in live_shares(mine)] == [further.share_uuid]


def test_a_sharer_says_neither_where_the_partners_files_go_nor_what_he_shares(table: EncryptedTable, partner: Partner) -> None:
    invented = f"encryption.share.{uuid.uuid4()}"
    ours = {
        "write.location-provider.impl": "org.example.Elsewhere",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }

    class Sharer(ShareWriter):
        def _properties(self) -> dict[str, str]:
            elsewhere = dict.fromkeys(("write.data.path", "write.metadata.path"), "file:///elsewhere")
            return {**super()._properties(), **elsewhere, **ours, invented: "{}"}

    result = share(table, partner.key_id, partner.location, NORTH)
    theirs = partner.register(result)
    theirs.transaction().set_properties({"write.data.path": f"{partner.location}/mine"}).commit_transaction()
    [record] = live_shares(table.refresh())
    assert record.secret is not None
    accept_update(theirs, state_of(table, result, partner.key_id, record.secret, Sharer))

    found = theirs.refresh().properties
    assert found["write.data.path"] == f"{partner.location}/mine"
    assert not {"write.metadata.path", invented, *ours} & found.keys()


def test_a_sharer_runs_no_code_in_the_partners_process(table: EncryptedTable, partner: Partner, tmp_path: Path) -> None:
    came = tmp_path / "came"

    class Sharer(ShareWriter):
        def _properties(self) -> dict[str, str]:
            # What PyIceberg makes of it: the pager runs the first property's name in a shell.
            return {f"touch {came}; #": "", "write.py-location-provider.impl": "pydoc.pipepager", **super()._properties()}

    result = share(table, partner.key_id, partner.location, NORTH)
    theirs = partner.register(result)
    [record] = live_shares(table.refresh())
    assert record.secret is not None
    location = state_of(table, result, partner.key_id, record.secret, Sharer)
    with pytest.raises(ConfigurationError, match="names code to import"):
        accept_update(theirs, location)

    with theirs.io.new_input(location).open() as stream:
        state = EncryptedTableMetadata.model_validate_json(stream.read())
    update: Any = NextShareStateUpdate(metadata=state)
    with pytest.raises(ConfigurationError, match="names code to import"):
        theirs.catalog.commit_table(theirs, (), (update,))
    assert not came.exists()


def test_of_several_who_move_it_at_once_one_does_and_the_table_is_whole(
    theirs: EncryptedTable, table: EncryptedTable, partner: Partner
) -> None:
    result = updated(table, partner)
    tables = [encrypted_table(partner.user(partner.column_key_id).load_table("db.share")) for _ in range(4)]

    def move(one: EncryptedTable) -> bool | None:
        try:
            return accept_update(one, result.metadata_location).moved
        except CommitFailedException:
            return None

    with ThreadPoolExecutor(len(tables)) as threads:
        moved = list(threads.map(move, tables))

    assert moved.count(True) == 1
    assert same_rows(encrypted_table(theirs.refresh()), table)
    assert len(theirs.metadata.metadata_log) == 1


def test_a_pin_of_the_partners_follows(table: EncryptedTable, partner: Partner, aws: AwsServer, tmp_path: Path) -> None:
    keys = f"{partner.key_id},{partner.column_key_id}"
    pinned = encrypted_sql_catalog(partner.home, aws, {"encryption.allowed-key-ids": keys, "encryption.pins": f"{tmp_path}/pins.json"})
    first = share(table, partner.key_id, partner.location, NORTH, columns={"note": partner.column_key_id})
    theirs = encrypted_table(pinned.register_table("db.share", first.metadata_location))

    accept_update(theirs, updated(table, partner).metadata_location)

    assert same_rows(encrypted_table(pinned.load_table("db.share")), table)


def test_an_accepted_sealed_share_moves_under_the_partners_own_key(catalog: EncryptedSqlCatalog, partner: Partner, tmp_path: Path) -> None:
    table = team_table(catalog, 0)
    create_key_pair(tmp_path / "mine.key")
    to, properties = f"public-key:{tmp_path}/mine.key.pub", {name: str(value) for name, value in partner.catalog.properties.items()}
    first = share(table, to, partner.location, NORTH)
    own = accept(first.metadata_location, partner.key_id, f"{tmp_path}/mine.key", f"{partner.location}-own", properties)
    theirs = encrypted_table(partner.catalog.register_table("db.share", own.metadata_location))
    table.append(team_rows(100))
    result = share(table, to, partner.location, update=True)

    with pytest.raises(ConfigurationError, match=r"name the file of the private key .key_file=…, --key-file"):
        accept_update(theirs, result.metadata_location)
    create_key_pair(tmp_path / "other.key")
    with pytest.raises(AuthenticationError):
        accept_update(theirs, result.metadata_location, str(tmp_path / "other.key"))
    accept_update(theirs, result.metadata_location, str(tmp_path / "mine.key"))

    assert same_rows(theirs, table)
    assert theirs.metadata_location.startswith(f"{partner.location}-own/")
    assert verify(theirs).is_good


@pytest.mark.parametrize("moment", ["x", "9" * 5000, "\u0669" * 13, "-1", ""])
def test_a_state_whose_sharer_says_no_moment_is_refused(
    theirs: EncryptedTable, table: EncryptedTable, partner: Partner, moment: str
) -> None:
    class OddWriter(ShareWriter):
        def _properties(self) -> dict[str, str]:
            return {**super()._properties(), SHARED_AT: moment}

    result = updated(table, partner)
    [record] = live_shares(table)
    assert record.secret is not None

    with pytest.raises(FormatError, match="no moment in milliseconds"):
        accept_update(theirs, state_of(table, result, partner.key_id, record.secret, OddWriter))


@pytest.mark.parametrize("count", ["x", "9" * 5000, ""])
def test_a_summary_that_counts_no_rows_moves_the_table_and_counts_none(
    theirs: EncryptedTable, table: EncryptedTable, partner: Partner, count: str
) -> None:
    result = updated(table, partner)
    stored = path_of(result.metadata_location)
    metadata = json.loads(stored.read_text(encoding="utf-8"))
    metadata["snapshots"][0]["summary"]["total-records"] = count
    stored.write_text(json.dumps(metadata), encoding="utf-8")

    moved = accept_update(theirs, result.metadata_location)

    assert (moved.moved, moved.rows) == (True, None)
    assert same_rows(theirs, table)


def test_all_states_of_a_share_have_one_secret_which_its_record_keeps(
    theirs: EncryptedTable, table: EncryptedTable, partner: Partner
) -> None:
    first = secret_of(theirs)
    accept_update(theirs, updated(table, partner).metadata_location)

    [record] = live_shares(table.refresh())
    assert first is not None
    assert secret_of(theirs) == record.secret == first
    assert base64.b64encode(first.reveal()).decode() not in f"{record!r} {metadata_of(theirs).model_dump_json()}"


def test_a_share_of_an_earlier_release_moves_and_has_a_secret_from_then_on(table: EncryptedTable, partner: Partner) -> None:
    class EarlierWriter(ShareWriter):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self._secret = None  # type: ignore[assignment]

    shared = share(table, partner.key_id, partner.location)
    [record] = live_shares(table.refresh())
    remember_share(table, replace(record, secret=None))
    earlier = state_of(encrypted_table(table.refresh()), shared, partner.key_id, Secret(bytes(32)), EarlierWriter)
    theirs = encrypted_table(partner.catalog.register_table("db.share", earlier))
    assert secret_of(theirs) is None

    for _ in range(2):
        accept_update(theirs, updated(table, partner).metadata_location)

    assert ids(theirs) == ids(table)
    [record] = live_shares(table.refresh())
    assert secret_of(theirs) == record.secret is not None
