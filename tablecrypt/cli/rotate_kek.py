"""`tablecrypt rotate-kek`: a new KEK for a table, now."""

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
        ("What would change", "tablecrypt --catalog prod rotate-kek db.orders --dry-run"),
        ("Rotate", "tablecrypt --catalog prod rotate-kek db.orders"),
    ],
    needs="Permission to wrap and unwrap with the table's master key, and to commit to the table.",
)
@table_argument
@dry_run_option
@progress_options
@json_option
@pass_settings
def rotate_kek(settings: Settings, table: str, dry_run: bool, as_json: bool) -> None:
    """Give a table a new KEK now.

    Wraps the manifest-list key of every snapshot of TABLE anew under a new KEK and lets the old KEKs go, in one metadata commit. No file is
    read or written. Data keys stay as they are (reencrypt), older metadata files keep the old KEK (shred), and so does the master key its
    versions (rewrap).
    """
    from tablecrypt.maintenance.rotate_kek import rotate_kek as rotate

    with progress_shown(settings) as heard:
        done = rotate(settings.table(table), dry_run=dry_run, progress=heard)
    show(done, as_json)
