"""The kinds of settings, and how the text of one becomes a value: for properties, options and environment variables alike.

    Property      any text
    Name          any text but an empty one
    Switch        true, yes, on, 1 / false, no, off, 0, in letters of any case
    Choice        one of the words that it lists, in letters of any case
    WholeNumber   decimal digits, within its bounds
    Pattern       a text of one form, such as truncate(16)

Everything else is a ConfigurationError, the empty text and blanks around a word too. If an unknown word counted as "no", a typing error
would turn encryption off, or skip a check, without any sign.

A property is declared once, in tablecrypt/properties.py or iceberg_properties.py, and its declaration reads it. The functions `truth`,
`one_of` and `whole_number` are for options, which a statement or a write brings.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

from tablecrypt.errors import ConfigurationError

ON: Final = ("true", "yes", "on", "1")
OFF: Final = ("false", "no", "off", "0")
_WHOLE_NUMBER: Final = re.compile("[0-9]{1,19}")
_MOST: Final = 2**63 - 1
"""The greatest of Java, where it stands for "no limit"."""
_MOST_SHOWN: Final = 80
_ALIKE: Final = 0.8
OWN_NAMES_ALIKE: Final = 0.6
"""How much alike names are that users choose themselves and that are short, as a catalog's."""
MOST_NAMES: Final = 3


def truth(name: str, value: object) -> bool:
    """Return what a switch is set to.

    Args:
        name: the setting's, for the message.
        value: a text, or a Python bool or int.

    Raises:
        ConfigurationError: it is none of the eight words.
    """
    word = str(value).lower()
    if word in ON:
        return True
    if word in OFF:
        return False
    raise ConfigurationError(f"{name} is {_shown(value)}; it must be true or false (also yes, on, 1; no, off, 0)")


def one_of(name: str, value: object, choices: Iterable[str]) -> str:
    """Return the one of `choices` that a value is, as `choices` spells it.

    Raises:
        ConfigurationError: it is none of them.
    """
    listed = tuple(choices)
    found = next((each for each in listed if each.lower() == str(value).lower()), None)
    if found is None:
        raise ConfigurationError(f"{name} is {_shown(value)}; it must be {_either(listed)}{did_you_mean(str(value), listed)}")
    return found


def whole_number(name: str, value: object, least: int = 0, most: int = _MOST) -> int:
    """Return a whole number.

    Raises:
        ConfigurationError: it is not one, is below `least`, or above `most`.
    """
    text = str(value)
    # int() also takes "+5", " 5", "1_000" and digits of other scripts, which other clients read otherwise.
    if not _WHOLE_NUMBER.fullmatch(text) or not least <= int(text) <= most:
        # Of a number that is too great, "of at least 0" would be no reason.
        is_too_great = text.isascii() and text.isdigit() and len(text.lstrip("0")) >= len(str(_MOST))
        range_of = f"from {least} to {most}" if most != _MOST or is_too_great else f"of at least {least}"
        raise ConfigurationError(f"{name} is {_shown(value)}; it must be a whole number {range_of}")
    return int(text)


def names_near(name: str, known: Iterable[str], most: int = MOST_NAMES) -> list[str]:
    """Return the names that users chose which come near to a misspelt one in letters of any case, the nearest first."""
    by_lower = {each.lower(): each for each in known}
    return [by_lower[each] for each in difflib.get_close_matches(name.strip().lower(), list(by_lower), most, OWN_NAMES_ALIKE)]


