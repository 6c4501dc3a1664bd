"""Overwriting all that a branch holds: one snapshot, which names every file that it took out and those that it put there."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from tablecrypt import maintenance
from tablecrypt.engines.overwrite import stage_overwrite
from tablecrypt.table.snapshots import CommitOptions
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.transaction import EncryptedTransaction
from tablecrypt.table.write import write_data_files
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY
from tests.support.tables import MASTER_KEY, SCHEMA, encrypted_sql_catalog, metadata_of


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "note": [CANARY] * len(ids)})


@pytest.fixture
def table(warehouse: Path, aws: AwsServer) -> EncryptedTable:
    properties = {"encryption.key-id": MASTER_KEY, "write.delete.mode": "merge-on-read", "commit.retry.min-wait-ms": "1"}
    made = encrypted_sql_catalog(warehouse, aws).create_table("db.t", SCHEMA, properties=properties)
    assert isinstance(made, EncryptedTable)
    return made


def overwrite(table: EncryptedTable, ids: Sequence[int], branch: str | None = "main", **summary: str) -> None:
    with table.transaction() as transaction:
        assert isinstance(transaction, EncryptedTransaction)
        io = transaction.table_io
        files = write_data_files(transaction.encrypted_metadata, rows(*ids), io, io.manager) if ids else []
        stage_overwrite(transaction, files, CommitOptions(branch, summary))


def head(table: Table, branch: str = "main") -> Snapshot:
    found = table.refresh().metadata.snapshot_by_name(branch)
    assert found is not None
    return found


def counts(snapshot: Snapshot) -> dict[str, str]:
    assert snapshot.summary is not None
    return {name: value for name, value in snapshot.summary.additional_properties.items() if "size" not in name}


def ids(table: Table, branch: str = "main") -> list[int]:
    return sorted(table.refresh().scan().use_ref(branch).to_arrow()["id"].to_pylist())


def entries(table: Table, snapshot: Snapshot) -> list[tuple[ManifestContent, ManifestEntryStatus]]:
    return [
        (manifest.content, entry.status)
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    ]


def test_everything_goes_in_one_snapshot_with_its_deletion_vectors(table: EncryptedTable) -> None:
    table.append(rows(1, 2, 3))
    table.append(rows(4, 5))
    table.delete("id = 2")
    parent = head(table)

    overwrite(table, [7, 8, 9, 10], job="nightly")

    snapshot = head(table)
    assert ids(table) == [7, 8, 9, 10]
    assert snapshot.summary is not None and snapshot.summary.operation.value == "overwrite"
    assert snapshot.parent_snapshot_id == parent.snapshot_id and len(table.metadata.snapshots) == 4
    expected = {"job": "nightly", "added-data-files": "1", "added-records": "4", "deleted-data-files": "2", "deleted-records": "5"}
    expected |= {"removed-dvs": "1", "removed-delete-files": "1", "removed-position-deletes": "1", "total-position-deletes": "0"}
    expected |= {"total-data-files": "1", "total-records": "4", "total-delete-files": "0"}
    assert counts(snapshot).items() >= expected.items()
    data, deletes = ManifestContent.DATA, ManifestContent.DELETES
    added, deleted = ManifestEntryStatus.ADDED, ManifestEntryStatus.DELETED
    assert sorted(entries(table, snapshot)) == sorted([(data, added), (data, deleted), (data, deleted), (deletes, deleted)])
    assert maintenance.verify(table).is_good


def test_new_rows_get_row_ids_that_no_row_had(table: EncryptedTable) -> None:
    table.append(rows(1, 2, 3))

    overwrite(table, [1, 2])

    read = table.refresh().scan(selected_fields=("_row_id", "_last_updated_sequence_number")).to_arrow()
    assert sorted(read["_row_id"].to_pylist()) == [3, 4]
    assert read["_last_updated_sequence_number"].to_pylist() == [2, 2]
    assert metadata_of(table).next_row_id == 5


def test_files_of_every_partitioning_go(table: EncryptedTable) -> None:
    table.append(rows(1))
    table.update_spec().add_identity("note").commit()
    table.append(rows(2))

    overwrite(table, [3])

    assert ids(table) == [3] and counts(head(table))["deleted-data-files"] == "2"
    assert {task.file.spec_id for task in table.scan().plan_files()} == {1}


def test_a_table_without_rows_gets_an_overwrite_too_and_nothing_over_nothing_is_no_snapshot(table: EncryptedTable) -> None:
    overwrite(table, [])
    assert table.refresh().metadata.snapshots == []

    overwrite(table, [1])
    first = head(table)
    assert first.summary is not None and first.summary.operation.value == "overwrite"
    assert counts(first).get("deleted-data-files") is None and ids(table) == [1]

    overwrite(table, [])
    emptied = head(table)
    assert emptied.summary is not None and emptied.summary.operation.value == "delete"
    assert counts(emptied)["total-records"] == "0" and ids(table) == []

    overwrite(table, [])
    assert head(table) == emptied


def test_a_branch_is_overwritten_and_a_snapshot_of_no_branch_replaces_the_main_one(table: EncryptedTable) -> None:
    table.append(rows(1))
    first = head(table)
    table.manage_snapshots().create_branch(first.snapshot_id, "side").commit()

    overwrite(table, [2], "side")
    assert (ids(table), ids(table, "side")) == ([1], [2])

    overwrite(table, [3], None)
    assert (ids(table), ids(table, "side")) == ([1], [2])
    staged = table.metadata.snapshots[-1]
    assert staged.parent_snapshot_id == first.snapshot_id
    assert table.scan(snapshot_id=staged.snapshot_id).to_arrow()["id"].to_pylist() == [3]


def test_what_others_commit_first_is_replaced_as_well(table: EncryptedTable) -> None:
    table.append(rows(1))
    other = table.catalog.load_table(table.name())
    with table.transaction() as transaction:
        assert isinstance(transaction, EncryptedTransaction)
        io = transaction.table_io
        stage_overwrite(transaction, write_data_files(transaction.encrypted_metadata, rows(9), io, io.manager), CommitOptions())
        other.append(rows(2))
        other.delete("id = 1")

    snapshot = head(table)
    assert ids(table) == [9]
    assert snapshot.parent_snapshot_id == other.refresh().metadata.snapshots[-2].snapshot_id
    assert counts(snapshot).items() >= {"deleted-data-files": "1", "total-records": "1", "total-data-files": "1"}.items()
    assert maintenance.remove_orphan_files(table, older_than=dt.datetime(2100, 1, 1, tzinfo=dt.UTC)).found == ()
