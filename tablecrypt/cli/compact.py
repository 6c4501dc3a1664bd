"""`tablecrypt compact`: small files and applied deletes, rewritten."""

from __future__ import annotations

import click

from tablecrypt.cli.options import (
    dry_run_option,
    json_option,
    progress_options,
    spark_option,
    spark_session,
    table_argument,
    workers_option,
)
from tablecrypt.cli.progress_shown import progress_shown
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.cli.show import show
from tablecrypt.cli.verb import Verb


@click.command(
    cls=Verb,
    examples=[
        ("What is worth rewriting", "tablecrypt --catalog prod compact db.orders --dry-run"),
        ("One partition, ordered", "tablecrypt --catalog prod compact db.orders --where \"day = '2024-02-29'\" --sort-by id"),
    ],
    needs="Permission to unwrap with the table's master key, to read and write its files, and to commit.",
)
@table_argument
@click.option("--where", metavar="FILTER", help="Only files that may hold rows which pass this filter.")
@click.option("--target-file-size", type=click.IntRange(min=1), metavar="BYTES", help="By default write.target-file-size-bytes.")
@click.option(
    "--min-input-files",
    type=click.IntRange(min=1),
    metavar="N",
    default=5,
    show_default=True,
    help="Rewrite short files where so many are together.",
)
@click.option(
    "--delete-ratio",
    type=click.FloatRange(0, 1),
    metavar="X",
    default=0.3,
    show_default=True,
    help="Rewrite files of whose rows more are deleted.",
)
@click.option("--rewrite-all", is_flag=True, help="Rewrite every file that --where leaves.")
@click.option("--sort-by", multiple=True, metavar="COLUMN", help="Order the rows of each group; repeatable.")
@click.option("--partial-progress", type=click.IntRange(min=1), metavar="N", help="Commit after every N groups, not once at the end.")
@click.option("--branch", default="main", show_default=True, help="Whose files.")
@workers_option
@spark_option
@dry_run_option
@progress_options
@json_option
@pass_settings
def compact(
    settings: Settings,
    table: str,
    where: str | None,
    target_file_size: int | None,
    min_input_files: int,
    delete_ratio: float,
    rewrite_all: bool,
    sort_by: tuple[str, ...],
    partial_progress: int | None,
    branch: str,
    workers: int | None,
    use_spark: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Rewrite small files and applied deletes.

    Short files of TABLE, and files with many deleted rows, become files of the right size under fresh keys. Rows keep their ids. Older
    snapshots keep the old files until they are expired.
    """
    from tablecrypt.maintenance import compact as rewrite

    with progress_shown(settings) as heard:
        done = rewrite(
            settings.table(table),
            where,
            target_file_size=target_file_size,
            min_input_files=min_input_files,
            delete_ratio=delete_ratio,
            rewrite_all=rewrite_all,
            sort_by=sort_by,
            partial_progress=partial_progress,
            branch=branch,
            progress=heard,
            dry_run=dry_run,
            spark=spark_session(use_spark),
            workers=workers,
        )
    show(done, as_json)
