"""gc.enabled=false stops each statement and procedure that deletes files of a table, before anything changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tablecrypt.spark.sql.procedures import PROCEDURES
from tests.spark.conftest import Lake
from tests.spark.sql.test_write import SIMPLE, create
from tests.support.aws import AwsServer
from tests.support.tables import folder_of, ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]
DELETE: Final = {
    "erase": "CALL prod.system.erase(table => '{}', row_filter => 'id = 1')",
    "expire_snapshots": "CALL prod.system.expire_snapshots(table => '{}', older_than => TIMESTAMP '2100-01-01')",
    "remove_orphan_files": "CALL prod.system.remove_orphan_files(table => '{}')",
    "shred": "CALL prod.system.shred(table => '{}', whole_table => '{}')",
    "shred_column": "CALL prod.system.shred_column(table => '{}', column => 'note')",
    "migrate": "CALL prod.system.migrate(table => '{}_plain', key_id => 'alias/orders')",
}
KEEP: Final = {
    *("accept_update", "add_files", "alter_table", "ancestors_of", "audit", "cherrypick_snapshot", "compact", "create_branch"),
    "create_changelog_view",
    *("create_tag", "doctor", "drop_branch", "drop_tag", "fast_forward", "prune_keys", "publish_changes", "reencrypt", "register_table"),
    *("relocate", "rescue", "rewrap", "rewrap_column_keks", "rewrite_data_files", "rewrite_manifests", "rewrite_position_delete_files"),
    *("rollback_to_snapshot", "rollback_to_timestamp", "rotate_column_keks", "rotate_kek", "set_current_snapshot", "snapshot"),
    *("share", "shares", "undelete_column", "unshare", "verify"),
}


def test_each_statement_that_deletes_files_is_refused(spark: SparkSession, prod: Lake, aws: AwsServer, new_name: str) -> None:
    disabled = {"gc.enabled": "false"}
    table = create(prod, new_name, SIMPLE, properties={**disabled, "encryption.column-keys": f"{aws.new_key()}: note"})
    plain = prod.catalog.create_table(f"{new_name}_plain", SIMPLE, properties=disabled)
    for note in ("a", "b"):
        spark.sql(f"INSERT INTO prod.{new_name} VALUES (1, '{note}')")
    folders = [folder_of(each) for each in (table, plain)]
    before = [sorted(folder.rglob("*")) for folder in folders]

    for statement in (*DELETE.values(), "DROP TABLE prod.{} PURGE"):
        with pytest.raises(Exception, match=r"GC is disabled \(gc\.enabled='false'\): deleting files may corrupt other tables"):
            spark.sql(statement.format(new_name, new_name))

    assert [sorted(folder.rglob("*")) for folder in folders] == before
    assert ids(table.refresh()) == [1, 1] and prod.catalog.table_exists(f"{new_name}_plain")
    spark.sql(f"CALL prod.system.remove_orphan_files(table => '{new_name}', dry_run => true)")
    spark.sql(f"ALTER TABLE prod.{new_name} SET TBLPROPERTIES ('gc.enabled' = 'true')")
    spark.sql(f"DROP TABLE prod.{new_name} PURGE")
    assert not prod.catalog.table_exists(new_name)


def test_no_procedure_is_missing_from_these_lists() -> None:
    assert PROCEDURES.keys() == DELETE.keys() | KEEP
