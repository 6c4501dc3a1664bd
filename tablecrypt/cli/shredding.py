"""The command that destroys keys, and what it prints: what became unreadable, what stays readable, and why it is not complete, if so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tablecrypt.cli._framework import confirm
from tablecrypt.cli._output import say
from tablecrypt.cli.operations import Run, command_of
from tablecrypt.errors import ConfigurationError
from tablecrypt.printable import counted

if TYPE_CHECKING:
    from tablecrypt.maintenance import Shredded, ShreddedColumn


@command_of("shred")
def shred(
    run: Run,
    table: str,
    snapshots: tuple[int, ...],
    all_but_heads: bool,
    whole_table: str | None,
    column: str | None,
    replace_heads: bool,
    delete_below: tuple[str, ...],
    break_shares: bool,
    yes: bool,
) -> None:
    """Check that one thing to shred is named, ask, and shred it."""
    from tablecrypt.table.table_files import name_of

    chosen = [bool(snapshots), all_but_heads, whole_table is not None, column is not None].count(True)
    if chosen == 0:
        raise ConfigurationError("name what to shred: --snapshot ID, --all-but-heads, --whole-table NAME or --column NAME")
    if chosen > 1:
        raise ConfigurationError("--snapshot, --all-but-heads, --whole-table and --column exclude each other")
    if replace_heads and (whole_table is not None or column is not None):
        raise ConfigurationError("--replace-heads belongs to --snapshot and --all-but-heads")

    if column is not None:
        _shred_column(run, table, column, yes, delete_below=delete_below, break_shares=break_shares)
        return

    if whole_table is not None:
        _check_name(table, whole_table, run.dry_run)
    if not run.dry_run:
        what = "every snapshot but the heads" if all_but_heads else counted(len(snapshots), "snapshot", "snapshots")
        confirm(f"The keys of {'all' if whole_table is not None else what} of {table} will be destroyed for good. Go on?", yes)

    loaded = run.settings.table(table)
    done: Shredded = run.call(
        loaded,
        snapshots=snapshots,
        # The user repeated the name as it was typed, perhaps with the catalog's before it; the operation compares the table's own.
        whole_table=None if whole_table is None else name_of(loaded),
        replace_heads=replace_heads,
        delete_below=delete_below,
        all_but_heads=all_but_heads,
        break_shares=break_shares,
    )
    run.report(done, _print_shredded, _is_left(done))


def _check_name(table: str, whole_table: str, dry_run: bool) -> None:
    if whole_table == "" and not dry_run:
        raise ConfigurationError(f"to destroy all of {table}, repeat its name: --whole-table {table}; or try --dry-run first")
    if whole_table not in ("", table):
        raise ConfigurationError(f"--whole-table says {whole_table}, but the table is {table}: to destroy all of it, repeat its name")


def _shred_column(run: Run, table: str, column: str, yes: bool, **options: Any) -> None:
    if not run.dry_run:
        confirm(f"The keys of column {column} of {table} will be destroyed for good. Go on?", yes)
    done: ShreddedColumn = run.call(run.settings.table(table), "shred_column", column=column, **options)
    run.report(done, _print_shredded_column, _is_left(done))


def _is_left(done: Shredded | ShreddedColumn) -> bool:
    return not done.dry_run and not done.is_complete


def _print_shredded(done: Shredded) -> None:
    named, before = len(done.snapshots) - len(done.not_found), len(done.unknown)
    shredded = named + len(done.expired_before) - before
    if shredded:
        expired = len(set(done.expired_before) - set(done.unknown))
        of_these = f", of which {expired:,} had been expired before" if expired else ""
        say(f"{done.table}: {counted(shredded, 'snapshot', 'snapshots')} {_done(done, shredded)} shredded{of_these}")
    else:
        say(f"{done.table}: no snapshot was found to shred that has a key")

    if before:
        say(f"  the keys of {counted(before, 'snapshot', 'snapshots')} had been destroyed before")

    for number, stays in (
        (len(done.shredded_files), f"that nothing opens any more; orphans {'would delete' if done.dry_run else 'deletes'} them"),
        (len(done.live_files), "that live snapshots share, and that stay readable"),
    ):
        if number:
            say(f"  {counted(number, 'file', 'files')} {stays}")

    _print_keys(done)


def _print_shredded_column(done: ShreddedColumn) -> None:
    keys = len(done.column_keys)
    say(f"{done.table}: {counted(keys, 'key', 'keys')} of column {done.column} (field id {done.field_id}) {_done(done, keys)} destroyed")
    _print_keys(done)


def _done(done: Shredded | ShreddedColumn, number: int) -> str:
    return "would be" if done.dry_run else "was" if number == 1 else "were"


def _print_keys(done: Shredded | ShreddedColumn) -> None:
    """Print what became of keys and metadata files, why that is not all, and what else may open what was shredded."""
    for files, one, many, became in (
        (done.retired_keks, "KEK", "KEKs", "destroyed"),
        (done.rewritten, "metadata file", "metadata files", "rewritten without the keys"),
        (done.deleted, "metadata file or journal", "metadata files and journals", "deleted"),
    ):
        if files:
            say(f"  {counted(len(files), one, many)} {_done(done, len(files))} {became}")

    for location, reason in {**done.refused, **done.left}.items():
        say(f"  not touched: {location} {reason}" if location in done.refused else f"  left: {location}: {reason}")
    for reason in done.incomplete_because:
        say(f"{'' if done.dry_run else 'not complete: '}{reason}")
    if done.is_complete:
        say("complete: no file of the table opens what was shredded")
    say("What this does not reach:")
    for each in done.outside:
        say(f"  {each}")
