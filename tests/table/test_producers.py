"""Producers of snapshots have what they commit from the beginning, and share nothing that they change."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record

from tablecrypt import maintenance
from tablecrypt.errors import PlaintextRefusedError
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.replace_files import EncryptedFileSwap, EncryptedRewrite, RewrittenFiles
from tablecrypt.table.snapshots import EncryptedProducer, EncryptedRowDelta, EncryptedUpdateSnapshot
from tablecrypt.table.table import EncryptedTable
from tests.support.plaintext import CANARY
from tests.support.tables import metadata_of, new_table


@pytest.fixture
def table(catalog: Catalog) -> EncryptedTable:
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "text": [CANARY] * 2})
    return new_table(catalog, appends=[rows])


def producers_of(table: EncryptedTable) -> EncryptedUpdateSnapshot:
    update = table.transaction().update_snapshot()
    assert isinstance(update, EncryptedUpdateSnapshot)
    return update


@pytest.mark.parametrize(
    ("producer", "missing"), [(EncryptedRowDelta, "row_delta"), (EncryptedRewrite, "rewritten"), (EncryptedFileSwap, "swaps")]
)
def test_a_producer_is_not_made_without_what_it_commits(table: EncryptedTable, producer: type[EncryptedProducer], missing: str) -> None:
    with pytest.raises(TypeError, match=missing):
        producers_of(table).producer(producer, Operation.REPLACE)


def test_a_rewrite_refuses_plaintext_before_there_is_a_producer(table: EncryptedTable) -> None:
    plain = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location()}/data/plain.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
    )
    rewritten = RewrittenFiles([], [plain], frozenset(), 1, 1)

    with pytest.raises(PlaintextRefusedError):
        producers_of(table).producer(EncryptedRewrite, Operation.REPLACE, rewritten=rewritten)


def test_a_swap_has_replaced_nothing_before_it_is_tried(table: EncryptedTable) -> None:
    producer = producers_of(table).producer(EncryptedFileSwap, Operation.REPLACE, swaps={})

    assert producer.swapped == set()
    assert producer.added_delete_files == []


def test_metadata_made_of_the_same_snapshots_leaves_their_keys_to_others(table: EncryptedTable) -> None:
    metadata = metadata_of(table)
    fields = {name: getattr(metadata, name) for name in EncryptedTableMetadata.model_fields}

    keyless = EncryptedTableMetadata.model_validate(fields | {"encryption_keys": []})

    assert keyless.snapshots == metadata.snapshots
    assert metadata.snapshots[0].manifests(table.io)


@pytest.mark.parametrize(
    "change",
    [
        lambda table, number: table.upsert(pa.table({"id": [1], "text": [f"{CANARY} {number}"]}), join_cols=["id"]),
        lambda table, number: table.overwrite(pa.table({"id": [1], "text": [CANARY]}), "id = 1"),
        lambda table, number: table.overwrite(table.scan().to_arrow()),
        lambda table, number: maintenance.compact(table, rewrite_all=True),
        lambda table, number: maintenance.reencrypt(table),
    ],
    ids=["upsert", "overwrite of a part", "overwrite of all", "compact", "reencrypt"],
)
def test_manifests_of_what_earlier_snapshots_removed_are_left_out(table: EncryptedTable, change: Callable[[Table, int], object]) -> None:
    for number in range(3):
        change(table, number)

    last = table.refresh().current_snapshot()
    assert last is not None
    without_files = [each for each in last.manifests(table.io) if not each.has_added_files() and not each.has_existing_files()]
    assert {manifest.added_snapshot_id for manifest in without_files} <= {last.snapshot_id}
    assert table.scan().to_arrow().num_rows == 2
