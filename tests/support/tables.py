"""Schemas, rows, catalogs, tables and paths for tests. A test brings one of its own only where that is the point of the test.

Start from the fixtures of tests/conftest.py, which most tests need nothing beside:

    def test_a_delete_leaves_the_other_rows(catalog: EncryptedSqlCatalog) -> None:
        table = new_table(catalog, appends=[rows(0)])
        table.delete("id = 3")
        assert ids(table) == [each for each in range(20) if each != 3]

    schemas    SCHEMA (id, note), TEAM_SCHEMA (id, team, note) and BY_TEAM, REGION_SCHEMA (required id, region, note) and BY_REGION;
               PEOPLE_SCHEMA with protected columns and nested ones is in tests/support/protected_tables.py
    rows       rows(first, count, schema) of any schema, ROWS (three rows of id and text); tests/support/sample_rows.py has extreme values
    KMS        MASTER_KEY in moto's (aws.kms_properties), memory_kms(name) in this process, key_file_kms(path) in a file
    catalogs   encrypted_sql_catalog on SQLite with moto's KMS, memory_catalog with keys in this process, unpinned_catalog
    tables     new_table, team_table; maintained_table and table_with_history, which have every kind of file and several snapshots
    reading    ids, state, metadata_of, current_snapshot, keks and the like
    paths      path_of(location), folder_of(table), data_files(table), data_paths(table), files_below(folder), contents_below(folder)
    damage     flip, put_back

Strings in rows hold the canary, so the search for plaintext at the end of the run covers every table made here.
"""

from __future__ import annotations

import base64
import datetime as dt
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Summary
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from tablecrypt.files.encrypting_file_io import encrypting_io
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.kms.local_file import add_key, create_key_file
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.maintenance.reachable import reachable_files
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.reader import remaining_rows
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO
from tablecrypt_catalog import EncryptedInMemoryCatalog, EncryptedSqlCatalog, encrypted
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY

MASTER_KEY: Final = "alias/orders"
"""A key that moto's KMS, the golden tables and the other KMS of this module have."""
ENCRYPTED: Final = {"encryption.key-id": MASTER_KEY}
MERGE_ON_READ: Final = {"write.delete.mode": "merge-on-read"}

SCHEMA: Final = Schema(NestedField(1, "id", LongType()), NestedField(2, "note", StringType()))
TEAM_SCHEMA: Final = Schema(NestedField(1, "id", LongType()), NestedField(2, "team", StringType()), NestedField(3, "note", StringType()))
REGION_SCHEMA: Final = Schema(
    NestedField(1, "id", LongType(), required=True), NestedField(2, "region", StringType()), NestedField(3, "note", StringType())
)
BY_TEAM: Final = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "team"))
BY_REGION: Final = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
TEAMS: Final = ("north", "south")

ROWS: Final = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "text": [CANARY, None, ""]})


def rows(first: int, count: int = 20, schema: Schema = SCHEMA) -> pa.Table:
    """Rows with the ids from `first` on. Each value follows from its row's id; team and region are one of TEAMS."""
    names = {field.name: field.field_type for field in schema.fields}
    return pa.Table.from_pylist(
        [{name: _value(name, kind, number) for name, kind in names.items()} for number in range(first, first + count)],
        schema=schema.as_arrow(),
    )


def team_rows(first: int, count: int = 20) -> pa.Table:
    """Rows of TEAM_SCHEMA."""
    return rows(first, count, TEAM_SCHEMA)


def _value(name: str, kind: IcebergType, number: int) -> Any:
    if name in {"team", "region"}:
        return TEAMS[number % 2]
    match kind:
        case ListType():
            return [_value("", kind.element_type, number)]
        case MapType():
            return [(_value("", kind.key_type, number), _value("", kind.value_type, number))]
        case StructType():
            return {field.name: _value(field.name, field.field_type, number) for field in kind.fields}
        case _:
            return _PRIMITIVES[type(kind)](number)


_PRIMITIVES: Final[dict[type[IcebergType], Callable[[int], Any]]] = {
    BinaryType: lambda number: f"{CANARY} {number}".encode(),
    BooleanType: lambda number: number % 2 == 0,
    DateType: lambda number: dt.date(2024, 1, 1) + dt.timedelta(days=number),
    DecimalType: Decimal,
    DoubleType: lambda number: number / 4,
    FloatType: lambda number: number / 4,
    IntegerType: int,
    LongType: int,
    StringType: lambda number: f"{CANARY} {number}",
    TimestampType: lambda number: dt.datetime(2024, 1, 1) + dt.timedelta(hours=number),
    TimestamptzType: lambda number: dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=number),
    UUIDType: lambda number: uuid.UUID(int=number).bytes,
}


