"""Shares that are sealed to a public key: the partner accepts one under his own master key, and nobody else opens it."""

from __future__ import annotations

import json
import stat
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tablecrypt.errors import AuthenticationError, ConfigurationError, TablecryptError, TamperedFileError
from tablecrypt.maintenance import Shared, accept_update, audit, share, verify
from tablecrypt.maintenance.sharing.acceptance import accept
from tablecrypt.maintenance.sharing.metadata import ShareWriter
from tablecrypt.maintenance.sharing.records import live_shares
from tablecrypt.maintenance.sharing.sealing import PrivateKey, PublicKey, create_key_pair
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.full_disk import no_file_beyond
from tests.support.shares import NORTH, Partner, state_of
from tests.support.tables import MERGE_ON_READ, ids, metadata_of, path_of, team_rows, team_table


@pytest.fixture
def table(catalog: EncryptedSqlCatalog) -> EncryptedTable:
    table = team_table(catalog, 0, properties=MERGE_ON_READ)
    table.delete("id = 2")
    return table


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    create_key_pair(tmp_path / "mine.key")
    return tmp_path / "mine.key"


@pytest.fixture
def shared(table: EncryptedTable, partner: Partner, key_file: Path) -> Shared:
    return share(table, f"public-key:{key_file}.pub", partner.location, NORTH)


def accepted(shared: Shared, partner: Partner, key_file: Path, place: str = "accepted") -> str:
    properties = {name: str(value) for name, value in partner.catalog.properties.items()}
    return accept(shared.metadata_location, partner.key_id, str(key_file), f"{partner.location}-{place}", properties).metadata_location


def test_the_partner_accepts_a_share_under_his_own_key_and_reads_it(
    table: EncryptedTable, shared: Shared, partner: Partner, key_file: Path
) -> None:
    theirs = partner.catalog.register_table("db.share", accepted(shared, partner, key_file))

    assert ids(theirs) == ids(table, row_filter=NORTH)
    assert {key.encrypted_by_id for key in metadata_of(theirs).key_ring.keks} == {partner.key_id}
    assert str(theirs.metadata.table_uuid) == shared.share_uuid
    assert verify(theirs).is_good
    assert [finding for each in audit(theirs).tables for finding in each.findings] == []
    [record] = live_shares(table.refresh())
    assert record.key_id == shared.to_key_id == PublicKey.read(Path(f"{key_file}.pub")).key_id


def saying(said: dict[str, str], table: EncryptedTable, shared: Shared, key_file: Path) -> str:
    """Write a state of a share whose sharer gives it these properties; return where its metadata is."""

    class Sharer(ShareWriter):
        def _properties(self) -> dict[str, str]:
            return {**super()._properties(), **said}

    [record] = live_shares(table.refresh())
    assert record.secret is not None
    return state_of(table, shared, PublicKey.read(Path(f"{key_file}.pub")), record.secret, Sharer)


def test_a_sharer_says_not_where_the_files_of_an_accepted_share_go(
    table: EncryptedTable, shared: Shared, partner: Partner, key_file: Path
) -> None:
    """In the folder of another table of his they would be that table's orphans."""
    his = {"write.data.path": f"{partner.location}/other/data", "write.metadata.path": f"{partner.location}/other/metadata"}

    said = {**his, f"encryption.share.{uuid.uuid4()}": "{}"}
    location = saying(said, table, shared, key_file)
    theirs = partner.catalog.register_table("db.share", accepted(replace(shared, metadata_location=location), partner, key_file))

    assert not [name for name in theirs.properties if name in his or name.startswith("encryption.share.")]
    assert verify(theirs).is_good
    assert [finding for each in audit(theirs).tables for finding in each.findings] == []


def test_a_name_mapping_that_cannot_be_read_is_refused_before_there_is_a_copy(
    table: EncryptedTable, shared: Shared, partner: Partner, key_file: Path
) -> None:
    location = saying({"schema.name-mapping.default": "no mapping"}, table, shared, key_file)

    with pytest.raises(ConfigurationError, match="not a name mapping"):
        accepted(replace(shared, metadata_location=location), partner, key_file)
    assert not path_of(f"{partner.location}-accepted").exists()


