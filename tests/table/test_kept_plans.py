"""A second plan of a snapshot: it reads nothing again, and what this process has read before is held against the table that is planned.

The adversaries have access to storage, or lose the right to the master key; the careless user keeps a process running for long.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from tablecrypt.errors import AuthenticationError, PlaintextRefusedError, TamperedFileError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.maintenance import verify
from tablecrypt.manifests.entries import CACHE
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO
from tests.support.tables import MASTER_KEY, current_snapshot, flip, memory_catalog, metadata_of, new_table, path_of

READS: dict[str, Callable[[EncryptedTable], int]] = {
    "to_arrow": lambda table: int(table.scan().to_arrow().num_rows),
    "a filter": lambda table: int(table.scan("id >= 0").to_arrow().num_rows),
    "a stream": lambda table: sum(len(batch) for batch in table.scan().to_arrow_batch_reader()),
    "an Arrow dataset": lambda table: int(table.scan().to_arrow_dataset().to_table().num_rows),
    "the rows of appends": lambda table: int(table.incremental_append_scan().to_arrow().num_rows),
}


@pytest.fixture
def table(unwatched_warehouse: Path) -> EncryptedTable:
    """Two snapshots of ten rows each, of which nothing is kept."""
    CACHE.clear()
    rows = pa.table({"id": pa.array(range(10), pa.int64())})
    return new_table(memory_catalog(unwatched_warehouse), appends=[rows, rows])


def stored_list(table: EncryptedTable) -> Path:
    return path_of(current_snapshot(table).manifest_list)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_second_plan_reads_no_manifest_list_and_no_manifest(table: EncryptedTable, read: Callable[[EncryptedTable], int]) -> None:
    assert read(table) == 20
    for stored in stored_list(table).parent.glob("*.avro"):
        stored.unlink()
    table.refresh()
    assert read(table) == 20


def test_a_commit_and_what_looks_at_storage_read_the_stored_list(table: EncryptedTable) -> None:
    table.scan().to_arrow()
    stored = stored_list(table)
    flip(stored, -1)
    assert table.scan().to_arrow().num_rows == 20
    with pytest.raises(TamperedFileError, match=stored.name):
        table.append(pa.table({"id": pa.array([1], pa.int64())}))
    with pytest.raises(TamperedFileError, match=stored.name):
        current_snapshot(table).manifests(table.io)
    for quick in (False, True):
        assert [Path(bad.location).name for bad in verify(table, quick=quick).bad] == [stored.name]


@pytest.mark.parametrize("claim", [{"snapshot_id": 7}, {"sequence_number": 7}, {"first_row_id": 7}], ids=str)
def test_a_list_that_is_kept_is_held_against_each_new_metadata(table: EncryptedTable, claim: dict[str, Any]) -> None:
    table.scan().to_arrow()
    stored_list(table).unlink()
    snapshot = current_snapshot(table)
    edited = snapshot.model_copy(update=claim).bound_to(metadata_of(table).key_ring, metadata_of(table).stated_layout)
    assert len(snapshot.manifests_to_plan(table.io)) == 2
    with pytest.raises(TamperedFileError, match="in the authenticated manifest list, but 7 in the table metadata"):
        edited.manifests_to_plan(table.io)


def test_the_list_of_a_later_snapshot_does_not_stand_in_for_an_earlier_one(table: EncryptedTable) -> None:
    table.scan().to_arrow()
    first, second = table.metadata.snapshots
    moved = first.model_copy(update={"manifest_list": second.manifest_list})
    with pytest.raises(TamperedFileError):
        moved.bound_to(metadata_of(table).key_ring).manifests_to_plan(table.io)


def test_who_may_not_use_the_master_key_gets_no_list_that_is_kept(table: EncryptedTable) -> None:
    table.scan().to_arrow()
    elsewhere = MemoryKeyManagementClient({"kms.memory.name": "kept plans of somebody else"}, {MASTER_KEY: bytes(32)})
    io = TableFileIO(cast("EncryptingFileIO", table.io).inner, EncryptionManager(elsewhere, MASTER_KEY))
    with pytest.raises(AuthenticationError):
        current_snapshot(table).manifests_to_plan(io)


def test_a_snapshot_without_a_key_is_refused_whatever_is_kept(table: EncryptedTable) -> None:
    table.scan().to_arrow()
    keyless = current_snapshot(table).model_copy(update={"key_id": None}).bound_to(metadata_of(table).key_ring)
    with pytest.raises(PlaintextRefusedError, match="no key-id"):
        keyless.manifests_to_plan(table.io)
    with pytest.raises(PlaintextRefusedError):
        current_snapshot(table).manifests_to_plan(cast("EncryptingFileIO", table.io).inner)
