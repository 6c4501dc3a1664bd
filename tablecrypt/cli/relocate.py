"""`tablecrypt relocate`: a copy of a table at another place, under another master key if wished."""

from __future__ import annotations

import click

from tablecrypt.cli.options import (
    dry_run_option,
    json_option,
    progress_options,
    spark_option,
    spark_session,
    table_argument,
    workers_option,
)
from tablecrypt.cli.progress_shown import progress_shown
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.cli.show import show
from tablecrypt.cli.verb import Verb


@click.command(
    cls=Verb,
    examples=[
        ("Into another bucket", "tablecrypt --catalog prod relocate db.orders s3://archive/orders"),
        (
            "Under another master key, and into the catalog",
            "tablecrypt --catalog prod relocate db.orders s3://eu/orders --key-id alias/eu --as eu.orders",
        ),
    ],
    needs="Permission to unwrap with the table's master key and to wrap with the copy's, to read the table and to write the copy.",
)
@table_argument
@click.argument("location")
@click.option("--key-id", help="The copy's master key; by default the table's.")
@click.option("--register-as", "--as", "register_as", metavar="NAME", help="Register the copy under this name.")
@click.option("--current-only", is_flag=True, help="Copy the current snapshot alone, not all of them.")
@click.option("--trust-lengths", is_flag=True, help="Do not compare the content of files that an earlier run copied, only their lengths.")
@workers_option
@spark_option
@dry_run_option
@progress_options
@json_option
@pass_settings
def relocate(
    settings: Settings,
    table: str,
    location: str,
    key_id: str | None,
    register_as: str | None,
    current_only: bool,
    trust_lengths: bool,
    workers: int | None,
    use_spark: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Copy a table to another place or master key.

    The copy of TABLE at LOCATION is a table of its own that Iceberg Java reads there: paths in metadata, lists and manifests are rewritten,
    and everything that re-seals is sealed anew. The original stays. Data files keep their keys (reencrypt). An interrupted run goes on when
    called again.
    """
    from tablecrypt.maintenance import relocate as copy_table

    with progress_shown(settings) as heard:
        done = copy_table(
            settings.table(table),
            location,
            key_id,
            register_as,
            current_only=current_only,
            trust_lengths=trust_lengths,
            dry_run=dry_run,
            progress=heard,
            spark=spark_session(use_spark),
            workers=workers,
        )
    show(done, as_json)
