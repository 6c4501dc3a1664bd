"""Iceberg Java reads a share with the partner's key, and neither expires nor deletes what belongs to the source."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tablecrypt.maintenance import share
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.java import JavaError, JavaOracle
from tests.support.shares import NORTH
from tests.support.tables import MERGE_ON_READ, encrypted_sql_catalog, files_below, folder_of, team_table

pytestmark = pytest.mark.java

NAMES = (f"kept.share{number}" for number in itertools.count())


@pytest.fixture
def table(warehouse: Path, aws: AwsServer) -> EncryptedTable:
    table = team_table(encrypted_sql_catalog(warehouse, aws), 0, 100, properties=MERGE_ON_READ)
    table.delete("id in (2, 3)")
    return table


def test_java_reads_a_share_with_the_partners_key_and_honours_that_its_files_are_not_its_own(
    table: EncryptedTable, java: JavaOracle, aws: AwsServer
) -> None:
    place, name = f"{table.location().rpartition('/')[0]}/share", next(NAMES)
    result = share(table, aws.kms_key_id("alias/people"), place, NORTH)
    before = files_below(folder_of(table))

    java.register(name, result.metadata_location)

    assert_same_rows(java.rows(name), table.scan(NORTH).to_arrow())
    for refused in (
        f"CALL h.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '2100-01-01 00:00:00')",
        f"CALL h.system.remove_orphan_files(table => '{name}')",
        f"DROP TABLE h.{name} PURGE",
    ):
        with pytest.raises(JavaError, match="GC is disabled"):
            java.sql(refused)
    assert files_below(folder_of(table)) == before
    assert_same_rows(java.rows(name), table.scan(NORTH).to_arrow())


def test_java_reads_the_other_columns_of_a_share_that_has_a_protected_one(warehouse: Path, java: JavaOracle, aws: AwsServer) -> None:
    properties = {"encryption.column-keys": f"{aws.new_key()}: note"}
    catalog = encrypted_sql_catalog(warehouse, aws)
    table = team_table(catalog, 0, properties=properties)
    place, name = f"{table.location().rpartition('/')[0]}/share-with-note", next(NAMES)
    result = share(table, aws.kms_key_id("alias/people"), place, NORTH, columns={"note": aws.new_key()})

    java.register(name, result.metadata_location)

    wanted = sorted(table.scan(NORTH, selected_fields=("id",)).to_arrow()["id"].to_pylist())
    shown = java.sql(f"SELECT id FROM h.{name}")
    assert shown is not None
    assert sorted(shown["id"].to_pylist()) == wanted
    with pytest.raises(JavaError, match="could not read page"):
        java.sql(f"SELECT note FROM h.{name}")
