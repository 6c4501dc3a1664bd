"""Every call on Iceberg's page of Spark procedures."""

from __future__ import annotations

from typing import Final

from tests.support.iceberg_sql.statements import Section, Statement

_SAMPLE: Final = (
    "CREATE TABLE prod.db.sample (id bigint, name string, c1 int, c2 int) USING iceberg PARTITIONED BY (bucket(2, id)) "
    "TBLPROPERTIES ('write.delete.mode'='merge-on-read')",
    "INSERT INTO prod.db.sample VALUES (1, 'foo', 1, 1)",
    "INSERT INTO prod.db.sample VALUES (2, 'bar', 2, 2), (3, 'foo', 3, 3)",
)
_SYSTEM: Final = "CALL prod.system."
_ROWS: Final = "SELECT count(*) = {} FROM prod.db.sample"

_TABLE_STATISTICS: Final = "the file would hold facts about the data, and Iceberg Java 1.12 drops its key-metadata at the next commit"
_PARTITION_STATISTICS: Final = "the file would hold facts about the data, and Iceberg has no place for its key"
_RELOCATE: Final = "paths are part of what an encrypted table authenticates; CALL prod.system.relocate copies it"


def _staged(wap_id: str, number: int) -> tuple[str, ...]:
    """Statements that write a row under an id."""
    return (
        "ALTER TABLE prod.db.sample SET TBLPROPERTIES ('write.wap.enabled'='true')",
        f"SET spark.wap.id = {wap_id}",
        f"INSERT INTO prod.db.sample VALUES ({number}, 'staged', 0, 0)",
        "RESET spark.wap.id",
    )


def _call(call: str, check: str | None = None, *before: str, refused: str | None = None) -> Statement:
    return Statement(f"{_SYSTEM}{call}", before, check, refused=refused)


_SNAPSHOTS: Final = Section(
    "Procedures",
    "Snapshot management",
    (
        _call("rollback_to_snapshot('db.sample', $first)", _ROWS.format(1)),
        _call("set_current_snapshot('db.sample', $last)", _ROWS.format(3)),
        _call("rollback_to_timestamp('db.sample', TIMESTAMP $then)", _ROWS.format(1)),
        _call("set_current_snapshot(table => 'db.sample', ref => 's1')", _ROWS.format(3)),
        _call("cherrypick_snapshot('db.sample', $last)", _ROWS.format(3), f"{_SYSTEM}rollback_to_snapshot('db.sample', $first)"),
        _call(
            "cherrypick_snapshot(snapshot_id => $last, table => 'db.sample')",
            _ROWS.format(3),
            f"{_SYSTEM}set_current_snapshot('db.sample', $first)",
        ),
        _call("publish_changes('db.sample', 'wap_id_1')", _ROWS.format(4), *_staged("wap_id_1", 4)),
        _call("publish_changes(wap_id => 'wap_id_2', table => 'db.sample')", _ROWS.format(5), *_staged("wap_id_2", 5)),
        _call(
            "fast_forward('db.sample', 'main', 'audit-branch')",
            _ROWS.format(6),
            f"{_SYSTEM}create_branch(table => 'db.sample', branch => 'audit-branch')",
            "INSERT INTO prod.db.sample.`branch_audit-branch` VALUES (6, 'audit', 6, 6)",
        ),
        _call("ancestors_of('db.sample')"),
        _call("ancestors_of('db.sample', $first)"),
        _call("ancestors_of(snapshot_id => $first, table => 'db.sample')"),
    ),
    (*_SAMPLE[:2], "$wait", _SAMPLE[2], f"{_SYSTEM}create_tag(table => 'db.sample', tag => 's1')"),
    "test_procedures.py",
)

_SCHEMA: Final = Section(
    "Procedures",
    "Schema management",
    (
        _call(
            "undelete_column('db.sample', 'location')",
            "SELECT max(location) = 'here' FROM prod.db.sample",
            "ALTER TABLE prod.db.sample ADD COLUMN location string",
            "INSERT INTO prod.db.sample VALUES (9, 'i', 9, 9, 'here')",
            "ALTER TABLE prod.db.sample DROP COLUMN location",
        ),
    ),
    _SAMPLE,
)

_FILES: Final = Section(
    "Procedures",
    "Metadata management",
    (
        _call("rewrite_data_files('db.sample')", _ROWS.format(3)),
        _call("rewrite_data_files(table => 'db.sample', strategy => 'sort', sort_order => 'id DESC NULLS LAST,name ASC NULLS FIRST')"),
        _call("rewrite_data_files(table => 'db.sample', strategy => 'sort', sort_order => 'zorder(c1,c2)')"),
        _call("rewrite_data_files(table => 'db.sample', options => map('min-input-files', '2', 'remove-dangling-deletes', 'true'))"),
        _call("rewrite_data_files(table => 'db.sample', where => 'id = 3 and name = \"foo\"')", _ROWS.format(3)),
        _call("rewrite_manifests('db.sample')", _ROWS.format(3)),
        _call("rewrite_manifests(table => 'db.sample', spec_id => 0)", _ROWS.format(3)),
        _call("rewrite_manifests(table => 'db.sample', sort_by => array('id_bucket'))", _ROWS.format(3)),
        _call("rewrite_position_delete_files('db.sample')", _ROWS.format(2), "DELETE FROM prod.db.sample WHERE id = 3"),
        _call("rewrite_position_delete_files(table => 'db.sample', options => map('rewrite-all', 'true'))", _ROWS.format(2)),
        _call("rewrite_position_delete_files(table => 'db.sample', options => map('min-input-files','2'))", _ROWS.format(2)),
        _call("remove_orphan_files(table => 'db.sample', dry_run => true)"),
        _call("remove_orphan_files(table => 'db.sample', location => '$table/data')"),
        _call(
            "remove_orphan_files(table => 'db.sample', file_list_view => 'files_view')",
            None,
            "CREATE TEMPORARY VIEW files_view AS SELECT 'file:///nowhere' AS file_path, timestamp'2020-01-01 00:00:00' AS last_modified",
        ),
        _call("remove_orphan_files(table => 'db.sample', prefix_mismatch_mode => 'IGNORE')"),
        _call("remove_orphan_files(table => 'db.sample', prefix_mismatch_mode => 'DELETE')"),
        _call("remove_orphan_files(table => 'db.sample', equal_schemes => map('file', 'file1'))"),
        _call("remove_orphan_files(table => 'db.sample', equal_authorities => map('ns1', 'ns2'))"),
        _call("remove_orphan_files(table => 'db.sample', prefix_listing => true)"),
        _call("expire_snapshots('db.sample', TIMESTAMP '2021-06-30 00:00:00.000', 100)"),
        _call("expire_snapshots(table => 'db.sample', snapshot_ids => ARRAY($first))", _ROWS.format(2)),
    ),
    _SAMPLE,
    "test_procedures.py",
)

