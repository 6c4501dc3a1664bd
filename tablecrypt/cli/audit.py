"""Commands that look and change nothing: `audit` at how files are encrypted, `verify` at every byte, `doctor` at what a user needs."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tablecrypt._atomic_file import check_folder_of, named_file
from tablecrypt._bytes import small_content
from tablecrypt._store_errors import reraise_naming
from tablecrypt.arguments import check_name_parts
from tablecrypt.cli._framework import Chosen, check_replaced, end_with_found, run_on
from tablecrypt.cli._output import progress_shown, say, show
from tablecrypt.cli.operations import Run, command_of
from tablecrypt.cli.settings import Settings, named_by
from tablecrypt.errors import ConfigurationError, TablecryptError
from tablecrypt.external_errors import is_external
from tablecrypt.printable import bytes_shown, counted, local_moment, share_shown

if TYPE_CHECKING:
    from tablecrypt.maintenance import Audit, AuditChanges, Check, CheckUp, TableAudit, Verified

_MOST_BYTES: Final = 1024 * 1024 * 1024
_BEGINS_A_PAGE: Final = b"<!doctype html>"


@command_of("audit")
def audit(
    run: Run,
    chosen: Chosen,
    html_file: Path | None,
    bundle_file: Path | None,
    force: bool,
    since_file: Path | None,
    fail_on: str,
) -> None:
    """Look through what was chosen, write the files that were asked for, and print what was found."""
    from tablecrypt.maintenance import Severity, changes_since, write_evidence
    from tablecrypt.maintenance import audit as audit_tables

    chosen.refuse_both()
    _check_page(html_file)
    _check_bundle(bundle_file, force)
    # Read before the audit is made, which may take minutes and may be written over it.
    earlier = None if since_file is None else _text_of(since_file)
    target = run.settings.catalog() if chosen.table is None else run.settings.plain_table(chosen.table)
    with progress_shown(run.settings) as listener:
        found = audit_tables(target, include=chosen.include, exclude=chosen.exclude, progress=listener)
    changes = None if earlier is None else changes_since(found, earlier)
    if html_file is not None:
        from tablecrypt.maintenance.report import html_page

        _write_page(html_file, html_page(found, changes))

    written = None if bundle_file is None else write_evidence(found, bundle_file, changes=changes, replace=force)
    if run.as_json:
        show(found if changes is None else {**found.to_json(), "changes": changes.to_json()}, run.as_json)
    else:
        _print_audit(found, changes)

    if written is not None:
        say(f"SHA-256 of {written.path}: {written.sha256}", err=run.as_json)
    if found.worst is not None and found.worst >= Severity[fail_on.upper()]:
        end_with_found()
    found.refuse_empty()


def _write_page(path: Path, page: str) -> None:
    try:
        with named_file(path, private=False) as file:
            file.write(page.encode())
    except OSError as error:
        reraise_naming(error, str(path))


def _check_page(html_file: Path | None) -> None:
    if html_file is None:
        return
    if str(html_file) == "-":
        raise ConfigurationError("--html -: the page is written into a file, not to stdout: name one, such as --html audit.html")
    check_replaced("--html", html_file, _BEGINS_A_PAGE, "HTML page")
    if html_file.is_file() or not html_file.exists():
        check_folder_of(html_file.resolve())


def _check_bundle(bundle_file: Path | None, force: bool) -> None:
    if bundle_file is None and force:
        raise ConfigurationError("--force replaces the file of --bundle, and no --bundle is given")
    if bundle_file is not None:
        from tablecrypt.maintenance.report import check_evidence_path

        check_evidence_path(bundle_file, force)


def _text_of(file: Path) -> str:
    try:
        return small_content(file, _MOST_BYTES).decode("utf-8")
    except UnicodeDecodeError as wrong:
        raise ConfigurationError(f"--since {file} is not the JSON of an audit: it is not UTF-8") from wrong
    except OSError as error:
        raise ConfigurationError(f"--since {file} cannot be read: {error.strerror}") from error


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
    say(f"since {local_moment(changes.since)}: {new}, {gone}")
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
        name = partition.partition or "the table"
        if partition.share < 1 and partition.encrypted_files + partition.unread_files < partition.files:
            say(f"  {share_shown(partition.share)} of {name} is encrypted")
        if partition.unread_files:
            say(f"  {partition.unread_files:,} of {counted(partition.files, 'file', 'files')} of {name} could not be read")
    for finding in table.findings:
        say(f"  {finding.severity.label:<8} {finding.kind.code}: {finding.where}: {finding.message}")


@command_of("verify")
def verify(
    run: Run,
    chosen: Chosen,
    resume_from: Path | None,
    **options: Any,
) -> None:
    """Verify each table that was chosen."""
    if chosen.is_several and resume_from is not None:
        raise ConfigurationError("--resume-from records the good files of one table: name it instead of --include and --exclude")

    authenticate = run.prepared(resume_from=resume_from, **options)
    run_on(run.settings, chosen, authenticate, run.as_json, _print_verification, is_bad=lambda done: not done.is_good)


def _print_verification(done: Verified) -> None:
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


@command_of("doctor")
def doctor(run: Run, table: str | None, key_ids: tuple[str, ...], read_only: bool) -> None:
    """Check up, and print what works and what does not."""
    if table is not None:
        table = named_by(table)
        check_name_parts(table)
    found = _check_up(run.settings, table, key_ids, read_only)
    run.report(found, _print_check_up, is_bad=not found.is_well)


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
