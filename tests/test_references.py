"""The references of properties and errors are those of the code."""

from __future__ import annotations

import pytest

from tablecrypt.errors import TablecryptError
from tests.support import error_reference, property_reference
from tests.support.error_reference import cause_and_cure, public_errors
from tests.support.property_reference import all_properties


def test_the_properties_are_those_of_the_registry() -> None:
    listed = property_reference.BLOCK.search(property_reference.DOCUMENT.read_text(encoding="utf-8"))

    assert listed is not None
    assert listed.group() == property_reference.rendered(), "run python -m tests.support.property_reference"


def test_every_property_has_a_scope_that_the_reference_shows() -> None:
    assert {each.name for each in all_properties() if f"| `{each.name}` |" not in property_reference.rendered()} == set()


def test_the_errors_are_those_of_the_code() -> None:
    listed = error_reference.BLOCK.search(error_reference.DOCUMENT.read_text(encoding="utf-8"))

    assert listed is not None
    assert listed.group() == error_reference.rendered(), "run python -m tests.support.error_reference"


@pytest.mark.parametrize("error", public_errors(), ids=lambda error: error.__name__)
def test_every_error_says_what_it_means_and_what_to_do(error: type[TablecryptError]) -> None:
    cause, cure = cause_and_cure(error)

    assert cause
    assert cure.endswith(".")


def test_an_error_without_a_cure_is_noticed() -> None:
    class Silent(TablecryptError):
        """Something happened."""

    with pytest.raises(ValueError, match="Silent"):
        cause_and_cure(Silent)