_MIGRATION: Final = Section(
    "Procedures",
    "Table migration",
    (
        _call("snapshot('db.plain', 'db.snap')", "SELECT count(*) = 1 FROM prod.db.snap"),
        _call("snapshot('db.plain', 'db.snap2', '$warehouse/snap2/')", "SELECT count(*) = 1 FROM prod.db.snap2"),
        _call("migrate('db.plain')", "SELECT count(*) = 1 FROM prod.db.plain"),
        _call("migrate('db.plain2', map('foo', 'bar'))", "SELECT count(*) = 1 FROM prod.db.plain2"),
        _call("add_files(table => 'db.sample', source_table => 'spark_catalog.default.plain')", _ROWS.format(4)),
        _call(
            "add_files(table => 'db.sample', source_table => '`parquet`.`$plain`')",
            _ROWS.format(4),
            "DELETE FROM prod.db.sample WHERE name IS NULL",
        ),
        _call("register_table(table => 'db.registered', metadata_file => '$metadata')", "SELECT count(*) = 4 FROM prod.db.registered"),
    ),
    (*_SAMPLE, "$plain"),
)

_CHANGES: Final = Section(
    "Procedures",
    "Change data capture",
    (
        _call(
            "create_changelog_view(table => 'db.sample', options => map('start-snapshot-id','$first','end-snapshot-id', '$last'))",
            "SELECT count(*) = 4 AND count_if(_change_type = 'DELETE') = 1 FROM sample_changes",
        ),
        Statement("SELECT * FROM sample_changes"),
        _call(
            "create_changelog_view(table => 'db.sample', options => map('start-timestamp','1678335750489',"
            "'end-timestamp', '$milliseconds'), changelog_view => 'my_changelog_view')",
            "SELECT count(*) = 5 AND count(DISTINCT _commit_snapshot_id) = 3 FROM my_changelog_view",
        ),
        Statement(
            "SELECT * FROM my_changelog_view WHERE _change_type = 'INSERT' AND id = 3 ORDER BY _change_ordinal",
            check="SELECT count(*) = 1 FROM my_changelog_view WHERE _change_type = 'INSERT' AND id = 3",
        ),
        _call(
            "create_changelog_view(table => 'db.sample', options => map('start-snapshot-id','$first','end-snapshot-id', '$last'), "
            "identifier_columns => array('id', 'name'))",
            "SELECT count(*) = 4 AND count_if(_change_type LIKE 'UPDATE%' AND id = 2) = 2 FROM sample_changes",
        ),
        _call(
            "create_changelog_view(table => 'db.sample', options => map('end-snapshot-id', '$last'), net_changes => true)",
            "SELECT count(*) = 3 AND count_if(_change_type = 'INSERT') = 3 AND max(c1) = 20 FROM sample_changes",
        ),
        Statement(
            "SELECT * FROM prod.db.sample.changes",
            check="SELECT count(*) = 5 AND count_if(_change_type = 'DELETE') = 1 AND max(_change_ordinal) = 2 FROM prod.db.sample.changes",
        ),
    ),
    (*_SAMPLE, "UPDATE prod.db.sample SET c1 = 20 WHERE id = 2"),
)

_STATISTICS: Final = Section(
    "Procedures",
    "Statistics and table paths",
    (
        _call("compute_table_stats('db.sample')", refused=_TABLE_STATISTICS),
        _call("compute_table_stats(table => 'db.sample', snapshot_id => $first)", refused=_TABLE_STATISTICS),
        _call("compute_table_stats(table => 'db.sample', snapshot_id => $first, columns => array('c1', 'c2'))", refused=_TABLE_STATISTICS),
        _call("compute_partition_stats('db.sample')", refused=_PARTITION_STATISTICS),
        _call("compute_partition_stats(table => 'db.sample', snapshot_id => $first)", refused=_PARTITION_STATISTICS),
        _call(
            "rewrite_table_path(table => 'db.sample', source_prefix => '$table', target_prefix => '$warehouse/moved')", refused=_RELOCATE
        ),
        _call(
            "rewrite_table_path(table => 'db.sample', source_prefix => '$table', target_prefix => '$warehouse/moved', "
            "start_version => 'v2.metadata.json', end_version => 'v20.metadata.json', staging_location => '$warehouse/staging')",
            refused=_RELOCATE,
        ),
    ),
    _SAMPLE,
)

PROCEDURES: Final = (_SNAPSHOTS, _SCHEMA, _FILES, _MIGRATION, _CHANGES, _STATISTICS)
