"""`tablecrypt audit`: what of a table or a catalog is encrypted, how, under which keys, and what is not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tablecrypt.cli import exit_codes
from tablecrypt.cli.options import json_option, progress_options
from tablecrypt.cli.output import say
from tablecrypt.cli.progress_shown import progress_shown
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.cli.several import glob_options
from tablecrypt.cli.show import show
from tablecrypt.cli.verb import Verb
from tablecrypt.errors import ConfigurationError

if TYPE_CHECKING:
    from tablecrypt.maintenance import Audit, TableAudit


@click.command(
    cls=Verb,
    examples=[
        ("One table", "tablecrypt --catalog prod audit db.orders"),
        ("Every table of the catalog, as a page to pass on", "tablecrypt --catalog prod audit --html audit.html"),
        ("In a nightly job, failing on warnings too", "tablecrypt --catalog prod audit db.orders --json --fail-on warning"),
    ],
    needs="Permission to unwrap with the table's master key, to read its files and to list its folder.",
    codes={exit_codes.FOUND: "something at least as grave as --fail-on was found; plaintext always is"},
)
@click.argument("table", metavar="[TABLE]", required=False)
@click.option("--html", "html_file", type=click.Path(dir_okay=False, path_type=Path), help="Write a page without external parts here.")
@click.option(
    "--fail-on",
    type=click.Choice(["critical", "error", "warning", "info"]),
    default="error",
    show_default=True,
    help="The least grave finding that makes the exit code 1.",
)
@glob_options
@progress_options
@json_option
@pass_settings
@click.pass_context
def audit(
    context: click.Context,
    settings: Settings,
    table: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    html_file: Path | None,
    fail_on: str,
    as_json: bool,
) -> None:
    """Look for plaintext, and for keys that need care.

    Walks TABLE, or every table of the catalog: its metadata, manifests and files, older metadata, and whatever else lies in its folder.
    Says of each file how it is encrypted, under which KEK, with a key of which length and age. Finds plaintext among data, statistics,
    orphans and older metadata, keys near or past their life, snapshots without a key, keys without a snapshot, and tables that nothing
    pins.

    Of data files only the first bytes are read; verify authenticates them whole. Nothing is changed.
    """
    from tablecrypt.maintenance import Severity
    from tablecrypt.maintenance import audit as look_through

    if table is not None and (include or exclude):
        raise ConfigurationError(f"{table} is one table: --include and --exclude choose among all of the catalog")
    if html_file is not None and not html_file.absolute().parent.is_dir():
        raise ConfigurationError(f"--html {html_file}: there is no folder {html_file.parent}")
    target = settings.catalog() if table is None else settings.plain_table(table)
    with progress_shown(settings) as heard:
        found = look_through(target, include=include, exclude=exclude, progress=heard)
    if html_file is not None:
        from tablecrypt.maintenance.report import html_page

        html_file.write_text(html_page(found), encoding="utf-8")
    if as_json:
        show(found, as_json)
    else:
        _print(found)
    if found.worst is not None and found.worst >= Severity[fail_on.upper()]:
        context.exit(exit_codes.FOUND)


def _print(found: Audit) -> None:
    for table in found.tables:
        _print_table(table)
    say("plaintext was found" if found.has_plaintext else "no plaintext was found")


def _print_table(table: TableAudit) -> None:
    from tablecrypt.maintenance.report.markup import count

    seals = {seal: sum(file.seal.value == seal for file in table.files) for seal in sorted({file.seal.value for file in table.files})}
    described = ", ".join(f"{number:,} {seal}" for seal, number in seals.items()) or "no files"
    layers = f"{count(len(table.keks), 'KEK', 'KEKs')}, {count(table.snapshots, 'snapshot', 'snapshots')}"
    say(f"{table.table}: master key {table.key_id or 'none'}, {layers}, {described}")
    for partition in table.partitions:
        if partition.share < 1:
            say(f"  {partition.share:.0%} of {partition.partition or 'the table'} is encrypted")
    for finding in table.findings:
        say(f"  {finding.severity.label:<8} {finding.kind.code}: {finding.where}: {finding.message}")