def test_before_it_is_accepted_nobody_reads_it(shared: Shared, table: EncryptedTable, partner: Partner) -> None:
    for catalog in (table.catalog, partner.catalog):
        with pytest.raises(TablecryptError):
            catalog.register_table("db.unaccepted", shared.metadata_location).scan().to_arrow()


def test_another_key_does_not_open_it(shared: Shared, partner: Partner, tmp_path: Path) -> None:
    create_key_pair(tmp_path / "other.key")
    with pytest.raises(AuthenticationError, match="was not sealed to"):
        accepted(shared, partner, tmp_path / "other.key")


@pytest.mark.parametrize("changed", ["table-uuid", "date", "entry"])
def test_a_sealed_key_opens_for_no_other_share_and_entry(shared: Shared, partner: Partner, key_file: Path, changed: str) -> None:
    stored = path_of(shared.metadata_location)
    metadata = json.loads(stored.read_text(encoding="utf-8"))
    kek, list_key = metadata["encryption-keys"]
    if changed == "table-uuid":
        metadata["table-uuid"] = "0c9f3a52-9a4f-4a86-8f61-0d2c7f4be8a1"
    elif changed == "date":
        kek["properties"]["KEY_TIMESTAMP"] = str(int(kek["properties"]["KEY_TIMESTAMP"]) + 1)
    else:
        kek["key-id"] = list_key["encrypted-by-id"] = "AAAAAAAAAAAAAAAAAAAAAA=="
    stored.write_text(json.dumps(metadata), encoding="utf-8")

    with pytest.raises(AuthenticationError):
        accepted(shared, partner, key_file)


def test_an_update_is_accepted_as_the_share_was(table: EncryptedTable, shared: Shared, partner: Partner, key_file: Path) -> None:
    accepted(shared, partner, key_file)
    table.append(team_rows(100))

    result = share(table, f"public-key:{key_file}.pub", partner.location, update=True)

    theirs = partner.catalog.register_table("db.share", accepted(result, partner, key_file, "again"))
    assert ids(theirs) == ids(table.refresh(), row_filter=NORTH)


def test_a_key_file_is_its_owners_alone_and_shows_no_key(key_file: Path) -> None:
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    private = PrivateKey.read(key_file)
    assert private.secret.reveal().hex() not in f"{private!r}"
    with pytest.raises(ConfigurationError, match="exists already"):
        create_key_pair(key_file)
    with pytest.raises(ConfigurationError, match="name the key file"):
        create_key_pair(Path())


