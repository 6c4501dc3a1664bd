"""`tablecrypt rescue`: keys that the metadata has lost, brought back from where they still are."""

from __future__ import annotations

import click

from tablecrypt.cli.confirm import confirm
from tablecrypt.cli.options import dry_run_option, json_option, progress_options, table_argument, yes_option
from tablecrypt.cli.progress_shown import progress_shown
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.cli.show import show
from tablecrypt.cli.verb import Verb


@click.command(
    cls=Verb,
    examples=[
        ("What can be brought back", "tablecrypt --catalog prod rescue db.orders --dry-run"),
        ("From a metadata file of a backup", "tablecrypt --catalog prod rescue db.orders --metadata s3://backup/00041-a.metadata.json"),
    ],
    needs="Permission to unwrap with the table's master key, to read and list its metadata folder, and to commit to the table.",
)
@table_argument
@click.option("--metadata", multiple=True, metavar="LOCATION", help="A metadata file that may hold the keys; repeatable.")
@click.option("--expire-lost", is_flag=True, help="Remove snapshots whose keys are nowhere.")
@yes_option
@dry_run_option
@progress_options
@json_option
@pass_settings
def rescue(settings: Settings, table: str, metadata: tuple[str, ...], expire_lost: bool, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Bring back a lost key from older metadata.

    For TABLE whose metadata another tool wrote and dropped entries of encryption-keys. Looks in the metadata files that the table left
    behind, and in those given. It does not help against a lost master key, and does not ask whether a key is gone on purpose.
    """
    from tablecrypt.maintenance import rescue as bring_back

    if expire_lost and not dry_run:
        confirm(f"Snapshots of {table} whose keys are nowhere will be removed. Go on?", yes)
    with progress_shown(settings) as heard:
        done = bring_back(settings.table(table), metadata, expire_lost, dry_run=dry_run, progress=heard)
    show(done, as_json)
