"""Encrypted tables for tests of what changes keys: a little history, deletion vectors and a branch, in any catalog."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Summary
from pyiceberg.types import LongType, NestedField, StringType

from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.table import EncryptedTable
from tests.support.catalogs import MASTER_KEY
from tests.support.plaintext import CANARY

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "note", StringType()))


def rows(first: int, count: int = 20) -> pa.Table:
    """Rows from an id on, each with the canary."""
    ids = list(range(first, first + count))
    return pa.table({"id": ids, "note": [f"{CANARY} {each}" for each in ids]}, schema=SCHEMA.as_arrow())


def table_with_history(catalog: Catalog, name: str, key_id: str = MASTER_KEY, **properties: str) -> Table:
    """A table of four snapshots: two appends, a merge-on-read delete, and an append to the branch `side`."""
    table = catalog.create_table(name, SCHEMA, properties={"encryption.key-id": key_id, "write.delete.mode": "merge-on-read", **properties})
    table.append(rows(0))
    table.append(rows(100))
    table.delete("id = 3")
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "side").commit()
    table.append(rows(200), branch="side")
    return table


def metadata_of(table: Table) -> EncryptedTableMetadata:
    """A table's metadata in the class that holds keys."""
    metadata = table.metadata
    assert isinstance(metadata, EncryptedTableMetadata)
    return metadata


def encrypted_table(table: Table) -> EncryptedTable:
    """A table in the class that encrypts, whose methods take key metadata."""
    assert isinstance(table, EncryptedTable)
    return table


def current_snapshot(table: Table) -> EncryptedSnapshot:
    """The snapshot that a table has."""
    snapshot = metadata_of(table).current_snapshot()
    assert isinstance(snapshot, EncryptedSnapshot)
    return snapshot


def summary_of(table: Table) -> Summary:
    """What the snapshot that a table has says of itself."""
    summary = current_snapshot(table).summary
    assert summary is not None
    return summary


def keks(table: Table) -> list[EncryptedKey]:
    """The KEKs of a table."""
    return metadata_of(table).key_ring.keks


def manifest_list_keys(table: Table) -> dict[str, EncryptedKey]:
    """The manifest-list keys of a table, by id."""
    return {key.key_id: key for key in metadata_of(table).encryption_keys if not key.is_kek}


def state(table: Table) -> dict[int, list[tuple[int, str]]]:
    """The rows of every snapshot, read again from the catalog."""
    fresh = table.catalog.load_table(table.name())
    return {
        each.snapshot_id: sorted((row["id"], row["note"]) for row in fresh.scan(snapshot_id=each.snapshot_id).to_arrow().to_pylist())
        for each in fresh.snapshots()
    }
