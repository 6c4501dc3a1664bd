"""The command that erases rows from a table and its history."""

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
    from tablecrypt.maintenance import Erased, ErasedRef


@command_of("erase")
def erase(run: Run, table: str, row_filter: str, certificates: tuple[Path, ...], yes: bool, **options: Any) -> None:
    """Check the certificates' paths, ask, erase, and write the certificates."""
    from tablecrypt.maintenance.erasure.certificate import check_certificate_path, write_certificate

    if run.dry_run and certificates:
        raise ConfigurationError("--certificate is of an erasure, and --dry-run erases nothing: leave one of them out")

    for path in certificates:
        check_certificate_path(path)
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
    for what, locations in (
        ("still there", erased.remaining),
        ("not searched", erased.not_searched),
        ("refused", erased.refused),
        ("not deleted", erased.failed),
    ):
        for location, reason in locations.items():
            yield f"{what}: {location}: {reason}"

    for column in erased.hidden_columns:
        yield (
            f"hidden column {column.column}: values of {counted(column.rows, 'row', 'rows')} in {counted(column.files, 'file', 'files')} "
            f"stay encrypted under {column.master_key_id}: somebody who may use that key runs the same erasure"
        )
