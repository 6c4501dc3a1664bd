"""One table, and a partner who gets a part of it: he has a master key and a catalog of his own. `tablecrypt demo` shows it."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.table import Table as Grid

from tablecrypt import load_catalog
from tablecrypt.kms.local_file import add_key, create_key_file
from tablecrypt.maintenance import share
from tablecrypt.printable import bytes_shown, counted


def shared_with_a_partner(orders: pa.Table) -> Grid:
    """Share one of two files of a table, and return what was written, what the partner reads, and with which key."""
    with tempfile.TemporaryDirectory() as place:
        create_key_file(Path(place) / "a.keys", "orders", 32)
        add_key(Path(place) / "a.keys", "partner")
        with closing(_catalog_of(place, "orders")) as ours, closing(_catalog_of(place, "partner")) as theirs:
            table = ours.create_table("db.orders", orders.schema, properties={"encryption.key-id": "orders"})
            for rows in (orders.slice(0, 2), orders.slice(2)):
                table.append(rows)
            shared = share(table, "partner", f"file://{place}/share", "id <= 2")
            copy = theirs.register_table("db.orders", shared.metadata_location)

            shown = Grid(show_header=False, box=None, pad_edge=False)
            shown.add_row("share(table, …, 'id <= 2')", f"{bytes_shown(shared.written_bytes)} of metadata written, none of data")
            shown.add_row("the partner reads", counted(copy.scan().count(), "row", "rows"))
            shown.add_row("with the master key", copy.properties["encryption.key-id"])
            return shown


def _catalog_of(place: str, key_id: str) -> Any:
    kms = {"encryption.kms-type": "local", "kms.local.key-file": f"{place}/a.keys", "encryption.allowed-key-ids": f"{key_id},partner"}
    # A name that no .pyiceberg.yaml has: settings of a user's own catalog must not mix in.
    stored = {"uri": f"sqlite:///{place}/{key_id}.db", "warehouse": f"{place}/{key_id}"}
    catalog = load_catalog("tablecrypt-demo-share", type="tablecrypt", **stored, **kms)
    catalog.create_namespace("db")
    return catalog
