"""`table.maintenance`: every function of tablecrypt.maintenance on an encrypted table, with its own arguments, beside PyIceberg's own."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Final

import pytest
from pyiceberg.table import Table

from tablecrypt import maintenance
from tablecrypt.maintenance.table_maintenance import TableMaintenance
from tablecrypt.operations import OPERATIONS
from tests.support.tables import memory_catalog, new_table, rows

ELSEWHERE: Final = {
    "migrate": "is for plaintext tables",
    "list_tables": "is for catalogs",
    "on_tables": "is for catalogs",
    "doctor": "takes the catalog first",
    "doctor_without_catalog": "is for where no table can be loaded",
    "changes_since": "compares two audits",
    "write_evidence": "writes an audit, of however many tables",
}
FUNCTIONS: Final = [name for name in maintenance.__all__ if name[0].islower() and name not in ELSEWHERE]


@pytest.fixture
def table(warehouse: Path) -> Table:
    return new_table(memory_catalog(warehouse), appends=[rows(0), rows(1)])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_method_takes_what_the_function_takes_without_the_table(table: Table, name: str) -> None:
    function, method = getattr(maintenance, name), getattr(table.maintenance, name)
    arguments = list(inspect.signature(function).parameters.values())

    assert list(inspect.signature(method).parameters.values()) == arguments[1:]
    assert method.__doc__ == function.__doc__
    assert getattr(TableMaintenance, name) is function


def test_every_declared_operation_on_an_encrypted_table_is_a_method() -> None:
    assert {name for name in OPERATIONS if name in vars(TableMaintenance)} == OPERATIONS.keys() - {"migrate", "list_tables"}


def test_methods_do_what_the_functions_do(table: Table) -> None:
    count = len(table.scan().to_arrow())

    assert table.maintenance.compact(rewrite_all=True).table == "db.t"  # type: ignore[attr-defined]
    assert table.maintenance.rotate_kek().manifest_list_keys == 3  # type: ignore[attr-defined]
    assert table.maintenance.verify(quick=True).is_good  # type: ignore[attr-defined]
    assert table.maintenance.doctor().is_well  # type: ignore[attr-defined]
    assert len(table.refresh().scan().to_arrow()) == count


def test_the_operations_of_pyiceberg_stay(table: Table) -> None:
    first = table.snapshots()[0].snapshot_id
    table.maintenance.expire_snapshots().by_id(first).commit()

    assert table.refresh().snapshot_by_id(first) is None
