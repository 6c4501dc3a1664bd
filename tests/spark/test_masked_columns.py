"""Columns of DataFrames that show masks are marked, and sessions that cannot refuse conditions on them show no mask unasked."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.masked_columns import MARK, check_values, marked_schema, masks_asked_for, refuses_conditions
from tablecrypt.table.table import EncryptedTable
from tests.support.protected_tables import COLUMN_KEY, EMAIL, PEOPLE_SCHEMA, SSN, TABLE_KEY, Clients, clients, loaded

DECLARED: Final = {"encryption.key-id": TABLE_KEY, "encryption.column-keys": f"{COLUMN_KEY}: ssn, person.email"}


@pytest.fixture
def both(tmp_path: Path) -> Clients:
    made = clients(tmp_path)
    made.payroll.create_table("db.people", PEOPLE_SCHEMA, properties=DECLARED)
    return made


@pytest.mark.parametrize(
    ("readable", "marks"),
    [
        (frozenset(), {"ssn": [[]], "person": [["email"]]}),
        (frozenset({SSN}), {"person": [["email"]]}),
        (frozenset({SSN, EMAIL}), {}),
    ],
    ids=["none", "ssn", "all"],
)
def test_the_columns_that_show_masks_are_marked(both: Clients, readable: frozenset[int], marks: dict[str, Any]) -> None:
    table = loaded(both.analyst)
    schema = marked_schema(table, table.schema(), readable)
    assert {field.name: json.loads(field.metadata[MARK]) for field in schema if MARK in field.metadata} == marks
    assert [field.name for field in schema] == ["id", "ssn", "salary", "person", "phones", "note"]


def test_masks_are_not_stored_as_values_by_who_got_the_right_since_they_were_read(both: Clients) -> None:
    masks, payroll = marked_schema(loaded(both.analyst), loaded(both.analyst).schema(), frozenset({SSN})), loaded(both.payroll)
    with pytest.raises(ConfigurationError, match=r"db\.people: the DataFrame has masks in person"):
        check_values(masks, payroll)
    check_values(marked_schema(payroll, payroll.schema(), frozenset({SSN, EMAIL})), payroll)
    # In a column that everybody may read, masks are but nulls.
    check_values(type(masks)([masks["id"], masks["ssn"]]), payroll)
    open_to_all = both.payroll.create_table("db.copy", PEOPLE_SCHEMA, properties={"encryption.key-id": TABLE_KEY})
    check_values(masks, cast("EncryptedTable", open_to_all))


def test_a_session_without_a_jvm_refuses_no_conditions(both: Clients) -> None:
    assert not refuses_conditions(cast("Any", SimpleNamespace()))
    for asked, catalog, done in ((None, None, "error"), (None, "mask", "mask"), ("mask", None, "mask"), ("error", "mask", "error")):
        table = loaded(both.analyst)
        table.catalog.properties.update({} if catalog is None else {"encryption.masked-reads": catalog})
        assert masks_asked_for(table, asked) == done
        table.catalog.properties.pop("encryption.masked-reads", None)
