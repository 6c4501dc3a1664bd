"""Text that others wrote, made fit to be shown on a terminal or in a page: the one place that does so.

Names and messages in metadata, manifests and file names may hold escape sequences that move the cursor, erase a line or rename a window,
characters that turn the direction of what follows (bidi overrides and isolates), and ones that cannot be seen. Each of them is shown as its
escape, `\\x1b` or `\\u202e`, as Python and JSON spell it; so is a line break, so that one value stays one line.

Results as JSON, and numbers with their nouns and units, are made here too, so that functions, the command and the page say them alike.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import re
import shlex
import unicodedata
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_BYTE_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of characters that command a terminal, or cannot be seen."""
_EMPTY: Final = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Letters and marks that cannot be seen either: the others of Unicode's Default_Ignorable_Code_Point, and the empty Braille pattern."""
_PLAIN: Final = re.compile(r"[\x20-\x7e]*")


def printable(text: object) -> str:
    """Return a value's text as one line in which nothing is hidden and nothing commands a terminal."""
    shown = str(text)
    if _PLAIN.fullmatch(shown):
        return shown
    return "".join(_escaped(each) if _is_hidden(each) else each for each in shown)


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN or _EMPTY.match(character) is not None


def one_line(text: object) -> str:
    """Return a value's text with a space in the place of line breaks and indents. What else it holds stays: it is not `printable` yet."""
    return " ".join(str(text).split())


def shell_word(text: str) -> str:
    """Return text as one word of a command line that people copy from a message: what others wrote must not be a command of its own."""
    quoted = shlex.quote(text)
    # Marks where the shell needs none show people where a location ends.
    return quoted if quoted != text else f"'{text}'"


def sql_string(text: str) -> str:
    """Return text as a string of Spark SQL, for the same purpose."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def json_printable(text: str) -> str:
    """Return JSON with such characters as JSON's escapes. They occur in strings only, so the meaning does not change."""
    return "".join(_json_escaped(each) if ord(each) > 0x7E and _is_hidden(each) else each for each in text)


def json_form(value: Any) -> Any:
    """Return a result as JSON's types. A class with a form of its own has a method `to_json`."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return json_fields(value)
    if isinstance(value, Mapping):
        return {str(name): json_form(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_form(each) for each in value]
    if isinstance(value, (dt.datetime, dt.date)):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value

    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def json_fields(value: DataclassInstance) -> dict[str, Any]:
    """Return all fields of a dataclass as JSON's types, and the properties that it `also_says`, by their names there."""
    names = {field.name: field.name for field in dataclasses.fields(value)} | getattr(value, "also_says", {})
    return {name: json_form(getattr(value, attribute)) for name, attribute in names.items()}


@dataclasses.dataclass(frozen=True)
class AsJson:
    """What an operation returns."""

    def to_json(self) -> dict[str, Any]:
        """Return all fields, and what the class `also_says`, as JSON's types."""
        return json_fields(self)


_SHOWN: Final = "shown"


@dataclasses.dataclass(frozen=True)
class Shown:
    """How people see a field of a result below the sentence that sums it up. Fields that are empty or zero are left out.

    Attributes:
        label: what stands before the value.
        unit: "bytes" and "count" for numbers that are so; others are shown as they are, such as ids.
        is_whole: whether a list is shown to its end, and not only its first items.
    """

    label: str
    unit: str = ""
    is_whole: bool = False


def shown(label: str, unit: str = "", is_whole: bool = False) -> dict[str, Shown]:
    """Return the metadata of a dataclass's field that people see: `field(metadata=shown("new KEK"))`."""
    return {_SHOWN: Shown(label, unit, is_whole)}


def shown_fields(result: DataclassInstance) -> Iterator[tuple[Shown, Any]]:
    """Yield the fields of a result that people see and that have something to say."""
    for field in dataclasses.fields(result):
        value = getattr(result, field.name)
        if _SHOWN in field.metadata and value:
            yield field.metadata[_SHOWN], value


def counted(number: int, one: str, many: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else many}"


def local_moment(moment: dt.datetime) -> str:
    """Return a moment for people: in local time, with its offset."""
    try:
        return moment.astimezone().isoformat(" ", timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return moment.isoformat()


def bytes_shown(length: int) -> str:
    """Return a number of bytes with three significant digits."""
    value, unit = float(length), 0
    while value >= 1000 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{length} B" if unit == 0 else f"{value:.3g} {_BYTE_UNITS[unit]}"


def share_shown(share: float) -> str:
    """Return a share in percent. What is not all never looks like it."""
    if share in (0, 1):
        return f"{share:.0%}"
    return f"{min(max(math.floor(share * 1000) / 10, 0.1), 99.9):.1f}%"


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
