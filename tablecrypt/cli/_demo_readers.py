"""Tables with two readers. `tablecrypt demo` shows what each of them gets.

    protected_columns        the payroll may use the key of a protected column, the analyst may not
    shared_with_a_partner    a partner with a master key and a catalog of his own gets one of two files

Payroll and analyst have a key service of their own, which stands for what a policy of AWS KMS would grant, in the memory of this process.
"""

from __future__ import annotations

import secrets
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from tablecrypt import load_catalog
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ColumnKeyDeniedError
from tablecrypt.kms.local_file import add_key, create_key_file
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.maintenance import share
from tablecrypt.parquet import FileKeys, inspect
from tablecrypt.printable import bytes_shown, counted

STAFF: Final = pa.table({"id": [1, 2, 3], "name": ["Ada", "Grace", "Edsger"], "salary": ["91000", "88000", "75000"]})
FILTER: Final = "salary = '91000'"


def protected_columns() -> RenderableType:
    """Return what the two get from the same table, and what the table's key opens in its file. The table is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        return _read_by_both(Path(folder))


def _read_by_both(folder: Path) -> RenderableType:
    keys = {"alias/staff": secrets.token_bytes(32), "alias/payroll": secrets.token_bytes(32)}
    payroll = _catalog_of(folder, "payroll", keys)
    payroll.create_namespace("db")
    payroll.create_table(
        "db.staff", STAFF.schema, properties={"encryption.key-id": "alias/staff", "encryption.column-keys": "alias/payroll: salary"}
    ).append(STAFF)
    analyst = _catalog_of(folder, "analyst", {"alias/staff": keys["alias/staff"]})

    seen = Grid("reader", "SELECT *", f"WHERE {FILTER}", box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for name, catalog in {"payroll": payroll, "analyst": analyst}.items():
        table = catalog.load_table("db.staff")
        rows = "\n".join(", ".join(str(value) for value in row.values()) for row in table.scan().to_arrow().to_pylist())
        seen.add_row(name, rows, _answer_to_filter(table))

    return Group(seen, _what_the_file_holds(payroll.load_table("db.staff")))


def _catalog_of(folder: Path, name: str, keys: dict[str, bytes]) -> Any:
    service = {"encryption.kms-type": "memory", "kms.memory.name": f"{name} of {folder}"}
    MemoryKeyManagementClient(service, keys)
    return load_catalog(
        # A name that no .pyiceberg.yaml has: settings of a user's own catalog must not mix in.
        "tablecrypt-demo-staff",
        **{
            "type": "tablecrypt",
            "uri": f"sqlite:///{folder}/staff.db",
            "warehouse": f"{folder}/staff",
            **service,
        },
    )


def _answer_to_filter(table: Any) -> Text:
    try:
        return Text(", ".join(table.scan(FILTER).to_arrow()["name"].to_pylist()), style="green")
    except ColumnKeyDeniedError as error:
        return Text(type(error).__name__, style="yellow")


def _what_the_file_holds(table: Any) -> Grid:
    """Look into the data file with the table's key, as anyone can who reads the table."""
    file = next(iter(table.scan().plan_files())).file
    key = StandardKeyMetadata.decode(file.key_metadata)
    stored = Path(file.file_path.removeprefix("file://"))
    chunks = (inspect(stored, FileKeys(key.encryption_key, aad_prefix=key.aad_prefix)).row_groups or ())[0].chunks
    grid = Grid("in the file", "encrypted with", "what the table's key opens", box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for chunk in chunks:
        opened = "nulls" if chunk.path == "salary" else "the values"
        grid.add_row(chunk.path, chunk.key or "", Text("nothing", style="green") if chunk.locked else opened)
    return grid


def shared_with_a_partner(orders: pa.Table) -> Grid:
    """Share one of two files of a table, and return what was written, what the partner reads, and with which key."""
    with tempfile.TemporaryDirectory() as place:
        create_key_file(Path(place) / "a.keys", "orders", 32)
        add_key(Path(place) / "a.keys", "partner")
        with closing(_catalog_of_partner(place, "orders")) as ours, closing(_catalog_of_partner(place, "partner")) as theirs:
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


def _catalog_of_partner(place: str, key_id: str) -> Any:
    kms = {"encryption.kms-type": "local", "kms.local.key-file": f"{place}/a.keys", "encryption.allowed-key-ids": f"{key_id},partner"}
    # A name that no .pyiceberg.yaml has: settings of a user's own catalog must not mix in.
    stored = {"uri": f"sqlite:///{place}/{key_id}.db", "warehouse": f"{place}/{key_id}"}
    catalog = load_catalog("tablecrypt-demo-share", type="tablecrypt", **stored, **kms)
    catalog.create_namespace("db")
    return catalog
