"""Commands that look and change nothing: `audit` at how files are encrypted, `verify` at every byte, `doctor` at what a user needs."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tablecrypt._atomic_file import atomic_file
from tablecrypt.cli._framework import (
    Chosen,
    DocumentedCommand,
    end_with_found,
    glob_options,
    json_option,
    optional_table_argument,
    progress_options,
    run_on,
    spark_option,
    spark_runner,
    workers_option,
)
from tablecrypt.cli._output import progress_shown, say, show
from tablecrypt.cli.main import FOUND, REFUSED
from tablecrypt.cli.settings import Settings, pass_settings
from tablecrypt.errors import ConfigurationError, TablecryptError
from tablecrypt.external_errors import is_external
from tablecrypt.printable import bytes_shown, counted

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from tablecrypt.maintenance import Audit, AuditChanges, Check, CheckUp, ProgressListener, TableAudit, Verification


@click.command(
    cls=DocumentedCommand,
    examples=[
        ("One table", "tablecrypt --catalog prod audit db.orders"),
        (
            "Every table of the catalog, as a page to keep and as JSON for the next audit",
            "tablecrypt --catalog prod audit --html may.html --json > may.json",
        ),
        ("A month later, with what changed", "tablecrypt --catalog prod audit --since may.json --html june.html"),
        ("The tables of a namespace", "tablecrypt --catalog prod audit 'db.*'"),
        ("In a nightly job, failing on warnings too", "tablecrypt --catalog prod audit db.orders --json --fail-on warning"),
        ("Evidence to hand over, as one zip with its hash", "tablecrypt --catalog prod audit --bundle evidence.zip"),
    ],
    needs="Permission to unwrap with the table's master key, to read its files and to list its folder.",
    codes={
        FOUND: "there are findings of at least the severity that --fail-on names; plaintext always counts",
        REFUSED: "refused or failed, or no table was looked at; stderr says why",
    },
)
@optional_table_argument
@click.option(
    "--html",
    "html_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the report to this file, as one HTML page that needs no server and no network.",
)
@click.option(
    "--bundle",
    "bundle_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the report to this new file, as a zip to hand over: pages, JSON, the result of each requirement, and hashes. "
    "Prints the SHA-256 of the zip, with --json on stderr.",
)
@click.option("--force", is_flag=True, help="Replace the file of --bundle if it exists.")
@click.option(
    "--since",
    "since_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also report what changed since an earlier audit. FILE is the JSON of that audit.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["critical", "error", "warning", "info"]),
    default="error",
    show_default=True,
    help="Exit with code 1 if there are findings of at least this severity.",
)
@glob_options
@progress_options
@json_option
@pass_settings
def audit(
    settings: Settings,
    table: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    html_file: Path | None,
    bundle_file: Path | None,
    force: bool,
    since_file: Path | None,
    fail_on: str,
    as_json: bool,
) -> None:
    """Find plaintext and neglected keys.

    Examines TABLE, the tables that a GLOB such as 'db.*' matches, or every table of the catalog: its metadata, manifests and files, older
    metadata, and everything else in its folder. Reports for each file how it is encrypted, under which KEK, and the length and age of its
    key. Finds plaintext in data, statistics, orphans and older metadata, keys near or past the end of their life, snapshots without a key,
    keys without a snapshot, and tables without a pin.

    Of data files, only the first bytes and the end of Parquet files are read; verify authenticates whole files. Nothing is changed.
    """
    from tablecrypt.maintenance import Severity, changes_since, write_evidence
    from tablecrypt.maintenance import audit as look_through

    chosen = Chosen.of(table, include, exclude)
    chosen.refuse_both()
    if html_file is not None and not html_file.absolute().parent.is_dir():
        raise ConfigurationError(f"--html {html_file}: there is no folder {html_file.parent}")
    _check_bundle(bundle_file, force)
    # Read before the audit is made, which may take minutes and may be written over it.
    earlier = None if since_file is None else _text_of(since_file)
    target = settings.catalog() if chosen.table is None else settings.plain_table(chosen.table)
    with progress_shown(settings) as heard:
        found = look_through(target, include=chosen.include, exclude=chosen.exclude, progress=heard)
    changes = None if earlier is None else changes_since(found, earlier)
    if html_file is not None:
        from tablecrypt.maintenance.report import html_page

        _write_page(html_file, html_page(found, changes))
    written = None if bundle_file is None else write_evidence(found, bundle_file, changes=changes, replace=force)
    if as_json:
        show(found if changes is None else {**found.to_json(), "changes": changes.to_json()}, as_json)
    else:
        _print_audit(found, changes)
    if written is not None:
        say(f"SHA-256 of {written.path}: {written.sha256}", err=as_json)
    if found.worst is not None and found.worst >= Severity[fail_on.upper()]:
        end_with_found()
    found.refuse_empty()


def _write_page(path: Path, page: str) -> None:
    """Write a page whole or not at all, but into a pipe or a device as it comes."""
    if path.exists() and not path.is_file():
        path.write_text(page, encoding="utf-8")
        return
    with atomic_file(path.resolve(), private=False) as file:
        file.write(page.encode())


def _check_bundle(bundle_file: Path | None, force: bool) -> None:
    if bundle_file is None and force:
        raise ConfigurationError("--force replaces the file of --bundle, and no --bundle is given")
    if bundle_file is not None:
        from tablecrypt.maintenance.report import check_evidence_path

        check_evidence_path(bundle_file, force)


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as wrong:
        raise ConfigurationError(f"--since {file} is not the JSON of an audit: it is not UTF-8") from wrong


def _print_audit(found: Audit, changes: AuditChanges | None) -> None:
    for table in found.tables:
        _print_table(table)
    if changes is not None:
        _print_changes(changes)
    say(_verdict(found))


def _verdict(found: Audit) -> str:
    from tablecrypt.maintenance import Severity

    seen = sum(bool(table.location) for table in found.tables)
    looked_at = f"{counted(seen, 'table', 'tables')} looked at"
    if seen < len(found.tables):
        looked_at += f", {len(found.tables) - seen:,} could not be opened"
    if found.has_plaintext:
        return f"{looked_at}: plaintext was found"
    if found.is_empty:
        return looked_at
    return f"{looked_at}: no plaintext was found" + (", but there are critical findings" if found.worst == Severity.CRITICAL else "")


def _print_changes(changes: AuditChanges) -> None:
    new, gone = counted(len(changes.new), "new finding", "new findings"), f"{len(changes.gone):,} resolved"
    say(f"since {changes.since.isoformat(timespec='minutes')}: {new}, {gone}")
    for table in changes.tables:
        state = "" if table.state == "changed" else f": {'new' if table.state == 'new' else 'no longer in the catalog'}"
        say(f"  {table.table}{state}")
        for sentence in table.keys:
            say(f"    {sentence}")
        for mark, findings in (("new", table.new), ("resolved", table.gone), ("changed", table.changed)):
            for finding in findings:
                say(f"    {mark:<8} {finding.kind}: {finding.where}: {finding.message}")


def _print_table(table: TableAudit) -> None:
    kinds = sorted(Counter(file.signature.value for file in table.files).items())
    described = ", ".join(f"{number:,} {kind}" for kind, number in kinds) or "no files"
    layers = f"{counted(len(table.keks), 'KEK', 'KEKs')}, {counted(len(table.snapshots), 'snapshot', 'snapshots')}"
    say(f"{table.table}: master key {table.key_id or 'none'}, {layers}, {described}")
    for partition in table.partitions:
        if partition.share < 1:
            say(f"  {partition.share:.0%} of {partition.partition or 'the table'} is encrypted")
    for finding in table.findings:
        say(f"  {finding.severity.label:<8} {finding.kind.code}: {finding.where}: {finding.message}")


@click.command(
    cls=DocumentedCommand,
    examples=[
        ("Everything", "tablecrypt --catalog prod verify db.orders"),
        (
            "A large table, with the option to interrupt and continue",
            "tablecrypt --catalog prod verify db.orders --resume-from orders.verify",
        ),
        ("Only heads, lengths and footers", "tablecrypt --catalog prod verify db.orders --quick"),
        ("Every table of a namespace", "tablecrypt --catalog prod verify --include 'db.*' --quick"),
    ],
    needs="Permission to unwrap with the table's master key, and to read its files; with --resume-from also to list its folder.",
    codes={
        FOUND: "a file is not as its writer left it (the report names the file and the part that failed), or one of several tables failed"
    },
)
@optional_table_argument
@glob_options
@click.option("--quick", is_flag=True, help="Only heads, lengths and footers, not whole files.")
@click.option(
    "--resume-from",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Record verified files here, and continue from there after an interruption. The file is removed at the end.",
)
@workers_option
@spark_option
@progress_options
@json_option
@pass_settings
def verify(
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

    Reads every file that any snapshot of TABLE leads to. Authenticates each block of AGS1 files and each module of Parquet files (pages,
    headers, dictionaries, indexes, bloom filters and footers), and compares lengths with the metadata. It does not stop at a bad file: the
    report names every one, with the blocks or modules that failed. Nothing is changed.
    """
    from tablecrypt.maintenance import verify as authenticate

    chosen = Chosen.of(table, include, exclude)
    if chosen.is_several and resume_from is not None:
        raise ConfigurationError("--resume-from records the good files of one table: name it instead of --include and --exclude")
    runner = spark_runner(use_spark)

    def one(table: Table, heard: ProgressListener) -> Verification:
        return authenticate(table, quick=quick, progress=heard, runner=runner, workers=workers, resume_from=resume_from)

    run_on(settings, chosen, one, as_json, _print_verification, is_bad=lambda done: not done.is_good)


