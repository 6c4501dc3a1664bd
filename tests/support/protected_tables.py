"""Tables with protected columns, for tests: one database, and two clients of it of which one may not use the columns' master key.

Keys are in the memory of this process. The two clients have keyrings of their own: that of `analyst` lacks the columns' master keys, as if
a key service refused them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import TableUpdate
from pyiceberg.typedef import Identifier
from pyiceberg.types import DecimalType, ListType, LongType, NestedField, StringType, StructType

from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.manifests.records import STATISTICS, key_metadata_of
from tablecrypt.parquet import FileKeys
from tablecrypt.parquet.chunk_modules import decrypt_chunk, read_index
from tablecrypt.parquet.layout import encrypted_layout
from tablecrypt.parquet.modules import ModuleType
from tablecrypt.parquet.storage import source_of
from tablecrypt.table.protection.policy import column_keys
from tablecrypt.table.snapshots import CommitOptions
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.transaction import EncryptedTransaction
from tablecrypt.table.updates import AddEncryptionKeyUpdate
from tablecrypt.table.write import write_data_files
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support import write_only_kms
from tests.support.bound_schemas import OF_TEXT
from tests.support.handwritten_manifests import named_otherwise
from tests.support.tables import encrypted_table, metadata_of, new_table, path_of

TABLE_KEY: Final = "orders"
COLUMN_KEY: Final = "pii"
OTHER_COLUMN_KEY: Final = "fin"
PEOPLE_SCHEMA: Final = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "ssn", StringType()),
    NestedField(3, "salary", DecimalType(9, 2)),
    NestedField(4, "person", StructType(NestedField(5, "email", StringType()), NestedField(6, "age", LongType()))),
    NestedField(7, "phones", ListType(8, StringType())),
    NestedField(9, "note", StringType()),
)
SSN: Final = 2
SALARY: Final = 3
EMAIL: Final = 7
"""Field ids in a table that was made of PEOPLE_SCHEMA: PyIceberg numbers the top level first."""


@dataclass(frozen=True)
class Clients:
    """Three clients of one catalog.

    Attributes:
        payroll: may use every key.
        analyst: may use the table's key alone.
        clerk: may use the table's key, and OTHER_COLUMN_KEY.
    """

    payroll: EncryptedSqlCatalog
    analyst: EncryptedSqlCatalog
    clerk: EncryptedSqlCatalog


def clients(
    folder: Path, properties: Mapping[str, str] | None = None, catalog_class: type[EncryptedSqlCatalog] = EncryptedSqlCatalog
) -> Clients:
    """Make the clients, with the namespace `db`."""
    keys = {name: secrets.token_bytes(32) for name in (TABLE_KEY, COLUMN_KEY, OTHER_COLUMN_KEY)}
    keyrings = {"payroll": keys, "analyst": {TABLE_KEY: keys[TABLE_KEY]}}
    keyrings["clerk"] = {name: keys[name] for name in (TABLE_KEY, OTHER_COLUMN_KEY)}
    made = {}
    for name, own in keyrings.items():
        keyring = f"protected {name} {folder}"
        MemoryKeyManagementClient({"kms.memory.name": keyring}, own)
        made[name] = catalog_class(
            "prod",
            **{
                "uri": f"sqlite:///{folder}/catalog.db",
                "warehouse": f"file://{folder}/warehouse",
                "encryption.kms-type": "memory",
                "kms.memory.name": keyring,
                **(properties or {}),
            },
        )
    made["payroll"].create_namespace_if_not_exists("db")
    return Clients(**made)


def write_only(both: Clients) -> EncryptedSqlCatalog:
    """A third client: it may use the table's key, and wrap under the columns' master keys but not unwrap."""
    kept = {name: value for name, value in both.payroll.properties.items() if name != "encryption.kms-type"}
    refused = f"{COLUMN_KEY},{OTHER_COLUMN_KEY}"
    return EncryptedSqlCatalog("prod", **{**kept, "encryption.kms-impl": write_only_kms.CLASS, write_only_kms.REFUSED: refused})


def protected_table(
    catalog: EncryptedSqlCatalog, name: str = "db.people", *, appends: Iterable[pa.Table] = (), **properties: str
) -> EncryptedTable:
    """Make a table whose columns ssn and person.email are under COLUMN_KEY, unless the properties say otherwise, and append to it.

    Where they say that no column is, the table is made without the property.
    """
    declared = {"encryption.key-id": TABLE_KEY, "encryption.column-keys": f"{COLUMN_KEY}: ssn, person.email", **properties}
    if not declared["encryption.column-keys"]:
        del declared["encryption.column-keys"]
    return new_table(catalog, name, PEOPLE_SCHEMA, appends=appends, properties=declared)


def person(number: int) -> dict[str, Any]:
    """A row of PEOPLE_SCHEMA. Every seventh has no ssn, every fifth no struct."""
    return {
        "id": number,
        "ssn": None if number % 7 == 0 else f"SSN-{number:04d}",
        "salary": Decimal(number),
        "person": None if number % 5 == 0 else {"email": f"mail-{number}@example.org", "age": number},
        "phones": [f"+49-{number}"],
        "note": f"note {number}",
    }


def persons(*numbers: int) -> pa.Table:
    """These rows."""
    return table_of_people([person(number) for number in numbers])


def table_of_people(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as PEOPLE_SCHEMA has them, with nulls for what they leave out."""
    return pa.Table.from_pylist(rows, schema=schema_to_pyarrow(PEOPLE_SCHEMA, include_field_ids=False))


