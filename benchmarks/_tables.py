"""The tables that benchmarks read and write: the same rows in an encrypted table and in PyIceberg's plain one, both in local files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet.encryption as pe
from pyarrow import fs
from pyiceberg.catalog import Catalog
from pyiceberg.catalog import load_catalog as load_plain_catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from tablecrypt import load_catalog
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.manifests.records import EncryptedDataFile, key_metadata_of

FLOOR: Final = "pyarrow with the key"
PLAINTEXT_FLOOR: Final = "pyarrow, plaintext"
"""Sides that know a table's files, and their keys, and let pyarrow alone read or write them."""
KEY_ID: Final = "benchmark"
KEY: Final = bytes(range(32))
KMS: Final = {"encryption.kms-type": "memory", "kms.memory.name": "benchmarks"}
ENCRYPTED: Final = {"encryption.key-id": KEY_ID}


def catalogs_in(folder: Path, properties: Mapping[str, str] | None = None) -> tuple[Catalog, Catalog]:
    """Return a catalog of encrypted tables and PyIceberg's own, with a namespace `db` each.

    Args:
        folder: holds the catalogs, and the tables where no `warehouse` is among the properties.
        properties: of both, such as those of a store.
    """
    MemoryKeyManagementClient(KMS).create_key(KEY_ID, KEY)
    given: dict[str, Any] = dict(properties or {})
    warehouse = given.pop("warehouse", f"file://{folder}")
    ours = load_catalog(
        "ours", **{"type": "tablecrypt", "uri": f"sqlite:///{folder}/ours.db", "warehouse": f"{warehouse}/ours", **KMS, **given}
    )
    plain = load_plain_catalog(
        "plain", **{"type": "sql", "uri": f"sqlite:///{folder}/plain.db", "warehouse": f"{warehouse}/plain", **given}
    )
    for catalog in (ours, plain):
        catalog.create_namespace_if_not_exists("db")
    return ours, plain


def tables_in(catalogs: tuple[Catalog, Catalog], name: str, files: int, count: int) -> tuple[Table, Table]:
    """Return an encrypted and a plain table of the same rows, a file for each commit."""
    ours = catalogs[0].create_table(f"db.{name}", rows_of(0, 1).schema, properties=ENCRYPTED)
    plain = catalogs[1].create_table(f"db.{name}", rows_of(0, 1).schema)
    for number in range(files):
        rows = rows_of(number, count)
        ours.append(rows)
        plain.append(rows)
    return ours, plain


def dataset_of(files: Iterable[DataFile]) -> ds.Dataset:
    """Return local data files as pyarrow alone reads them: a dataset that has the keys of encrypted ones, and checks nothing else."""
    fragments, local = [], fs.LocalFileSystem()
    for file in files:
        options = ds.ParquetFragmentScanOptions(pre_buffer=True, decryption_properties=decryption_of(file))
        fragments.append(ds.ParquetFileFormat(default_fragment_scan_options=options).make_fragment(local_path(file), local))
    return ds.FileSystemDataset(fragments, fragments[0].physical_schema, ds.ParquetFileFormat(), local)


def local_path(file: DataFile) -> str:
    """Return where a local data file is on the disk; Iceberg Java names it with one slash after the scheme."""
    return urlsplit(file.file_path).path


def decryption_of(file: DataFile) -> Any:
    """Return what pyarrow needs to decrypt a data file; None for a plaintext one."""
    if not isinstance(file, EncryptedDataFile):
        return None
    key = key_metadata_of(file)
    return pe.create_decryption_properties(key.encryption_key.reveal(), aad_prefix=key.aad_prefix)


def files_of(table: Table) -> list[DataFile]:
    """Return the table's data files, in their order."""
    return [task.file for task in table.scan().plan_files()]


def rows_of(number: int, count: int) -> pa.Table:
    """Six columns, the same in every run: a sorted id, a key of 100 values, two of floats, a name of 5,000 values, and large numbers."""

    def uniform(seed: int) -> pa.Array:
        return pc.random(count, initializer=seed + 10 * number)

    names = pa.array([f"name {each}" for each in range(5000)])
    return pa.table(
        {
            "id": pa.array(range(number * count, (number + 1) * count), pa.int64()),
            "k": pc.cast(pc.floor(pc.multiply(uniform(1), 100)), pa.int64()),
            "v": uniform(2),
            "name": names.take(pc.cast(pc.floor(pc.multiply(uniform(3), 5000)), pa.int64())),
            "w": uniform(4),
            "z": pc.cast(pc.floor(pc.multiply(uniform(5), 2**40)), pa.int64()),
        }
    )