def nearest(name: str, known: Iterable[str], cutoff: float = _ALIKE) -> str | None:
    """Return the known name that a misspelt one comes nearest to; None where none is alike enough, 1 being the same name."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def did_you_mean(name: str, known: Iterable[str], cutoff: float = _ALIKE) -> str:
    """Return the end of a message that asks whether a known name was meant; an empty text where none comes near."""
    near = nearest(name, known, cutoff)
    return question([] if near is None else [near])


def question(names: Sequence[str]) -> str:
    """Return the end of a message that asks which of some names was meant; an empty text without a name."""
    return f". Did you mean {' or '.join(names)}?" if names else ""


def check_option_names(given: Iterable[str], known: Iterable[str], what: str, prefix: str = "") -> None:
    """Refuse options that are misspelt. Names that resemble none of ours belong to other programs, Spark for instance.

    Args:
        given: names of options.
        known: those that have a meaning.
        what: the kind of option, for the message.
        prefix: with which all known names begin; only what follows it is compared, and names without it belong to other programs.

    Raises:
        ConfigurationError: one is no known name, and comes near one.
    """
    names = {name.removeprefix(prefix) for name in known}
    for name in given:
        own = name.removeprefix(prefix)
        if name.startswith(prefix) and own not in names and (near := nearest(own.lower().replace("_", "-"), names)) is not None:
            raise ConfigurationError(f"{what} {name!r} is not known. Did you mean {prefix}{near}?")


@dataclass(frozen=True)
class Property:
    """One property whose value is any text, or with a name that ends with a dot all that begin so.

    Attributes:
        scope: whose it is: `table`, `catalog`, `pyiceberg` for properties of PyIceberg, `iceberg` for those of Iceberg's tables.
        also_of: another scope in which it may be set: `catalog` for all its tables, `namespace` for those of one.
        reader: the package that reads it.
        default: what it is where it is not set.
        sensitive: its value is a credential, or part of one.
        from_server: taken where a REST catalog server sends it; others that it sends have no effect or are refused.
        to_executors: Spark's executors get it.
        names_code: its value names a class or module that is imported, so it comes from this client's configuration alone.
        doc: what it means.
    """

    name: str
    doc: str
    _: KW_ONLY
    scope: str
    reader: str
    also_of: str | None = None
    default: str | None = None
    sensitive: bool = False
    from_server: bool = False
    to_executors: bool = False
    names_code: bool = False

    def read(self, properties: Mapping[str, Any]) -> str:
        """The value as text, or the default; an empty text where there is neither."""
        return str(properties.get(self.name, self.default or ""))

    def is_of(self, scope: str) -> bool:
        """Whether it may be set in a scope."""
        return scope in (self.scope, self.also_of)

    def check(self, name: str, value: object) -> None:
        """Raise ConfigurationError for a value that cannot be read. Every text is one that can."""
        # Read as text, it would be the b and the quotes too.
        if isinstance(value, bytes):
            raise ConfigurationError(f"{name} is a bytes; it must be text")
        # Brackets and indented lines in a configuration make these, in which whoever reads the property finds nothing that it knows.
        if isinstance(value, (list, dict)):
            raise ConfigurationError(f"{name} is a {type(value).__name__}; it must be text: write it in one line, without brackets")


@dataclass(frozen=True, kw_only=True)
class Name(Property):
    """A property that is never empty. Set to nothing, as by a variable that is not there, it would count as not set at all."""

    def check(self, name: str, value: object) -> None:
        """Raise ConfigurationError for an empty value."""
        super().check(name, value)
        # An unset variable in a configuration ends as an empty text: a table would be made without encryption, or a key service be asked
        # with the rights of somebody else.
        if value is None or not str(value).strip():
            raise ConfigurationError(f"{name} is {_shown(value)}; it must have a value: write one, or leave {name} out")


@dataclass(frozen=True, kw_only=True)
class Switch(Property):
    """A property that is on or off.

    Attributes:
        where_unreadable: what it counts as where a stored table has another word, which another client has set: the careful side, where
            that does no harm. None: reading it is refused.
    """

    where_unreadable: bool | None = None

    def is_true(self, properties: Mapping[str, Any]) -> bool:
        """Whether it is on. ConfigurationError for a value that is neither on nor off."""
        value = properties.get(self.name, self.default)
        # Another client has stored the word: refusing to read it would lock this one out of the table.
        if self.where_unreadable is not None and str(value).lower() not in (*ON, *OFF):
            return self.where_unreadable
        return truth(self.name, value)

    def check(self, name: str, value: object) -> None:
        """Raise ConfigurationError for a value that is neither on nor off."""
        truth(name, value)


@dataclass(frozen=True, kw_only=True)
class Choice(Property):
    """A property that is one of a few words.

    Attributes:
        choices: the words.
        may_be_empty: the empty text means that it is not set, as for PyIceberg; where something else is missing then, and says so.
    """

    choices: tuple[str, ...]
    may_be_empty: bool = False

    def chosen(self, properties: Mapping[str, Any]) -> str:
        """The word, as `choices` spells it, or the default; an empty text where there is neither. ConfigurationError for any other."""
        value = properties.get(self.name, self.default)
        return "" if value is None or self._is_left_empty(value) else one_of(self.name, value, self.choices)

    def check(self, name: str, value: object) -> None:
        """Raise ConfigurationError for a word that is none of them, and for None, which is what a program did not find."""
        if not self._is_left_empty(value):
            one_of(name, value, self.choices)

    def _is_left_empty(self, value: object) -> bool:
        return self.may_be_empty and value == ""


@dataclass(frozen=True, kw_only=True)
class WholeNumber(Property):
    """A property that is a whole number from `least` to `most`."""

    least: int = 0
    most: int = _MOST

    def whole_number(self, properties: Mapping[str, Any]) -> int:
        """The value, or the default. ConfigurationError for any other."""
        return whole_number(self.name, properties.get(self.name, self.default), self.least, self.most)

    def check(self, name: str, value: object) -> None:
        """Raise ConfigurationError for a value that is no such number."""
        whole_number(name, value, self.least, self.most)


@dataclass(frozen=True, kw_only=True)
class Pattern(Property):
    """A property whose value has a form.

    Attributes:
        pattern: a regular expression that all of the value matches, in letters of any case.
        form: the same in words, after "it must be".
    """

    pattern: str
    form: str

    def check(self, name: str, value: object) -> None:
        """Raise ConfigurationError for a value of another form."""
        if not re.fullmatch(self.pattern, str(value), re.IGNORECASE | re.ASCII):
            raise ConfigurationError(f"{name} is {_shown(value)}; it must be {self.form}")


def check_values(given: Mapping[str, Any], known: Iterable[Property]) -> None:
    """Check the values of those properties that are known, by name or by a prefix of theirs.

    Args:
        given: what somebody sets, or all that a table has.
        known: the properties to check.

    Raises:
        ConfigurationError: a value cannot be read.
    """
    for name, value in given.items():
        for each in known:
            if name == each.name or (each.name.endswith(".") and name.startswith(each.name)):
                each.check(name, value)


def check_spelling(given: Iterable[str], known: Iterable[Property]) -> None:
    """Refuse names that differ from a known one by case, blanks, or which of dots, hyphens and underscores part its words.

    Raises:
        ConfigurationError: one does. Who reads the property would pass over it.
    """
    by_words = {words_of(each.name): each.name for each in known}
    for name in given:
        meant = by_words.get(words_of(name), name)
        if meant != name:
            raise ConfigurationError(f"{name!r} is not read by anybody: write {meant}")


def words_of(name: str) -> str:
    """Return a name's words in small letters, whatever parts them: two names with the same words were meant to be one."""
    return re.sub("[._]", "-", name.strip().lower())


def _shown(value: object) -> str:
    return repr(str(value)[:_MOST_SHOWN])


def _either(choices: tuple[str, ...]) -> str:
    return " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
