"""docs/operations.md lists every property of tablecrypt/properties.py, as it is there, and every error that a caller can meet."""

from __future__ import annotations

import re

from tablecrypt import errors
from tests.support.property_reference import BLOCK, DOCUMENT, all_properties, rendered


def test_the_properties_are_those_of_the_registry() -> None:
    listed = BLOCK.search(DOCUMENT.read_text(encoding="utf-8"))

    assert listed is not None
    assert listed.group() == rendered(), "run python -m tests.support.property_reference"


def test_every_property_has_a_scope_that_the_reference_shows() -> None:
    assert {each.name for each in all_properties() if f"| `{each.name}` |" not in rendered()} == set()


def test_every_error_is_explained() -> None:
    section = DOCUMENT.read_text(encoding="utf-8").partition("\n## Errors\n")[2].partition("\n## ")[0]
    explained = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    raised = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, errors.TablecryptError)}

    assert explained == {name for name in raised if not name.startswith("_")} - {"TablecryptError"}