def _print_verification(done: Verification) -> None:
    resumed = f", {done.resumed:,} of them before the interruption" if done.resumed else ""
    layers = f"{counted(done.files, 'file', 'files')} of {counted(done.snapshots, 'snapshot', 'snapshots')}"
    say(f"{done.table}: {layers}{resumed}, {bytes_shown(done.bytes)} read now")
    for file in done.bad:
        say(f"  bad {file.kind.value}: {file.location}")
        for problem in file.problems:
            say(f"    {problem.part}: {problem.message}")
    for column, files in done.unchecked_columns.items():
        say(f"  protected column {column}: not authenticated in {counted(files, 'file', 'files')}, for lack of its key")
    say(done.verdict)


_MARKS: Final = {"works": "ok", "noted": "--", "untried": "--", "fails": "FAILS"}


@click.command(
    cls=DocumentedCommand,
    examples=[
        ("Before the first table", "tablecrypt --catalog prod doctor --key-id alias/orders"),
        ("When a job cannot write", "tablecrypt --catalog prod doctor db.orders"),
        ("With a reader's rights", "tablecrypt --catalog prod doctor db.orders --read-only"),
    ],
    needs="No permission: it reports what is missing.",
    codes={FOUND: "something does not work; the report says what to do"},
)
@click.argument("table", metavar="[TABLE]", required=False)
@click.option("--key-id", "key_ids", metavar="KEY", multiple=True, help="Another master key to try besides the table's; repeatable.")
@click.option("--read-only", is_flag=True, help="Wrap nothing and write nothing.")
@json_option
@pass_settings
def doctor(settings: Settings, table: str | None, key_ids: tuple[str, ...], read_only: bool, as_json: bool) -> None:
    """Check whether everything works.

    Loads the catalog and says first whether it refuses plaintext. Lets the key service wrap and unwrap a random probe under each master
    key that TABLE or the configuration names, those of columns too, and opens TABLE's newest KEKs. Lists and reads the table's folder, and
    writes, reads back and deletes a probe there, an encrypted file of random bytes. Also checks pins, versions and Java. Reports what
    works, what does not, what was not tried, and what to do about it. No table is changed.
    """
    found = _check_up(settings, table, key_ids, read_only)
    if as_json:
        show(found, as_json)
    else:
        _print_check_up(found)
    if not found.is_well:
        end_with_found()


def _check_up(settings: Settings, table: str | None, key_ids: tuple[str, ...], read_only: bool) -> CheckUp:
    from tablecrypt.maintenance import doctor as check_up
    from tablecrypt.maintenance import doctor_without_catalog

    try:
        catalog = settings.catalog(may_be_new=table is None)
    except Exception as error:
        if not isinstance(error, TablecryptError) and not is_external(error):
            raise
        return doctor_without_catalog(settings.catalog_name or "default", error)
    return check_up(catalog, table, key_ids=key_ids, read_only=read_only)


def _print_check_up(found: CheckUp) -> None:
    for area, checks in groupby(found.checks, key=lambda check: check.area):
        say(area)
        for check in checks:
            _print_check(check)
    failing = sum(check.state.value == "fails" for check in found.checks)
    if failing:
        say(f"{failing:,} of {counted(len(found.checks), 'check', 'checks')} failed")
    elif found.untried:
        say(f"nothing fails, but {counted(len(found.untried), 'check was', 'checks were')} not tried")
    else:
        say("all checks pass")


def _print_check(check: Check) -> None:
    say(f"  {_MARKS[check.state.value]:<5}  {check.name}: {check.found}")
    if check.advice:
        say(f"         → {check.advice}")
