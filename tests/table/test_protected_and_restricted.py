"""Protected columns of tables of which a REST server restricts what may be read: key and server both decide, and the stricter wins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa
import pytest

from tablecrypt.errors import ColumnKeyDeniedError
from tablecrypt.table.table import EncryptedTable
from tests.support.protected_tables import SSN, TABLE_KEY, Clients
from tests.support.restricting_server import RestrictingServer

ROWS = pa.table({"id": [1, 2, 3], "ssn": ["S-11-1111", "S-22-2222", "VIP"], "note": ["a", "b", "c"]})
NOT_VIP = {"required-row-filter": {"type": "not-eq", "left": {"type": "reference", "id": SSN}, "right": "VIP"}}
NOTE_C = {"required-row-filter": {"type": "eq", "left": {"type": "reference", "id": 3}, "right": "c"}}


READS: list[Callable[[EncryptedTable], object]] = [
    lambda table: table.scan().to_arrow(),
    lambda table: table.scan(selected_fields=("id",)).to_arrow(),
    lambda table: table.scan(selected_fields=("id",)).count(),
    lambda table: table.scan().to_arrow_batch_reader().read_all(),
    lambda table: table.scan().to_arrow_dataset().to_table(),
]


def masked_by(action: str) -> dict[str, Any]:
    return {"required-column-projections": [{"field-id": SSN, "action": action}]}


@pytest.fixture
def server(both: Clients) -> Iterator[RestrictingServer]:
    with RestrictingServer(both.payroll) as running:
        yield running


@pytest.fixture
def loaded(both: Clients, server: RestrictingServer) -> Callable[..., EncryptedTable]:
    """The table with ssn masked so, as a client of the server loads it who has the key of ssn or not."""

    def load(restrictions: object, with_key: bool, mask: str = "null") -> EncryptedTable:
        if not both.payroll.table_exists("db.people"):
            declared = {"encryption.key-id": TABLE_KEY, "encryption.column-keys": "pii: ssn", "encryption.column-mask.ssn": mask}
            both.payroll.create_table("db.people", ROWS.schema, properties=declared).append(ROWS)
        server.read_restrictions = restrictions
        of = both.payroll if with_key else both.analyst
        keyring = {name: value for name, value in of.properties.items() if "kms" in name}
        return cast("EncryptedTable", server.client(**keyring).load_table("db.people"))

    return load


def ssn(table: EncryptedTable) -> list[str | None]:
    return cast("list[str | None]", table.scan().to_arrow().sort_by("id")["ssn"].to_pylist())


@pytest.mark.parametrize(
    ("action", "with_key", "without"),
    [
        ("mask-alphanum", ["x-nn-nnnn", "x-nn-nnnn", "xxx"], [None] * 3),
        ("show-last-4", ["x-nn-1111", "x-nn-2222", "VIP"], [None] * 3),
        ("replace-with-null", [None] * 3, [None] * 3),
    ],
)
def test_the_servers_mask_is_of_values_with_the_key_and_of_masks_without(
    loaded: Callable[..., EncryptedTable], action: str, with_key: list[str | None], without: list[str | None]
) -> None:
    assert (ssn(loaded(masked_by(action), True)), ssn(loaded(masked_by(action), False))) == (with_key, without)


def test_the_servers_mask_goes_over_a_stored_one(loaded: Callable[..., EncryptedTable]) -> None:
    assert ssn(loaded(masked_by("mask-alphanum"), False, "truncate(1)")) == ["x", "x", "x"]
    assert ssn(loaded(masked_by("replace-with-null"), False, "truncate(1)")) == [None] * 3


def test_a_row_filter_of_the_server_is_for_true_values_and_refused_without_them(loaded: Callable[..., EncryptedTable]) -> None:
    """On masks it would let through the row that it is there to hide."""
    for mask in ("null", "redact"):
        assert ssn(loaded(NOT_VIP, True, mask)) == ["S-11-1111", "S-22-2222"]
        table = loaded(NOT_VIP, False, mask)
        for read in READS:
            with pytest.raises(ColumnKeyDeniedError):
                read(table)
        table.catalog.close()


def test_a_row_filter_on_another_column_leaves_masks_as_they_are(loaded: Callable[..., EncryptedTable]) -> None:
    assert (ssn(loaded(NOTE_C, True)), ssn(loaded(NOTE_C, False))) == (["VIP"], [None])
    assert loaded(NOTE_C, False).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist() == [3]


def test_a_readers_filter_sees_the_servers_mask_with_the_key_and_is_refused_without(loaded: Callable[..., EncryptedTable]) -> None:
    with_key = loaded(masked_by("mask-alphanum"), True)
    assert with_key.scan("ssn = 'VIP'").to_arrow().num_rows == 0
    assert with_key.scan("ssn = 'xxx'").to_arrow()["id"].to_pylist() == [3]
    with pytest.raises(ColumnKeyDeniedError):
        loaded(masked_by("mask-alphanum"), False).scan("ssn = 'xxx'").to_arrow()
