"""Arguments of public functions, held against their annotations before anything is done: the one place that decides what fits.

    @checked_arguments()
    def operation(table: Table, columns: Sequence[str] | None = None, dry_run: bool = False) -> …

    operation("db.t")                     ConfigurationError: table is a str; it must be a Table
    operation(table, dry_run="no")        ConfigurationError: dry_run is a str; it must be True or False
    operation(table, columns="id")        columns is ("id",): one name is one name, never its letters
    operation(table, columns=3)           ConfigurationError: columns is an int; it must be a name or a list of names, or None

An annotation that only type checkers can resolve is not looked at, since its class may not be installed. No message shows a value: an
argument in the wrong place may be a key.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from io import TextIOBase
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Final, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic_core import PydanticSerializationError

from tablecrypt.errors import ConfigurationError
from tablecrypt.setting_kinds import OFF, ON

P = ParamSpec("P")
R = TypeVar("R")

_INTERRUPTED: Final = re.compile(r"(Error calling function `\w+`|^Error serializing to JSON): KeyboardInterrupt: $")
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_OF_ANY_NUMBER: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
NAMES: Final = "a name or a list of names"
_WORDS: Final[Mapping[object, str]] = {
    bool: "True or False",
    bytes: "bytes",
    float: "a number",
    int: "a whole number",
    str: "text",
    NoneType: "None",
}


def names_of(argument: str, given: Any) -> tuple[str, ...]:
    """Return the names that an argument lists.

    Args:
        argument: the argument's name, for the error.
        given: one name, or some of them.

    Raises:
        ConfigurationError: it is something else, or one of them is no text.
    """
    # A text is a list of letters to Python: "id" must not become the columns "i" and "d".
    if isinstance(given, str):
        return (given,)
    # Bytes and mappings are iterable too, and would list numbers or keys.
    if not isinstance(given, Iterable) or isinstance(given, (bytes, bytearray, memoryview, Mapping)):
        raise ConfigurationError(f"{argument} is {described(given)}; it must be {NAMES}")

    names = tuple(given)
    for each in names:
        if not isinstance(each, str):
            raise ConfigurationError(f"{argument} holds {described(each)}; it must be {NAMES}")
    return names


def file_path(what: str, text: str) -> Path:
    """Return the path of a file that a user names, in which `~` is the home folder.

    Args:
        what: the setting or argument that names it, for the error.
        text: the path.

    Raises:
        ConfigurationError: no file can have that path, none is named, a word for a switch or a URI is, or there is no such home folder.
    """
    check_text(what, text)
    # As a variable holds it that was set to nothing, or from the output of a command: a file of that name would be made.
    if not text.strip() or text.endswith(("\n", "\r")):
        raise ConfigurationError(f"{what} is blank or ends in a line break: write the path of a file alone")
    # Whoever writes `true` means a switch: the file of that name would lie in whatever folder the program runs in.
    if text.lower() in (*ON, *OFF):
        raise ConfigurationError(f"{what} is {text!r}, and is no switch: write the path of a file (./{text} for one of that name)")
    # As a warehouse is written: folders named file: or s3: would lie there too, and no two programs would share the file.
    if "://" in text:
        raise ConfigurationError(f"{what} is {text!r}, a URI: write the path of a file on this machine")
    if "\0" in text:
        raise ConfigurationError(f"{what} holds a character that no path can have")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ConfigurationError(f"{what} is {text!r}, and there is no such home folder: write the whole path") from None


def check_name_parts(name: str) -> None:
    """Refuse the name of a table that has an empty part. ConfigurationError: it has one."""
    if not all(map(str.strip, name.split("."))):
        raise ConfigurationError(f"{name!r} has an empty part: write namespace.name")


def check_text(what: str, *given: object) -> None:
    """Refuse text that could not be written: half a surrogate pair, as Python has for a character that was cut or a byte that is not UTF-8.

    Args:
        what: what the text is of, for the error.
        given: text, or mappings, lists and models in which text is. Whatever else is there is not looked at.

    Raises:
        ConfigurationError: UTF-8 cannot hold it.
    """
    try:
        for text in _texts(given):
            text.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(
            f"{what} holds half of a surrogate pair, which is no character and cannot be stored as UTF-8. Give the whole character, or "
            "leave it out"
        ) from None


def _texts(given: object) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    elif isinstance(given, Mapping):
        yield from _texts((*given.keys(), *given.values()))
    elif isinstance(given, (list, tuple, set, frozenset)):
        for each in given:
            yield from _texts(each)
    elif hasattr(given, "model_dump"):
        with interruptible():
            dumped = given.model_dump()
        yield from _texts(dumped)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C through that comes while pydantic writes out a model: pydantic makes a ValueError of it, with the cause in its text."""
    try:
        yield
    except PydanticSerializationError as error:
        if _INTERRUPTED.search(str(error)):
            raise KeyboardInterrupt from error
        raise


def check_switches(**given: object) -> None:
    """Refuse as a switch what is neither True nor False: Python would take the text "no" for True. ConfigurationError: one is such."""
    for name, value in given.items():
        if not _is_switch(value):
            raise ConfigurationError(f"{name} is {described(value)}; it must be {_WORDS[bool]}")


def check_file(file: object, *methods: str) -> None:
    """Refuse as a file what lacks one of a file's methods.

    Raises:
        ConfigurationError: it is no path, no buffer and no binary file.
    """
    for method in methods:
        if not hasattr(file, method):
            raise ConfigurationError(f"{type(file).__name__} is not a path, a buffer or a binary file: it has no {method}()")
    if isinstance(file, TextIOBase):
        raise ConfigurationError(f"{type(file).__name__} is a text file: open a binary one, with mode 'rb' or 'wb'")


