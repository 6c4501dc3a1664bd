"""The keys of all tables: which master key wraps which KEKs, which snapshots open through these, and how old every key is for its period.

The periods are those that the audit holds keys against (_audit/table_audit.py): a KEK wraps new keys for the table's
encryption.kek-lifespan-ms and opens old ones for three years more; a DEK opens its one file for five years. Of a master key only the key
service knows the age.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tablecrypt.maintenance._audit.findings import AuditedColumnKek, AuditedKek, AuditedSnapshot, FindingKind, TableAudit
from tablecrypt.maintenance._audit.table_audit import DEK_LIFE, NEAR, RECIPIENT_YEARS
from tablecrypt.printable import bytes_shown, counted

SHOWN_SNAPSHOTS: Final = 20
_NO_KEY: Final = ""


@dataclass(frozen=True)
class KeyAge:
    """How old a key is for its period.

    Attributes:
        number, table: which table's.
        name, full: the key's id, cut and whole; or how many keys they are.
        kind: "KEK", "DEK".
        style, state: how it stands.
        age: as text; `days` as a number, negative where it is not known.
        period: as text: what it may do and for how long.
        filled, first: percent of the whole period that is over, and that its first part is.
        due: when something has to be done; None where nothing has.
        action: what that is.
        is_overdue: whether that moment is over.
    """

    number: int
    table: str
    name: str
    full: str
    kind: str
    style: str
    state: str
    age: str
    days: int
    period: str
    filled: str
    first: str
    due: dt.datetime | None
    action: str
    is_overdue: bool

    @property
    def due_shown(self) -> str:
        """The day that it is due."""
        return "–" if self.due is None else day(self.due)

    @property
    def due_value(self) -> str:
        """What to sort by."""
        return "99999999999" if self.due is None else f"{self.due.timestamp():.0f}"


@dataclass(frozen=True)
class TreeKek:
    """A KEK in the tree, with the snapshots that open through it. The counts are of manifest lists, manifests and files."""

    name: str
    full: str
    style: str
    state: str
    counts: tuple[tuple[int, str], ...]
    snapshots: tuple[tuple[str, str, str], ...]
    more: int


@dataclass(frozen=True)
class TreeTable:
    """A table below a master key; `is_of_columns` where the key is that of protected columns, and not the table's."""

    number: int
    name: str
    note: str
    style: str
    keks: tuple[TreeKek, ...]
    is_of_columns: bool = False


@dataclass(frozen=True)
class TreeMaster:
    """A master key, and the tables whose KEKs it wraps; `is_key` is false for those that no key protects."""

    name: str
    is_key: bool
    summary: str
    tables: tuple[TreeTable, ...]


def key_ages(tables: Sequence[TableAudit], now: dt.datetime) -> tuple[KeyAge, ...]:
    """Return the ages of all keys, the one that is due first before the others."""
    ages = [age for number, table in enumerate(tables) for age in ages_of(table, number, now)]
    return tuple(sorted(ages, key=lambda each: (each.due is None, each.due_value.zfill(12), each.table, each.full)))


def ages_of(table: TableAudit, number: int, now: dt.datetime) -> Iterator[KeyAge]:
    """Yield the ages of the KEKs of a table, and that of its oldest DEK."""
    for kek in table.keks:
        yield _kek_age(table, number, kek, now)
    written = [file.written for file in table.files if file.key_length is not None and file.written is not None]
    if written:
        yield _dek_age(table, number, min(written), sum(file.key_length is not None for file in table.files), now)


def _kek_age(table: TableAudit, number: int, kek: AuditedKek, now: dt.datetime) -> KeyAge:
    life = table.kek_lifespan or dt.timedelta(0)
    end = life + RECIPIENT_YEARS
    style, state = kek_state(table, kek)
    span = f"wraps for {_days(life)}, opens for {_days(end)}"
    if kek.created is None:
        # Without a credible date nothing can be due: the state says what is wrong.
        return KeyAge(
            number, table.table, short(kek.key_id), kek.key_id, "KEK", style, state, "unknown", -1, span, "0%", "0%", None, "", False
        )

    age = now - kek.created
    due, action = (_after(kek.created, life), "a new KEK for") if kek.wraps_new else (_after(kek.created, end), "retire a KEK of")

    return KeyAge(
        number=number,
        table=table.table,
        name=short(kek.key_id),
        full=kek.key_id,
        kind="KEK",
        style=style,
        state=state,
        age=_days(age),
        days=_number(age),
        period=span,
        filled=_percent(age / end),
        first=_percent(life / end),
        # Nothing depends any more on a KEK that opens nothing and wraps nothing.
        due=due if kek.wraps_new or kek.lists else None,
        action=action,
        is_overdue=due < now and (kek.wraps_new or kek.lists > 0),
    )


