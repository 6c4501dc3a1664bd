"""`tablecrypt rotate-kek`: a new KEK for a table, now."""

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

    from tablecrypt.maintenance import ProgressListener, RotatedKek


@click.command(
    cls=Verb,
    examples=[
        ("What would change", "tablecrypt --catalog prod rotate-kek db.orders --dry-run"),
        ("Rotate", "tablecrypt --catalog prod rotate-kek db.orders"),
        ("Every table of a namespace but one", "tablecrypt --catalog prod rotate-kek --include 'db.*' --exclude db.archive"),
    ],
    needs="Permission to wrap and unwrap with the table's master key, and to commit to the table.",
    codes={exit_codes.FOUND: FAILED},
)
@optional_table_argument
@glob_options
@dry_run_option
@progress_options
@json_option
@pass_settings
@click.pass_context
def rotate_kek(
    context: click.Context,
    settings: Settings,
    table: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Give a table a new KEK now.

    Wraps the manifest-list key of every snapshot of TABLE anew under a new KEK and lets the old KEKs go, in one metadata commit. No file is
    read or written. Data keys stay as they are (reencrypt), older metadata files keep the old KEK (shred), and so does the master key its
    versions (rewrap).
    """
    from tablecrypt.maintenance import rotate_kek as rotate

    def one(table: Table, heard: ProgressListener) -> RotatedKek:
        return rotate(table, dry_run=dry_run, progress=heard)

    run_on(context, settings, Chosen(table, include, exclude), one, lambda done: show(done, False), as_json)
