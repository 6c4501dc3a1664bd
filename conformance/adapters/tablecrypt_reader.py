"""tablecrypt reads tables, Parquet files, AGS1 streams and key metadata."""

from __future__ import annotations

import io
import sqlite3
import tempfile
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa

from conformance.adapters.protocol import Case, serve
from conformance.adapters.tablecrypt_parts import ROOT, properties
from conformance.rows import write_rows
from tablecrypt import errors
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.files.ags1_streams import Ags1InputStream
from tablecrypt.parquet import FileKeys, read_table, verify
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


def _table(case: Case) -> pa.Table:
    kit = Path(case["kit"])
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "catalog.db"
        catalog = EncryptedSqlCatalog("kit", uri=f"sqlite:///{database}", **properties(kit, case.get("keys")))
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
            scan = table.scan(selected_fields=tuple(case.get("columns", "*")), snapshot_id=case.get("snapshot_id"))
            return (scan.use_ref(case["ref"]) if "ref" in case else scan).to_arrow()
        finally:
            catalog.close()


def _location(path: str, kit: Path) -> str:
    return f"file://{ROOT}/{Path(path).relative_to(kit)}"


def _parquet(case: Case) -> pa.Table:
    keys = FileKeys(
        bytes.fromhex(case["footer_key"]),
        {name: bytes.fromhex(key) for name, key in case["column_keys"].items()},
        bytes.fromhex(case["aad_prefix"]),
        case["aad_prefix_is_stored"],
        algorithm=case["algorithm"],
        plaintext_footer=case["plaintext_footer"],
    )
    data = Path(case["file"]).read_bytes()
    # Arrow reads neither page indexes nor bloom filters.
    verify(data, keys)
    return read_table(data, keys)


def _stream(case: Case) -> bytes:
    key = StandardKeyMetadata(Secret(bytes.fromhex(case["key"])), bytes.fromhex(case["aad_prefix"]), case["file_length"])
    data = Path(case["file"]).read_bytes()
    return bytes(Ags1InputStream(io.BytesIO(data), key, case["file"], len(data)).read())


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
    )
