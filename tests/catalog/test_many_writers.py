"""Many writers on one table of a SQL catalog: no commit is lost, every snapshot opens, and no key of an abandoned attempt stays."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.io import FileIO
from sqlalchemy import text

from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog

PATIENT = {
    "encryption.key-id": MASTER_KEY,
    "commit.retry.num-retries": "10000",
    "commit.retry.min-wait-ms": "50",
    "commit.retry.max-wait-ms": "2000",
    "commit.retry.total-timeout-ms": str(24 * 60 * 60 * 1000),
}
FEW = pytest.param((4, 10), id="4 writers, 40 commits")
# A commit reads and writes what every snapshot before it has in metadata.json and in the manifest list, so that so many take long.
MANY = pytest.param((16, 63), id="16 writers, 1008 commits", marks=[pytest.mark.campaign, pytest.mark.timeout(7200)])


def rows(writer: int, commit: int) -> pa.Table:
    return pa.table({"writer": pa.array([writer], pa.int64()), "commit": pa.array([commit], pa.int64()), "text": [CANARY]})


@pytest.mark.slow
@pytest.mark.parametrize("size", [FEW, MANY])
def test_no_commit_of_many_writers_is_lost(size: tuple[int, int], uri: str, warehouse: Path, aws: AwsServer) -> None:
    writers, commits = size

    def client() -> EncryptedSqlCatalog:
        return encrypted_sql_catalog(warehouse, aws, {"uri": uri})

    def write(writer: int) -> None:
        table = client().load_table("db.t")
        for commit in range(commits):
            table.append(rows(writer, commit))

    client().create_table("db.t", rows(0, 0).schema, properties=PATIENT)
    with ThreadPoolExecutor(writers) as threads:
        list(threads.map(write, range(writers)))

    catalog = client()
    table = catalog.load_table("db.t")
    written = sorted((writer, commit) for writer in range(writers) for commit in range(commits))
    found = table.scan(selected_fields=("writer", "commit", "_row_id")).to_arrow().to_pylist()
    assert sorted((row["writer"], row["commit"]) for row in found) == written
    assert sorted(row["_row_id"] for row in found) == list(range(len(written)))

    metadata = table.metadata
    assert isinstance(metadata, EncryptedTableMetadata)
    assert [snapshot.sequence_number for snapshot in metadata.snapshots] == list(range(1, len(written) + 1))
    assert list(rows_of_each_snapshot(metadata, table.io)) == list(range(1, len(written) + 1))
    needed = metadata.key_ring.needed_by(snapshot.key_id for snapshot in metadata.snapshots if snapshot.key_id is not None)
    assert [key.key_id for key in metadata.encryption_keys if key.key_id not in needed] == []
    assert len(metadata.encryption_keys) == len(needed)

    with catalog.engine.connect() as connection:
        (pinned,) = connection.execute(text("SELECT metadata_location, last_sequence_number FROM tablecrypt_pins")).all()
    assert tuple(pinned) == (table.metadata_location, len(written))


def rows_of_each_snapshot(metadata: EncryptedTableMetadata, io: FileIO) -> Iterator[int]:
    """Decrypt every snapshot's manifest list, and say how many rows it holds."""
    for snapshot in metadata.snapshots:
        yield sum((manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0) for manifest in snapshot.manifests(io))