def loaded(catalog: Catalog, name: str | Identifier = "db.people") -> EncryptedTable:
    """A table as this client loads it now."""
    return encrypted_table(catalog.load_table(name))


def declare(table: Table, columns: str | None = None, **masks: str) -> None:
    """Commit which columns are protected and by which master keys, or masks by their columns; what is left out stays as it is."""
    keys = {} if columns is None else {"encryption.column-keys": columns}
    by_name = {f"encryption.column-mask.{name}": mask for name, mask in masks.items()}
    table.transaction().set_properties({**keys, **by_name}).commit_transaction()


def write_as_java_does(table: EncryptedTable, rows: pa.Table, earlier: EncryptedTable | None = None) -> None:
    """Append a file as another engine writes it: every column is under the table's key, with its bounds in the manifest.

    Args:
        table: to which.
        rows: the file's.
        earlier: the table as its writer loaded it; None: as it is now.
    """
    metadata = metadata_of(earlier or table)
    properties = {name: value for name, value in metadata.properties.items() if not name.startswith(("encryption.column", "write."))}
    io = table.io
    files = write_data_files(metadata.model_copy(update={"properties": properties, "encryption_keys": []}), rows, io, io.manager)
    with table.transaction() as transaction:
        cast("EncryptedTransaction", transaction).append_producer(CommitOptions()).commit_files(files)


def add_once_more(table: EncryptedTable, file: DataFile, stored: bytes, **fields: Any) -> str:
    """Commit a file beside one of the table, with its key and an entry like its own, but for these fields. Returns its location."""
    location = file.file_path.replace(".parquet", f"-{secrets.token_hex(4)}.parquet")
    path_of(location).write_bytes(stored)
    key_metadata = key_metadata_of(file).with_file_length(len(stored)).encode()
    own = {"file_path": location, "file_size_in_bytes": len(stored), "key_metadata": key_metadata, "first_row_id": None}
    entry = named_otherwise(file, **{**own, **fields})

    with table.transaction() as transaction:
        cast("EncryptedTransaction", transaction).append_producer(CommitOptions()).commit_files([entry])
    return location


@dataclass(frozen=True)
class StoredKey:
    """What the footer of a file would hold of one column: its key metadata, and the file's AAD prefix; as old as the table is then."""

    field_id: int
    key_metadata: bytes
    aad_prefix: bytes
    sequence_number: int

    def opens(self, table: EncryptedTable) -> bytes:
        """Return the DEK that the table, as its catalog has it now, opens. Raises what reading the column raises."""
        fresh = loaded(table.catalog, table.name())
        return column_keys(metadata_of(fresh), fresh.io).unwrap(
            self.field_id, self.key_metadata, self.aad_prefix, OF_TEXT, self.sequence_number
        )


def commit_column_keys(table: EncryptedTable, *field_ids: int) -> list[StoredKey]:
    """Make the keys of these columns for a new file, as its writer does, and commit their entries of encryption-keys."""
    table.refresh()
    io, metadata, prefix = table.io, metadata_of(table), secrets.token_bytes(16)
    keys = column_keys(metadata, io).generate(field_ids, prefix)
    entries = io.manager.pending_columns.new_entries(metadata.key_ring, [prefix])
    if entries:
        transaction = table.transaction()
        transaction.apply(tuple(cast("TableUpdate", AddEncryptionKeyUpdate(key=entry)) for entry in entries))
        transaction.commit_transaction()
    return [StoredKey(key.field_id, key.key_metadata(OF_TEXT), prefix, metadata.last_sequence_number) for key in keys.values()]


def counted_columns(table: EncryptedTable) -> set[int]:
    """The field ids of which manifests hold a size, a count or a bound."""
    files = [task.file for task in table.scan().plan_files()]
    assert files
    return {field_id for file in files for name in STATISTICS for field_id in getattr(file, name) or {}}


def opened_by_table_key(table: EncryptedTable) -> list[bytes]:
    """What a holder of the table's key alone finds in data files and manifest entries: their bytes, decrypted where that key does it.

    Of a table without files nothing can be told, so there must be one: ask `data_files` where none is to be.
    """
    found: list[bytes] = []
    for task in table.scan().plan_files():
        stored, key_metadata = path_of(task.file.file_path).read_bytes(), key_metadata_of(task.file)
        layout = encrypted_layout(source_of(stored), FileKeys(key_metadata.encryption_key, aad_prefix=key_metadata.aad_prefix))
        found += [repr(task.file).encode(), stored, layout.metadata.encode()]
        for chunk in layout.chunks():
            if not chunk.has_own_key:
                found.append(bytes(decrypt_chunk(chunk)))
                found += [read_index(chunk, chunk.column_index, ModuleType.COLUMN_INDEX)] if chunk.column_index else []
    assert found, f"{table.name()} has no files"
    return found
