"""share: the partner reads exactly the shared rows with his own key, from files that were not copied, and the source is as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyiceberg.expressions import And, EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from tablecrypt.errors import ConfigurationError, KeyNotFoundError
from tablecrypt.maintenance import audit, share, verify
from tablecrypt.maintenance.reachable import FileKind, reachable_files
from tablecrypt.maintenance.sharing.records import live_shares
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY
from tests.support.shares import Partner
from tests.support.tables import (
    BY_TEAM,
    MERGE_ON_READ,
    TEAM_SCHEMA,
    encrypted_sql_catalog,
    encrypted_table,
    files_below,
    folder_of,
    ids,
    metadata_of,
    new_table,
    path_of,
    rows,
    team_rows,
)

LINEAGE = ("id", "team", "note", "_row_id", "_last_updated_sequence_number")
NORTH = "team = 'north'"


@pytest.fixture
def partner(tmp_path: Path, aws: AwsServer) -> Partner:
    return Partner.of(tmp_path, aws)


@pytest.fixture
def table(catalog: EncryptedSqlCatalog) -> EncryptedTable:
    """Rows of two teams in two partitions, from two appends."""
    return new_table(catalog, schema=TEAM_SCHEMA, appends=[team_rows(0), team_rows(100)], partitioned_by=BY_TEAM, properties=MERGE_ON_READ)


def test_the_partner_reads_the_shared_rows_with_his_own_key_alone(table: EncryptedTable, partner: Partner) -> None:
    result = share(table, partner.key_id, partner.location, NORTH)

    theirs = partner.register(result)
    assert ids(theirs) == ids(table, row_filter=NORTH)
    assert theirs.scan(selected_fields=LINEAGE).to_arrow().sort_by("id") == table.scan(NORTH, selected_fields=LINEAGE).to_arrow().sort_by("id")
    assert (result.files, result.rows) == (2, 20)
    assert theirs.metadata.table_uuid != table.metadata.table_uuid
    assert len(theirs.snapshots()) == 1
    assert theirs.properties["gc.enabled"] == "false"
    with pytest.raises(Exception, match="alias/orders|denied|not allowed"):
        partner.catalog.register_table("db.source", table.metadata_location).scan().to_arrow()


def test_no_data_file_is_written_and_no_key_but_those_of_shared_files_is_the_sources(table: EncryptedTable, partner: Partner) -> None:
    result = share(table, partner.key_id, partner.location, NORTH)

    theirs = partner.register(result)
    assert {path.suffix for path in files_below(path_of(partner.location))} == {".avro", ".json"}
    ours, given = (reachable_files(each.metadata, each.io).files.values() for each in (table, theirs))
    old = {bytes(file.key.encryption_key.reveal()): file for file in ours if file.key is not None}
    shared = {bytes(file.key.encryption_key.reveal()): file for file in given if file.key is not None}
    assert {old[key].location for key in old.keys() & shared.keys()} == {task.file.file_path for task in table.scan(NORTH).plan_files()}
    assert {each.kind for key, each in shared.items() if key not in old} == {FileKind.MANIFEST, FileKind.MANIFEST_LIST}
    assert "alias/orders" not in metadata_of(theirs).model_dump_json()
    assert result.written_bytes == sum(path.stat().st_size for path in files_below(path_of(partner.location)))


def test_verify_and_audit_are_clean_at_the_partner(table: EncryptedTable, partner: Partner) -> None:
    table.delete("id = 2")
    theirs = partner.register(share(table, partner.key_id, partner.location, NORTH))

    assert verify(theirs).is_good
    assert [finding for each in audit(theirs).tables for finding in each.findings] == []


def test_the_table_remembers_the_share_before_it_is_there(table: EncryptedTable, partner: Partner) -> None:
    result = share(table, partner.key_id, partner.location, NORTH)

    [record] = live_shares(table.refresh())
    assert (record.share_uuid, record.key_id, record.metadata_location) == (result.share_uuid, partner.key_id, result.metadata_location)
    assert set(record.files) == {task.file.file_path for task in table.scan(NORTH).plan_files()}
    assert record.row_filter == NORTH


def test_deletion_vectors_go_with_their_files_and_show_nothing_of_others(table: EncryptedTable, partner: Partner) -> None:
    table.delete("id in (2, 3, 4)")

    result = share(table, partner.key_id, partner.location, NORTH)

    theirs = partner.register(result)
    assert ids(theirs) == ids(table, row_filter=NORTH)
    assert (result.rows, result.deleted_rows) == (18, 2)
    [vector] = [file for file in reachable_files(theirs.metadata, theirs.io).files.values() if file.kind == FileKind.DELETION_VECTOR]
    assert vector.location.startswith(partner.location)
    assert vector.key is not None
    with encrypted_table(theirs).io.decrypting_input(vector.location, vector.key).open() as stream:
        assert b"team=south" not in stream.read()


def test_a_dry_run_writes_nothing_and_says_what_would_be(table: EncryptedTable, partner: Partner) -> None:
    before, location = files_below(folder_of(table)), table.metadata_location

    planned = share(table, partner.key_id, partner.location, NORTH, dry_run=True)

    assert files_below(folder_of(table)) == before
    assert table.refresh().metadata_location == location
    assert not path_of(partner.location).exists()
    assert (planned.files, planned.rows, planned.written_bytes) == (2, 20, 0)
    assert json.loads(json.dumps(planned.to_json()))["dry_run"] is True
