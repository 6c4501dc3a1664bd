"""Small pieces of HTML. Whatever comes from a table goes through `text`: names and paths are others' words, never markup."""

from __future__ import annotations

import datetime as dt
import html

from tablecrypt.printable import printable

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def text(value: object) -> str:
    """Return a value as text that no browser takes for markup, in which nothing is hidden or turned around."""
    return html.escape(printable(value), quote=True)


def chip(style: str, label: str) -> str:
    """Return a small coloured label."""
    return f'<span class="chip {style}">{text(label)}</span>'


def count(number: int, one: str, many: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else many}"


def size(length: int) -> str:
    """Return a number of bytes with three significant digits."""
    value, unit = float(length), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{length} bytes" if unit == 0 else f"{value:.3g} {_UNITS[unit]}"


def age(moment: dt.datetime | None, now: dt.datetime) -> str:
    """Return how long ago something was, in days."""
    return "unknown age" if moment is None else count((now - moment).days, "day", "days") + " old"


def short(key_id: str, shown: int = 12) -> str:
    """Return the beginning of a key id."""
    return key_id if len(key_id) <= shown else f"{key_id[:shown]}…"
