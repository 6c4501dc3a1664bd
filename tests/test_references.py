"""The references of properties and errors are those of the code."""

from __future__ import annotations

import pytest

from tablecrypt.errors import TablecryptError
from tests.programs.programs import PROGRAMS
from tests.support import error_reference, programs_page, property_reference
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


def test_the_programs_are_those_that_the_tests_run() -> None:
    listed = programs_page.BLOCK.search(programs_page.DOCUMENT.read_text(encoding="utf-8"))

    assert listed is not None
    assert listed.group() == programs_page.rendered(), "run python -m tests.support.programs_page"


def test_every_call_of_a_program_that_does_not_work_says_what_to_do_or_why() -> None:
    assert [
        call.code for program in PROGRAMS for call in program.calls if call.outcome != "works" and not (call.says and call.remark)
    ] == []


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
