"""Create, fill, change and read a first encrypted table, and then inspect it from the outside.

Copy `use_a_table`. Everything below it shows what that function did to the folder ./demo, which every run makes again.
moto simulates AWS KMS inside this process: the example uses no account, network or credentials.

Run: make demo
"""

from __future__ import annotations

import inspect
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
from moto import mock_aws
from protected_columns import protected_columns
from pyiceberg.catalog import Catalog
from pyiceberg.catalog import load_catalog as load_plain_catalog
from pyiceberg.table import Table
from rich import box
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table as Grid
from rich.text import Text
from rich.tree import Tree

from tablecrypt import load_catalog

DEMO = Path("demo").absolute()
CANARY = "c4nary-plaintext-must-not-appear"
ORDERS = pa.table({"id": [1, 2, 3, 4], "item": ["lamp", "desk", "chair", "shelf"], "amount": [40, 310, 85, 120], "note": [CANARY] * 4})


def use_a_table(orders: pa.Table) -> tuple[Catalog, Table, pa.Table]:
    catalog = load_catalog(
        "demo",
        **{
            "type": "tablecrypt",
            "uri": f"sqlite:///{DEMO}/catalog.db",
            "warehouse": f"file://{DEMO}/warehouse",
            "encryption.required": "true",
            "encryption.kms-type": "aws",
        },
    )
    catalog.create_namespace("db")
    properties = {"encryption.key-id": "alias/orders"}
    table = catalog.create_table("db.orders", orders.schema, properties=properties)
    table.append(orders)
    table.delete("item = 'chair'")
    columns = ("id", "item", "amount")
    rows = table.scan(row_filter="amount > 50", selected_fields=columns).to_arrow()
    return catalog, table, rows


# ── Copy the part above. The rest starts a KMS and shows what happened. ──────────────────────────────────────────────────────────────


def main() -> None:
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir()
    console = Console(highlight=False)
    with aws_in_this_process():
        title(console, "What runs")
        console.print(the_code_to_copy())
        catalog, table, rows = use_a_table(ORDERS)

        title(console, "What the scan returned")
        console.print(rows_as_grid(rows))
        title(console, "How the files begin, the newest of each kind")
        console.print(kinds_of_file())
        title(console, f"Where “{CANARY}”, a note in every row, can be found")
        console.print(search_for_the_canary(catalog))
        title(console, "The keys")
        console.print(key_tree(table))
        title(console, "How often the KMS was asked")
        console.print(kms_calls(catalog, table))
        title(console, "A column under a key of its own, read by who may use that key and by who may not")
        console.print(protected_columns(DEMO))
        title(console, "What plain PyIceberg makes of the table")
        console.print(what_plain_pyiceberg_says())
        console.print(f"\nAll of it is in {DEMO.name}/: look for yourself.")


@contextmanager
def aws_in_this_process() -> Iterator[None]:
    """Let moto answer the calls to AWS KMS, which has one master key, alias/orders."""
    os.environ.pop("AWS_PROFILE", None)
    os.environ.update(AWS_REGION="us-east-1", AWS_DEFAULT_REGION="us-east-1", AWS_ACCESS_KEY_ID="demo", AWS_SECRET_ACCESS_KEY="demo")
    os.environ.update(AWS_CONFIG_FILE=os.devnull, AWS_SHARED_CREDENTIALS_FILE=os.devnull, AWS_EC2_METADATA_DISABLED="true")
    with mock_aws():
        kms = boto3.client("kms")
        kms.create_alias(AliasName="alias/orders", TargetKeyId=kms.create_key()["KeyMetadata"]["KeyId"])
        yield


def title(console: Console, text: str) -> None:
    console.print()
    console.rule(Text(text, style="bold cyan"), align="left", style="cyan")


def the_code_to_copy() -> Syntax:
    body = inspect.getsource(use_a_table).splitlines()[1:-1]
    return Syntax("\n".join(body), "python", dedent=True, background_color="default")


def grid_of(*columns: str) -> Grid:
    return Grid(*columns, box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)


def rows_as_grid(rows: pa.Table) -> Grid:
    grid = grid_of(*rows.column_names)
    for row in rows.to_pylist():
        grid.add_row(*map(str, row.values()))
    return grid


