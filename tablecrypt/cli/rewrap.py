"""`tablecrypt rewrap`: KEKs wrapped anew under the newest version of the master key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tablecrypt.cli import exit_codes
from tablecrypt.cli.options import dry_run_option, json_option, progress_options
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.cli.several import FAILED, Chosen, glob_options, optional_table_argument, run_on
from tablecrypt.cli.show import show
from tablecrypt.cli.verb import Verb

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from tablecrypt.maintenance import ProgressListener, Rewrapped


@click.command(
    cls=Verb,
    examples=[
        ("After the master key was rotated in the key service", "tablecrypt --catalog prod rewrap db.orders"),
        ("After an alias was moved to another key", "tablecrypt --catalog prod rewrap db.orders --from-key-id 1234abcd-12ab-34cd"),
        ("Every table of the catalog", "tablecrypt --catalog prod rewrap --include '*'"),
    ],
    needs="On AWS kms:ReEncryptFrom and kms:ReEncryptTo, elsewhere permission to unwrap and wrap; and to commit to the table.",
    codes={exit_codes.FOUND: FAILED},
)
@optional_table_argument
@glob_options
@click.option("--from-key-id", metavar="KEY", help="The master key that wraps the KEKs now, where an alias was moved.")
@dry_run_option
@progress_options
@json_option
@pass_settings
@click.pass_context
def rewrap(
    context: click.Context,
    settings: Settings,
    table: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    from_key_id: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Wrap the KEKs anew under the newest master key version.

    For before an old version of TABLE's master key is disabled, and after its alias was moved to another key. The KEKs themselves stay, and
    so does everything under them. Older metadata files keep what the old version wrapped.
    """
    from tablecrypt.maintenance import rewrap as wrap_anew

    def one(table: Table, heard: ProgressListener) -> Rewrapped:
        return wrap_anew(table, from_key_id, dry_run=dry_run, progress=heard)

    run_on(context, settings, Chosen(table, include, exclude), one, lambda done: show(done, False), as_json)
