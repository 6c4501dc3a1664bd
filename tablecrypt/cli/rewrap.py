"""`tablecrypt rewrap`: KEKs wrapped anew under the newest version of the master key."""

from __future__ import annotations

import click

from tablecrypt.cli.options import dry_run_option, json_option, progress_options, table_argument
from tablecrypt.cli.progress_shown import progress_shown
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.cli.show import show
from tablecrypt.cli.verb import Verb


@click.command(
    cls=Verb,
    examples=[
        ("After the master key was rotated in the key service", "tablecrypt --catalog prod rewrap db.orders"),
        ("After an alias was moved to another key", "tablecrypt --catalog prod rewrap db.orders --from-key-id 1234abcd-12ab-34cd"),
    ],
    needs="On AWS kms:ReEncryptFrom and kms:ReEncryptTo, elsewhere permission to unwrap and wrap; and to commit to the table.",
)
@table_argument
@click.option("--from-key-id", metavar="KEY", help="The master key that wraps the KEKs now, where an alias was moved.")
@dry_run_option
@progress_options
@json_option
@pass_settings
def rewrap(settings: Settings, table: str, from_key_id: str | None, dry_run: bool, as_json: bool) -> None:
    """Wrap the KEKs anew under the newest master key version.

    For before an old version of TABLE's master key is disabled, and after its alias was moved to another key. The KEKs themselves stay, and
    so does everything under them. Older metadata files keep what the old version wrapped.
    """
    from tablecrypt.maintenance.rewrap import rewrap as wrap_anew

    with progress_shown(settings) as heard:
        done = wrap_anew(settings.table(table), from_key_id, dry_run=dry_run, progress=heard)
    show(done, as_json)
