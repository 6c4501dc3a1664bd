"""`tablecrypt shred`: snapshots, or a whole table, put out of reach by destroying their keys."""

from __future__ import annotations

import click

from tablecrypt.cli import exit_codes
from tablecrypt.cli.confirm import confirm
from tablecrypt.cli.options import delete_below_option, dry_run_option, json_option, progress_options, table_argument, yes_option
from tablecrypt.cli.progress_shown import progress_shown
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.cli.show import show
from tablecrypt.cli.verb import Verb
from tablecrypt.errors import ConfigurationError


@click.command(
    cls=Verb,
    examples=[
        ("What would go, and what would be left", "tablecrypt --catalog prod shred db.orders --snapshot 4358109269873137077 --dry-run"),
        ("Two snapshots", "tablecrypt --catalog prod shred db.orders --snapshot 4358109269873137077 --snapshot 71 --yes"),
        ("The whole table", "tablecrypt --catalog prod shred db.orders --whole-table db.orders --yes"),
    ],
    needs="Permission to wrap and unwrap with the table's master key, to list, write and delete in its metadata folder, and to commit.",
    codes={exit_codes.FOUND: "not complete: something is left, refused, not found or still opened, or nothing became unreadable"},
)
@table_argument
@click.option("--snapshot", "snapshots", type=int, multiple=True, metavar="ID", help="A snapshot, in the table or expired; repeatable.")
@click.option("--whole-table", metavar="NAME", help="Shred all of it: say the table's name once more.")
@click.option(
    "--replace-heads",
    is_flag=True,
    help="Put the same rows in the place of heads that hold keys of files they deleted, and shred those too.",
)
@delete_below_option
@yes_option
@dry_run_option
@progress_options
@json_option
@pass_settings
@click.pass_context
def shred(
    context: click.Context,
    settings: Settings,
    table: str,
    snapshots: tuple[int, ...],
    whole_table: str | None,
    replace_heads: bool,
    delete_below: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Destroy the keys of snapshots, or of a whole table.

    Rows that were deleted from TABLE are in older snapshots until the keys of those are gone. Takes the keys out of the table and out of
    every metadata file that can still be read, and lets the KEK go that opened them. It cannot be undone. The report says what copies
    elsewhere would still open.
    """
    from tablecrypt.maintenance import shred as destroy

    if not snapshots and whole_table is None:
        raise ConfigurationError("name what to shred: --snapshot ID, or --whole-table NAME")
    if snapshots and whole_table is not None:
        raise ConfigurationError("--snapshot and --whole-table exclude each other")
    if whole_table is not None and whole_table != table:
        raise ConfigurationError(
            f"--whole-table says {whole_table}, but the table is {table}: to destroy all of it, say its name once more"
        )
    if not dry_run:
        what = f"{len(snapshots)} {'snapshot' if len(snapshots) == 1 else 'snapshots'} of {table}" if snapshots else f"all of {table}"
        confirm(f"The keys of {what} will be destroyed for good. Go on?", yes)
    with progress_shown(settings) as heard:
        done = destroy(
            settings.table(table),
            list(snapshots) or None,
            whole_table=whole_table or "",
            replace_heads=replace_heads,
            dry_run=dry_run,
            progress=heard,
            delete_below=delete_below,
        )
    show(done, as_json)
    if not dry_run and not done.is_complete:
        context.exit(exit_codes.FOUND)
