"""The master keys of columns are tried when columns are declared, each once, as the table's own is when a table is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.types import StringType

from tablecrypt.errors import KeyNotFoundError, KmsAccessDeniedError, TablecryptError
from tablecrypt.kms.factory import shared_kms
from tablecrypt.table.replacement import stage_replacement
from tablecrypt.table.transaction import EncryptedTransaction
from tests.support.protected_tables import PEOPLE_SCHEMA, Clients, clients, declare, protected_table, write_only

TYPO: Final = {"encryption.key-id": "orders", "encryption.column-keys": "pi: ssn"}


def calls(catalog: Catalog) -> Counter[str]:
    return shared_kms({name: str(value) for name, value in catalog.properties.items()}).calls


@pytest.fixture
def counted(both: Clients) -> Callable[[], dict[str, int]]:
    before = calls(both.payroll)
    return lambda: dict(calls(both.payroll) - before)


def _with_rows(catalog: Catalog, properties: dict[str, str]) -> None:
    with catalog.create_table_transaction("db.typo", PEOPLE_SCHEMA, properties=properties):
        pass


@pytest.mark.parametrize(
    "make",
    [
        lambda catalog, properties: catalog.create_table("db.typo", PEOPLE_SCHEMA, properties=properties),
        lambda catalog, properties: catalog.create_table_if_not_exists("db.typo", PEOPLE_SCHEMA, properties=properties),
        _with_rows,
    ],
    ids=["create_table", "create_table_if_not_exists", "create_table_transaction"],
)
def test_a_table_with_an_unknown_key_for_a_column_is_not_made(both: Clients, make: Callable[[Catalog, dict[str, str]], Any]) -> None:
    with pytest.raises(KeyNotFoundError, match=r"'pi'.*for column 'ssn'; nothing was changed"):
        make(both.payroll, TYPO)
    with pytest.raises(NoSuchTableError):
        both.payroll.load_table("db.typo")


def test_each_distinct_key_is_tried_once_and_wraps_one_kek(both: Clients, counted: Callable[[], dict[str, int]]) -> None:
    protected_table(both.payroll, **{"encryption.column-keys": "pii: ssn, person.email, note; fin: salary"})

    assert counted() == {"wrap_key": 5, "unwrap_key": 3}, "the table's own is tried; pii and fin are tried and wrap a KEK, which is opened"


def test_a_key_that_is_declared_later_is_tried_and_one_that_stays_is_not(both: Clients, counted: Callable[[], dict[str, int]]) -> None:
    table = protected_table(both.payroll)
    before = counted()["wrap_key"]
    for declared in ("pii: ssn, person.email; pi: note", "pi: ssn"):
        with pytest.raises(KeyNotFoundError, match="'pi'"), table.transaction() as transaction:
            transaction.set_properties({"encryption.column-keys": declared})
    assert table.refresh().properties["encryption.column.2.key-id"] == "pii"
    before = counted()["wrap_key"]
    declare(table, "pii: ssn, person.email, note", ssn="truncate(2)")
    assert counted()["wrap_key"] == before
    declare(table, "pii: ssn, person.email; fin: note")
    assert counted()["wrap_key"] == before + 2, "fin is tried, and wraps a KEK"


def test_a_tag_and_a_replacement_are_declarations_too(both: Clients) -> None:
    table = protected_table(both.payroll)
    declare(table, "pii: ssn, person.email")
    with pytest.raises(KeyNotFoundError, match="'pi'"), table.transaction() as transaction:
        stage_replacement(cast("EncryptedTransaction", transaction), PEOPLE_SCHEMA, table.spec(), {"encryption.column-keys": "pi: note"})
    tagging = both.payroll.create_table(
        "db.tagged", PEOPLE_SCHEMA, properties={"encryption.key-id": "orders", "encryption.column-tags": "pii: pi"}
    )
    with pytest.raises(KeyNotFoundError, match=r"'pi'.*'iban'"), tagging.update_schema() as change:
        change.add_column("iban", StringType(), doc="#pii")


def test_who_may_only_wrap_can_make_the_table_and_append(both: Clients) -> None:
    table = protected_table(write_only(both))

    assert both.payroll.load_table(table.name()).properties["encryption.column.2.key-id"] == "pii"


def test_who_may_not_even_wrap_is_told_before_the_table_is_there(both: Clients) -> None:
    with pytest.raises((KeyNotFoundError, KmsAccessDeniedError), match="for column 'ssn'"):
        protected_table(both.analyst)
    with pytest.raises(NoSuchTableError):
        both.analyst.load_table("db.people")


def test_a_key_that_is_not_allowed_is_refused_without_asking(tmp_path: Path) -> None:
    both = clients(tmp_path, {"encryption.allowed-key-ids": "orders"})
    before = calls(both.payroll)
    with pytest.raises(TablecryptError, match="does not allow"):
        protected_table(both.payroll)
    assert dict(calls(both.payroll) - before) == {"wrap_key": 1, "unwrap_key": 1}, "of the table's own key"
