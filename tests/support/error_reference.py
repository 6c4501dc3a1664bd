"""The reference of errors in docs/reference/errors.md, made from tablecrypt/errors.py.

Run `python -m tests.support.error_reference` after a change of the errors; a test fails until it was run.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Final

from tablecrypt import errors
from tablecrypt.errors import TablecryptError
from tests.support.pages import MadePart

PART: Final = MadePart("reference/errors.md", "errors")
CURE: Final = "What to do: "


def public_errors() -> list[type[TablecryptError]]:
    """Every error that a caller can catch, but for the base of all, in the order of the module."""
    classes = [value for name, value in vars(errors).items() if isinstance(value, type) and not name.startswith("_")]
    return [each for each in classes if issubclass(each, TablecryptError) and each is not TablecryptError]


def cause_and_cure(error: type[TablecryptError]) -> tuple[list[str], str]:
    """The paragraphs of the docstring that say what the error means, and the one that says how to resolve it.

    Raises: ValueError if there is no such paragraph.
    """
    paragraphs = [" ".join(paragraph.split()) for paragraph in (inspect.getdoc(error) or "").split("\n\n")]
    cures = [paragraph for paragraph in paragraphs if paragraph.startswith(CURE)]
    if len(cures) != 1 or not error.__doc__:
        raise ValueError(f"{error.__name__}: its docstring has {len(cures)} paragraphs that begin with {CURE!r}")
    return [each for each in paragraphs if not each.startswith((CURE, "Attributes:"))], cures[0].removeprefix(CURE)


def rendered() -> str:
    """One section for each error, in Markdown."""
    return "\n".join(line for error in public_errors() for line in _section(error))


def _section(error: type[TablecryptError]) -> Iterator[str]:
    cause, cure = cause_and_cure(error)
    yield from (f"## {error.__name__}", "")
    for paragraph in cause:
        yield from (paragraph, "")
    yield from (f"**What to do.** {cure}", "")
    bases = [each.__name__ for each in error.__mro__[1:] if not each.__name__.startswith("_")]
    shown = bases[: bases.index("Exception")] if "TablecryptError" in bases else bases
    yield from ("Catch it as " + ", ".join(f"`{name}`" for name in (error.__name__, *shown)) + ".", "")


if __name__ == "__main__":
    PART.write(rendered())
