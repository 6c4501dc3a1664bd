"""The group itself: the options that stand before every verb."""

from __future__ import annotations

import click

from tablecrypt.cli.group import LazyGroup
from tablecrypt.cli.settings import Settings, parse_properties


@click.group(
    "tablecrypt",
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="tablecrypt VERB --help tells more about each, with examples. Exit codes: 0 done, 1 something was found, 2 refused.",
)
@click.option("--catalog", "catalog_name", metavar="NAME", help="The catalog, as .pyiceberg.yaml or the environment configures it.")
@click.option(
    "--property",
    "-p",
    "pairs",
    metavar="NAME=VALUE",
    multiple=True,
    help="A property of the catalog or the key service, before those configured. Others on this machine may see it: no passwords here.",
)
@click.version_option(package_name="tablecrypt", prog_name="tablecrypt")
@click.pass_context
def command(context: click.Context, catalog_name: str | None, pairs: tuple[str, ...]) -> None:
    """Encrypted Apache Iceberg tables: keys, and what happens to tables under them."""
    context.obj = Settings(catalog_name, parse_properties(pairs))