def memory_kms(name: str | Path, *key_ids: str) -> dict[str, str]:
    """The properties of a keyring of this process with these keys, or MASTER_KEY. Clients of the same name share their keys."""
    properties = {"encryption.kms-type": "memory", "kms.memory.name": str(name)}
    MemoryKeyManagementClient(properties, {key_id: bytes(range(32)) for key_id in key_ids or (MASTER_KEY,)})
    return properties


def key_file_kms(path: Path, *key_ids: str) -> dict[str, str]:
    """The properties of a new key file with these keys, or MASTER_KEY."""
    first, *others = key_ids or (MASTER_KEY,)
    create_key_file(path, first)
    for key_id in others:
        add_key(path, key_id)
    return {"encryption.kms-type": "local", "kms.local.key-file": str(path)}


PARTITION_FOLDERS: Final = {"write.py-location-provider.impl": "pyiceberg.table.locations.SimpleLocationProvider"}
"""Of a table and its catalog: names of files show partitions, as in tables of others and of earlier releases."""
SHOWN_PARTITIONS: Final = {**PARTITION_FOLDERS, "write.summary.partition-limit": "100"}
"""Likewise: names of files and summaries of snapshots do."""


def encrypted_sql_catalog(folder: Path, aws: AwsServer, properties: Mapping[str, str] | None = None) -> EncryptedSqlCatalog:
    """A catalog whose database and warehouse are in `folder`, with keys in moto's KMS and the namespace `db`."""
    catalog = load_catalog(
        "prod",
        **{
            "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
            **aws.kms_properties,
            **aws.s3_properties,
            **(properties or {}),
        },
    )
    catalog.create_namespace_if_not_exists("db")
    return cast("EncryptedSqlCatalog", catalog)


def memory_catalog(folder: Path, properties: Mapping[str, str] | None = None) -> EncryptedInMemoryCatalog:
    """A catalog in memory, with files in `folder`, a keyring of its own with MASTER_KEY, and the namespace `db`."""
    catalog = EncryptedInMemoryCatalog("memory", **{"warehouse": f"file://{folder}/warehouse", **memory_kms(folder), **(properties or {})})
    catalog.create_namespace("db")
    return catalog


def unpinned_catalog(folder: Path, aws: AwsServer, **properties: str) -> Catalog:
    """A catalog in memory that pins nothing, with files in `folder` and the namespace `db`: it knows only where metadata files are."""
    catalog = encrypted(InMemoryCatalog)("unpinned", **{"warehouse": f"file://{folder}/warehouse", **aws.kms_properties, **properties})
    catalog.create_namespace_if_not_exists("db")
    return catalog


def new_table(
    catalog: Catalog,
    name: str = "db.t",
    schema: Schema | pa.Schema | None = None,
    *,
    appends: Iterable[pa.Table] = (),
    partitioned_by: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    properties: Mapping[str, str] | None = None,
) -> EncryptedTable:
    """A table under MASTER_KEY, unless the properties name another key, with one snapshot for each of `appends`.

    Without a schema it has that of its rows, and SCHEMA where there are none.
    """
    appended, creation = list(appends), {**ENCRYPTED, **(properties or {})}
    columns = schema or (appended[0].schema if appended else SCHEMA)
    table = encrypted_table(catalog.create_table(name, columns, partition_spec=partitioned_by, properties=creation))
    for each in appended:
        table.append(each)
    return table


def team_table(catalog: Catalog, *firsts: int, name: str = "db.t", properties: Mapping[str, str] | None = None) -> EncryptedTable:
    """A table in partitions by team, with one append of rows for each of these first ids."""
    appends = [team_rows(first) for first in firsts]
    return new_table(catalog, name, TEAM_SCHEMA, appends=appends, partitioned_by=BY_TEAM, properties=properties)


def maintained_table(catalog: Catalog, name: str = "db.rows", properties: Mapping[str, str] | None = None) -> Table:
    """Two appends and a merge-on-read delete: manifest lists, manifests, data files and deletion vectors."""
    table = team_table(catalog, 0, 100, name=name, properties={**MERGE_ON_READ, **(properties or {})})
    table.delete("id = 3")
    return table.refresh()


