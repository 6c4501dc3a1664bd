"""The bars of docs/performance.md and of README.md: of each case the median ratio, the rounds from the lowest to the highest, and the aim.

name  ██████████──┼───  0.85      the bar ends at the median, the line at the rounds' ends, the mark stands at the aim
                 ┊
        ← faster ┊ slower →        1: both sides take as long
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Final

BAR_COLOR: Final = "#5b8fdf"
OTHER_COLOR: Final = "#b4400f"
"""Colours of an audit's page (tablecrypt/maintenance/report/style.css), as far as they can be told apart on white."""
_WIDTH: Final = 640
_ROW: Final = 22
_LETTER: Final = 6.2
"""How wide a letter is, about."""
_AFTER: Final = 70


@dataclass(frozen=True)
class Bar:
    """One case: tablecrypt's time by the other side's, as the median and the lowest and highest round."""

    name: str
    median: float
    low: float
    high: float
    aim: float | None = None


def bars_svg(bars: list[Bar], title: str, other: str) -> str:
    """Return the figure. `other` names the side that takes 1."""
    left = 20 + round(_LETTER * max(len(bar.name) for bar in bars))
    scale = (_WIDTH - left - _AFTER) / max(1.2, *(value for bar in bars for value in (bar.high, bar.aim or 0)))
    top = 50
    bottom, one = top + len(bars) * _ROW, left + scale
    height = bottom + 30
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img"'
    parts = [
        f'{head} font-family="Inter, Segoe UI, Roboto, Helvetica Neue, sans-serif" font-size="12" fill="#17191e">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
        f'<text x="14" y="22" font-size="14" font-weight="bold">{escape(title)}</text>',
        f'<line x1="{one:.1f}" x2="{one:.1f}" y1="{top - 6}" y2="{bottom}" stroke="{OTHER_COLOR}" stroke-dasharray="4 3"/>',
        f'<text x="{one:.1f}" y="{top - 10}" text-anchor="middle" fill="{OTHER_COLOR}">{escape(other)}</text>',
        f'<text x="{one - 8:.1f}" y="{bottom + 16}" text-anchor="end" fill="#5b616e">← faster</text>',
        f'<text x="{one + 8:.1f}" y="{bottom + 16}" fill="#5b616e">slower →</text>',
    ]
    for at, bar in enumerate(bars):
        parts += _bar(bar, top + at * _ROW, left, scale)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(bar: Bar, y: float, left: float, scale: float) -> Iterator[str]:
    yield f'<text x="{left - 10}" y="{y + 15}" text-anchor="end">{escape(bar.name)}</text>'
    yield f'<rect x="{left}" y="{y + 4}" width="{bar.median * scale:.1f}" height="14" rx="2" fill="{BAR_COLOR}"/>'
    ends = f'x1="{left + bar.low * scale:.1f}" x2="{left + bar.high * scale:.1f}" y1="{y + 11}" y2="{y + 11}"'
    yield f'<line {ends} stroke="#17191e" stroke-width="1.5"/>'
    yield f'<text x="{left + bar.high * scale + 8:.1f}" y="{y + 15}">{bar.median:.2f}</text>'
    if bar.aim is not None:
        x = left + bar.aim * scale
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y + 1}" y2="{y + 21}" stroke="#c0182b" stroke-width="2"/>'