def test_files_that_are_no_such_keys_are_refused(table: EncryptedTable, partner: Partner, key_file: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no key", encoding="utf-8")
    public = json.loads((tmp_path / "mine.key.pub").read_bytes())
    (tmp_path / "later").write_text(json.dumps(public | {"tablecrypt-share-key": 2}), encoding="utf-8")
    (tmp_path / "cut").write_text(json.dumps(public | {"public": public["public"][4:]}), encoding="utf-8")
    (tmp_path / "long").write_text(json.dumps(public | {"public": public["public"] + "AAAA"}), encoding="utf-8")

    no_key = "is not the public file"
    wrong = {"text": no_key, "mine.key": no_key, "later": no_key, "cut": no_key, "long": no_key, "absent": "cannot be read"}
    for name, message in wrong.items():
        with pytest.raises(ConfigurationError, match=message):
            share(table, f"public-key:{tmp_path / name}", partner.location, NORTH)
    assert live_shares(table.refresh()) == []


def test_a_place_that_holds_a_table_and_metadata_of_another_table_are_refused(
    table: EncryptedTable, shared: Shared, partner: Partner, key_file: Path
) -> None:
    accepted(shared, partner, key_file)
    with pytest.raises(ConfigurationError, match="holds a table already"):
        accepted(shared, partner, key_file)
    properties = {name: str(value) for name, value in partner.catalog.properties.items()}
    with pytest.raises(ConfigurationError, match="lies in the folder of another table"):
        accept(shared.metadata_location, partner.key_id, str(key_file), f"{partner.location}-accepted/x", properties)
    with pytest.raises(TablecryptError):
        accept(table.metadata_location, partner.key_id, str(key_file), f"{partner.location}-x", properties)


EDITS: Final[dict[str, Callable[[dict[str, Any]], object]]] = {
    "another column name": lambda metadata: metadata["schemas"][0]["fields"][2].update(name="remark"),
    "where new files go": lambda metadata: metadata["properties"].update({"write.data.path": "file:///tmp/elsewhere"}),
    "garbage collection": lambda metadata: metadata["properties"].update({"gc.enabled": "true"}),
    "a branch": lambda metadata: metadata["refs"].update(side=metadata["refs"]["main"]),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_somebody_edits_in_the_metadata_of_a_sealed_share_is_not_accepted(
    shared: Shared, partner: Partner, key_file: Path, edit: str
) -> None:
    stored = path_of(shared.metadata_location)
    metadata = json.loads(stored.read_text(encoding="utf-8"))
    EDITS[edit](metadata)
    stored.write_text(json.dumps(metadata), encoding="utf-8")

    with pytest.raises(TamperedFileError, match="somebody edited it"):
        accepted(shared, partner, key_file)


def test_a_key_file_in_the_home_folder_of_nobody_is_refused(table: EncryptedTable, shared: Shared, partner: Partner) -> None:
    for name in ("~nobody-of-that-name/mine.key", "mine.key\0", "\ud800"):
        with pytest.raises(ConfigurationError, match="key"):
            accepted(shared, partner, Path(name))
    for name in ("~nobody-of-that-name/mine.key.pub", "mine.key.pub\0"):
        with pytest.raises(ConfigurationError, match="to_key_id"):
            share(table, f"public-key:{name}", f"{partner.location}-other", NORTH)


@pytest.mark.parametrize("location", ["file://host/share", "file:share"])
def test_a_local_place_with_a_host_is_refused_before_anything_is_written(
    table: EncryptedTable, shared: Shared, partner: Partner, key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = live_shares(table.refresh())
    properties = {name: str(value) for name, value in partner.catalog.properties.items()}

    with pytest.raises(ConfigurationError, match="a local file has none"):
        share(table, partner.key_id, location, NORTH)
    with pytest.raises(ConfigurationError, match="a local file has none"):
        accept(shared.metadata_location, partner.key_id, str(key_file), location, properties)

    assert live_shares(table.refresh()) == before
    assert not any((tmp_path / name).exists() for name in ("host", "share"))


@pytest.mark.parametrize("location", ["foo://x/metadata.json", "/x/\0.metadata.json"])
def test_a_location_that_leads_nowhere_is_refused_by_its_name(shared: Shared, partner: Partner, key_file: Path, location: str) -> None:
    properties = {name: str(value) for name, value in partner.catalog.properties.items()}
    theirs = partner.catalog.register_table("db.share", accepted(shared, partner, key_file))

    with pytest.raises(ConfigurationError, match=r"scheme 'foo'|holds a NUL"):
        accept(location, partner.key_id, str(key_file), f"{partner.location}-new", properties)
    with pytest.raises(ConfigurationError, match=r"scheme 'foo'|holds a NUL"):
        accept_update(theirs, location, str(key_file))
    with pytest.raises(ConfigurationError, match=r"scheme 'foo'|holds a NUL"):
        partner.catalog.register_table("db.other", location)


def test_a_key_pair_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    with no_file_beyond(1000), pytest.raises(OSError, match="File too large"):
        create_key_pair(tmp_path / "new.key")

    assert not list(tmp_path.glob("new.key*"))
    assert create_key_pair(tmp_path / "new.key")[0].exists()