def kinds_of_file() -> Grid:
    kinds = {
        "data file": ("*.parquet", "encrypted Parquet"),
        "manifest": ("*-m*.avro", "encrypted Avro"),
        "manifest list": ("snap-*.avro", "encrypted Avro"),
        "table metadata": ("*.metadata.json", "plaintext JSON"),
    }
    grid = grid_of("kind", "files", "first bytes", "", "what they are")
    for kind, (pattern, what) in kinds.items():
        files = sorted(DEMO.rglob(pattern), key=lambda file: file.stat().st_mtime_ns)
        head = files[-1].read_bytes()[:8]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in head)
        colour = "yellow" if kind == "table metadata" else "green"
        grid.add_row(kind, str(len(files)), head.hex(" ", 4), Text(shown, style=colour), what)
    return grid


def search_for_the_canary(catalog: Catalog) -> Grid:
    """Search tables without compression on both sides, since compression would hide the string too."""
    uncompressed = {"write.parquet.compression-codec": "uncompressed"}
    encrypted = catalog.create_table("db.search", ORDERS.schema, properties={"encryption.key-id": "alias/orders", **uncompressed})
    encrypted.append(ORDERS)
    grid = grid_of("where", "files searched", "files that hold it")
    with tempfile.TemporaryDirectory() as elsewhere:
        plain = load_plain_catalog("plain", type="sql", uri=f"sqlite:///{elsewhere}/catalog.db", warehouse=f"file://{elsewhere}")
        plain.create_namespace("db")
        plain.create_table("db.search", ORDERS.schema, properties=uncompressed).append(ORDERS)
        for name, folder in ((f"{DEMO.name}/, every file", DEMO), ("the same rows, by plain PyIceberg", Path(elsewhere))):
            files = [path for path in folder.rglob("*") if path.is_file()]
            found = [path for path in files if CANARY.encode() in path.read_bytes()]
            names = Text(", ".join(f"a {path.suffix} file" for path in found), style="red") if found else Text("none", style="green")
            grid.add_row(name, str(len(files)), names)
    return grid


def key_tree(table: Table) -> Tree:
    metadata: Any = table.metadata
    snapshots = {snapshot.key_id: snapshot for snapshot in metadata.snapshots}
    table_key_id = table.properties["encryption.key-id"]
    tree = Tree(labelled("master key", table_key_id, "never leaves the KMS"))
    for kek in (key for key in metadata.encryption_keys if key.is_kek):
        branch = tree.add(labelled("KEK", shortened(kek.key_id), "wrapped by the KMS, in table metadata"))
        for key in (key for key in metadata.encryption_keys if key.encrypted_by_id == kek.key_id):
            snapshot = snapshots[key.key_id]
            what = f"of snapshot “{snapshot.summary.operation.value}”, encrypted under the KEK"
            leaf = branch.add(labelled("manifest-list key", shortened(key.key_id), what))
            manifests = snapshot.manifests(table.io)
            files = sum(len(manifest.fetch_manifest_entry(table.io)) for manifest in manifests)
            leaf.add(f"{counted(len(manifests), 'manifest')} and {counted(files, 'data file')}, each under its own DEK")
    return tree


def kms_calls(catalog: Catalog, table: Table) -> Grid:
    """The client counts the calls that reach the service. Closing it forgets keys and counts, like a new process."""
    encrypted_table: Any = table
    kms = encrypted_table.io.manager.kms
    grid = grid_of("by whom", "calls")
    grid.add_row("this process: two tables, three commits, every read above", calls_by_verb(kms.calls))
    kms.close()
    for _ in range(5):
        catalog.load_table("db.orders").scan().to_arrow()
    grid.add_row("a reader without any key in memory: five scans", calls_by_verb(kms.calls))
    return grid


def what_plain_pyiceberg_says() -> Text:
    plain = load_plain_catalog("demo", type="sql", uri=f"sqlite:///{DEMO}/catalog.db")
    try:
        rows = plain.load_table("db.orders").scan().to_arrow()
    except Exception as error:  # noqa: BLE001 - the example prints any error of a plain client
        return Text.assemble((type(error).__name__, "red"), ": ", str(error).splitlines()[0])
    return Text(f"it returned {rows.num_rows} rows", style="red")


def labelled(kind: str, name: str, remark: str) -> Text:
    return Text.assemble((kind, "bold"), f" {name}  ", (remark, "dim"))


def calls_by_verb(calls: dict[str, int]) -> str:
    return ", ".join(f"{verb} × {count}" for verb, count in sorted(calls.items())) or "none"


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def shortened(key_id: str) -> str:
    return f"{key_id[:6]}…"


if __name__ == "__main__":
    main()
