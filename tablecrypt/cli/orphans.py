"""`tablecrypt orphans`: files in a table's folder that nothing in the table names."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from tablecrypt.cli import exit_codes
from tablecrypt.cli.confirm import confirm
from tablecrypt.cli.options import delete_below_option, dry_run_option, json_option, moment, table_argument, yes_option
from tablecrypt.cli.output import say
from tablecrypt.cli.progress_shown import bytes_shown
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.cli.show import show
from tablecrypt.cli.verb import Verb

if TYPE_CHECKING:
    from tablecrypt.maintenance import OrphanFiles


@click.command(
    cls=Verb,
    examples=[
        ("Find", "tablecrypt --catalog prod orphans db.orders --dry-run"),
        ("Remove what is older than a week, in a nightly job", "tablecrypt --catalog prod orphans db.orders --older-than 7d --yes"),
    ],
    needs="Permission to unwrap with the table's master key, to read its metadata, and to list and delete in its folder.",
    codes={exit_codes.FOUND: "a file could not be deleted; the report says why"},
)
@table_argument
@click.option("--older-than", metavar="MOMENT", callback=moment, help="Only files last written before: a date, or 7d ago; by default 3d.")
@delete_below_option
@yes_option
@dry_run_option
@json_option
@pass_settings
@click.pass_context
def orphans(
    context: click.Context,
    settings: Settings,
    table: str,
    older_than: dt.datetime | None,
    delete_below: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Find and remove files that the table does not know.

    What failed and cancelled writes left, and what expired snapshots held, in the folder of TABLE. --older-than must be longer ago than the
    longest write takes. Do not use it where the folder holds another table's files.
    """
    from tablecrypt.maintenance import remove_orphan_files

    loaded = settings.table(table)
    result = replace(remove_orphan_files(loaded, older_than, delete_below=delete_below), dry_run=dry_run)
    if not dry_run and result.found:
        confirm(f"Delete {len(result.found):,} files ({bytes_shown(result.size)}) under {loaded.location()}?", yes)
        result = remove_orphan_files(loaded, older_than, dry_run=False, delete_below=delete_below)
    if as_json:
        show(result, as_json)
    else:
        _print(result)
    if result.failed:
        context.exit(exit_codes.FOUND)


def _print(result: OrphanFiles) -> None:
    for file in result.found:
        say(f"{file.size:>14,}  {file.location}")
    for location, problem in result.failed.items():
        say(f"{location}: {problem}")
    for location, reason in result.refused.items():
        say(f"refused: {location} {reason}")
    say(f"{len(result.found):,} found, {len(result.deleted):,} deleted, {len(result.failed):,} could not be deleted")
