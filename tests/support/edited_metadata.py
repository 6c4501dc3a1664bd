"""A table's metadata.json, edited in place as somebody does who can write storage, in a catalog that pins nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyiceberg.table import Table

from tests.support.tables import metadata_path


def read_metadata(table: Table) -> dict[str, Any]:
    """The JSON of a table's current metadata file."""
    return dict(json.loads(metadata_path(table).read_text()))


def edit_json(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file in place."""
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def edited(table: Table, edit: Callable[[dict[str, Any]], object]) -> Table:
    """Change a table's current metadata file, and load the table again."""
    edit_json(metadata_path(table), edit)
    return table.catalog.load_table(table.name())


def put_as_next_version(table: Table, metadata: Mapping[str, Any]) -> Path:
    """Write metadata beside a table's own, under the name that the next commit's would have."""
    current = metadata_path(table)
    path = current.with_name(f"{int(current.name[:5]) + 1:05d}-forged.metadata.json")
    path.write_text(json.dumps(metadata))
    return path
