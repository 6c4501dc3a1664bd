"""Text that others wrote, made fit to be shown on a terminal or in a page: the one place that does so.

Names and messages in metadata, manifests and file names may hold escape sequences that move the cursor, erase a line or rename a window,
characters that turn the direction of what follows (bidi overrides and isolates), and ones that cannot be seen. Each of them is shown as its
escape, `\\x1b` or `\\u202e`, as Python and JSON spell it; so is a line break, so that one value stays one line.

Numbers with their nouns and units are here too, so that the command and the page say them alike.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_BYTE_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_PLAIN: Final = re.compile(r"[\x20-\x7e]*")


def printable(text: object) -> str:
    """Return a value's text as one line in which nothing is hidden and nothing commands a terminal."""
    shown = str(text)
    if _PLAIN.fullmatch(shown):
        return shown
    return "".join(_escaped(each) if unicodedata.category(each) in _HIDDEN else each for each in shown)


def json_printable(text: str) -> str:
    """Return JSON with such characters as JSON's escapes. They stand in strings alone, so that it means the same."""
    return "".join(_json_escaped(each) if ord(each) > 0x7E and unicodedata.category(each) in _HIDDEN else each for each in text)


def counted(number: int, one: str, many: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else many}"


def bytes_shown(length: int) -> str:
    """Return a number of bytes with three significant digits."""
    value, unit = float(length), 0
    while value >= 1000 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{length} B" if unit == 0 else f"{value:.3g} {_BYTE_UNITS[unit]}"


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
