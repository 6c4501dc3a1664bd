"""`tablecrypt demo`: an encrypted table from creation to scan, and then a look at it from the outside.

`use_a_table` is what a program says; the command prints its source, so that what is shown is what ran. All else looks at what the function
left behind: _demo_findings.py at files, keys and calls of the key service, _demo_readers.py at who reads what under which key.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tablecrypt.cli._framework import OPENS_NONE, DocumentedCommand, FilePath
from tablecrypt.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

CANARY: Final = "c4nary-plaintext-must-not-appear"


def use_a_table(folder: Path, orders: pa.Table) -> tuple[Any, Any, pa.Table]:
    """Create, fill, change and read an encrypted table; return its catalog, the table and rows of it."""
    from tablecrypt import load_catalog

    catalog = load_catalog(
        "tablecrypt-demo",
        **{
            "type": "tablecrypt",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"{folder}/warehouse",
            "encryption.required": "true",
            "encryption.kms-type": "local",
            "kms.local.key-file": f"{folder}/orders.keys",
        },
    )
    catalog.create_namespace("db")
    properties = {"encryption.key-id": "orders"}
    table = catalog.create_table("db.orders", orders.schema, properties=properties)
    table.append(orders)
    table.delete("item = 'chair'")
    columns = ("id", "item", "amount")
    rows = table.scan(row_filter="amount > 50", selected_fields=columns).to_arrow()

    return catalog, table, rows


@click.command(
    cls=DocumentedCommand,
    takes_no_catalog=OPENS_NONE,
    examples=[
        ("In a folder that is removed again", "tablecrypt demo"),
        ("In a folder that stays, to look around in", "tablecrypt demo --keep first-table"),
    ],
)
@click.option("--keep", type=FilePath(file_okay=False), metavar="FOLDER", help="Leave everything in this folder, new or empty.")
def demo(keep: Path | None) -> None:
    """Make an encrypted table, and look at its bytes.

    Creates a table under a master key in a key file, writes, deletes and scans rows, and shows the code that did so. Then it shows how the
    files begin, where the rows can be found in plaintext (nowhere), which key wraps which, and who reads a column under a key of its own.

    It uses no account and no network. Without --keep nothing is left behind.
    """
    import pyarrow as pa
    from rich.console import Console

    from tablecrypt.kms.local_file import create_key_file

    console = Console(highlight=False)
    orders = pa.table({"id": [1, 2, 3, 4], "item": ["lamp", "desk", "chair", "shelf"], "amount": [40, 310, 85, 120], "note": [CANARY] * 4})

    with _folder(keep) as folder:
        create_key_file(folder / "orders.keys", "orders", 32)
        _title(console, "What runs, after tablecrypt keygen --key-file orders.keys --key-id orders")
        console.print(_code_to_copy())
        catalog, table, rows = use_a_table(folder, orders)
        with closing(catalog):
            _show_findings(console, folder, catalog, table, rows, orders)
        if keep is not None:
            console.print(f"\nAll of it is in {keep}: look for yourself.", markup=False, soft_wrap=True)


def _show_findings(console: Any, folder: Path, catalog: Any, table: Any, rows: pa.Table, orders: pa.Table) -> None:
    from tablecrypt.cli import _demo_findings as findings
    from tablecrypt.cli._demo_readers import protected_columns, shared_with_a_partner

    _title(console, "What the scan returned")
    console.print(findings.rows_as_grid(rows))
    _title(console, "How the files begin, the newest of each kind")
    console.print(findings.kinds_of_file(folder))
    _title(console, f"Where “{CANARY}”, a note in every row, can be found")
    console.print(findings.search_for_the_canary(folder, catalog, orders, CANARY))
    _title(console, "The keys")
    console.print(findings.key_tree(table))
    _title(console, "How often the key service was asked")
    console.print(findings.kms_calls(catalog, table))
    _title(console, "A column under a key of its own, read with that key and without it")
    console.print(protected_columns())
    _title(console, "A part of such a table, shared with a partner who has a key of his own")
    console.print(shared_with_a_partner(orders))
    _title(console, "What plain PyIceberg makes of the table")
    console.print(findings.what_plain_pyiceberg_says(catalog))


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Yield the folder for everything: the one that stays, or one that is removed.

    Raises:
        ConfigurationError: there is something in the one that stays.
    """
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="tablecrypt-demo-") as folder:
            yield Path(folder).resolve()
        return

    # Private, as a key file goes into it.
    keep.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise ConfigurationError(f"{keep} is not empty: name a new folder")

    yield keep.resolve()


def _title(console: Any, text: str) -> None:
    from rich.text import Text

    console.print()
    console.rule(Text(text, style="bold cyan"), align="left", style="cyan")


def _code_to_copy() -> Any:
    """Return the body of `use_a_table`, without its docstring and its last line."""
    from rich.syntax import Syntax

    body = inspect.getsource(use_a_table).splitlines()[2:-1]
    return Syntax("\n".join(body), "python", dedent=True, background_color="default")
