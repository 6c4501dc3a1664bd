"""One HTML page of an audit: verdict, and for each table the key tree, the coverage of its partitions, findings and files.

    page.py      what is on it
    page.html    the markup. Every value is escaped and printable: names and paths are others' words, never markup
    style.css    how it looks: light and dark as the reader's system says, on a wide screen, a narrow one, and paper

The page loads nothing: style and drawings are in it, there is no script, and its Content-Security-Policy forbids both to whatever a name in
a table may try. It holds file names, key ids and partition values, as the JSON report does, and no key.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Final

from tablecrypt.errors import MissingExtraError
from tablecrypt.maintenance._audit.findings import (
    Audit,
    AuditedFile,
    AuditedKek,
    Coverage,
    Finding,
    FindingKind,
    Severity,
    TableAudit,
    by_severity,
)
from tablecrypt.printable import bytes_shown, counted, printable

if TYPE_CHECKING:
    from jinja2 import Template

SHOWN_PARTITIONS: Final = 60
SHOWN_PLACES: Final = 40
SHOWN_FILES: Final = 2000
_LONGEST_MASTER_KEY: Final = 28
_VERDICTS: Final = {
    Severity.CRITICAL: ("critical", "Plaintext was found."),
    Severity.ERROR: ("error", "No plaintext was found, but something is not as it should be."),
    Severity.WARNING: ("warning", "No plaintext was found. Some things need care."),
    Severity.INFO: ("good", "No plaintext was found."),
}


def html_page(audit: Audit) -> str:
    """Return the page as text, to be written as UTF-8.

    Raises:
        MissingExtraError: Jinja2 is not installed.
    """
    return _template().render(
        name=audit.tables[0].table if len(audit.tables) == 1 else counted(len(audit.tables), "table", "tables"),
        moment=f"{audit.moment:%Y-%m-%d %H:%M} {audit.moment.tzname()}",
        verdict=_VERDICTS[audit.worst or Severity.INFO],
        counts=_counts(audit.findings),
        tables=[_table(table, audit.moment) for table in audit.tables],
    )


@cache
def _template() -> Template:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise MissingExtraError('a report in HTML needs the package Jinja2: pip install "tablecrypt[report]"') from error

    def shown(value: object) -> object:
        # What a macro made is markup already; everything else is text.
        return value if isinstance(value, Markup) else printable(value)

    environment = Environment(
        loader=PackageLoader(__package__, "."), autoescape=True, finalize=shown, undefined=StrictUndefined, keep_trailing_newline=True
    )
    return environment.get_template("page.html")


@dataclass(frozen=True)
class _KekRow:
    """A row of the key tree: a KEK and how many manifest lists, manifests and files open through it; or what no key opens."""

    title: str
    name: str
    state: str
    mark: str
    counts: tuple[int, int, int]
    detail: str = ""
    is_plain: bool = False


@dataclass(frozen=True)
class _MasterKey:
    """A box of the key tree, and the rows of the KEKs that it wraps."""

    title: str
    name: str
    state: str
    mark: str
    rows: tuple[int, ...]


@dataclass(frozen=True)
class _KeyTree:
    label: str
    masters: tuple[_MasterKey, ...]
    rows: tuple[_KekRow, ...]


@dataclass(frozen=True)
class _Bar:
    """The coverage of one partition."""

    name: str
    percent: str
    width: str
    is_whole: bool
    files: str
    size: str


@dataclass(frozen=True)
class _FindingGroup:
    """The findings of one kind."""

    title: str
    advice: str
    severity: str
    number: int
    places: tuple[tuple[str, str], ...]
    more: int


@dataclass(frozen=True)
class _File:
    location: str
    kind: str
    style: str
    encrypted_as: str
    key: str
    keks: str
    age: str


@dataclass(frozen=True)
class _Table:
    """What is on the page of one table. Each fact has a name, a value, and whether that is an identifier."""

    name: str
    counts: list[tuple[str, int]]
    facts: tuple[tuple[str, str, bool], ...]
    tree: _KeyTree | None
    partitions: tuple[_Bar, ...]
    more_partitions: str
    findings: tuple[_FindingGroup, ...]
    number_of_files: str
    files: tuple[_File, ...]
    more_files: int


def _table(audit: TableAudit, now: dt.datetime) -> _Table:
    ordered = sorted(audit.partitions, key=lambda each: (each.share, each.partition))
    bars = ordered[: max(SHOWN_PARTITIONS, sum(each.share < 1 for each in ordered))]
    more = len(ordered) - len(bars)
    return _Table(
        name=audit.table,
        counts=_counts(audit.findings),
        facts=tuple(_facts(audit)) if audit.location else (),
        tree=_key_tree(audit, now) if audit.keks or audit.files else None,
        partitions=tuple(map(_bar, bars)),
        more_partitions=counted(more, "more partition is", "more partitions are") if more else "",
        findings=tuple(_group(kind, list(found)) for kind, found in groupby(by_severity(audit.findings), key=lambda each: each.kind)),
        number_of_files=counted(len(audit.files), "file", "files"),
        files=tuple(_file(file, now) for file in audit.files[:SHOWN_FILES]),
        more_files=max(0, len(audit.files) - SHOWN_FILES),
    )


def _counts(findings: Iterable[Finding]) -> list[tuple[str, int]]:
    """Return how many findings there are of each severity, the gravest first."""
    numbers = Counter(finding.severity for finding in findings)
    return [(severity.label, numbers[severity]) for severity in reversed(Severity) if numbers[severity]]


def _facts(audit: TableAudit) -> Iterable[tuple[str, str, bool]]:
    kinds = Counter(file.signature.value for file in audit.files)
    lengths = Counter(file.key_length for file in audit.files if file.key_length is not None)
    facts = (
        ("Master key", audit.key_id or "none", audit.key_id is not None),
        (
            "Data keys",
            ", ".join(f"{each * 8} bits in {counted(number, 'file', 'files')}" for each, number in sorted(lengths.items())),
            False,
        ),
        ("Snapshots", f"{audit.snapshots:,}", False),
        ("Files", ", ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items())), False),
        ("Bytes", bytes_shown(sum(file.length or 0 for file in audit.files)), False),
        ("Location", audit.location, True),
        ("Metadata", audit.metadata_location, True),
    )
    return (fact for fact in facts if fact[1])


def _key_tree(audit: TableAudit, now: dt.datetime) -> _KeyTree:
    """Which master key wraps which KEKs, and how much opens through each."""
    masters = list(dict.fromkeys(kek.encrypted_by_id or "nobody" for kek in audit.keks))
    keks = sorted(audit.keks, key=lambda kek: (masters.index(kek.encrypted_by_id or "nobody"), kek.created is None, str(kek.created)))
    past = {finding.where for finding in audit.findings if finding.kind == FindingKind.KEK_PAST_LIFE}
    rows = [_kek_row(kek, now, kek.key_id in past) for kek in keks]
    plain = [file for file in audit.files if file.key_length is None]
    if plain:
        rows.append(_plain_row(plain))
    boxes = tuple(
        _master_key(name, tuple(row for row, kek in enumerate(keks) if (kek.encrypted_by_id or "nobody") == name), name == audit.key_id)
        for name in masters
    )
    return _KeyTree(f"Key tree: {len(masters)} master key, {len(keks)} KEKs, {len(plain)} files without a key", boxes, tuple(rows))


def _kek_row(kek: AuditedKek, now: dt.datetime, is_past: bool) -> _KekRow:
    mark, state = _state(kek, is_past)
    length = "unknown length" if kek.key_length is None else f"{kek.key_length * 8} bits"
    title = f"KEK {kek.key_id}, wrapped by {kek.encrypted_by_id}, {length}, {_age(kek.created, now)}, {state}"
    counts = (kek.lists, kek.manifests, kek.files)
    return _KekRow(title, _short(kek.key_id, 24), state, mark, counts, f"{length} · {_age(kek.created, now)}")


def _state(kek: AuditedKek, is_past: bool) -> tuple[str, str]:
    if is_past:
        return "warning", "past its life, still needed"
    if kek.wraps_new:
        return "good", "wraps new keys"
    if kek.lists == 0:
        return "info", "opens nothing any more"
    return "info", "opens older snapshots"


def _plain_row(plain: list[AuditedFile]) -> _KekRow:
    kinds = Counter(file.kind for file in plain)
    lists, manifests = kinds["manifest list"], kinds["manifest"]
    counts = (lists, manifests, len(plain) - lists - manifests)
    state = "plaintext, or below what does not open"
    return _KekRow("Files that no key opens", "no key", state, "critical", counts, is_plain=True)


def _master_key(name: str, rows: tuple[int, ...], is_tables: bool) -> _MasterKey:
    mark, state = ("good", "encryption.key-id of the table") if is_tables else ("critical", "not the table's key")
    shown = name if len(name) <= _LONGEST_MASTER_KEY else f"…{name[-_LONGEST_MASTER_KEY:]}"
    return _MasterKey(f"Master key {name}, {state}", shown, state, mark, rows)


def _bar(each: Coverage) -> _Bar:
    percent = f"{each.share:.0%}" if each.share in (0, 1) else f"{each.share * 100:.1f}%"
    files = f"{each.encrypted_files:,} of {each.files:,}"
    return _Bar(each.partition, percent, f"{each.share * 100:.2f}", each.share == 1, files, bytes_shown(each.bytes))


def _group(kind: FindingKind, found: list[Finding]) -> _FindingGroup:
    places = tuple((each.where, each.message) for each in found[:SHOWN_PLACES])
    return _FindingGroup(kind.title, kind.advice, kind.severity.label, len(found), places, max(0, len(found) - SHOWN_PLACES))


def _file(file: AuditedFile, now: dt.datetime) -> _File:
    return _File(
        location=file.location,
        kind=file.kind,
        style="good" if file.signature.is_ciphertext and file.key_length is not None else "critical",
        encrypted_as=file.signature.value,
        key="none" if file.key_length is None else f"{file.key_length * 8} bits",
        keks=", ".join(map(_short, file.keks)),
        age=_age(file.written, now),
    )


def _age(moment: dt.datetime | None, now: dt.datetime) -> str:
    return "unknown age" if moment is None else f"{counted((now - moment).days, 'day', 'days')} old"


def _short(key_id: str, shown: int = 12) -> str:
    return key_id if len(key_id) <= shown else f"{key_id[:shown]}…"
