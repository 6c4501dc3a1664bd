"""`tablecrypt migrate`: a plaintext table becomes an encrypted one."""

from __future__ import annotations

import click

from tablecrypt.cli.confirm import confirm
from tablecrypt.cli.options import (
    delete_below_option,
    dry_run_option,
    json_option,
    progress_options,
    spark_option,
    spark_session,
    table_argument,
    workers_option,
    yes_option,
)
from tablecrypt.cli.progress_shown import progress_shown
from tablecrypt.cli.settings import Settings, parse_properties, pass_settings
from tablecrypt.cli.show import show
from tablecrypt.cli.verb import Verb


@click.command(
    cls=Verb,
    examples=[
        ("What would be encrypted", "tablecrypt --catalog prod migrate db.orders --key-id alias/orders --dry-run"),
        ("Migrate in place", "tablecrypt --catalog prod migrate db.orders --key-id alias/orders --yes"),
        ("Into a new table", "tablecrypt --catalog prod migrate db.orders --key-id alias/orders --into db.sealed_orders"),
    ],
    needs="Permission to wrap with the master key, to read, write and delete the table's files, and to commit.",
)
@table_argument
@click.option("--key-id", required=True, help="The master key: the table's encryption.key-id from now on.")
@click.option(
    "--set", "properties", metavar="NAME=VALUE", multiple=True, help="A further table property, such as encryption.data-key-length=32."
)
@click.option("--into", metavar="NAME", help="Make a new table of this name, and leave the plain one as it is.")
@click.option("--location", help="Of the new table; by default beside the plain table's.")
@click.option("--drop-refs", is_flag=True, help="Drop other branches and tags, which would keep plaintext snapshots.")
@click.option("--keep-plaintext", is_flag=True, help="Do not delete the plaintext files after the commit.")
@delete_below_option
@workers_option
@spark_option
@yes_option
@dry_run_option
@progress_options
@json_option
@pass_settings
def migrate(
    settings: Settings,
    table: str,
    key_id: str,
    into: str | None,
    location: str | None,
    properties: tuple[str, ...],
    drop_refs: bool,
    keep_plaintext: bool,
    delete_below: tuple[str, ...],
    workers: int | None,
    use_spark: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make an encrypted table of a plaintext one.

    Every live file of TABLE is encrypted beside itself, without decoding a value, and one commit puts the encrypted ones in place. Its
    history goes, and its plaintext files are deleted; with --into both stay, and the encrypted table is a new one. An interrupted run goes
    on when called again. The report lists every place where plaintext may still be. Files outside TABLE's folder stay as they are, unless
    --delete-below names their folder.
    """
    from tablecrypt.maintenance import migrate as encrypt_table

    if not dry_run and into is None:
        losses = "its history goes" if keep_plaintext else "its history goes and its plaintext files are deleted"
        confirm(f"Encrypt {table} under {key_id}: {losses}. Go on?", yes)
    with progress_shown(settings) as heard:
        done = encrypt_table(
            settings.plain_table(table),
            key_id,
            into=into,
            location=location,
            properties=parse_properties(properties, "--set"),
            drop_refs=drop_refs,
            keep_plaintext=keep_plaintext,
            delete_below=delete_below,
            dry_run=dry_run,
            progress=heard,
            spark=spark_session(use_spark),
            workers=workers,
        )
    show(done, as_json)
