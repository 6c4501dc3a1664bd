"""How the manifest tells of a table and of the rows that are expected of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from conformance.rows import described, write_rows
from tablecrypt.table.table import EncryptedTable


def remove_unread(kit: Path, table: EncryptedTable) -> None:
    """Older metadata files take space, and no reader opens them."""
    newest = kit / metadata_of(table.metadata_location)
    for path in newest.parent.glob("*.metadata.json"):
        if path != newest:
            path.unlink()


def table_case(name: str, kind: str, clause: str, metadata: str) -> dict[str, Any]:
    folder = f"cases/{name}"
    return {"id": name, "level": "table", "kind": kind, "clause": clause, "folder": folder, "metadata": metadata, "key_file": "keys.json"}


def metadata_of(location: str) -> str:
    """The path of a metadata file, below the kit."""
    return location[location.index("cases/") :]


def expected(kit: Path, name: str, rows: pa.Table) -> dict[str, Any]:
    """Keep the rows that are expected."""
    path = f"cases/{name}/expected.arrow"
    (kit / path).parent.mkdir(exist_ok=True)
    write_rows(rows, kit / path)
    return {"rows": path, "sums": described(rows)}


def expected_once(kit: Path, rows: pa.Table) -> dict[str, Any]:
    """Many files hold the same rows, which are kept once."""
    return expected(kit, f"rows-of-{'-'.join(rows.column_names)}", rows)
