"""Words, names, texts and signs of a statement that Spark's parser does not know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tablecrypt.errors import ConfigurationError

_TOKEN: Final = re.compile(
    r"""(?:\s+|--[^\n]*(?:\n|$))|`((?:[^`]|``)+)`|('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(\w+)|([().,;])""", re.DOTALL
)
_NAME: Final = re.compile(r"(?!\d+$)\w+")
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|[0-3][0-7]{2}|.)", re.DOTALL)
_CONTROL: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


@dataclass(frozen=True)
class Token:
    """A word, a name in backticks, a text in quotes or a sign of a statement."""

    text: str
    is_quoted: bool = False
    is_text: bool = False

    @property
    def word(self) -> str | None:
        """The word or sign in capitals; None for text in quotes or backticks."""
        return None if self.is_quoted or self.is_text else self.text.upper()


class Tokens:
    """What is left of a statement.

    Attributes:
        is_case_sensitive: whether it names columns in the case that the table has them in.
    """

    def __init__(self, statement: str, is_case_sensitive: bool = False) -> None:
        self.is_case_sensitive = is_case_sensitive
        self._statement = statement
        self._tokens = list(_tokens(statement))
        self._next = 0

    def takes(self, *words: str) -> bool:
        """Pass these words if they are next."""
        following = self._tokens[self._next : self._next + len(words)]
        if [token.word for token in following] != list(words):
            return False
        self._next += len(words)
        return True

    def need(self, *words: str) -> None:
        """Pass these words. ConfigurationError if others are next."""
        if not self.takes(*words):
            raise self.error(" ".join(words))

    def name(self) -> str:
        """Pass a name. Digits alone are a name only in backticks, as in Spark."""
        if self._next == len(self._tokens) or not (self._here.is_quoted or _NAME.fullmatch(self._here.word or "")):
            raise self.error("a name")
        self._next += 1
        return self._tokens[self._next - 1].text

    def names(self) -> tuple[str, ...]:
        """Pass a name of several parts between dots."""
        parts = [self.name()]
        while self.takes("."):
            parts.append(self.name())
        return tuple(parts)

    def number(self) -> int:
        """Pass a whole number."""
        if not self.has_number:
            raise self.error("a number")
        self._next += 1
        return int(self._tokens[self._next - 1].text)

    @property
    def has_number(self) -> bool:
        """Whether a whole number is next."""
        return self._next < len(self._tokens) and (self._here.word or "").isdecimal()

    def text(self) -> str:
        """Pass a text in quotes; several that follow each other are one, as in Spark."""
        start = self._next
        while self._next < len(self._tokens) and self._here.is_text:
            self._next += 1
        if start == self._next:
            raise self.error("a text in quotes")
        return "".join(token.text for token in self._tokens[start : self._next])

    def end(self) -> None:
        """ConfigurationError unless this is the end."""
        while self.takes(";"):
            pass
        if self._next < len(self._tokens):
            raise self.error("the end")

    def error(self, expected: str) -> ConfigurationError:
        """Say what should be next."""
        found = repr(self._here.text) if self._next < len(self._tokens) else "the end"
        return ConfigurationError(f"ALTER TABLE … {' '.join(self._statement.split())}: expected {expected}, found {found}")

    @property
    def _here(self) -> Token:
        return self._tokens[self._next]


def _tokens(statement: str) -> Iterator[Token]:
    position = 0
    while position < len(statement):
        match = _TOKEN.match(statement, position)
        if match is None:
            raise ConfigurationError(f"ALTER TABLE … {statement}: {statement[position]!r} has no meaning here; put names into backticks")

        quoted, text, word, sign = match.groups()

        if quoted is not None:
            yield Token(quoted.replace("``", "`"), is_quoted=True)
        elif text is not None:
            yield Token(_ESCAPED.sub(_unescaped, text[1:-1]), is_text=True)
        elif word or sign:
            yield Token(word or sign)

        position = match.end()


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16) if escape.startswith("u") else int(escape, 8))
    # Spark leaves the backslash to LIKE.
    return f"\\{escape}" if escape in "%_" else _CONTROL.get(escape, escape)
