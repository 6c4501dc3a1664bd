"""Every statement of Iceberg's page on queries; a statement that a page repeats is here once."""

from __future__ import annotations

from typing import Final

from tests.support.iceberg_sql.statements import Section, Statement, count

_T: Final = "prod.db.table"
_TABLE: Final = (
    "CREATE TABLE prod.db.table (id bigint, data string, ts timestamp) USING iceberg PARTITIONED BY (truncate(10, id)) "
    "TBLPROPERTIES ('write.delete.mode'='merge-on-read')",
    "INSERT INTO prod.db.table VALUES (1, 'a', timestamp'2026-01-01 00:00:00')",
    "INSERT INTO prod.db.table VALUES (2, 'b', timestamp'2026-01-01 00:00:00'), (3, 'c', timestamp'2026-01-01 00:00:00')",
)
_TRAVELS: Final = (
    "TIMESTAMP AS OF $then",
    "VERSION AS OF $first",
    "VERSION AS OF 'audit-branch'",
    "VERSION AS OF 'historical-snapshot'",
    "FOR SYSTEM_TIME AS OF $then",
    "FOR SYSTEM_VERSION AS OF $first",
    "FOR SYSTEM_VERSION AS OF 'audit-branch'",
    "FOR SYSTEM_VERSION AS OF 'historical-snapshot'",
    "TIMESTAMP AS OF $seconds",
    "FOR SYSTEM_TIME AS OF $seconds",
)
_METADATA: Final = (
    "history", "metadata_log_entries", "snapshots", "entries", "files", "manifests", "partitions", "all_data_files",
    "all_delete_files", "all_entries", "all_manifests", "refs",
)  # fmt: skip

QUERIES: Final = (
    Section(
        "Queries",
        "SELECT and functions",
        (
            Statement(f"SELECT * FROM {_T}", check=count(3, _T), table=_T),
            Statement(
                "SELECT prod.system.iceberg_version()", check="SELECT prod.system.iceberg_version() LIKE 'tablecrypt % (PyIceberg %)'"
            ),
            Statement(f"SELECT prod.system.bucket(16, id), prod.system.days(ts) FROM {_T}"),
        ),
        _TABLE,
    ),
    Section(
        "Queries",
        "Time travel",
        (
            *(Statement(f"SELECT * FROM {_T} {travel}", check=f"SELECT count(*) = 1 FROM {_T} {travel}", table=_T) for travel in _TRAVELS),
            *(
                Statement(f"SELECT * FROM {_T}.`{name}`", check=f"SELECT count(*) = 1 FROM {_T}.`{name}`", table=_T)
                for name in ("branch_audit-branch", "tag_historical-snapshot")
            ),
        ),
        (
            *_TABLE[:2],
            "CALL prod.system.create_branch(table => 'db.table', branch => 'audit-branch')",
            "CALL prod.system.create_tag(table => 'db.table', tag => 'historical-snapshot')",
            "$wait",
            _TABLE[2],
        ),
    ),
    Section(
        "Queries",
        "Schema selection in time travel queries",
        (
            Statement("CREATE TABLE prod.db.orders (id BIGINT, status STRING) USING iceberg"),
            Statement("INSERT INTO prod.db.orders VALUES (1, 'NEW'), (2, 'PAID')"),
            Statement("ALTER TABLE prod.db.orders ADD COLUMN total DOUBLE", ("$wait",)),
            Statement("INSERT INTO prod.db.orders VALUES (3, 'PAID', 100.0)", check="SELECT sum(total) = 100 FROM prod.db.orders"),
            *(
                Statement(
                    f"SELECT * FROM prod.db.orders {travel}",
                    check="SELECT true",
                    table="prod.db.orders",
                    columns=f"struct<id:bigint,status:string{more}>",
                )
                for travel, more in (
                    ("VERSION AS OF $first", ""),
                    ("TIMESTAMP AS OF $then", ""),
                )
            ),
        ),
    ),
    Section(
        "Queries",
        "Inspecting tables",
        (
            Statement(
                f"SELECT * FROM {_T}.position_deletes",
                check=f"SELECT count(*) = 1 AND min(content_offset) > 0 AND min(partition.id_trunc) = 0 FROM {_T}.position_deletes",
                table=_T,
            ),
            *(Statement(f"SELECT * FROM {_T}.{name}", check=f"SELECT count(*) > 0 FROM {_T}.{name}", table=_T) for name in _METADATA),
            Statement(
                f"SELECT h.made_current_at, s.operation, h.snapshot_id, h.is_current_ancestor, s.summary['spark.app.id'] "
                f"FROM {_T}.history h "
                f"JOIN {_T}.snapshots s ON h.snapshot_id = s.snapshot_id ORDER BY made_current_at",
                table=_T,
            ),
            Statement(
                f"SELECT * FROM {_T}.manifests TIMESTAMP AS OF $then",
                check=f"SELECT count(*) = 1 FROM {_T}.manifests TIMESTAMP AS OF $then",
                table=_T,
            ),
            Statement(
                f"SELECT * FROM {_T}.partitions VERSION AS OF $first",
                check=f"SELECT sum(record_count) = 1 FROM {_T}.partitions VERSION AS OF $first",
                table=_T,
            ),
        ),
        (*_TABLE[:2], "$wait", _TABLE[2], "DELETE FROM prod.db.table WHERE id = 2"),
    ),
)
