"""docs/images/key-hierarchy.svg: the keys of a real table, as the table's own metadata and files have them.

`python -m tests.support.key_picture` makes a table, commits twice and draws what it finds. Key ids differ between runs; a test compares
everything else.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

import pyarrow as pa
from pyiceberg.table import Table

from tablecrypt import load_catalog
from tablecrypt.kms.memory import MemoryKeyManagementClient

PICTURE: Final = Path(__file__).parents[2] / "docs" / "images" / "key-hierarchy.svg"
KEY_ID: Final = "alias/orders"
_WIDTH: Final = 860
_ROW: Final = 58
_BOX: Final = 42
_INDENT: Final = 44
_FONT: Final = "Inter, Segoe UI, Roboto, Helvetica Neue, sans-serif"
_COLOURS: Final = {"kms": "#2b50c8", "metadata": "#8a5a00", "storage": "#17191e"}  # of an audit's page
_WHERE: Final = {"kms": "in the key service", "metadata": "in metadata.json, encrypted", "storage": "in storage, ciphertext"}


@dataclass(frozen=True)
class Key:
    """One box of the picture. `depth` counts the keys above it; `where` is a key of _COLOURS."""

    depth: int
    where: str
    name: str
    remark: str


def drawn(folder: Path) -> str:
    """The SVG for a new table below the folder."""
    return _svg(list(_keys(_table(folder), folder)))


def without_ids(svg: str) -> str:
    """A picture in which the ids of keys, which differ between tables, are the same."""
    return re.sub(r"\S{6}…", "…", svg)


def _table(folder: Path) -> Table:
    properties = {"encryption.kms-type": "memory", "kms.memory.name": f"picture-{folder.name}"}
    MemoryKeyManagementClient(properties).create_key(KEY_ID)
    location = {"type": "tablecrypt", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    catalog = load_catalog("picture", **location, **properties, **{"encryption.required": "true"})
    catalog.create_namespace("db")
    rows = pa.table({"id": [1, 2, 3], "item": ["lamp", "desk", "chair"]})
    table = catalog.create_table("db.orders", rows.schema, properties={"encryption.key-id": KEY_ID})
    table.append(rows)
    table.append(rows)
    return table


def _keys(table: Table, folder: Path) -> Iterator[Key]:
    metadata: Any = table.metadata
    entries = metadata.encryption_keys
    snapshots = {snapshot.key_id: snapshot for snapshot in metadata.snapshots}
    yield Key(0, "kms", f"master key {table.properties['encryption.key-id']}", "wraps and unwraps KEKs, and never leaves the service")
    for kek in (entry for entry in entries if entry.is_kek):
        yield Key(1, "metadata", f"KEK {kek.key_id[:6]}…", "one for the table and two years; wrapped by the master key")
        for entry in (entry for entry in entries if entry.encrypted_by_id == kek.key_id):
            manifests = snapshots[entry.key_id].manifests(table.io)
            files = sum(len(manifest.fetch_manifest_entry(table.io)) for manifest in manifests)
            yield Key(2, "metadata", f"manifest-list key {entry.key_id[:6]}…", "one for each snapshot; encrypted under the KEK")
            shown = f"{_counted(len(manifests), 'manifest')} and {_counted(files, 'data file')}"
            yield Key(3, "storage", f"DEKs of {shown}", f"one for each file, which begins with {_magics(folder)}")


def _magics(folder: Path) -> str:
    """How the table's manifests and data files begin, read from the files."""
    found = {path.read_bytes()[:4].decode("ascii") for path in (folder / "warehouse").rglob("*") if path.suffix in {".avro", ".parquet"}}
    return " or ".join(sorted(found))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _svg(keys: list[Key]) -> str:
    height = _ROW * len(keys) + 50
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" font-family="{_FONT}" font-size="14">',
        "<title>The keys of an encrypted table: a master key wraps a KEK, the KEK encrypts manifest-list keys, each file has a DEK</title>",
        f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
    ]
    parents: dict[int, int] = {}
    for number, key in enumerate(keys):
        lines += _box(number, key, parents.get(key.depth - 1))
        parents[key.depth] = number
    return "\n".join([*lines, *_legend(height), "</svg>", ""])


def _box(number: int, key: Key, parent: int | None) -> Iterator[str]:
    left, top = 16 + _INDENT * key.depth, 12 + _ROW * number
    if parent is not None:
        x, start = left - _INDENT + 18, 12 + _ROW * parent + _BOX
        yield f'<path d="M{x} {start} V{top + _BOX // 2} H{left}" fill="none" stroke="#a8adb8" stroke-width="2"/>'
    colour = _COLOURS[key.where]
    yield f'<rect x="{left}" y="{top}" width="{_WIDTH - left - 16}" height="{_BOX}" rx="6" fill="{colour}"/>'
    yield f'<text x="{left + 12}" y="{top + 18}" fill="#ffffff" font-weight="bold">{escape(key.name)}</text>'
    yield f'<text x="{left + 12}" y="{top + 35}" fill="#ffffff" font-size="12">{escape(key.remark)}</text>'


def _legend(height: int) -> Iterator[str]:
    for number, (where, colour) in enumerate(_COLOURS.items()):
        left = 16 + 270 * number
        yield f'<rect x="{left}" y="{height - 30}" width="14" height="14" rx="3" fill="{colour}"/>'
        yield f'<text x="{left + 22}" y="{height - 18}" fill="#17191e">{escape(_WHERE[where])}</text>'


def main() -> None:
    """Draw the picture again."""
    with tempfile.TemporaryDirectory() as folder:
        PICTURE.write_text(drawn(Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