def _dek_age(table: TableAudit, number: int, oldest: dt.datetime, keys: int, now: dt.datetime) -> KeyAge:
    age = now - oldest
    style, state = (
        ("warning", "past its life") if age > DEK_LIFE else ("info", "near its end") if age >= NEAR * DEK_LIFE else ("good", "in order")
    )
    return KeyAge(
        number=number,
        table=table.table,
        name=counted(keys, "data key", "data keys"),
        full="the age of the oldest",
        kind="DEK",
        style=style,
        state=state,
        age=_days(age),
        days=_number(age),
        period=f"opens for {_days(DEK_LIFE)}",
        filled=_percent(age / DEK_LIFE),
        first="100%",
        due=_after(oldest, DEK_LIFE),
        action="re-encrypt",
        is_overdue=age > DEK_LIFE,
    )


def kek_state(table: TableAudit, kek: AuditedKek) -> tuple[str, str]:
    """Return how a KEK stands, by what the audit found of it: a style, and a few words."""
    found = {finding.kind for finding in table.findings if finding.where == kek.key_id}
    if FindingKind.KEY_ID_DIFFERS in found:
        return "error", "another master key"
    if kek.created is None or FindingKind.KEK_AHEAD in found:
        return "error", "date is not credible"
    if FindingKind.KEK_PAST_LIFE in found:
        return "warning", "past its life, still needed"
    if kek.key_length is None:
        return "error", "does not open"
    if kek.wraps_new:
        return ("info", "wraps new keys, near its end") if FindingKind.KEK_NEAR_END in found else ("good", "wraps new keys")

    return ("info", "opens older snapshots") if kek.lists else ("soft", "opens nothing any more")


def key_tree(tables: Sequence[TableAudit]) -> tuple[TreeMaster, ...]:
    """Return the tree: master keys by name, then what no key protects."""
    below: defaultdict[str, list[TreeTable]] = defaultdict(list)
    sizes: Counter[str] = Counter()
    for number, table in enumerate(tables):
        for master, branch in _branches(table, number):
            below[master].append(branch)
            # A column's master key opens none of the files without the table's.
            sizes[master] += 0 if branch.is_of_columns else sum(file.length or 0 for file in table.files)

    masters = sorted(below, key=lambda name: (name == _NO_KEY, name))

    return tuple(_master(name, tuple(below[name]), sizes[name]) for name in masters)


def _branches(table: TableAudit, number: int) -> Iterator[tuple[str, TreeTable]]:
    if not table.location:
        # Nothing is known of a table that was not opened, not even whether a key protects it.
        return
    if table.data_key_length is None:
        yield _NO_KEY, TreeTable(number, table.table, counted(len(table.files), "file", "files"), "critical", ())
        return

    own = table.key_id or _NO_KEY
    masters = sorted({kek.encrypted_by_id or _NO_KEY for kek in table.keks} | {own}, key=lambda name: (name != own, name))

    for master in masters:
        keks = tuple(_tree_kek(table, kek) for kek in _by_age(table) if (kek.encrypted_by_id or _NO_KEY) == master)
        if master == own:
            clear = sum(not each.is_encrypted for each in table.snapshots)
            note = "no KEK yet" if not keks else counted(clear, "snapshot has no key", "snapshots have no key") if clear else ""
            yield master, TreeTable(number, table.table, note, "critical" if clear else "soft", keks)
        else:
            yield master, TreeTable(number, table.table, "not the master key of the table", "error", keks)

    yield from _column_branches(table, number)


