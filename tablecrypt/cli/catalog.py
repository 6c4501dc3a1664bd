"""Commands that look at a catalog: `list`, which tables it has, and `describe`, what one of them is."""

from __future__ import annotations

import click

from tablecrypt.cli._framework import DocumentedCommand, end_with_found, json_option, table_argument
from tablecrypt.cli._listing import print_description, print_listing
from tablecrypt.cli._output import show
from tablecrypt.cli.main import FOUND
from tablecrypt.cli.settings import Settings, pass_settings


@click.command(
    "list",
    cls=DocumentedCommand,
    examples=[
        ("All that the catalog has", "tablecrypt --catalog prod list"),
        ("One namespace", "tablecrypt --catalog prod list db"),
        ("Names alone, for a script", "tablecrypt --catalog prod list --quick --json"),
    ],
    needs="Permission to list the catalog and to read the metadata of its tables. The key service is not asked.",
    codes={FOUND: "a namespace could not be listed, or a table could not be loaded; the list says why"},
)
@click.argument("namespace", metavar="[NAMESPACE]", required=False)
@click.option("--quick", is_flag=True, help="Show names alone: load no table, so that nothing says which are encrypted.")
@json_option
@pass_settings
def list_command(settings: Settings, namespace: str | None, quick: bool, as_json: bool) -> None:
    """List the tables of a catalog.

    Shows the tables and views of NAMESPACE and of the namespaces nested in it, or of the whole catalog, with a lock beside each encrypted
    table. To know which are encrypted, the metadata of each table is loaded, several at a time. A table that cannot be loaded is shown with
    the reason, and the others follow.
    """
    from tablecrypt.maintenance import list_tables

    found = list_tables(settings.catalog_with(namespace), namespace, quick=quick)
    if as_json:
        show(found, as_json)
    else:
        print_listing(found)
    if not found.is_whole:
        end_with_found()


@click.command(
    cls=DocumentedCommand,
    examples=[
        ("A table", "tablecrypt --catalog prod describe db.orders"),
        ("With all of its snapshots, for a program", "tablecrypt --catalog prod describe db.orders --snapshots 100000 --json"),
    ],
    needs="Permission to read the table's metadata. To tell the size, also to unwrap with its master key and to read its manifests. "
    "No master key of a column.",
    codes={FOUND: "a part could not be read, such as the size without the table's key; the description says which and why"},
)
@table_argument
@click.option(
    "--snapshots", type=click.IntRange(min=0), metavar="N", default=10, show_default=True, help="Show this many of the newest snapshots."
)
@json_option
@pass_settings
def describe(settings: Settings, table: str, snapshots: int, as_json: bool) -> None:
    """Describe a table: its columns, keys, snapshots and size.

    Shows of TABLE, encrypted or plain, what its metadata says: columns with field ids and documentation, which of them are protected by
    master keys of their own and how they are masked, partitioning, sort order, properties, branches, tags, snapshots and KEKs. Values that
    look like secrets are not shown. The size is read from the manifests of the current snapshot.
    """
    from tablecrypt.maintenance import describe as described

    # Other commands refuse a table that names a key and is not encrypted. A description is how to find out what it is.
    found = described(settings.plain_table(table), snapshots)
    if as_json:
        show(found, as_json)
    else:
        print_description(found)
    if found.unread:
        end_with_found()
