"""What a table remembers of its shares outlasts what Iceberg Java does to it: commits, and the removal of orphans."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import pytest

from tablecrypt.maintenance.sharing.records import live_shares
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.java import JavaOracle
from tests.support.java_sides import Sides
from tests.support.shares import shared
from tests.support.tables import encrypted_sql_catalog, files_below, folder_of, new_table, rows

pytestmark = pytest.mark.java

NAMES = (f"kept.records{number}" for number in itertools.count())
MONTH = 30 * 24 * 60 * 60


@pytest.fixture
def table(unwatched_warehouse: Path, aws: AwsServer) -> EncryptedTable:
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws)
    catalog.create_namespace("kept")
    return new_table(catalog, appends=[rows(0), rows(20)])


def test_what_java_commits_keeps_the_shares(table: EncryptedTable, java: JavaOracle) -> None:
    records = sorted([shared(table), shared(table, "id < 20")], key=lambda each: each.share_uuid)
    sides = Sides(java, table, next(NAMES))
    for statement in (
        "INSERT INTO h.{} VALUES (100, 'x')",
        "ALTER TABLE h.{} SET TBLPROPERTIES ('a' = 'b')",
        "DELETE FROM h.{} WHERE id = 3",
        "CALL h.system.rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))",
    ):
        sides.change_in_java(lambda of, name, _, statement=statement: of.sql(statement.format(name)))  # type: ignore[misc]
        assert live_shares(sides.table) == records, statement


def test_javas_removal_of_orphans_leaves_the_records(table: EncryptedTable, java: JavaOracle) -> None:
    record = shared(table)
    orphan = folder_of(table) / "data" / "orphan.parquet"
    orphan.write_bytes(b"PARE")
    for path in files_below(folder_of(table)):
        os.utime(path, (time.time() - MONTH,) * 2)
    sides = Sides(java, table, next(NAMES))

    sides.change_in_java(lambda of, name, _: of.sql(f"CALL h.system.remove_orphan_files(table => '{name}')"))

    assert not orphan.exists()
    assert live_shares(sides.table) == [record]
