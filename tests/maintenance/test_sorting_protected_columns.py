"""Rows are never ordered by a protected column: their order would rank its values for everybody who sees the other columns."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.sorting import SortDirection
from pyiceberg.transforms import IdentityTransform, TruncateTransform

from tablecrypt import maintenance as m
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance import SortColumn, ZOrder
from tablecrypt.table.protection.exposed_values import check_sort_columns
from tablecrypt.table.table import EncryptedTable
from tests.support.protected_tables import COLUMN_KEY, Clients, clients, declare, protected_table, table_of_people
from tests.support.tables import metadata_of

SALARIES = (300, 100, 200)


@pytest.fixture
def both(tmp_path: Path) -> Clients:
    return clients(tmp_path)


@pytest.fixture
def people(both: Clients) -> EncryptedTable:
    """A table whose salaries and emails are protected, as three files."""
    table = protected_table(both.payroll, **{"encryption.column-keys": f"{COLUMN_KEY}: salary, person.email, phones"})
    for number, salary in enumerate(SALARIES):
        row = {"id": number, "ssn": str(number), "salary": Decimal(salary), "person": {"email": "e", "age": number}, "note": "n"}
        table.append(table_of_people([row]))
    return table


@pytest.mark.parametrize(
    "order",
    ["salary", "SALARY", ["id", "salary"], SortColumn("salary", descending=True), ZOrder(("id", "salary")), "person", "phones"],
    ids=str,
)
def test_a_compaction_does_not_sort_by_a_protected_column_nor_by_what_has_one_within(people: EncryptedTable, order: Any) -> None:
    before = people.metadata_location
    with pytest.raises(ConfigurationError, match="cannot be sorted by"):
        m.compact(people, rewrite_all=True, sort_by=order)
    assert people.refresh().metadata_location == before


def test_a_compaction_sorts_by_other_columns(people: EncryptedTable) -> None:
    m.compact(people, rewrite_all=True, sort_by=SortColumn("id", descending=True))
    assert people.refresh().scan().to_arrow()["id"].to_pylist() == [2, 1, 0]


def test_a_column_that_is_no_longer_protected_can_be_sorted_by(people: EncryptedTable) -> None:
    declare(people, "")
    m.compact(people, rewrite_all=True, sort_by="salary")
    assert people.refresh().scan().to_arrow()["salary"].to_pylist() == sorted(map(Decimal, SALARIES))


@pytest.mark.parametrize("transform", [IdentityTransform(), TruncateTransform(10)], ids=str)
def test_a_sort_order_names_no_protected_column_with_any_transform(people: EncryptedTable, transform: Any) -> None:
    with pytest.raises(ConfigurationError, match="rows cannot be sorted by column 'salary'"), people.update_sort_order() as update:
        update.asc("salary", transform)
    assert not people.refresh().sort_order().fields


def test_a_column_that_the_table_is_sorted_by_is_not_declared(both: Clients) -> None:
    table = protected_table(both.payroll, "db.sorted", **{"encryption.column-keys": ""})
    with table.update_sort_order() as update:
        update.desc("ssn", IdentityTransform())
    assert table.sort_order().fields[0].direction == SortDirection.DESC
    with pytest.raises(ConfigurationError, match="rows cannot be sorted by column 'ssn'"), table.transaction() as transaction:
        transaction.set_properties({"encryption.column-keys": f"{COLUMN_KEY}: ssn"})


@pytest.mark.parametrize("name", ["salary", "Salary", "person", "PERSON.Email", "phones", "phones.element"])
def test_names_are_compared_without_case_and_with_what_they_lie_in(people: EncryptedTable, name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be sorted by"):
        check_sort_columns(metadata_of(people), ["id", name])


def test_other_names_are_left_to_whoever_knows_the_rows(people: EncryptedTable) -> None:
    check_sort_columns(metadata_of(people), ["id", "person.age", "no such column"])
