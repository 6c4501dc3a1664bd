"""The references of properties and errors are those of the code."""

from __future__ import annotations

from typing import Any

import pytest

from tablecrypt import maintenance
from tablecrypt.errors import TablecryptError
from tablecrypt.spark.sql.procedures import PROCEDURES
from tests.programs.programs import PROGRAMS
from tests.support import error_reference, programs_page, property_reference
from tests.support.error_reference import cause_and_cure, public_errors
from tests.support.pages import DOCS
from tests.support.property_reference import all_properties


@pytest.mark.parametrize("reference", [property_reference, error_reference, programs_page], ids=["properties", "errors", "programs"])
def test_a_reference_is_that_of_the_code(reference: Any) -> None:
    assert reference.PART.read() == reference.rendered(), f"run python -m {reference.__name__}"


def test_every_property_has_a_scope_that_the_reference_shows() -> None:
    assert {each.name for each in all_properties() if f"| `{each.name}` |" not in property_reference.rendered()} == set()


def test_every_call_of_a_program_that_does_not_work_says_what_to_do_or_why() -> None:
    assert [
        call.code for program in PROGRAMS for call in program.calls if call.outcome != "works" and not (call.says and call.remark)
    ] == []


def test_every_operation_that_is_a_procedure_is_on_the_page_of_spark_sql() -> None:
    page = (DOCS / "spark-sql.md").read_text(encoding="utf-8")
    operations = PROCEDURES.keys() & set(maintenance.__all__)
    assert "share" in operations
    assert {name for name in operations if f"`{name}`" not in page and f"system.{name}(" not in page} == set()


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
