"""The commands that erase rows and destroy keys, and what they print: what is gone, what stays readable, and why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tablecrypt.cli._framework import confirm, end_with_found
from tablecrypt.cli._output import say, show
from tablecrypt.cli.operations import Run, command_of
from tablecrypt.errors import ConfigurationError
from tablecrypt.printable import bytes_shown, counted

if TYPE_CHECKING:
    from tablecrypt.maintenance import Erased, ErasedRef, Shredded, ShreddedColumn


@command_of("erase")
def erase(run: Run, table: str, row_filter: str, certificates: tuple[Path, ...], yes: bool, **options: Any) -> None:
    """Check the certificates' paths, ask, erase, and write the certificates."""
    from tablecrypt.maintenance.erasure.certificate import check_certificate_path, write_certificate

    if run.dry_run and certificates:
        raise ConfigurationError("--certificate is of an erasure, and --dry-run erases nothing: leave one of them out")

    for path in certificates:
        check_certificate_path(path)
    # Before the erasure too, after which the second could not be written.
    if len({path.absolute() for path in certificates}) < len(certificates):
        raise ConfigurationError("--certificate names one file several times: name each file once")
    if not run.dry_run:
        confirm(f"All rows of {table} where {row_filter} will be erased for good, and with them the snapshots that held them. Go on?", yes)

    erased: Erased = run.call(run.settings.table(table), row_filter=row_filter, **options)
    # Before the certificate, whose disk may be full: what was erased cannot be said again.
    show(erased, as_json=True) if run.as_json else _print(erased)
    for path in certificates:
        write_certificate(erased, path)
    if not (run.dry_run or erased.is_complete):
        end_with_found()


def _print(erased: Erased) -> None:
    if erased.found_nothing and erased.is_complete:
        say(f"{erased.table}: no row with {erased.shape} was found, in {_searched(erased)}")
        return

    would = "would be " if erased.dry_run else ""
    for ref in erased.refs:
        say(f"{ref.kind} {ref.name}: {_of(ref, would)}")
    files = f"{counted(len(erased.deleted), 'file', 'files')} ({bytes_shown(erased.deleted_bytes)})"
    say(f"{counted(len(erased.snapshots), 'snapshot', 'snapshots')} and {files} {would or 'were '}deleted")
    if erased.dry_run:
        for location, reason in erased.refused.items():
            say(f"cannot be deleted: {location} {reason}")
        # What the erasure itself would end with, and exit code 1.
        for line in (*_not_searched(erased), *_hidden(erased)):
            say(line)
        say("nothing was changed")
        return

    say(f"searched afterwards: {_searched(erased)}")
    for line in _left(erased):
        say(line)
    for line in erased.outside:
        say(f"not reached: {line}")
    say("complete: nothing of such rows was found" if erased.is_complete else "NOT complete: see above")


def _of(ref: ErasedRef, would: str) -> str:
    rows = f"{counted(ref.rows, 'row', 'rows')} {would or ''}erased"
    hidden = (
        f", {counted(ref.hidden_rows, 'row', 'rows')} that had been deleted and {'was' if ref.hidden_rows == 1 else 'were'} still stored"
    )
    files = f"{counted(ref.rewritten_files, 'file', 'files')} ({bytes_shown(ref.rewritten_bytes)})"
    return f"{rows}{hidden if ref.hidden_rows else ''}; {files} {would}rewritten"


def _searched(erased: Erased) -> str:
    searched = erased.searched
    files = f"{counted(searched.data_files + searched.delete_files, 'file', 'files')} with {counted(searched.rows, 'row', 'rows')}"
    return f"{files} ({bytes_shown(searched.bytes)}) of {counted(searched.snapshots, 'snapshot', 'snapshots')}"


def _left(erased: Erased) -> Iterator[str]:
    for location, reason in erased.remaining.items():
        yield f"still there: {location}: {reason}"
    yield from _not_searched(erased)
    for what, locations in (("refused", erased.refused), ("not deleted", erased.failed)):
        for location, reason in locations.items():
            yield f"{what}: {location}: {reason}"
    yield from _hidden(erased)


def _not_searched(erased: Erased) -> Iterator[str]:
    # A dry run looks at files too that would be deleted.
    gone = frozenset(erased.deleted)
    for location, reason in erased.not_searched.items():
        if location not in gone:
            yield f"not searched: {location}: {reason}"


def _hidden(erased: Erased) -> Iterator[str]:
    for column in erased.hidden_columns:
        yield (
            f"hidden column {column.column}: values of {counted(column.rows, 'row', 'rows')} in {counted(column.files, 'file', 'files')} "
            f"stay encrypted under {column.master_key_id}: somebody who may use that key runs the same erasure"
        )


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
    # A snapshot that is nowhere fails in a dry run too: the id is mistyped, whatever else would be destroyed.
    run.report(done, _print_shredded, _is_left(done) or bool(done.not_found))


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
        # The first run may have said that nothing became unreadable: this one does not know, and must not sound as if it did.
        snapshots = counted(before, "snapshot", "snapshots")
        say(f"  the keys of {snapshots} had been destroyed before; files that live snapshots share stay readable")

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
