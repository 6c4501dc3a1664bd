"""What `tablecrypt demo` finds in the table that it made: bytes of files, keys, calls of the key service, and what a plain reader says."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import load_catalog as load_plain_catalog
from rich import box
from rich.table import Table as Grid
from rich.text import Text
from rich.tree import Tree

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


def grid_of(*columns: str) -> Grid:
    """Return an empty table with these titles."""
    return Grid(*columns, box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)


def rows_as_grid(rows: pa.Table) -> Grid:
    """Return rows as a table to print."""
    grid = grid_of(*rows.column_names)
    for row in rows.to_pylist():
        grid.add_row(*map(str, row.values()))
    return grid


def kinds_of_file(folder: Path) -> Grid:
    """Return the first bytes of the newest file of each kind."""
    kinds = {
        "data file": ("*.parquet", "encrypted Parquet"),
        "manifest": ("*-m*.avro", "encrypted Avro"),
        "manifest list": ("snap-*.avro", "encrypted Avro"),
        "table metadata": ("*.metadata.json", "plaintext JSON"),
    }
    grid = grid_of("kind", "files", "first bytes", "", "what they are")
    for kind, (pattern, what) in kinds.items():
        files = sorted(folder.rglob(pattern), key=lambda file: file.stat().st_mtime_ns)
        head = files[-1].read_bytes()[:8]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in head)
        colour = "yellow" if kind == "table metadata" else "green"
        grid.add_row(kind, str(len(files)), head.hex(" ", 4), Text(shown, style=colour), what)

    return grid


def search_for_the_canary(folder: Path, catalog: Catalog, rows: pa.Table, canary: str) -> Grid:
    """Search every file for a value: of encrypted tables, and of one with the same rows by plain PyIceberg.

    Both are searched in tables without compression, which would hide the value too.
    """
    uncompressed = {"write.parquet.compression-codec": "uncompressed"}
    catalog.create_table("db.search", rows.schema, properties={"encryption.key-id": "orders", **uncompressed}).append(rows)
    grid = grid_of("where", "files searched", "files that hold it")

    with tempfile.TemporaryDirectory() as elsewhere:
        plain = load_plain_catalog(
            "tablecrypt-demo-plain", type="sql", uri=f"sqlite:///{elsewhere}/catalog.db", warehouse=f"file://{elsewhere}"
        )
        plain.create_namespace("db")
        plain.create_table("db.search", rows.schema, properties=uncompressed).append(rows)
        plain.close()

        for name, searched in (("encrypted, every file", folder), ("the same rows, by plain PyIceberg", Path(elsewhere))):
            files = [path for path in searched.rglob("*") if path.is_file()]
            found = [path for path in files if canary.encode() in path.read_bytes()]
            names = Text(", ".join(f"a {path.suffix} file" for path in found), style="red") if found else Text("none", style="green")
            grid.add_row(name, str(len(files)), names)

    return grid


def key_tree(table: Table) -> Tree:
    """Return which key wraps which, from the master key down to the files."""
    metadata: Any = table.metadata
    snapshots = {snapshot.key_id: snapshot for snapshot in metadata.snapshots}
    table_key_id = table.properties["encryption.key-id"]
    tree = Tree(_labelled("master key", table_key_id, "in the key file alone"))

    for kek in (key for key in metadata.encryption_keys if key.is_kek):
        branch = tree.add(_labelled("KEK", _shortened(kek.key_id), "wrapped by the key service, in table metadata"))
        for key in (key for key in metadata.encryption_keys if key.encrypted_by_id == kek.key_id):
            snapshot = snapshots[key.key_id]
            what = f"of snapshot “{snapshot.summary.operation.value}”, encrypted under it"
            leaf = branch.add(_labelled("manifest-list key", _shortened(key.key_id), what))
            manifests = snapshot.manifests(table.io)
            files = sum(len(manifest.fetch_manifest_entry(table.io)) for manifest in manifests)
            leaf.add(f"{_counted(len(manifests), 'manifest')} and {_counted(files, 'data file')}, each under its own DEK")

    return tree


def kms_calls(catalog: Catalog, table: Table) -> Grid:
    """Return how many calls reached the key service. Closing its client forgets keys and counts, like a new process."""
    encrypted_table: Any = table
    kms = encrypted_table.io.manager.kms
    grid = grid_of("by whom", "calls")
    grid.add_row("this process: two tables, three commits, every read above", _calls_by_verb(kms.calls))
    kms.close()
    for _ in range(5):
        catalog.load_table("db.orders").scan().to_arrow()
    grid.add_row("a reader without any key in memory: five scans", _calls_by_verb(kms.calls))

    return grid


def what_plain_pyiceberg_says(catalog: Catalog) -> Text:
    """Return what a reader without tablecrypt gets of the same catalog: its error, or the number of rows."""
    plain = load_plain_catalog(catalog.name, type="sql", uri=catalog.properties["uri"])
    try:
        rows = plain.load_table("db.orders").scan().to_arrow()
    except Exception as error:  # noqa: BLE001 - any error of a plain client is what is shown
        return Text.assemble((type(error).__name__, "red"), ": ", str(error).splitlines()[0])
    return Text(f"it returned {rows.num_rows} rows", style="red")


def _labelled(kind: str, name: str, remark: str) -> Text:
    return Text.assemble((kind, "bold"), f" {name}  ", (remark, "dim"))


def _calls_by_verb(calls: dict[str, int]) -> str:
    return ", ".join(f"{verb} × {count}" for verb, count in sorted(calls.items())) or "none"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _shortened(key_id: str) -> str:
    return f"{key_id[:6]}…"
