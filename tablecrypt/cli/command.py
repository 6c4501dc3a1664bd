"""The group itself: the options that stand before every verb."""

from __future__ import annotations

import click

from tablecrypt.cli.group import LazyGroup
from tablecrypt.cli.options import progress_options
from tablecrypt.cli.progress_shown import retries_shown
from tablecrypt.cli.settings import Settings, parse_properties


def _show_version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if not value or context.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version("tablecrypt")
    except PackageNotFoundError:
        installed = "run from its source, not installed"
    click.echo(f"tablecrypt {installed}")
    context.exit()


@click.group(
    "tablecrypt",
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="tablecrypt VERB --help tells more about each, with examples. Exit codes: 0 done, 1 something was found, 2 refused.",
)
@click.option(
    "--catalog",
    "catalog_name",
    metavar="NAME",
    help="The catalog, as .pyiceberg.yaml or the environment configures it; else the default one.",
)
@click.option(
    "--property",
    "-p",
    "pairs",
    metavar="NAME=VALUE",
    multiple=True,
    help="A property of the catalog or the key service, before those configured. Others on this machine may see it: no passwords here.",
)
@progress_options
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version and exit.")
@click.pass_context
def command(context: click.Context, catalog_name: str | None, pairs: tuple[str, ...]) -> None:
    """Encrypted Apache Iceberg tables: keys, and what happens to tables under them."""
    settings = context.ensure_object(Settings)
    settings.catalog_name, settings.properties = catalog_name, parse_properties(pairs)
    context.with_resource(retries_shown(settings))
