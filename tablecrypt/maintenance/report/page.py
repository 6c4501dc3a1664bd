"""One HTML page of an audit, for people to keep. It holds no data for its script: that reads what the page shows.

The page holds file names, key ids and partition values, as the JSON report does, and no key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tablecrypt.maintenance._audit.changes import AuditChanges, ChangedFinding
from tablecrypt.maintenance._audit.findings import Audit, FindingKind
from tablecrypt.maintenance.report.details import details_of
from tablecrypt.maintenance.report.exposure import by_design, exposures
from tablecrypt.maintenance.report.key_tables import day, key_ages, key_tree
from tablecrypt.maintenance.report.markup import rendered
from tablecrypt.maintenance.report.overview import by_risk, figures, minute, share_shown, table_rows, verdict
from tablecrypt.printable import counted

SHOWN_CHANGES: Final = 200
_TITLES: Final = {kind.code: kind.title for kind in FindingKind}


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
        shown = tuple((style, title, len(found), tuple(map(_change, _cut(found)))) for style, title, found in groups if found)
        shares = None in (each.encrypted_before, each.encrypted_now) or each.encrypted_before == each.encrypted_now
        share = "" if shares else f"{_share(each.encrypted_before)} → {_share(each.encrypted_now)}"
        tables.append(_TableChange(each.table, numbers.get(each.table), each.state.value, share, shown, each.keys))

    return _Changes(day(changes.since), len(changes.new), len(changes.gone), tuple(tables))


def _cut(found: tuple[ChangedFinding, ...]) -> Iterable[ChangedFinding]:
    return found[:SHOWN_CHANGES]


def _change(each: ChangedFinding) -> _Change:
    return _Change(each.severity, _TITLES.get(each.kind, each.kind), each.where, each.message, each.before or "")


def _share(share: float | None) -> str:
    return "no data" if share is None else share_shown(share)
