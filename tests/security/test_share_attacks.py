"""What a partner tries with a share, and anybody with its metadata.json: nothing opens but the files that were shared.

The partner has his master key, so the share's KEK, its manifests, and the DEK of each shared file. He may write his own table as he likes,
and read every byte of the source's folder: that a store's policy keeps him from most of it is left out here.
"""

from __future__ import annotations

import json
import re
import shlex
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import NameMapping

from tablecrypt import parquet
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import (
    AuthenticationError,
    ConfigurationError,
    DeletionRefusedError,
    FormatError,
    KeyIdChangedError,
    KeyNotFoundError,
    ShareRecordError,
    TablecryptError,
    TamperedFileError,
)
from tablecrypt.maintenance import FindingKind, Shared, accept_update, audit, compact, share, unshare
from tablecrypt.maintenance.columns.footers import FooterWork, inspect_hidden_columns
from tablecrypt.maintenance.expiry import expire_snapshots
from tablecrypt.maintenance.reachable import FileKind, ReachableFile, reachable_files
from tablecrypt.maintenance.sharing.acceptance import accept
from tablecrypt.maintenance.sharing.records import live_shares, remember_share
from tablecrypt.maintenance.sharing.sealing import create_key_pair
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.table.protection.policy import column_keys
from tablecrypt.table.shares import ShareRecord
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.security.matrix.partner import named_otherwise
from tests.support import shares
from tests.support.aws import AwsServer
from tests.support.shares import NORTH, Partner, state_of
from tests.support.tables import (
    BY_TEAM,
    MASTER_KEY,
    TEAM_SCHEMA,
    data_paths,
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

REFUSED: Final = (AuthenticationError, KeyNotFoundError, FormatError)


@pytest.fixture
def table(catalog: EncryptedSqlCatalog, aws: AwsServer) -> EncryptedTable:
    """Two teams in partitions, of which rows of the north were written again; the notes are protected."""
    properties = {"encryption.column-keys": f"{aws.new_key()}: note"}
    table = team_table(catalog, 0, 100, properties=properties)
    return encrypted_table(table.refresh())


@pytest.fixture
def shared(table: EncryptedTable, partner: Partner) -> Shared:
    return share(table, partner.key_id, partner.location, NORTH)


@pytest.fixture
def theirs(partner: Partner, shared: Shared) -> EncryptedTable:
    return partner.register(shared)


def keys_of(theirs: EncryptedTable) -> list[StandardKeyMetadata]:
    """Every key that opens a file of the share."""
    return [file.key for file in reachable_files(theirs.metadata, theirs.io).files.values() if file.key is not None]


def others_of(table: EncryptedTable, theirs: EncryptedTable) -> Iterator[ReachableFile]:
    """Every file of the source that was not shared: of each snapshot, manifests and lists too."""
    given = reachable_files(theirs.metadata, theirs.io).files
    return (file for location, file in reachable_files(table.metadata, table.io).files.items() if location not in given)


def opens(theirs: EncryptedTable, file: ReachableFile, key: StandardKeyMetadata) -> bool:
    try:
        if file.kind == FileKind.DATA:
            inspect_hidden_columns(theirs.io, FooterWork(file.location, frozenset(), NameMapping([])), (key,))
        else:
            with theirs.io.decrypting_input(file.location, key).open() as stream:
                stream.read()
    except TablecryptError:
        return False
    return True


def test_no_key_of_the_share_opens_a_neighbour_file_an_older_one_or_a_manifest_of_the_source(
    table: EncryptedTable, partner: Partner
) -> None:
    before = share(table, partner.key_id, f"{partner.location}-before", NORTH)
    old = {task.file.file_path for task in table.scan(NORTH).plan_files()}
    compact(table, NORTH, rewrite_all=True)
    theirs = partner.register(share(table.refresh(), partner.key_id, partner.location, NORTH))
    keys, others = keys_of(theirs), list(others_of(table, theirs))

    assert {file.location for file in others} >= old, "files from before they were rewritten are among those that are tried"
    assert {FileKind.DATA, FileKind.MANIFEST, FileKind.MANIFEST_LIST} <= {file.kind for file in others}
    assert not [(file, key) for file in others for key in keys if opens(theirs, file, key)]
    given = reachable_files(theirs.metadata, theirs.io).files.values()
    assert all(opens(theirs, file, file.key) for file in given if file.key is not None)
    assert ids(partner.register(before, "db.before")) == ids(theirs), "what was shared before stays readable, until it is re-encrypted"


def test_a_share_that_its_partner_edits_to_name_another_file_does_not_read(table: EncryptedTable, theirs: EncryptedTable) -> None:
    [neighbour, *_] = [task.file.file_path for task in table.scan("team = 'south'").plan_files()]
    [mine, *_] = [task.file for task in theirs.scan().plan_files()]

    with theirs.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(named_otherwise(mine, neighbour))

    with pytest.raises(AuthenticationError):
        theirs.refresh().scan().to_arrow()


@pytest.mark.parametrize("file_format", ["whole metadata", "with the partner's key"])
def test_the_sources_own_metadata_does_not_open_for_the_partner(
    table: EncryptedTable, theirs: EncryptedTable, tmp_path: Path, partner: Partner, file_format: str
) -> None:
    metadata = json.loads(path_of(table.metadata_location).read_text(encoding="utf-8"))
    if file_format == "with the partner's key":
        metadata["properties"]["encryption.key-id"] = partner.key_id
        for key in metadata["encryption-keys"]:
            if key["encrypted-by-id"] == MASTER_KEY:
                key["encrypted-by-id"] = partner.key_id
    location = tmp_path / "00000-0c9f3a52-9a4f-4a86-8f61-0d2c7f4be8a1.metadata.json"
    location.write_text(json.dumps(metadata), encoding="utf-8")

    with pytest.raises(TablecryptError):
        partner.catalog.register_table("db.stolen", f"file://{location}").scan().to_arrow()


def test_a_withheld_column_opens_neither_from_the_file_nor_through_properties_of_the_partners(
    table: EncryptedTable, theirs: EncryptedTable, partner: Partner
) -> None:
    [file, *_] = [task.file for task in theirs.scan().plan_files()]
    key = StandardKeyMetadata.decode(bytes(file.key_metadata or b""))
    footer = key.encryption_key.reveal()
    keys = parquet.FileKeys(footer, {"__protected__.3": footer, "note": footer}, aad_prefix=key.aad_prefix)
    with pytest.raises(REFUSED):
        parquet.read_table(str(path_of(file.file_path)), keys)

    with theirs.update_schema() as schema:
        schema.add_column("note", TEAM_SCHEMA.find_type("note"))
    edited = theirs.refresh().metadata.model_dump_json().replace('"id":4,"name":"note"', '"id":3,"name":"note"')
    location = path_of(partner.location) / "metadata" / "00009-0c9f3a52-9a4f-4a86-8f61-0d2c7f4be8a1.metadata.json"
    location.write_text(edited, encoding="utf-8")
    rows = partner.catalog.register_table("db.edited", f"file://{location}").scan(selected_fields=("note",)).to_arrow()
    assert set(rows["note"].to_pylist()) == {None}


EDITS: Final[dict[str, Callable[[dict[str, Any]], object]]] = {
    "manifest list of the source": lambda metadata: None,
    "another table-uuid": lambda metadata: metadata.update({"table-uuid": "0c9f3a52-9a4f-4a86-8f61-0d2c7f4be8a1"}),
    "another sequence number": lambda metadata: metadata["snapshots"][0].update({"sequence-number": 1}),
    "another column name": lambda metadata: metadata["schemas"][0]["fields"][0].update({"name": "amount"}),
}


@pytest.mark.parametrize("edit", EDITS)
def test_metadata_of_a_share_that_somebody_edits_is_refused(table: EncryptedTable, shared: Shared, partner: Partner, edit: str) -> None:
    stored = path_of(shared.metadata_location)
    metadata = json.loads(stored.read_text(encoding="utf-8"))
    EDITS[edit](metadata)
    if edit == "manifest list of the source":
        metadata["snapshots"][0]["manifest-list"] = table.current_snapshot().manifest_list  # type: ignore[union-attr]
    stored.write_text(json.dumps(metadata), encoding="utf-8")

    with pytest.raises((AuthenticationError, KeyIdChangedError)):
        partner.register(shared).scan().to_arrow()


def test_a_property_that_somebody_turns_is_found_by_an_audit(shared: Shared, partner: Partner) -> None:
    stored = path_of(shared.metadata_location)
    stored.write_text(stored.read_text(encoding="utf-8").replace('"gc.enabled":"false"', '"gc.enabled":"true"'), encoding="utf-8")

    theirs = partner.register(shared)

    assert [finding for each in audit(theirs).tables for finding in each.findings if "gc.enabled" in finding.message]


def test_a_partner_who_turns_garbage_collection_on_deletes_no_file_of_the_source(table: EncryptedTable, theirs: EncryptedTable) -> None:
    before = files_below(folder_of(table))
    theirs.transaction().set_properties({"gc.enabled": "true"}).commit_transaction()
    with pytest.raises(DeletionRefusedError):
        theirs.io.delete(next(iter(theirs.scan().plan_files())).file.file_path)
    theirs.catalog.purge_table("db.share")

    assert files_below(folder_of(table)) == before
    assert len(ids(table)) == 40


def test_a_share_keeps_others_from_expiring_what_its_metadata_names(theirs: EncryptedTable) -> None:
    with pytest.raises(TablecryptError, match=r"gc\.enabled"):
        expire_snapshots(theirs)


# ---- a share with one of two protected columns


@pytest.fixture
def two_columns(catalog: EncryptedSqlCatalog, aws: AwsServer) -> EncryptedTable:
    """Two teams in partitions; notes and ids are protected under a key each."""
    properties = {"encryption.column-keys": f"{aws.new_key()}: note; {aws.new_key()}: id"}
    rows = [team_rows(0), team_rows(100)]
    return new_table(catalog, "db.two", schema=TEAM_SCHEMA, appends=rows, partitioned_by=BY_TEAM, properties=properties)


@pytest.fixture
def with_note(two_columns: EncryptedTable, partner: Partner) -> Shared:
    return share(two_columns, partner.key_id, partner.location, NORTH, columns={"note": partner.column_key_id})


def edited(shared: Shared, partner: Partner, edit: Callable[[dict[str, Any]], object]) -> Table:
    """The share, registered by metadata that somebody at the partner has edited."""
    metadata = json.loads(path_of(shared.metadata_location).read_text(encoding="utf-8"))
    edit(metadata)
    location = path_of(partner.location) / "metadata" / "00009-0c9f3a52-9a4f-4a86-8f61-0d2c7f4be8a1.metadata.json"
    location.write_text(json.dumps(metadata), encoding="utf-8")
    return partner.catalog.register_table("db.edited", f"file://{location}")


def asks_for_the_withheld_column(metadata: dict[str, Any], key_id: str) -> None:
    """Put the column that was withheld into the schema, under the partner's own key."""
    metadata["schemas"][0]["fields"].append({"id": 1, "name": "id", "type": "long", "required": False})
    metadata["properties"]["encryption.column.1.key-id"] = key_id


def entries_of(metadata: dict[str, Any], mark: str) -> list[dict[str, Any]]:
    return [entry for entry in metadata["encryption-keys"] if mark in entry.get("properties", {})]


def own_copies(metadata: dict[str, Any]) -> None:
    """Leave the copies of entries out, which would put back what was edited."""
    copies = [name for name in metadata["properties"] if name.startswith("encryption.column-entry.")]
    for name in copies:
        del metadata["properties"][name]


def names_the_list_for_the_withheld_column(metadata: dict[str, Any], key_id: str) -> None:
    """Say that the DEKs of the shared column are those of the withheld one, by each id that a file may name."""
    asks_for_the_withheld_column(metadata, key_id)
    own_copies(metadata)
    for entry in entries_of(metadata, "tablecrypt.given-deks"):
        entry["properties"]["tablecrypt.column-key"] = "1"


def calls_the_list_a_column_key(metadata: dict[str, Any], key_id: str) -> None:
    own_copies(metadata)
    for entry in entries_of(metadata, "tablecrypt.given-deks"):
        del entry["properties"]["tablecrypt.given-deks"]


WITHHELD: Final = {
    "by properties and schema": (asks_for_the_withheld_column, ("id",), AuthenticationError),
    "by the list of another column": (names_the_list_for_the_withheld_column, ("id",), TablecryptError),
    "by a list that is called a column key": (calls_the_list_a_column_key, ("note",), AuthenticationError),
}


@pytest.mark.parametrize("way", WITHHELD)
def test_a_partner_who_edits_his_share_to_have_a_withheld_column_reads_no_value_of_it(
    with_note: Shared, two_columns: EncryptedTable, partner: Partner, way: str
) -> None:
    edit, columns, error = WITHHELD[way]

    with pytest.raises(error):
        edited(with_note, partner, lambda metadata: edit(metadata, partner.column_key_id)).scan(selected_fields=columns).to_arrow()


def test_metadata_that_names_the_sources_own_column_keys_opens_none_of_them(
    with_note: Shared, two_columns: EncryptedTable, partner: Partner
) -> None:
    source = json.loads(path_of(two_columns.refresh().metadata_location).read_text(encoding="utf-8"))

    def edit(metadata: dict[str, Any]) -> None:
        asks_for_the_withheld_column(metadata, partner.column_key_id)
        stolen = entries_of(source, "tablecrypt.column-kek") + entries_of(source, "tablecrypt.column-key")
        for entry in stolen:
            if "tablecrypt.column-kek" in entry["properties"]:
                entry["encrypted-by-id"] = partner.column_key_id
        known = {entry["key-id"] for entry in metadata["encryption-keys"]}
        metadata["encryption-keys"] += [entry for entry in stolen if entry["key-id"] not in known]

    with pytest.raises(TablecryptError):
        edited(with_note, partner, edit).scan(selected_fields=("id",)).to_arrow()


def test_the_clerk_of_the_partner_with_another_second_key_reads_masks(
    two_columns: EncryptedTable, partner: Partner, aws: AwsServer
) -> None:
    clerks_key = aws.new_key()
    catalog = partner.user(partner.column_key_id, clerks_key)
    columns = {"note": partner.column_key_id, "id": clerks_key}
    catalog.register_table("db.both", share(two_columns, partner.key_id, partner.location, NORTH, columns=columns).metadata_location)

    shown = partner.user(clerks_key).load_table("db.both").scan().to_arrow()
    assert set(shown["note"].to_pylist()) == {None}
    assert sorted(shown["id"].to_pylist()) == ids(two_columns, row_filter=NORTH)


def test_the_lists_of_a_share_hold_the_deks_of_shared_files_alone(with_note: Shared, two_columns: EncryptedTable, partner: Partner) -> None:
    theirs = partner.register(with_note)
    keys, mine = column_keys(theirs.metadata, theirs.io), {task.file.file_path for task in theirs.scan().plan_files()}
    opened = set()
    for task in two_columns.scan().plan_files():
        key_metadata = key_metadata_of(task.file)
        work = FooterWork(task.file.file_path, frozenset(), NameMapping([]))
        stored = inspect_hidden_columns(two_columns.io, work, (key_metadata,)).result
        for field_id, wrapped in stored.keys:
            # Whoever gives him DEKs of other files gives him no protected column of these.
            with suppress(TablecryptError):
                keys.unwrap(field_id, wrapped, key_metadata.aad_prefix, stored.schemas[field_id], task.data_sequence_number)
                opened.add((task.file.file_path, field_id))

    assert opened == {(location, 3) for location in mine}


def test_a_file_of_the_source_in_the_place_of_a_shared_one_shows_no_column(
    with_note: Shared, two_columns: EncryptedTable, partner: Partner
) -> None:
    """Even where somebody with the table's key gives him its DEK, since the list of column DEKs lacks that file."""
    theirs = partner.register(with_note)
    neighbour = next(iter(two_columns.scan("team = 'south'").plan_files())).file
    with theirs.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(named_otherwise(neighbour, neighbour.file_path))

    with pytest.raises(AuthenticationError, match="not among those that were given"):
        theirs.refresh().scan(selected_fields=("note",)).to_arrow()
    assert set(theirs.scan(selected_fields=("team",)).to_arrow()["team"].to_pylist()) == {"north", "south"}


# ---- somebody who has the table's key, and writes into the record of a share that he is given a protected column


def forged(record: ShareRecord, key_id: str, other: ShareRecord) -> dict[str, ShareRecord]:
    """Records in which the note is shared under a key, as somebody writes them who has read the record of another share of it."""
    [column] = other.columns
    ours = replace(column, proof="")
    return {
        "a column that is not shared": replace(record, columns=(replace(ours, key_id=key_id),)),
        "a junk proof": replace(record, columns=(replace(ours, key_id=key_id, proof=f"{column.proof.partition(':')[0]}:xx"),)),
        "another key": replace(record, columns=(replace(column, key_id=key_id),)),
        "the column of another share": replace(record, columns=(column,)),
    }


FORGED: Final = ("a column that is not shared", "a junk proof", "another key", "the column of another share", "other rows")


@pytest.mark.parametrize("way", FORGED)
def test_an_update_gives_nobody_a_column_because_a_record_says_so(
    two_columns: EncryptedTable, partner: Partner, warehouse: Path, aws: AwsServer, way: str
) -> None:
    columns = {"note": partner.column_key_id}
    elsewhere = share(two_columns, partner.key_id, f"{partner.location}-north", NORTH, columns=columns)
    here = share(two_columns, partner.key_id, partner.location, NORTH)
    mine = aws.new_key()
    allowed = {"encryption.allowed-key-ids": f"{MASTER_KEY},{mine}"}
    analyst = encrypted_table(encrypted_sql_catalog(warehouse, aws, allowed).load_table("db.two"))
    by_uuid = {record.share_uuid: record for record in live_shares(analyst)}
    other = by_uuid[elsewhere.share_uuid]
    records = forged(by_uuid[here.share_uuid], mine, other) | {"other rows": replace(other, row_filter="")}

    remember_share(analyst, records[way])

    location = records[way].location
    with pytest.raises(ConfigurationError, match=r"does not prove that somebody with the key of column 'note' shared it.*--column"):
        share(two_columns, partner.key_id, location, update=True)
    named = share(two_columns, partner.key_id, location, NORTH, update=True, columns=columns)
    assert named.protected == columns
    assert share(two_columns, partner.key_id, location, update=True).metadata_location == named.metadata_location


def without_columns(table: EncryptedTable, partner: Partner, columns: dict[str, str]) -> None:
    share(table, partner.key_id, partner.location, update=True, columns={})


def with_fewer_rows(table: EncryptedTable, partner: Partner, columns: dict[str, str]) -> None:
    share(table, partner.key_id, partner.location, "team = 'north' and id < 5", update=True, columns=columns, rewrite=True)


def anew_without_columns(table: EncryptedTable, partner: Partner, columns: dict[str, str]) -> None:
    end(table, partner, columns)
    share(table, partner.key_id, partner.location, NORTH)


def end(table: EncryptedTable, partner: Partner, columns: dict[str, str]) -> None:
    unshare(table, partner.location)


@pytest.mark.parametrize("revoke", [without_columns, with_fewer_rows, anew_without_columns, end])
def test_what_a_share_no_longer_gives_comes_back_by_no_record_of_before(
    two_columns: EncryptedTable, partner: Partner, revoke: Callable[[EncryptedTable, Partner, dict[str, str]], None]
) -> None:
    columns = {"note": partner.column_key_id}
    share(two_columns, partner.key_id, partner.location, NORTH, columns=columns)
    share(two_columns, partner.key_id, partner.location, NORTH, update=True, no_statistics=True)
    [former] = live_shares(two_columns.refresh())
    revoke(two_columns, partner, columns)
    now = next(iter(live_shares(two_columns.refresh())), former)

    # Whoever has the table's key and may commit: what the record says now, with the columns that it had and the proof of then.
    for record in (replace(now, columns=former.columns, row_filter=former.row_filter), former):
        remember_share(two_columns, record)
        with pytest.raises(ConfigurationError, match=r"does not prove that somebody with the key of column 'note' shared it.*--column"):
            share(two_columns, partner.key_id, partner.location, update=True)


# ---- somebody who can seal to the partner's public key, or wrap under his key, and writes the share's folder


@pytest.fixture
def strangers(catalog: EncryptedSqlCatalog) -> EncryptedTable:
    return new_table(catalog, "db.strangers", schema=TEAM_SCHEMA, appends=[team_rows(900)], partitioned_by=BY_TEAM)


def test_who_has_the_public_key_alone_makes_no_state_of_a_sealed_share(
    table: EncryptedTable, partner: Partner, strangers: EncryptedTable, tmp_path: Path
) -> None:
    key_file, public_key = tmp_path / "mine.key", create_key_pair(tmp_path / "mine.key")[1]
    shared = share(table, f"public-key:{key_file}.pub", partner.location, NORTH)
    properties = {name: str(value) for name, value in partner.catalog.properties.items()}
    accepted = accept(shared.metadata_location, partner.key_id, str(key_file), f"{partner.location}-accepted", properties)
    theirs = partner.catalog.register_table("db.share", accepted.metadata_location)
    before = theirs.metadata_location

    with pytest.raises(TamperedFileError, match="does not follow the state"):
        accept_update(theirs, state_of(strangers, shared, public_key, Secret(bytes(32))), str(key_file))

    assert theirs.refresh().metadata_location == before
    table.append(team_rows(200))
    update = share(table, f"public-key:{key_file}.pub", partner.location, update=True)
    assert accept_update(theirs, update.metadata_location, str(key_file)).moved
    assert ids(theirs) == ids(table, row_filter=NORTH)


def test_who_may_wrap_under_the_partners_key_makes_no_state_of_anothers_share(
    table: EncryptedTable, shared: Shared, theirs: EncryptedTable, partner: Partner, strangers: EncryptedTable
) -> None:
    with pytest.raises(TamperedFileError, match="does not follow the state"):
        accept_update(theirs, state_of(strangers, shared, partner.key_id, Secret(bytes(32))))

    assert ids(theirs.refresh()) == ids(table, row_filter=NORTH)


# ---- somebody who has the table's key, and writes a record of a share that never was


def generation_of(table: Table) -> str:
    """By what the files of one commit are named, as those of one state of a share are."""
    found = re.search(r"([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})\.parquet$", data_paths(table)[0].name)
    assert found is not None
    return found[1]


PLACES: Final[dict[str, Callable[[EncryptedTable, EncryptedTable], str]]] = {
    "the table's own folder": lambda mine, other: mine.location(),
    "in the table's own folder": lambda mine, other: f"{mine.location()}/data",
    "around the table": lambda mine, other: str(mine.location()).rpartition("/")[0],
    "another table's folder": lambda mine, other: other.location(),
    "around another table, in a folder like a partition": lambda mine, other: str(other.location()).partition("/data/")[0],
    "around another table": lambda mine, other: str(other.location()).partition("/data/")[0],
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("has_its_generation", [True, False])
def test_a_record_that_somebody_writes_has_unshare_delete_no_table(
    table: EncryptedTable, catalog: EncryptedSqlCatalog, tmp_path: Path, place: str, has_its_generation: bool
) -> None:
    location = f"file://{tmp_path}/lake/data/{'env=prod' if 'partition' in place else 'prod'}/other"
    schema = catalog.create_table("db.other", TEAM_SCHEMA, location=location, properties={"encryption.key-id": MASTER_KEY})
    schema.append(team_rows(0))
    other = encrypted_table(catalog.load_table("db.other"))
    at = PLACES[place](table, other)
    generation = generation_of(table if "the table" in place else other) if has_its_generation else str(uuid.uuid4())
    written = shares.shared(table, location=at, metadata_location=f"{at}/metadata/00000-{generation}.metadata.json")
    before = files_below(folder_of(table)), files_below(folder_of(other))

    # Around another table the folder is as empty of shares as that of one whose metadata is gone already.
    if place.startswith("around another"):
        assert not unshare(table, written.share_uuid).deleted
    else:
        with pytest.raises(ConfigurationError, match="--only-forget"):
            unshare(table, written.share_uuid)
        unshare(table, written.share_uuid, only_forget=True)
    assert live_shares(table.refresh()) == []

    records = {path for path in before[0] if path.name.endswith(".entries")}
    assert before[0] - records <= files_below(folder_of(table))
    assert before[1] == files_below(folder_of(other))
    assert (len(ids(table)), len(ids(other))) == (40, 20)


def test_a_share_is_not_put_among_files_of_a_table_whose_metadata_lies_elsewhere(
    table: EncryptedTable, partner: Partner, catalog: EncryptedSqlCatalog, tmp_path: Path
) -> None:
    """Its end would take them for the share's: nothing in the folder says whose they are."""
    elsewhere = {"write.metadata.path": (tmp_path / "elsewhere").as_uri()}
    other = new_table(catalog, "db.other", TEAM_SCHEMA, appends=[team_rows(0)], properties=elsewhere)
    before = files_below(folder_of(other))

    with pytest.raises(ConfigurationError, match="holds files that are no share's"):
        share(table, partner.key_id, other.location(), NORTH)

    assert live_shares(table.refresh()) == []
    assert files_below(folder_of(other)) == before


def of_another_table_below(location: str, catalog: EncryptedSqlCatalog) -> EncryptedTable:
    properties = {"encryption.key-id": MASTER_KEY}
    other = catalog.create_table("db.other", TEAM_SCHEMA, location=f"{location}/theirs/other", properties=properties)
    other.append(team_rows(0))
    return encrypted_table(other)


def of_another_table_behind_a_link(location: str, catalog: EncryptedSqlCatalog) -> EncryptedTable:
    other = new_table(catalog, "db.other", TEAM_SCHEMA, appends=[team_rows(0)])
    (path_of(location) / "data").symlink_to(folder_of(other) / "data")
    return other


@pytest.mark.parametrize("other_files", [of_another_table_below, of_another_table_behind_a_link])
def test_a_state_that_somebody_makes_up_has_an_update_delete_no_file_of_another_table(
    table: EncryptedTable, shared: Shared, catalog: EncryptedSqlCatalog, other_files: Callable[[str, EncryptedSqlCatalog], EncryptedTable]
) -> None:
    """Its metadata is named as the files of one commit to the other table are."""
    other = other_files(shared.location, catalog)
    before, generation = files_below(folder_of(other)), generation_of(other)
    state = json.loads(path_of(shared.metadata_location).read_bytes())
    state["snapshots"][0]["manifest-list"] = f"{shared.location}/metadata/snap-1-0-{generation}.avro"
    for first in (200, 300):
        table.append(team_rows(first))
        share(table.refresh(), shared.to_key_id, shared.location, update=True)
        (path_of(shared.location) / f"metadata/00000-{generation}.metadata.json").write_text(json.dumps(state))

    assert files_below(folder_of(other)) == before
    assert len(ids(other.refresh())) == 20


def test_a_record_that_somebody_writes_puts_no_command_into_what_unshare_advises(table: EncryptedTable) -> None:
    hostile = "team = 'north' or team = \"$(touch /tmp/x)\"; reboot #"
    written = shares.shared(table, row_filter="team = 'north'")
    remember_share(table, replace(written, row_filter=hostile))

    advice = unshare(table, written.share_uuid).advice.partition("; then expire")[0]

    words = shlex.split(advice)
    assert words[words.index("--where") + 1] == hostile


@pytest.mark.parametrize("moment", [-1, 2**62, 253_402_300_800_000])
def test_a_record_that_says_no_moment_is_none(table: EncryptedTable, moment: int) -> None:
    shares.shared(table, created_ms=moment)

    with pytest.raises(ShareRecordError, match="not the record of a share"):
        live_shares(table.refresh())
    assert FindingKind.SHARE_RECORD in {finding.kind for each in audit(table).tables for finding in each.findings}
