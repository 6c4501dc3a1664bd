"""A SQLite database that another process reads for longer than a commit waits."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitStateUnknownException

from tests.support.aws import AwsServer
from tests.support.tables import encrypted_sql_catalog, ids, new_table, rows


def test_a_commit_that_the_database_did_not_make_is_seen_and_pinned_by_nobody(warehouse: Path, aws: AwsServer) -> None:
    """Its changes would stay on the connection, for the next session of this process alone."""
    properties = {"uri": f"sqlite:///{warehouse}/busy.db?timeout=0.1", "encryption.pins": str(warehouse / "pins.json")}
    catalog = encrypted_sql_catalog(warehouse, aws, properties)
    table = new_table(catalog, appends=[rows(0, 1)])

    with closing(sqlite3.connect(warehouse / "busy.db")) as other, closing(other.cursor()) as reading:
        reading.execute("SELECT * FROM iceberg_tables UNION ALL SELECT * FROM iceberg_tables").fetchone()
        with pytest.raises(CommitStateUnknownException):
            table.append(rows(1, 1))
        assert ids(catalog.load_table(table.name())) == [0]

    catalog.load_table(table.name()).append(rows(2, 1))
    assert ids(encrypted_sql_catalog(warehouse, aws, properties).load_table(table.name())) == [0, 2]