def described(value: object) -> str:
    """Return what a value is, without what it holds."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def checked_arguments(*, but: Collection[str] = ()) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a function refuse arguments that do not fit its annotations, and take one name where it takes a list of them.

    Args:
        but: arguments that the function looks at itself, since it says more about them.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        positions = [name for name, parameter in signature.parameters.items() if parameter.kind in _POSITIONAL]
        rules: dict[str, tuple[_Kind, ...]] = {}

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            # At the first call, not before: an annotation may name what the module defines further below.
            if not rules:
                rules.update(_rules(function, signature, but))
            placed = [_fitting(name, value, rules.get(name)) for name, value in zip(positions, args, strict=False)]
            fitting = {name: _fitting(name, value, rules.get(name)) for name, value in kwargs.items()}
            # Arguments that are missing or too many are Python's own error.
            return function(*placed, *args[len(placed) :], **fitting)  # type: ignore[arg-type]

        return checked

    return decorate


@dataclass(frozen=True)
class _Kind:
    """One of the kinds of value that an annotation allows.

    Attributes:
        words: how messages name it.
        fits: whether a value is of it.
        is_names: a list of names, for which one name stands too.
    """

    words: str
    fits: Callable[[Any], bool]
    is_names: bool = False


def _fitting(argument: str, value: Any, kinds: Sequence[_Kind] | None) -> Any:
    """Return an argument as the function takes it; as it is, where nothing is asked of it.

    Raises:
        ConfigurationError: it is of no kind that it may be of.
    """
    # Passed on as it is, so that an iterator is not used up by the check.
    if kinds is None or any(kind.fits(value) for kind in kinds):
        return value
    if any(kind.is_names for kind in kinds) and value is not None:
        return names_of(argument, value)
    raise ConfigurationError(f"{argument} is {described(value)}; it must be {' or '.join(kind.words for kind in kinds)}")


def _rules(function: Callable[..., Any], signature: inspect.Signature, but: Collection[str]) -> dict[str, tuple[_Kind, ...]]:
    kinds = {
        name: _kinds(str(parameter.annotation), getattr(inspect.unwrap(function), "__globals__", {}))
        for name, parameter in signature.parameters.items()
        if name not in but and parameter.annotation is not parameter.empty and parameter.kind not in _OF_ANY_NUMBER
    }
    return {name: found for name, found in kinds.items() if found}


def _kinds(annotation: str, names: Mapping[str, Any]) -> tuple[_Kind, ...]:
    """Return what an annotation allows; nothing where it allows all, or is not known here."""
    try:
        allowed = get_type_hints(SimpleNamespace(__annotations__={"it": annotation}), dict(names))["it"]
    except (NameError, AttributeError, TypeError):
        return ()
    return _alternatives(allowed)


def _alternatives(allowed: Any) -> tuple[_Kind, ...]:
    """Return what a type or a union of types allows; nothing where it allows all."""
    kinds = [_kind(each) for each in (get_args(allowed) if get_origin(allowed) in {Union, UnionType} else (allowed,))]
    return () if None in kinds else tuple(each for each in kinds if each is not None)


def _kind(allowed: Any) -> _Kind | None:
    """Return one kind; None for a type that cannot be checked."""
    origin, arguments = get_origin(allowed), get_args(allowed)
    if allowed in _WORDS:
        return _Kind(_WORDS[allowed], _plain_check(allowed))
    if getattr(allowed, "_is_protocol", False):
        return _Kind(f"a {allowed.__name__}", lambda value: all(hasattr(value, each) for each in _members(allowed)))
    if origin is None:
        return _Kind(f"a {allowed.__name__}", lambda value: isinstance(value, allowed)) if _can_tell(allowed) else None
    if origin is Callable:
        return _Kind("a function", callable)
    if issubclass(origin, Mapping):
        return _Kind("a mapping of names", lambda value: isinstance(value, Mapping) and all(isinstance(each, str) for each in value))
    if issubclass(origin, Iterable) and arguments[:1] == (str,):
        return _Kind(NAMES, lambda value: _is_collection(value) and all(isinstance(each, str) for each in value), is_names=True)
    if issubclass(origin, Iterable):
        return _list_of(_alternatives(arguments[0]) if arguments else ())

    return _kind(origin)


def _list_of(parts: Sequence[_Kind]) -> _Kind | None:
    """Return the kind of lists of some kinds; None where those cannot be checked."""
    if not parts:
        return None
    words = f"a list of {' or '.join(part.words for part in parts)}"
    return _Kind(words, lambda value: _is_collection(value) and all(any(part.fits(each) for part in parts) for each in value))


def _plain_check(allowed: type) -> Callable[[Any], bool]:
    """Return the check of a value of Python's own kinds. Numbers of numpy are numbers; True and False are none."""
    if allowed is bool:
        return _is_switch
    if allowed is int:
        return _is_whole
    if allowed is float:
        return lambda value: isinstance(value, float) or _is_whole(value)

    return lambda value: isinstance(value, allowed)


def _is_switch(value: object) -> bool:
    return isinstance(value, bool) or type(value).__name__ in {"bool", "bool_"}


def _is_whole(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _is_collection(value: Any) -> bool:
    """Whether a value holds several, and is not used up by looking at them."""
    return isinstance(value, Collection) and not isinstance(value, (str, bytes, bytearray, memoryview, Mapping))


def _members(protocol: type) -> list[str]:
    """Return the public names that a class has to have for a protocol."""
    return [name for name in {**vars(protocol), **vars(protocol).get("__annotations__", {})} if not name.startswith("_")]


def _can_tell(allowed: Any) -> bool:
    """Whether isinstance says if a value is one: not of Any, a type variable, or a protocol that cannot be asked."""
    try:
        isinstance(None, allowed)
    except TypeError:
        return False
    return isinstance(allowed, type)
