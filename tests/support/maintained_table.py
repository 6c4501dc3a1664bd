"""A small encrypted table with every kind of file that a snapshot leads to, and ways to damage them."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.maintenance.reachable import reachable_files
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.table_files import TableFileIO
from tests.support.catalogs import MASTER_KEY
from tests.support.plaintext import CANARY

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "team", StringType()), NestedField(3, "note", StringType()))
BY_TEAM = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "team"))
TEAMS = ("north", "south")


def rows(first: int, count: int = 20) -> pa.Table:
    """Rows of both teams."""
    ids = range(first, first + count)
    return pa.table(
        {"id": ids, "team": [TEAMS[each % 2] for each in ids], "note": [f"{CANARY} {each}" for each in ids]}, schema=SCHEMA.as_arrow()
    )


def maintained_table(
    catalog: Catalog,
    name: str = "db.rows",
    properties: Mapping[str, str] | None = None,
    location: str | None = None,
    spec: PartitionSpec = BY_TEAM,
) -> Table:
    """Two appends and a merge-on-read delete: manifest lists, manifests, data files and deletion vectors."""
    creation = {"encryption.key-id": MASTER_KEY, "write.delete.mode": "merge-on-read", **(properties or {})}
    table = catalog.create_table(name, SCHEMA, location=location, partition_spec=spec, properties=creation)
    table.append(rows(0))
    table.append(rows(100))
    table.delete("id = 3")
    return table.refresh()


def path_of(location: str) -> Path:
    """The path of a file:// location."""
    return Path(unquote(urlsplit(location).path))


def folder_of(table: Table) -> Path:
    """The table's folder on this machine."""
    return path_of(table.location())


def flip(path: Path, offset: int) -> None:
    """Change one bit of the byte at an offset; negative ones count from the end."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


@contextmanager
def put_back(folder: Path) -> Iterator[None]:
    """Whatever happens to the files below a folder, put them back as they were."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    times = {path: path.stat() for path in before}
    try:
        yield
    finally:
        for path in folder.rglob("*"):
            if path.is_file() and path not in before:
                path.unlink()
        for path, content in before.items():
            path.write_bytes(content)
            os.utime(path, ns=(times[path].st_atime_ns, times[path].st_mtime_ns))


def kek_entries(table: Table) -> list[EncryptedKey]:
    """The KEKs of the table as it is now, wrapped."""
    metadata = table.catalog.load_table(table.name()).metadata
    assert isinstance(metadata, EncryptedTableMetadata)
    assert metadata.key_ring.keks
    return metadata.key_ring.keks


def spelled_keys(table: Table) -> list[bytes]:
    """Every key of the table in the clear, in each spelling in which it could stand in a report: raw, base64, and hex."""
    table = table.catalog.load_table(table.name())
    assert isinstance(table.io, TableFileIO)
    assert isinstance(table.metadata, EncryptedTableMetadata)
    manager = table.io.manager
    deks = [file.key.encryption_key.reveal() for file in reachable_files(table.metadata, table.io).files.values() if file.key]
    assert len(deks) > 5
    keys = [*deks, *(manager.kms.unwrap_key(kek.wrapped_bytes(), manager.table_key_id) for kek in kek_entries(table))]
    return [
        each
        for key in keys
        for each in (key, base64.b64encode(key).rstrip(b"="), base64.urlsafe_b64encode(key).rstrip(b"="), key.hex().encode())
    ]
