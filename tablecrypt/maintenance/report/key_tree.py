"""The key tree as a drawing: which master key wraps which KEKs, and how much opens through each.

    master key ─┬─ KEK ── manifest lists ── manifests ── files
                ├─ KEK ── …
    no key      ┴─ ─ ─ ─  what is there in plaintext

One row for each KEK; sizes are units of the drawing, which scales with the page.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

from tablecrypt.maintenance._audit.findings import AuditedFile, AuditedKek, FindingKind, TableAudit
from tablecrypt.maintenance.report.markup import age, short, text

WIDTH: Final = 1000
_ROW: Final = 82
_HEADER: Final = 26
_BOX: Final = 62
_MASTER: Final = (0, 210)
_KEK: Final = (264, 270)
_COUNTS: Final = ((588, 116, "manifest lists"), (736, 116, "manifests"), (884, 116, "files"))
_LONGEST_NAME: Final = 28


def key_tree(audit: TableAudit, now: dt.datetime) -> str:
    """Return the drawing as inline SVG."""
    masters = list(dict.fromkeys(kek.master_key_id or "nobody" for kek in audit.keks))
    keks = sorted(audit.keks, key=lambda kek: (masters.index(kek.master_key_id or "nobody"), kek.created is None, str(kek.created)))
    past = {finding.where for finding in audit.findings if finding.kind == FindingKind.KEK_PAST_LIFE}
    parts = [_header()]
    for row, kek in enumerate(keks):
        parts.append(_kek_row(kek, _top(row), now, kek.key_id in past))
    for master in masters:
        rows = [row for row, kek in enumerate(keks) if (kek.master_key_id or "nobody") == master]
        parts.append(_master(master, rows, master == audit.key_id))
    plain = [file for file in audit.files if file.key_length is None]
    rows_drawn = len(keks)
    if plain:
        parts.append(_plain_row(plain, _top(rows_drawn)))
        rows_drawn += 1
    height = _HEADER + max(1, rows_drawn) * _ROW - (_ROW - _BOX)
    label = f"Key tree: {len(masters)} master key, {len(keks)} KEKs, {len(plain)} files without a key"
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="Key tree, scrolls sideways">'
        f'<svg viewBox="-1 -1 {WIDTH + 2} {height + 2}" role="img" aria-label="{text(label)}">{"".join(parts)}</svg></div>'
    )


def _top(row: int) -> int:
    return _HEADER + row * _ROW


def _header() -> str:
    columns = [(_MASTER[0], "master key"), (_KEK[0], "key encryption keys"), *((x, name) for x, _, name in _COUNTS)]
    return "".join(f'<text class="head-row" x="{x}" y="12">{name}</text>' for x, name in columns)


def _kek_row(kek: AuditedKek, top: int, now: dt.datetime, is_past: bool) -> str:
    mark, state = _state(kek, is_past)
    length = "unknown length" if kek.key_length is None else f"{kek.key_length * 8} bits"
    x, width = _KEK
    title = f"KEK {kek.key_id}, wrapped by {kek.master_key_id}, {length}, {age(kek.created, now)}, {state}"
    return (
        f"<g><title>{text(title)}</title>{_box(x, top, width)}"
        f'<rect class="mark-{mark}" x="{x}" y="{top}" width="5" height="{_BOX}" rx="2"/>'
        f'<text class="ink mono" x="{x + 18}" y="{top + 20}">{text(short(kek.key_id, 24))}</text>'
        f'<text class="small" x="{x + 18}" y="{top + 37}">{text(length)} · {text(age(kek.created, now))}</text>'
        f'<text class="mark-{mark}" font-size="11.5" x="{x + 18}" y="{top + 53}">{text(state)}</text></g>'
        + _counts((kek.lists, kek.manifests, kek.files), top, dashed=False)
    )


def _state(kek: AuditedKek, is_past: bool) -> tuple[str, str]:
    if is_past:
        return "warning", "past its life, still needed"
    if kek.wraps_new:
        return "good", "wraps new keys"
    if kek.lists == 0:
        return "info", "opens nothing any more"
    return "info", "opens older snapshots"


def _plain_row(plain: list[AuditedFile], top: int) -> str:
    lists = sum(file.kind == "manifest list" for file in plain)
    manifests = sum(file.kind == "manifest" for file in plain)
    x, width = _KEK
    return (
        f"<g><title>Files that no key opens</title>{_box(x, top, width, dashed=True)}"
        f'<rect class="mark-critical" x="{x}" y="{top}" width="5" height="{_BOX}" rx="2"/>'
        f'<text class="mark-critical" x="{x + 18}" y="{top + 27}" font-weight="600">no key</text>'
        f'<text class="small" x="{x + 18}" y="{top + 46}">plaintext, or below what does not open</text></g>'
        + _counts((lists, manifests, len(plain) - lists - manifests), top, dashed=True)
    )


def _counts(numbers: tuple[int, int, int], top: int, dashed: bool) -> str:
    parts: list[str] = []
    middle, left = top + _BOX // 2, _KEK[0] + _KEK[1]
    for (x, width, _), number in zip(_COUNTS, numbers, strict=True):
        parts.append(_wire(left, middle, x, middle, dashed))
        parts.append(_box(x, top, width, dashed))
        parts.append(f'<text class="count" x="{x + width / 2}" y="{middle + 6}" text-anchor="middle">{number:,}</text>')
        left = x + width
    return "".join(parts)


def _master(name: str, rows: list[int], is_tables: bool) -> str:
    first, last = _top(rows[0]), _top(rows[-1])
    top = (first + last) // 2
    x, width = _MASTER
    mark, state = ("good", "encryption.key-id of the table") if is_tables else ("critical", "not the table's key")
    middle = top + _BOX // 2
    wires = "".join(_wire(x + width, middle, _KEK[0], _top(row) + _BOX // 2) for row in rows)
    shown = name if len(name) <= _LONGEST_NAME else f"…{name[-_LONGEST_NAME:]}"
    return (
        f"<g><title>{text(f'Master key {name}, {state}')}</title>{wires}{_box(x, top, width)}"
        f'<rect class="mark-{mark}" x="{x}" y="{top}" width="5" height="{_BOX}" rx="2"/>'
        f'<text class="ink" font-weight="600" x="{x + 18}" y="{top + 27}">{text(shown)}</text>'
        f'<text class="small" x="{x + 18}" y="{top + 46}">{text(state)}</text></g>'
    )


def _box(x: int, y: int, width: int, dashed: bool = False) -> str:
    style = "box dashed" if dashed else "box"
    return f'<rect class="{style}" x="{x}" y="{y}" width="{width}" height="{_BOX}" rx="8"/>'


def _wire(x1: int, y1: int, x2: int, y2: int, dashed: bool = False) -> str:
    bend = (x1 + x2) / 2
    style = "wire dashed" if dashed else "wire"
    return f'<path class="{style}" d="M{x1} {y1} C{bend} {y1} {bend} {y2} {x2} {y2}"/>'
