"""The reference of properties in docs/reference/properties.md, made from tablecrypt/properties.py and iceberg_properties.py.

Run `python -m tests.support.property_reference` after a change of the properties; a test fails until it was run.
"""

from __future__ import annotations

from typing import Final

from tablecrypt.iceberg_properties import OF_TABLES
from tablecrypt.properties import registered
from tablecrypt.setting_kinds import Property
from tests.support.pages import MadePart

PART: Final = MadePart("reference/properties.md", "properties")


def all_properties() -> list[Property]:
    """Every property of the registry, in its order."""
    return list(registered())


def rendered() -> str:
    """One table for each scope, in Markdown."""
    return "\n".join([*(_table(scope) for scope in ("table", "catalog")), _pyicebergs(), _icebergs()])


def _table(scope: str) -> str:
    rows = [f"| `{each.name}` | {_default(each)} | {_doc(each)} |" for each in all_properties() if each.scope == scope]
    head = [f"## {scope.capitalize()} properties", "", "| property | default | meaning |", "|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def _default(each: Property) -> str:
    return "–" if each.default is None else f"`{each.default}`"


def _doc(each: Property) -> str:
    return f"{each.doc} A secret." if each.sensitive else each.doc


def _pyicebergs() -> str:
    rows = [f"| `{each.name}` | {_setter(each)} | {_doc(each)} |" for each in all_properties() if each.scope == "pyiceberg"]
    head = ["## PyIceberg's properties", "", "This list shows who may set them.", "", "| property | set by | meaning |", "|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def _icebergs() -> str:
    rows = [f"| `{each.name}` | {_default(each)} | {each.doc} |" for each in OF_TABLES]
    head = ["## Iceberg's properties of tables whose values tablecrypt checks", "", "| property | default | meaning |", "|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def _setter(each: Property) -> str:
    if each.names_code:
        return "this client alone: it names code"
    return "this client, or a REST server" if each.from_server else "this client alone"


if __name__ == "__main__":
    PART.write(rendered())
