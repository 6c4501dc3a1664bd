"""A table's metadata.json, edited in place as somebody does who can write storage, in a catalog that pins nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.table import Table

from tablecrypt_catalog import encrypted
from tests.support.aws import AwsServer


def unpinned_catalog(folder: Path, aws: AwsServer, **properties: str) -> Catalog:
    """A catalog in memory, with files in `folder` and the namespace `db`: what it says of a table is where its metadata file is."""
    catalog = encrypted(InMemoryCatalog)("unpinned", **{"warehouse": f"file://{folder}/warehouse", **aws.kms_properties, **properties})
    catalog.create_namespace_if_not_exists("db")
    return catalog


def read_metadata(table: Table) -> dict[str, Any]:
    """The JSON of a table's current metadata file."""
    return dict(json.loads(_path(table).read_text()))


def edited(table: Table, edit: Callable[[dict[str, Any]], object]) -> Table:
    """Change a table's current metadata file, and load the table again."""
    metadata = read_metadata(table)
    edit(metadata)
    _path(table).write_text(json.dumps(metadata))
    return table.catalog.load_table(table.name())


def _path(table: Table) -> Path:
    return Path(table.metadata_location.removeprefix("file://"))