def table_with_history(catalog: Catalog, name: str = "db.t", key_id: str = MASTER_KEY, **properties: str) -> Table:
    """A table of four snapshots: two appends, a merge-on-read delete, and an append to the branch `side`."""
    given = {"encryption.key-id": key_id, **MERGE_ON_READ, **properties}
    table = new_table(catalog, name, appends=[rows(0), rows(100)], properties=given)
    table.delete("id = 3")
    table.manage_snapshots().create_branch(current_snapshot(table).snapshot_id, "side").commit()
    table.append(rows(200), branch="side")
    return table


def encrypted_table(table: Table) -> EncryptedTable:
    """A table in the class that encrypts, whose methods take key metadata."""
    assert isinstance(table, EncryptedTable)
    return table


def metadata_of(table: Table) -> EncryptedTableMetadata:
    """A table's metadata in the class that holds keys."""
    metadata = table.metadata
    assert isinstance(metadata, EncryptedTableMetadata)
    return metadata


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


def ids(table: Table, **scan: Any) -> list[int]:
    """The ids of the rows that a scan finds, of the table as it was loaded: `ids(table.refresh())` sees what others committed."""
    return sorted(table.scan(**scan).to_arrow()["id"].to_pylist())


def rows_of_file(table: Table, task: FileScanTask, *gone: int) -> pa.Table:
    """The live rows of one data file with their lineage, but those at these positions, as they are written again."""
    return remaining_rows(table.metadata, encrypting_io(table.io), task, np.array(gone, np.int64)).read_all()


def state(table: Table) -> dict[int, list[tuple[int, str]]]:
    """The ids and notes of every snapshot, read again from the catalog."""
    fresh = table.catalog.load_table(table.name())
    return {
        each.snapshot_id: sorted((row["id"], row["note"]) for row in fresh.scan(snapshot_id=each.snapshot_id).to_arrow().to_pylist())
        for each in fresh.snapshots()
    }


def keks(table: Table) -> list[EncryptedKey]:
    """The KEKs of a table, wrapped."""
    return metadata_of(table).key_ring.keks


def manifest_list_keys(table: Table) -> dict[str, EncryptedKey]:
    """The manifest-list keys of a table, by id."""
    return {key.key_id: key for key in metadata_of(table).encryption_keys if not key.is_kek}


def spelled_keys(table: Table) -> list[bytes]:
    """Every key of the table in the clear, in each spelling in which it could stand in a report: raw, base64, and hex."""
    table = table.catalog.load_table(table.name())
    assert isinstance(table.io, TableFileIO)
    manager = table.io.manager
    reachable = reachable_files(metadata_of(table), table.io).files.values()
    deks = [file.key.encryption_key.reveal() for file in reachable if file.key]
    assert len(deks) > 5
    assert keks(table)
    keys = [*deks, *(manager.kms.unwrap_key(kek.wrapped_bytes(), manager.table_key_id) for kek in keks(table))]
    return [
        each
        for key in keys
        for each in (key, base64.b64encode(key).rstrip(b"="), base64.urlsafe_b64encode(key).rstrip(b"="), key.hex().encode())
    ]


def path_of(location: str) -> Path:
    """The path of a location on this machine: file:///a/b, as PyIceberg writes it, or file:/a/b, as Java does."""
    return Path(location.removeprefix("file:"))


def folder_of(table: Table) -> Path:
    """The table's folder on this machine."""
    return path_of(table.location())


def metadata_path(table: Table) -> Path:
    """The table's metadata file on this machine."""
    return path_of(table.metadata_location)


def data_files(table: Table) -> list[DataFile]:
    """The data files of the table's snapshot, in the order of its plan."""
    return [task.file for task in table.scan().plan_files()]


def data_paths(table: Table) -> list[Path]:
    """Where these files are on this machine."""
    return [path_of(file.file_path) for file in data_files(table)]


def files_below(folder: Path, suffix: str = "") -> set[Path]:
    """All files below a folder whose names end so."""
    return {path for path in folder.rglob(f"*{suffix}") if path.is_file()}


def contents_below(folder: Path) -> dict[Path, bytes]:
    """All files below a folder, with their bytes."""
    return {path: path.read_bytes() for path in files_below(folder)}


def flip(path: Path, offset: int) -> None:
    """Change one bit of the byte at an offset; negative ones count from the end."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


@contextmanager
def put_back(folder: Path) -> Iterator[None]:
    """Whatever happens to the files below a folder, put them back as they were."""
    before = contents_below(folder)
    times = {path: path.stat() for path in before}
    try:
        yield
    finally:
        for path in files_below(folder) - before.keys():
            path.unlink()
        for path, content in before.items():
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)
            os.utime(path, ns=(times[path].st_atime_ns, times[path].st_mtime_ns))
