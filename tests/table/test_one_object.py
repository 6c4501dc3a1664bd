"""One table object that several threads write through: each write stands on what it began with, and none takes away the rows of another.

What a thread does in the middle of another's write is done here by the rows as they are read, or between two steps of a transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.interrupted_catalog import INTERRUPTED, at_commits
from tests.support.tables import encrypted_sql_catalog, ids, new_table, rows


@pytest.fixture
def table(catalog: Catalog) -> EncryptedTable:
    return new_table(catalog, appends=[rows(0, 1)], properties={"commit.retry.min-wait-ms": "1"})


def test_a_commit_while_rows_are_read_keeps_its_rows(table: EncryptedTable) -> None:
    """PyIceberg alone commits on the head of before, and says that it was the head of now: the rows of the other commit are gone."""

    def read() -> Iterator[pa.RecordBatch]:
        table.append(rows(1, 1))
        yield from rows(2, 1).to_batches()

    table.append(pa.RecordBatchReader.from_batches(rows(2, 1).schema, read()))

    assert ids(table) == [0, 1, 2]
    assert table.metadata == table.catalog.load_table(table.name()).metadata


def test_a_commit_between_the_steps_of_a_transaction_keeps_its_rows(table: EncryptedTable) -> None:
    transaction = table.transaction()
    transaction.append(rows(1, 1))
    table.append(rows(2, 1))
    transaction.delete("id = 0")

    assert transaction.commit_transaction() is table
    assert ids(table) == [1, 2]


def test_an_older_commit_takes_nothing_newer_from_the_object(warehouse: Path, aws: AwsServer) -> None:
    catalog = encrypted_sql_catalog(warehouse, aws, INTERRUPTED)
    table = new_table(catalog, appends=[rows(0, 1)])
    others = iter([rows(2, 1)])

    def commit_after() -> None:
        for each in others:
            catalog.load_table(table.name()).append(each)
            table.refresh()

    with at_commits(after=commit_after):
        table.append(rows(1, 1))

    assert table.metadata == catalog.load_table(table.name()).metadata
    assert ids(table) == [0, 1, 2]
