"""`tablecrypt verify`: every byte of a table, authenticated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tablecrypt.cli import exit_codes
from tablecrypt.cli.options import json_option, progress_options, spark_option, spark_session, workers_option
from tablecrypt.cli.output import say
from tablecrypt.cli.progress_shown import bytes_shown
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.cli.several import Chosen, glob_options, optional_table_argument, run_on
from tablecrypt.cli.verb import Verb
from tablecrypt.errors import ConfigurationError

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from tablecrypt.maintenance import ProgressListener, Verification


@click.command(
    cls=Verb,
    examples=[
        ("Everything", "tablecrypt --catalog prod verify db.orders"),
        ("A large table, so that it can be interrupted", "tablecrypt --catalog prod verify db.orders --resume-from orders.verify"),
        ("Heads, lengths and footers alone", "tablecrypt --catalog prod verify db.orders --quick"),
        ("Every table of a namespace", "tablecrypt --catalog prod verify --include 'db.*' --quick"),
    ],
    needs="Permission to unwrap with the table's master key, and to read its files; with --resume-from also to list its folder.",
    codes={exit_codes.FOUND: "a file is not what its writer left; the report names it and what of it failed; or a table of several failed"},
)
@optional_table_argument
@glob_options
@click.option("--quick", is_flag=True, help="Only heads, lengths and footers, not whole files.")
@click.option(
    "--resume-from",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Note good files here, and go on from there after an interruption. The file is removed at the end.",
)
@workers_option
@spark_option
@progress_options
@json_option
@pass_settings
@click.pass_context
def verify(
    context: click.Context,
    settings: Settings,
    table: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    quick: bool,
    resume_from: Path | None,
    workers: int | None,
    use_spark: bool,
    as_json: bool,
) -> None:
    """Authenticate every byte of a table.

    Reads every file that any snapshot of TABLE leads to, and authenticates each block of AGS1 files and each module of Parquet files:
    pages, headers, dictionaries, indexes, bloom filters and footers, and their lengths against the metadata. A bad file does not end it:
    the report names every bad file, and of it the blocks or modules that failed.
    Nothing is changed.
    """
    from tablecrypt.maintenance import verify as authenticate

    chosen = Chosen(table, include, exclude)
    if chosen.is_several and resume_from is not None:
        raise ConfigurationError("--resume-from notes the good files of one table: name it instead of --include and --exclude")
    spark = spark_session(use_spark)

    def one(table: Table, heard: ProgressListener) -> Verification:
        return authenticate(table, quick=quick, progress=heard, spark=spark, workers=workers, resume_from=resume_from)

    run_on(context, settings, chosen, one, _print, as_json, is_bad=lambda done: not done.is_good)


def _print(done: Verification) -> None:
    resumed = f", {done.resumed:,} of them before the interruption" if done.resumed else ""
    say(f"{done.table}: {done.files:,} files of {done.snapshots:,} snapshots{resumed}, {bytes_shown(done.bytes)} read now")
    for file in done.bad:
        say(f"  bad {file.kind.value}: {file.location}")
        for problem in file.problems:
            say(f"    {problem.part}: {problem.message}")
    if done.is_empty:
        say("nothing was verified: the table has no files")
        return
    what = "everything" if done.full else "every head, length and footer"
    say(f"{what} is as it was written" if done.is_good else f"{len(done.bad):,} files are bad")
