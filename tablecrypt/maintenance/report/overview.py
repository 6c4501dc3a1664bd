"""The top of the page: the verdict, the figures, and the tables by risk."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tablecrypt.maintenance._audit.changes import AuditChanges, TableChangeKind, TableChanges
from tablecrypt.maintenance._audit.findings import Audit, Finding, FindingKind, Severity, TableAudit, by_severity
from tablecrypt.maintenance.report.exposure import UNSEEN, is_readable
from tablecrypt.maintenance.report.key_tables import KeyAge, ages_of, day, end_of
from tablecrypt.printable import bytes_shown, counted, share_shown

SEVERITIES: Final = tuple(each.label for each in reversed(Severity))
_PLURALS: Final = {"critical": "critical", "error": "errors", "warning": "warnings", "info": "info"}


def by_risk(audit: Audit) -> tuple[TableAudit, ...]:
    """Return the tables, the one with the most severe findings first; if two are equal, the one with more of them."""

    def risk(table: TableAudit) -> tuple[tuple[int, ...], str]:
        numbers = Counter(finding.severity for finding in table.findings)
        return tuple(-numbers[severity] for severity in reversed(Severity)), table.table

    return tuple(sorted(audit.tables, key=risk))


@dataclass(frozen=True)
class Verdict:
    """The one sentence that says how it stands, and a second that says what to do first."""

    style: str
    title: str
    text: str


def verdict(audit: Audit) -> Verdict:
    """Return the verdict on all tables together."""
    worst = audit.worst
    if not audit.tables:
        return Verdict("warning", "No table was looked at.", "The catalog has none. Check that it is the one that you mean.")
    if worst is None or worst == Severity.INFO:
        return Verdict("good", "No plaintext was found.", "Everything that was looked at is encrypted.")

    kinds = {finding.kind for finding in audit.findings}
    meant = {kind for kind in kinds if kind.is_plaintext} or {kind for kind in kinds if kind.severity == worst}
    concerned = sum(any(finding.kind in meant for finding in table.findings) for table in audit.tables)
    where = "" if len(audit.tables) == 1 else f" in {concerned:,} of {len(audit.tables):,} tables"

    if audit.has_plaintext:
        title = f"Plaintext was found{where}."
    else:
        what = {Severity.CRITICAL: "critical findings", Severity.ERROR: "errors", Severity.WARNING: "warnings"}[worst]
        title = f"No plaintext was found, but there are {what}{where}."

    return Verdict(worst.label, title, _first(audit))


def _first(audit: Audit) -> str:
    gravest = by_risk(audit)[0]
    first = by_severity(gravest.findings)[0].kind
    return f"Start with {gravest.table}. {first.title}: {first.advice[0].lower()}{first.advice[1:]}"


@dataclass(frozen=True)
class Figure:
    """One of the figures below the verdict. `parts` are shares of a bar: style and width in percent."""

    title: str
    value: str
    detail: str
    style: str
    parts: tuple[tuple[str, str, str], ...] = ()


def figures(audit: Audit) -> tuple[Figure, ...]:
    """Return what is encrypted, what is readable, the findings, and the next key that is due."""
    return _encrypted(audit), _readable(audit), _findings(audit), _next_key(audit)


def _encrypted(audit: Audit) -> Figure:
    total, encrypted = _sums(audit.tables)
    if not total:
        return Figure("Encrypted", "–", "no data files", "soft")
    share = encrypted / total
    style = "good" if share == 1 else "critical"
    detail = f"{bytes_shown(encrypted)} of {bytes_shown(total)} of data"
    return Figure("Encrypted", share_shown(share), detail, style, _parts((("good", encrypted), ("critical", total - encrypted))))


def _readable(audit: Audit) -> Figure:
    plain = [file for table in audit.tables for file in table.files if is_readable(file)]
    others = (FindingKind.PLAINTEXT_ORPHAN, FindingKind.PLAINTEXT_STATISTICS, FindingKind.UNKNOWN_CONTENT)
    number = len(plain) + sum(finding.kind in others for finding in audit.findings)
    unseen = sum(bool(UNSEEN & {finding.kind for finding in table.findings}) for table in audit.tables)
    detail = f"{counted(unseen, 'table was', 'tables were')} not looked into" if unseen else "in all tables and their folders"
    return Figure("Readable without a key", counted(number, "file", "files"), detail, "critical" if number else "good")


def _findings(audit: Audit) -> Figure:
    numbers = Counter(finding.severity.label for finding in audit.findings)
    detail = ", ".join(words for _, words in counts(audit.findings)) or "nothing to do"
    style = audit.worst.label if audit.worst else "good"
    return Figure("Findings", f"{len(audit.findings):,}", detail, style, _parts((each, numbers[each]) for each in SEVERITIES))


def _next_key(audit: Audit) -> Figure:
    due = [age for table in audit.tables for age in ages_of(table, 0, audit.moment) if age.due is not None]
    if not due:
        return Figure("Next key due", "–", "no key with a date", "soft")
    soonest = min(due, key=_due)
    days = math.floor((_due(soonest) - audit.moment) / dt.timedelta(days=1))
    value = f"{counted(-days, 'day', 'days')} ago" if days < 0 else "today" if days == 0 else f"in {counted(days, 'day', 'days')}"
    return Figure("Next key due", value, f"{soonest.action} {soonest.table}", soonest.style)


def _due(age: KeyAge) -> dt.datetime:
    return age.due or dt.datetime.max.replace(tzinfo=dt.UTC)


@dataclass(frozen=True)
class TableRow:
    """A row of the list of tables. `number` leads to its details; `risk` orders it."""

    number: int
    name: str
    style: str
    label: str
    chips: tuple[tuple[str, str], ...]
    share: str
    parts: tuple[tuple[str, str, str], ...]
    share_value: str
    files: str
    size: str
    size_value: int
    key: str
    key_shown: str
    due: str
    due_value: str
    is_overdue: bool
    change: str


def table_rows(tables: Sequence[TableAudit], now: dt.datetime, changes: AuditChanges | None) -> tuple[TableRow, ...]:
    """Return a row for each table."""
    changed = {} if changes is None else {each.table: each for each in changes.tables}
    rows = []
    for number, table in enumerate(tables):
        total, encrypted = _sums([table])
        due = min((age for age in ages_of(table, number, now) if age.due is not None), key=_due, default=None)
        worst = max((finding.severity for finding in table.findings), default=None)
        rows.append(
            TableRow(
                number=number,
                name=table.table,
                style=worst.label if worst else "good",
                label=worst.label if worst else "clean",
                chips=counts(table.findings),
                share=share_shown(encrypted / total) if total else "–",
                parts=_parts((("good", encrypted), ("critical", total - encrypted))),
                share_value=f"{encrypted / total:.6f}" if total else "-1",
                files=counted(len(table.files), "file", "files") if table.location else "",
                size=bytes_shown(total) if table.location else "–",
                size_value=total,
                key=table.key_id or "",
                key_shown=end_of(table.key_id) if table.key_id else "none" if table.location else "not known",
                due=day(due.due) if due and due.due else "–",
                due_value=f"{due.due.timestamp():.0f}" if due and due.due else "99999999999",
                is_overdue=due is not None and due.is_overdue,
                change=_change_shown(changed.get(table.table)),
            )
        )

    return tuple(rows)


def _change_shown(change: TableChanges | None) -> str:
    if change is None:
        return ""
    if change.state != TableChangeKind.CHANGED:
        return change.state.value
    parts = [f"{len(found):,} {what}" for found, what in ((change.new, "new"), (change.gone, "resolved")) if found]
    return ", ".join(parts) or "changed"


def counts(findings: Iterable[Finding]) -> tuple[tuple[str, str], ...]:
    """Return each severity that has findings, the most severe first, with their number in words."""
    numbers = Counter(finding.severity.label for finding in findings)
    return tuple((label, counted(numbers[label], label, _PLURALS[label])) for label in SEVERITIES if numbers[label])


def minute(moment: dt.datetime) -> str:
    """Return a moment as the page shows it, with its time zone."""
    return f"{moment.day} {moment:%B %Y, %H:%M} {moment.tzname()}"


def _sums(tables: Iterable[TableAudit]) -> tuple[int, int]:
    """Return bytes of data and delete files, and how many of them are encrypted."""
    partitions = [each for table in tables for each in table.partitions]
    return sum(each.bytes for each in partitions), sum(each.encrypted_bytes for each in partitions)


def _parts(numbers: Iterable[tuple[str, int]]) -> tuple[tuple[str, str, str], ...]:
    """Return the parts of a bar: style, left edge and width in percent. A part that is there is wide enough to be seen."""
    present = [(style, number) for style, number in numbers if number]
    total = sum(number for _, number in present)
    wide = [(style, max(number / total, 0.02)) for style, number in present]
    scale, left, parts = sum(width for _, width in wide), 0.0, []
    for style, width in wide:
        parts.append((style, f"{left * 100:.2f}%", f"{width / scale * 100:.2f}%"))
        left += width / scale
    return tuple(parts)
