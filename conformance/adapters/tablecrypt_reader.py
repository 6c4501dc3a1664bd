"""tablecrypt reads and writes tables, Parquet files, AGS1 streams and key metadata."""

from __future__ import annotations

import io
import shutil
import sqlite3
import tempfile
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa

from conformance.adapters.protocol import Case, serve
from conformance.adapters.pyarrow_reader import writer_options
from conformance.adapters.tablecrypt_parts import file_keys, key_properties, properties
from conformance.adapters.tablecrypt_tables import written_table
from conformance.rows import read_rows, write_rows
from conformance.verdicts import ROOT
from tablecrypt import errors
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.files.ags1_streams import Ags1InputStream, Ags1OutputStream
from tablecrypt.parquet import read_table, verify, write_table
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog

CLASSES = [
    (errors.MetadataRollbackError, "rollback"),
    (errors.PlaintextRefusedError, "plaintext"),
    (errors.KeyNotFoundError, "key"),
    (errors.KmsAccessDeniedError, "key-denied"),
    (errors.KeyIdChangedError, "key-id"),
    (errors.AuthenticationError, "tampered"),
    (errors.FormatError, "format"),
    (errors.ConfigurationError, "key"),
    (FileNotFoundError, "missing"),
]


def refused(error: Exception) -> str:
    """The class of an error, in the words of README.md."""
    return next((name for kind, name in CLASSES if isinstance(error, kind)), "other")


def read(case: Case) -> str:
    """Read one case."""
    match case["level"]:
        case "table":
            write_rows(_table(case), case["out"])
        case "parquet":
            write_rows(_parquet(case), case["out"])
        case "ags1":
            Path(case["out"]).write_bytes(_stream(case))
            return "plaintext"
        case _:
            Path(case["out"]).write_bytes(_key_metadata(case))
            return "plaintext"
    return "rows"


def write(case: Case) -> str | None:
    """Write one case."""
    match case["level"]:
        case "table":
            return written_table(case)
        case "parquet":
            write_table(read_rows(case["rows"]), case["out"], file_keys(case), **writer_options(case))
        case "ags1":
            _write_stream(case)
        case _:
            Path(case["out"]).write_bytes(_given_key(case).encode())
    return None


def _table(case: Case) -> pa.Table:
    kit = Path(case["kit"])
    # What somebody wrote for the kit lies where it says; the kit's own tables need not.
    own = Path(case["metadata"]).is_relative_to(kit)
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "catalog.db"
        settings = properties(kit, case.get("keys")) if own else key_properties(Path(case["key_file"]))
        catalog = EncryptedSqlCatalog("kit", uri=f"sqlite:///{database}", **settings)
        try:
            catalog.create_namespace("db")
            first = str(case.get("seen_before", case["metadata"]))
            table = catalog.register_table("db.t", _location(first, kit))
            if "seen_before" in case:
                table.scan().to_arrow()
                # As somebody does who can write the catalog's database.
                with sqlite3.connect(database) as connection:
                    connection.execute("UPDATE iceberg_tables SET metadata_location = ?", [_location(case["metadata"], kit)])
            table = catalog.load_table("db.t")
            assert isinstance(table, EncryptedTable)
            columns = tuple(case.get("columns", ("*",)))
            scan = table.scan(selected_fields=columns, snapshot_id=case.get("snapshot_id"), masked="mask" if case.get("masks") else "error")
            return (scan.use_ref(case["ref"]) if "ref" in case else scan).to_arrow()
        finally:
            catalog.close()


def _location(path: str, kit: Path) -> str:
    return f"file://{ROOT}/{Path(path).relative_to(kit)}" if Path(path).is_relative_to(kit) else f"file://{path}"


def _parquet(case: Case) -> pa.Table:
    keys = file_keys(case)
    data = Path(case["file"]).read_bytes()
    # Arrow reads neither page indexes nor bloom filters. Columns that the footer holds apart may have keys that this reader lacks.
    with suppress(errors.KeyNotFoundError):
        verify(data, keys)
    return read_table(data, keys, case["columns"])


def _stream(case: Case) -> bytes:
    data = Path(case["file"]).read_bytes()
    return bytes(Ags1InputStream(io.BytesIO(data), _given_key(case), case["file"], len(data)).read())


def _write_stream(case: Case) -> None:
    with Path(case["source"]).open("rb") as source, Ags1OutputStream(Path(case["out"]).open("wb"), _given_key(case)) as stream:
        shutil.copyfileobj(source, stream)


def _given_key(case: Case) -> StandardKeyMetadata:
    return StandardKeyMetadata(Secret(bytes.fromhex(case["key"])), bytes.fromhex(case["aad_prefix"]), case.get("file_length"))


def _key_metadata(case: Case) -> bytes:
    key = StandardKeyMetadata.decode(Path(case["file"]).read_bytes())
    return f"{key.encryption_key.reveal().hex()}|{key.aad_prefix.hex()}|{key.file_length}".encode()


if __name__ == "__main__":
    serve(
        "tablecrypt",
        version("tablecrypt"),
        ["table", "parquet", "ags1", "key-metadata"],
        read,
        (errors.TablecryptError, FileNotFoundError),
        refused,
        write,
        ["table", "parquet", "ags1", "key-metadata"],
    )
