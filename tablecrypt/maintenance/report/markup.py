"""Pages of HTML from the templates of this folder: each is a single file that works without a server, on paper, and without its script.

Names, paths and messages are others' words. Jinja2 escapes every value, and `printable` leaves no character in it that hides or turns
text. Should markup of others get in all the same, the page's Content-Security-Policy lets nothing run or load but the one style, and where
a page has it the one script, whose hashes it names; and no script may make markup of text.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any

from tablecrypt.errors import MissingExtraError
from tablecrypt.printable import printable

if TYPE_CHECKING:
    from jinja2 import Environment


def rendered(template: str, **values: Any) -> str:
    """Return a page as text, to be written as UTF-8. The same values make the same page.

    Args:
        template: the name of a template.
        values: what it shows.

    Raises:
        MissingExtraError: Jinja2 is not installed.
    """
    return templates().get_template(template).render(style_hash=_hash("style.css"), script_hash=_hash("page.js"), **values)


@cache
def templates() -> Environment:
    """Return the templates.

    Raises:
        MissingExtraError: Jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise MissingExtraError.named("a report in HTML needs the package Jinja2", "report") from error

    def shown(value: object) -> object:
        # What a macro made is markup already; everything else is text.
        return value if isinstance(value, Markup) else printable(value)

    environment = Environment(
        loader=PackageLoader(__package__, "."), autoescape=True, finalize=shown, undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.globals["asset"] = lambda name: Markup(_asset(name))

    return environment


def _asset(name: str) -> str:
    """Return the style or the script. Both are ours, and go onto the page as they are."""
    environment = templates()
    if environment.loader is None:
        raise LookupError(name)
    return environment.loader.get_source(environment, name)[0]


def _hash(name: str) -> str:
    digest = hashlib.sha256(_asset(name).encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
