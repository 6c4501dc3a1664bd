"""One HTML page of an audit, for people to keep. It holds no data for its script: that reads what the page shows.

The page holds file names, key ids and partition values, as the JSON report does, and no key. It shows each table: its facts, what was found
and what to do about it, how much of each partition is encrypted, and its files.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from tablecrypt.maintenance._audit.changes import AuditChanges, ChangedFinding
from tablecrypt.maintenance._audit.findings import Audit, AuditedFile, Coverage, Finding, FindingKind, Severity, TableAudit, by_severity
from tablecrypt.maintenance.report.exposure import by_design, exposures, has_open_key, is_readable
from tablecrypt.maintenance.report.key_tables import day, key_ages, key_tree, short
from tablecrypt.maintenance.report.markup import rendered
from tablecrypt.maintenance.report.overview import by_risk, counts, figures, minute, table_rows, verdict
from tablecrypt.printable import bytes_shown, counted, share_shown

SHOWN_CHANGES: Final = 200
_TITLES: Final = {kind.code: kind.title for kind in FindingKind}
SHOWN_PARTITIONS: Final = 60
SHOWN_PLACES: Final = 40
SHOWN_FILES: Final = 5000
"""Files on the whole page; each table shows its part of them, and at least LEAST_FILES."""
LEAST_FILES: Final = 20
_OPEN: Final = 3
"""Up to this many tables are unfolded on a page; if there are more, only those with severe findings."""


def html_page(audit: Audit, changes: AuditChanges | None = None) -> str:
    """Return the page as text, to be written as UTF-8. The same audit and changes make the same page.

    Args:
        audit: of a table or a catalog.
        changes: what changed since an earlier audit, if the page is to say that.

    Raises:
        MissingExtraError: Jinja2 is not installed.
    """
    tables = by_risk(audit)
    return rendered(
        "page.html",
        name=tables[0].table if len(tables) == 1 and not audit.is_whole else audit.catalog,
        is_table=len(tables) == 1 and not audit.is_whole,
        catalog=audit.catalog,
        moment=minute(audit.moment),
        moment_iso=audit.moment.isoformat(timespec="seconds"),
        scope=counted(len(tables), "table", "tables"),
        verdict=verdict(audit),
        figures=figures(audit),
        rows=table_rows(tables, audit.moment, changes),
        changes=None if changes is None else _changes(changes, {table.table: number for number, table in enumerate(tables)}),
        exposures=exposures(tables),
        by_design=by_design(tables),
        masters=key_tree(tables),
        ages=key_ages(tables, audit.moment),
        details=[details_of(table, audit.moment, len(tables)) for table in tables],
    )


@dataclass(frozen=True)
class _Change:
    severity: str
    title: str
    where: str
    text: str
    before: str


@dataclass(frozen=True)
class _TableChange:
    """What changed of one table; `number` leads to its details, None for one that is gone."""

    table: str
    number: int | None
    state: str
    encrypted: str
    groups: tuple[tuple[str, str, int, tuple[_Change, ...]], ...]
    keys: tuple[str, ...]


@dataclass(frozen=True)
class _Changes:
    since: str
    new: int
    gone: int
    tables: tuple[_TableChange, ...]


def _changes(changes: AuditChanges, numbers: dict[str, int]) -> _Changes:
    tables = []
    for each in changes.tables:
        groups = (("new", "New", each.new), ("gone", "Resolved", each.gone), ("changed", "Changed", each.changed))
        shown = tuple((style, title, len(found), tuple(map(_change, found[:SHOWN_CHANGES]))) for style, title, found in groups if found)
        shares = None in (each.encrypted_before, each.encrypted_now) or each.encrypted_before == each.encrypted_now
        share = "" if shares else f"{_share(each.encrypted_before)} → {_share(each.encrypted_now)}"
        tables.append(_TableChange(each.table, numbers.get(each.table), each.state.value, share, shown, each.keys))

    return _Changes(day(changes.since), len(changes.new), len(changes.gone), tuple(tables))


def _change(each: ChangedFinding) -> _Change:
    return _Change(each.severity, _TITLES.get(each.kind, each.kind), each.where, each.message, each.before or "")


def _share(share: float | None) -> str:
    return "no data" if share is None else share_shown(share)


@dataclass(frozen=True)
class Bar:
    """The coverage of one partition."""

    name: str
    share: str
    width: str
    is_whole: bool
    files: str
    size: str


@dataclass(frozen=True)
class FindingGroup:
    """The findings of one kind, with the location and the message of each."""

    title: str
    code: str
    advice: str
    severity: str
    number: int
    places: tuple[tuple[str, str], ...]
    more: int


@dataclass(frozen=True)
class File:
    """One file."""

    location: str
    kind: str
    style: str
    encrypted_as: str
    key: str
    keks: str
    size: str
    age: str


@dataclass(frozen=True)
class Details:
    """One table. Each fact has a name, a value, and whether that is an identifier."""

    name: str
    style: str
    is_open: bool
    chips: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str, bool], ...]
    findings: tuple[FindingGroup, ...]
    partitions: tuple[Bar, ...]
    more_partitions: str
    number_of_files: str
    files: tuple[File, ...]
    more_files: int


def details_of(audit: TableAudit, now: dt.datetime, tables: int) -> Details:
    """Return the details of one table for the page."""
    ordered = sorted(audit.partitions, key=lambda each: (each.share, each.partition))
    # However many partitions hold plaintext, all are shown: only whole ones are cut.
    bars = ordered[: max(SHOWN_PARTITIONS, sum(each.share < 1 for each in ordered))]
    more = len(ordered) - len(bars)
    worst = max((finding.severity for finding in audit.findings), default=None)
    # Readable files first, so that the cut does not hide them.
    files = sorted(audit.files, key=lambda file: not is_readable(file))
    shown = max(LEAST_FILES, SHOWN_FILES // tables)

    return Details(
        name=audit.table,
        style=worst.label if worst else "good",
        is_open=tables <= _OPEN or worst == Severity.CRITICAL,
        chips=counts(audit.findings),
        facts=tuple(_facts(audit)) if audit.location else (),
        findings=tuple(_group(kind, list(found)) for kind, found in groupby(by_severity(audit.findings), key=lambda each: each.kind)),
        partitions=tuple(map(_bar, bars)),
        more_partitions=counted(more, "more partition is", "more partitions are") if more else "",
        number_of_files=counted(len(files), "file", "files"),
        files=tuple(_file(file, now) for file in files[:shown]),
        more_files=max(0, len(files) - shown),
    )


def _facts(audit: TableAudit) -> Iterator[tuple[str, str, bool]]:
    kinds = Counter(file.signature.value for file in audit.files)
    lengths = Counter(file.key_length for file in audit.files if file.key_length is not None)
    keys = (f"{each * 8} bits in {counted(number, 'file', 'files')}" for each, number in sorted(lengths.items()))
    facts = (
        ("Master key", audit.key_id or "none", audit.key_id is not None),
        ("Data keys", ", ".join(keys), False),
        ("Snapshots", f"{len(audit.snapshots):,}", False),
        ("Files", ", ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items())), False),
        ("Bytes", bytes_shown(sum(file.length or 0 for file in audit.files)), False),
        ("Location", audit.location, True),
        ("Metadata", audit.metadata_location, True),
    )

    return (fact for fact in facts if fact[1])


def _bar(each: Coverage) -> Bar:
    unread = f", {each.unread_files:,} not read" if each.unread_files else ""
    files = f"{each.encrypted_files:,} of {each.files:,}{unread}"
    return Bar(each.partition, share_shown(each.share), f"{each.share * 100:.2f}%", each.share == 1, files, bytes_shown(each.bytes))


def _group(kind: FindingKind, found: Sequence[Finding]) -> FindingGroup:
    places = tuple((each.where, each.message) for each in found[:SHOWN_PLACES])
    return FindingGroup(kind.title, kind.code, kind.advice, kind.severity.label, len(found), places, max(0, len(found) - SHOWN_PLACES))


def _file(file: AuditedFile, now: dt.datetime) -> File:
    return File(
        location=file.location,
        kind=file.kind,
        style="critical" if is_readable(file) else "good" if file.signature.is_ciphertext and file.key_length is not None else "error",
        encrypted_as=f"{file.signature.value}, key in the clear" if has_open_key(file) else file.signature.value,
        key="none" if file.key_length is None else f"{file.key_length * 8} bits",
        keks=", ".join(map(short, file.keks)),
        size="–" if file.length is None else bytes_shown(file.length),
        age="–" if file.written is None else counted((now - file.written).days, "day", "days"),
    )
