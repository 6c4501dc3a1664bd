"""Ctrl-C in a notebook: the call that it ends says so, and the next call on the same objects goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.interruptions import interrupted_in
from tests.support.tables import encrypted_sql_catalog, ids, new_table, rows


def pinned_table(warehouse: Path, aws: AwsServer) -> EncryptedTable:
    catalog: EncryptedSqlCatalog = encrypted_sql_catalog(warehouse, aws, {"encryption.pins": str(warehouse / "pins.json")})
    return new_table(catalog, appends=[rows(0, 1)])


@pytest.mark.parametrize(
    ("function", "number"), [*(("ser_model", number) for number in (1, 2, 3, 4)), *(("serialize_model", number) for number in (1, 2, 3))]
)
def test_metadata_that_is_not_written_to_its_end_is_said_to_be_interrupted(
    warehouse: Path, aws: AwsServer, function: str, number: int
) -> None:
    """pydantic makes a ValueError of it, which would be one about text that UTF-8 cannot hold."""
    table = pinned_table(warehouse, aws)
    with pytest.raises(KeyboardInterrupt), interrupted_in(function, number):
        table.append(rows(1, 1))

    table.append(rows(2, 1))
    assert ids(table) == [0, 2]


def test_the_lock_of_the_pin_file_is_free_after_it_was_taken_and_interrupted(warehouse: Path, aws: AwsServer) -> None:
    table = pinned_table(warehouse, aws)
    # A notebook keeps the last error, and with it whatever the call held.
    with pytest.raises(KeyboardInterrupt) as kept, interrupted_in("BaseFileLock.acquire", 1, event="return"):
        table.append(rows(1, 1))

    table.refresh().append(rows(2, 1))
    assert ids(table) == [0, 1, 2]
    del kept
