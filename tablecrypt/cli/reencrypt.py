"""`tablecrypt reencrypt`: data files under fresh keys, without decoding a value."""

from __future__ import annotations

import datetime as dt

import click

from tablecrypt.cli.options import (
    dry_run_option,
    json_option,
    moment,
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
        ("Files whose keys are older than two years", "tablecrypt --catalog prod reencrypt db.orders --older-than 730d"),
        (
            "One partition, with longer keys",
            "tablecrypt --catalog prod reencrypt db.orders --where \"region = 'north'\" --data-key-length 32",
        ),
    ],
    needs="Permission to wrap and unwrap with the table's master key, to read and write its files, and to commit.",
)
@table_argument
@click.option("--where", metavar="FILTER", help="Only data files that may hold rows which pass this filter.")
@click.option("--older-than", metavar="MOMENT", callback=moment, help="Only files whose keys were made before: a date, or 730d ago.")
@click.option("--data-key-length", type=click.Choice([16, 24, 32]), help="Bytes of the new keys; by default as the table says.")
@click.option("--branch", default="main", show_default=True, help="Whose files.")
@workers_option
@spark_option
@dry_run_option
@progress_options
@json_option
@pass_settings
def reencrypt(
    settings: Settings,
    table: str,
    where: str | None,
    older_than: dt.datetime | None,
    data_key_length: int | None,
    branch: str,
    workers: int | None,
    use_spark: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Encrypt data files anew under fresh keys.

    Data and delete files of TABLE are decrypted and encrypted module by module, without decoding a value, and put in place of the old ones
    in one snapshot. Row ids, statistics and the order of rows stay. An interrupted run goes on when called again. Older snapshots go on
    naming the old files until they are expired.
    """
    from tablecrypt.maintenance import reencrypt as encrypt_anew

    filtered = {} if where is None else {"where": where}
    with progress_shown(settings) as heard:
        done = encrypt_anew(
            settings.table(table),
            **filtered,
            older_than=older_than,
            data_key_length=data_key_length,
            branch=branch,
            dry_run=dry_run,
            progress=heard,
            spark=spark_session(use_spark),
            workers=workers,
        )
    show(done, as_json)
