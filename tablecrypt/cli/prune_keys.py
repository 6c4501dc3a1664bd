"""`tablecrypt prune-keys`: entries of encryption-keys that nothing needs, removed."""

from __future__ import annotations

import click

from tablecrypt.cli.options import dry_run_option, json_option, table_argument
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.cli.show import show
from tablecrypt.cli.verb import Verb


@click.command(
    cls=Verb,
    examples=[("After Iceberg Java expired snapshots", "tablecrypt --catalog prod prune-keys db.orders")],
    needs="Permission to commit to the table. The key service is not asked.",
)
@table_argument
@dry_run_option
@json_option
@pass_settings
def prune_keys(settings: Settings, table: str, dry_run: bool, as_json: bool) -> None:
    """Remove keys that no snapshot needs.

    Iceberg Java never removes an entry of encryption-keys, so metadata of TABLE grows with every commit. What the entries opened does not
    become unreadable by that: older metadata files still hold them (shred).
    """
    from tablecrypt.maintenance import prune_keys as prune

    show(prune(settings.table(table), dry_run=dry_run), as_json)
