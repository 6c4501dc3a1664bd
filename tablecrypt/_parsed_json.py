"""JSON of another writer, parsed once, and refused where what it says could not be kept: hashed, written again, or walked.

    numbers     whole ones have 63 bits and a sign, as those of Iceberg, databases and Arrow have
    texts       are Unicode: JSON can escape half a surrogate pair, and UTF-8 cannot hold it
    nesting     ends where functions that walk a document would run out of stack

Raises ValueError; the caller knows what it is that cannot be read, and `problem_of` says of an error what is wrong in it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from pydantic import ValidationError

from tablecrypt.printable import printable

_DEEPEST: Final = 150
"""Objects and lists in each other; a struct in a struct takes three."""
_MOST_DIGITS: Final = 20
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_SHOWN: Final = 40
_CONTAINERS: Final = (dict, list)


class ParsedJson:
    """JSON, parsed once.

    Attributes:
        document: what it says.
        repeated: keys that stand twice in an object, of which the last one counted.
    """

    def __init__(self, content: bytes | str) -> None:
        """Parse UTF-8.

        Raises:
            ValueError: it is not JSON, nested too deeply, or holds a number beyond 63 bits or half a surrogate pair, which cannot be kept.
        """
        self.repeated: list[str] = []
        text = content if isinstance(content, str) else content.decode("utf-8")
        try:
            self.document: Any = json.loads(text, object_pairs_hook=self._object, parse_constant=_no_number, parse_int=_whole_number)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None

        # Python's own limit is higher than what the functions that walk a document can take.
        _check_depth(self.document)
        _check_text(text, self.document)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        # Readers differ in which of two equal keys they take, so the caller has to know of them.
        if len(found) != len(pairs):
            self.repeated += sorted(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        return found


def problem_of(error: Exception) -> str:
    """Return what an error says is wrong in a document, as one line; of a model's errors, the first, and where in the document it is."""
    # PyIceberg wraps a model's errors in some of its own, with the same text.
    model = error if isinstance(error, ValidationError) else error.__cause__
    if not isinstance(model, ValidationError):
        return printable(error) or type(error).__name__

    # Without the input, which a model's own text quotes: it may be a key, a token, or a credential that a server vends.
    first = model.errors(include_url=False, include_input=False, include_context=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    return printable(": ".join(part for part in (".".join(map(str, first["loc"])), message) if part))


def _whole_number(digits: str) -> int:
    # The number of digits comes first: int() takes quadratic time, or raises beyond 4,300 digits.
    if len(digits) > _MOST_DIGITS or not -(2**63) <= (number := int(digits)) < 2**63:
        raise ValueError(f"the number {digits[:_SHOWN]} has more than 63 bits")
    return number


def _check_depth(document: Any) -> None:
    """Refuse what the functions that walk a document could not walk. This one goes level by level and takes no stack."""
    level = [document]
    for _ in range(_DEEPEST):
        level = [item for each in level for item in _items(each) if type(item) in _CONTAINERS]
    if level:
        raise ValueError("it is nested too deeply")


def _items(value: Any) -> Iterable[Any]:
    if type(value) is dict:
        return value.values()
    return value if type(value) is list else ()


def _check_text(text: str, document: Any) -> None:
    """Refuse half a surrogate pair, which JSON can escape and UTF-8 cannot hold: what is read could not be hashed or written again."""
    # Nearly no document has an escaped surrogate, and encoding it again costs as much as parsing it.
    if _SURROGATE.search(text) is None:
        return
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a text in it holds half a surrogate pair") from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")