def _column_branches(table: TableAudit, number: int) -> Iterator[tuple[str, TreeTable]]:
    for master in sorted({kek.encrypted_by_id or _NO_KEY for kek in table.column_keks}):
        keks = [kek for kek in table.column_keks if (kek.encrypted_by_id or _NO_KEY) == master]
        columns = sorted({column for kek in keks for column in kek.columns})
        note, style = f"protected columns: {', '.join(columns) or 'none any more'}", "soft"
        if master == (table.key_id or _NO_KEY):
            note, style = "column KEK under the table's own master key", "error"
        yield master, TreeTable(number, table.table, note, style, tuple(map(_tree_column_kek, keks)), is_of_columns=True)


def _tree_column_kek(kek: AuditedColumnKek) -> TreeKek:
    count = len(kek.columns)
    created = "date is not credible" if kek.created is None else f"column KEK of {day(kek.created)}"
    style = "error" if kek.created is None else "info" if count else "soft"
    counts = ((count, "protected column" if count == 1 else "protected columns"),)
    return TreeKek(short(kek.key_id), kek.key_id, style, created, counts, (), 0)


def _by_age(table: TableAudit) -> list[AuditedKek]:
    """Return KEKs, the youngest first."""
    first = dt.datetime.min.replace(tzinfo=dt.UTC)
    return sorted(table.keks, key=lambda kek: (kek.created or first, kek.key_id), reverse=True)


def _tree_kek(table: TableAudit, kek: AuditedKek) -> TreeKek:
    below = [each for each in reversed(table.snapshots) if each.kek == kek.key_id]
    style, state = kek_state(table, kek)
    numbers = ((kek.lists, "manifest list", "manifest lists"), (kek.manifests, "manifest", "manifests"), (kek.files, "file", "files"))
    shown = tuple(_snapshot(each) for each in below[:SHOWN_SNAPSHOTS])

    return TreeKek(
        name=short(kek.key_id),
        full=kek.key_id,
        style=style,
        state=state,
        counts=tuple((number, one if number == 1 else many) for number, one, many in numbers),
        snapshots=shown,
        more=len(below) - len(shown),
    )


def _snapshot(each: AuditedSnapshot) -> tuple[str, str, str]:
    return str(each.snapshot_id), f"{each.made:%Y-%m-%d %H:%M}", ", ".join(each.refs)


def _master(name: str, tables: tuple[TreeTable, ...], size: int) -> TreeMaster:
    readable = sum(not table.is_of_columns for table in tables)
    if not readable and name != _NO_KEY:
        columns = f"protected columns of {counted(len(tables), 'table', 'tables')}"
        return TreeMaster(name, True, f"Whoever may unwrap with this key and reads the tables sees the {columns}.", tables)

    number = counted(readable, "table", "tables")
    if name == _NO_KEY:
        return TreeMaster("No key", False, f"Whoever can read the storage can read {number}, {bytes_shown(size)}.", tables)

    return TreeMaster(
        name, True, f"Whoever may unwrap with this key, and can read the storage, can read {number}, {bytes_shown(size)}.", tables
    )


def short(key_id: str, shown: int = 12) -> str:
    """Return the beginning of an id."""
    return key_id if len(key_id) <= shown + 2 else f"{key_id[:shown]}…"


def end_of(key_id: str, shown: int = 36) -> str:
    """Return the end of a master key's id, which tells one from another; an ARN begins like its neighbours."""
    if len(key_id) <= shown:
        return key_id
    last = key_id.rpartition("/")[2]
    return f"…/{last}" if 0 < len(last) <= shown else f"…{key_id[-shown:]}"


def day(moment: dt.datetime) -> str:
    """Return a day as the page shows it."""
    return f"{moment:%Y-%m-%d}"


def _after(moment: dt.datetime, span: dt.timedelta) -> dt.datetime:
    """Return the moment so long after another; the last one that there is where metadata or a store says a time shortly before that."""
    try:
        return moment + span
    except OverflowError:
        return dt.datetime.max.replace(tzinfo=dt.UTC)


def _number(span: dt.timedelta) -> int:
    return math.floor(span / dt.timedelta(days=1))


def _days(span: dt.timedelta) -> str:
    return counted(_number(span), "day", "days")


def _percent(share: float) -> str:
    return f"{min(max(share, 0), 1) * 100:.2f}%"
