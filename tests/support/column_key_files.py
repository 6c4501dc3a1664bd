"""A process that gives files with column keys, and files with a column in the clear, to everything that reads data files of a table.

    python -m tests.support.column_key_files FOLDER      prints {"kind": ..., "reader": ..., "error": ..., "message": ...} per line

A process of its own: Arrow ends the one in which it looks at the statistics of a column whose key it lacks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from tablecrypt import load_catalog, parquet
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.maintenance import compact, migrate, reencrypt, verify
from tests.support.tables import encrypted_table

ROWS = pa.table({"id": pa.array(range(100), pa.int64()), "ssn": [f"SSN-{each}" for each in range(100)]})
MORE = ROWS.slice(0, 3)
KINDS: dict[str, dict[str, Any]] = {"column key": {"column_keys": {"ssn": b"s" * 16}}, "in the clear": {"plaintext_columns": ["ssn"]}}
ENCRYPTED = {"encryption.key-id": "master"}
READERS: dict[str, Callable[[Table], Any]] = {
    "rows": lambda table: table.scan().to_arrow(),
    "other columns": lambda table: table.scan(selected_fields=("id",)).to_arrow(),
    "filter on it": lambda table: table.scan("ssn = 'SSN-7'").to_arrow(),
    "filter on another": lambda table: table.scan("id = 7").to_arrow(),
    "limit": lambda table: table.scan(limit=1).to_arrow(),
    "stream": lambda table: table.scan("ssn > 'SSN-3'").to_arrow_batch_reader().read_all(),
    "count": lambda table: table.scan("ssn = 'SSN-7'").count(),
    "row ids": lambda table: table.scan(selected_fields=("_row_id",)).to_arrow(),
    "pandas": lambda table: table.scan().to_pandas(),
    "Polars": lambda table: table.to_polars().collect(),
    "DuckDB": lambda table: table.scan().to_duckdb("rows").execute("select max(ssn) from rows").fetchall(),
    "delete": lambda table: table.delete("ssn = 'SSN-7'"),
    "merge-on-read delete": lambda table: merging(table).delete("ssn = 'SSN-7'"),
    "overwrite": lambda table: table.overwrite(MORE, "ssn = 'SSN-7'"),
    "upsert": lambda table: table.upsert(MORE, join_cols=["ssn"]),
    "compact": lambda table: compact(two_files(table), min_input_files=2),
    "reencrypt": reencrypt,
}


def two_files(table: Table) -> Table:
    table.append(MORE)
    return table


def merging(table: Table) -> Table:
    table.transaction().set_properties({"write.delete.mode": "merge-on-read"}).commit_transaction()
    return table


def file_of(folder: Path, kind: str, **more: Any) -> tuple[str, StandardKeyMetadata]:
    """A file with the table's columns, all but one under one key."""
    key = StandardKeyMetadata(Secret(b"k" * 16), b"prefix of the file")
    path = folder / f"{kind.replace(' ', '-')}{len(more)}.parquet"
    ids = pa.schema([field.with_metadata({"PARQUET:field_id": str(at)}) for at, field in enumerate(ROWS.schema, start=1)])
    keys = parquet.FileKeys(key.encryption_key, aad_prefix=key.aad_prefix, **KINDS[kind], **more)
    parquet.write_table(ROWS.cast(ids), path, keys, row_group_size=30)
    return path.as_uri(), key.with_file_length(path.stat().st_size)


def with_file(table: Table, location: str, key: StandardKeyMetadata) -> Table:
    """The table, whose manifest names the file now: another client put it there."""
    encrypted = table.metadata.format_version == 3
    file = DataFile.from_args(
        _table_format_version=table.metadata.format_version,
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=ROWS.num_rows,
        file_size_in_bytes=key.file_length,
        key_metadata=key.encode() if encrypted else None,
    )
    file.spec_id = 0
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    return table.refresh()


def add_file(table: Table, location: str, key: StandardKeyMetadata) -> None:
    encrypted_table(table).add_files([location], key_metadata={location: key})


def tell(kind: str, reader: str, read: Callable[..., Any], *arguments: Any) -> None:
    sys.stdout.write(json.dumps({"kind": kind, "reader": reader, **_outcome(read, arguments)}) + "\n")
    sys.stdout.flush()


def _outcome(read: Callable[..., Any], arguments: tuple[Any, ...]) -> dict[str, str | None]:
    try:
        read(*arguments)
    except Exception as error:  # noqa: BLE001  whatever a reader says is what the test compares
        return {"error": type(error).__name__, "message": str(error)}
    return {"error": None, "message": None}


def check_verify(table: Table, quick: bool) -> None:
    """Raise what verifying says of the file."""
    (bad,) = verify(table, quick=quick).bad
    raise RuntimeError(f"{bad.location}: {bad.problems[0].message}")


def main(folder: Path) -> None:
    catalog = load_catalog(
        "prod",
        **{
            "type": "tablecrypt",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
            "encryption.kms-type": "memory",
        },
    )
    MemoryKeyManagementClient().create_key("master")
    catalog.create_namespace("db")
    for kind in KINDS:
        location, key = file_of(folder, kind)
        empty = catalog.create_table(f"db.{kind[:2]}_empty", ROWS.schema, properties=ENCRYPTED)
        tell(kind, "add_files", add_file, empty, location, key)
        for at, (name, read) in enumerate(READERS.items()):
            table = with_file(catalog.create_table(f"db.{kind[:2]}_{at}", ROWS.schema, properties=ENCRYPTED), location, key)
            tell(kind, name, read, table)
        for quick in (False, True):
            tell(kind, f"verify, quick={quick}", check_verify, table, quick)
        location, key = file_of(folder, kind, plaintext_footer=True)
        plain = with_file(catalog.create_table(f"db.{kind[:2]}_plain", ROWS.schema), location, key)
        tell(kind, "migrate", migrate, plain, "master")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
