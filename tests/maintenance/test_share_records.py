"""Records of shares: what a table remembers stays, whatever is done to the table, and none is lost or exchanged unseen."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from moto.kms.models import kms_backends
from pyiceberg.table.update import SetPropertiesUpdate

from tablecrypt.errors import ConfigurationError, ShareRecordError
from tablecrypt.files.encrypting_file_io import WrappedFileKey
from tablecrypt.maintenance import describe, prune_keys, relocate, rescue, rewrap, rotate_kek, shred
from tablecrypt.maintenance.sharing.records import forget_share, live_shares, remember_share
from tablecrypt.table.shares import SharedColumn, named_records
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import ACCOUNT, REGION, AwsServer
from tests.support.shares import record_of, shared
from tests.support.tables import encrypted_sql_catalog, files_below, folder_of, metadata_of, new_table, path_of, rows


@pytest.fixture
def table(catalog: EncryptedSqlCatalog) -> EncryptedTable:
    return new_table(catalog, appends=[rows(0), rows(20)])


def records_below(table: EncryptedTable) -> set[str]:
    return {path.name for path in files_below(folder_of(table)) if "_tablecrypt-shares" in str(path)}


def test_what_is_remembered_is_what_is_read(table: EncryptedTable) -> None:
    record = shared(table, columns=(SharedColumn(2, "ssn", "alias/partner-ssn"),), row_filter="note is not null")
    assert live_shares(table) == [record]
    assert not set(record.files) - {task.file.file_path for task in table.scan().plan_files()}


def test_a_table_without_shares_asks_the_key_service_nothing(table: EncryptedTable) -> None:
    before = table.io.manager.kms.calls  # type: ignore[attr-defined]
    assert live_shares(table) == []
    assert table.io.manager.kms.calls == before  # type: ignore[attr-defined]


def test_a_record_is_ciphertext(table: EncryptedTable) -> None:
    record = shared(table)
    (named,) = named_records(table.metadata)
    stored = path_of(named.location).read_bytes()
    assert stored.startswith(b"AGS1")
    assert record.share_uuid.encode() not in stored


def test_shares_of_two_writers_at_once_are_both_remembered(table: EncryptedTable, catalog: EncryptedSqlCatalog) -> None:
    first, second = (cast("EncryptedTable", catalog.load_table("db.t")) for _ in range(2))
    records = [record_of(first), record_of(second)]

    remember_share(first, records[0])
    remember_share(second, records[1])

    assert {each.share_uuid for each in live_shares(table.refresh())} == {each.share_uuid for each in records}


def test_a_writer_who_began_before_the_share_does_not_take_it_away(table: EncryptedTable, catalog: EncryptedSqlCatalog) -> None:
    stale = catalog.load_table("db.t")
    record = shared(table)

    stale.append(rows(40))
    stale = catalog.load_table("db.t")

    assert live_shares(stale) == [record]


def test_many_updates_leave_one_property_and_one_record(table: EncryptedTable) -> None:
    record = shared(table)
    size = len(json.dumps(dict(table.properties)))
    kms = table.io.manager.kms
    calls = kms.calls["wrap_key"]  # type: ignore[attr-defined]

    for number in range(30):
        remember_share(table, replace(record, created_ms=record.created_ms + number))

    assert live_shares(table)[0].created_ms == record.created_ms + 29
    assert len(json.dumps(dict(table.properties))) == size
    assert len(records_below(table)) == 1
    assert kms.calls["wrap_key"] == calls  # type: ignore[attr-defined]


def test_what_is_forgotten_leaves_neither_property_nor_record(table: EncryptedTable) -> None:
    kept, record = shared(table), shared(table)

    forget_share(table, record.share_uuid)
    forget_share(table, record.share_uuid)

    assert live_shares(table) == [kept]
    assert len(records_below(table)) == 1


def test_a_share_of_a_snapshot_that_is_gone_is_not_remembered(table: EncryptedTable) -> None:
    record = record_of(table, snapshot_id=7)
    with pytest.raises(ConfigurationError, match="share again"):
        remember_share(table, record)
    assert (live_shares(table), records_below(table)) == ([], set())


def test_a_record_that_is_gone_stops_and_says_what_to_do(table: EncryptedTable) -> None:
    record = shared(table)
    path_of(named_records(table.metadata)[0].location).unlink()
    with pytest.raises(ShareRecordError, match="Restore the file") as raised:
        live_shares(table)
    assert record.share_uuid in str(raised.value)


def test_a_record_in_the_place_of_another_does_not_open(table: EncryptedTable) -> None:
    shared(table)
    shared(table)
    first, second = (path_of(named.location) for named in named_records(table.metadata))
    first.write_bytes(second.read_bytes())
    with pytest.raises(ShareRecordError):
        live_shares(table)


def test_the_record_of_another_table_is_refused(catalog: EncryptedSqlCatalog, table: EncryptedTable) -> None:
    other = new_table(catalog, "db.other", appends=[rows(0)])
    record = shared(other)
    (named,) = named_records(other.metadata)
    metadata = table.metadata.model_copy(update={"properties": {**table.properties, named.name: named.value}})
    table.metadata = metadata

    with pytest.raises(ShareRecordError, match="of table") as raised:
        live_shares(table)

    assert record.share_uuid in str(raised.value)


def test_a_property_that_names_another_file_of_the_table_deletes_nothing(table: EncryptedTable) -> None:
    record = shared(table)
    (named,) = named_records(table.metadata)
    data = record.files[0]
    table.metadata.properties[named.name] = replace(named, location=data).value
    with pytest.raises(ShareRecordError, match="cannot be read"):
        named_records(table.metadata)


@pytest.mark.parametrize("change", ["set", "remove"])
def test_nobody_sets_or_removes_the_property_by_hand(table: EncryptedTable, change: str) -> None:
    shared(table)
    (named,) = named_records(table.metadata)
    with pytest.raises(ConfigurationError, match="unshare"), table.transaction() as transaction:
        if change == "set":
            transaction.set_properties({named.name: "{}"})
        else:
            transaction.remove_properties(named.name)
    assert len(live_shares(table)) == 1


def test_a_renamed_table_keeps_its_shares(catalog: EncryptedSqlCatalog, table: EncryptedTable) -> None:
    record = shared(table)
    assert live_shares(catalog.rename_table("db.t", "db.renamed")) == [record]


@pytest.mark.parametrize("operation", [rotate_kek, prune_keys, rewrap, rescue])
def test_what_changes_keys_keeps_the_shares(table: EncryptedTable, operation: Callable[[EncryptedTable], object]) -> None:
    records = [shared(table), shared(table)]
    operation(table)
    assert live_shares(table.refresh()) == sorted(records, key=lambda each: each.share_uuid)


def test_the_kek_of_records_is_none_of_the_tables(table: EncryptedTable) -> None:
    """So shredding, which destroys KEKs of the table, leaves none in a property."""
    shared(table)
    (named,) = named_records(table.metadata)
    assert named.key.chain.kek.key_id not in metadata_of(table).key_ring
    table.append(rows(40))
    assert named.key.chain.kek.key_id not in metadata_of(table.refresh()).key_ring


def test_after_an_alias_has_moved_records_are_rewrapped_with_the_keks(tmp_path: Path, aws: AwsServer) -> None:
    alias, old = f"alias/shares-{uuid.uuid4()}", aws.new_key()
    aws.kms.create_alias(AliasName=alias, TargetKeyId=old)
    catalog = encrypted_sql_catalog(tmp_path, aws, {"encryption.kms.cache-ttl-ms": "0"})
    table = new_table(catalog, appends=[rows(0)], properties={"encryption.key-id": alias})
    records = [shared(table), shared(table)]
    aws.kms.update_alias(AliasName=alias, TargetKeyId=aws.new_key())

    foretold = rewrap(table, dry_run=True)
    done = rewrap(table, from_key_id=old)
    del kms_backends[ACCOUNT][REGION].keys[old]

    assert len(done.keks) == 2
    assert foretold.keks == done.keks
    assert live_shares(table.refresh()) == sorted(records, key=lambda each: each.share_uuid)
    remember_share(table, replace(records[0], created_ms=7))
    assert live_shares(table)[0].created_ms == 7


def test_the_kek_of_another_table_is_not_rewrapped_as_that_of_a_record(tmp_path: Path, aws: AwsServer) -> None:
    """An attacker puts another table's KEK and key into a property of this one, and waits for an alias to move."""
    alias, old = f"alias/shares-{uuid.uuid4()}", aws.new_key()
    aws.kms.create_alias(AliasName=alias, TargetKeyId=old)
    catalog = encrypted_sql_catalog(tmp_path, aws, {"encryption.kms.cache-ttl-ms": "0"})
    table = new_table(catalog, appends=[rows(0)], properties={"encryption.key-id": alias})
    other = new_table(catalog, "db.other", appends=[rows(0)], properties={"encryption.key-id": old})
    record = shared(table)
    (named,) = named_records(table.metadata)
    chain = metadata_of(other).key_ring.chain(metadata_of(other).head_key_id("main") or "")
    foreign = replace(named, key=WrappedFileKey((chain.kek, chain.manifest_list_key), chain.manifest_list_key.key_id))
    transaction = table.transaction()
    transaction.apply((SetPropertiesUpdate(updates={named.name: foreign.value}),))
    transaction.commit_transaction()
    aws.kms.update_alias(AliasName=alias, TargetKeyId=aws.new_key())
    location = table.refresh().metadata_location

    with pytest.raises(ShareRecordError, match=record.share_uuid):
        rewrap(table, from_key_id=old)

    assert table.refresh().metadata_location == location


def test_a_copy_elsewhere_has_no_shares_and_says_which_stay(table: EncryptedTable) -> None:
    record = shared(table)
    copy = relocate(table, f"{table.location()}-copy", register_as="db.copy")
    assert copy.shares_left == (record.share_uuid,)
    assert live_shares(table.catalog.load_table("db.copy")) == []
    assert live_shares(table) == [record]


def test_a_shredded_table_still_knows_what_it_shares(table: EncryptedTable) -> None:
    record = shared(table, "id < 20")
    shred(table, whole_table="db.t", break_shares=True)
    assert live_shares(table.refresh()) == [record]


def test_descriptions_leave_the_properties_out(table: EncryptedTable) -> None:
    shared(table)
    assert not [name for name in describe(table.refresh()).properties if "share" in name]
