"""Every statement of Iceberg's page on writes; a statement that a page repeats is here once."""

from __future__ import annotations

from typing import Final

from tests.support.iceberg_sql.statements import Section, Statement, count

_T: Final = "prod.db.table"
_TARGET: Final = (
    "CREATE TABLE prod.db.target (id bigint, count int, status string) USING iceberg",
    "INSERT INTO prod.db.target VALUES (1, 1, 'old'), (2, NULL, 'old'), (3, 3, 'old'), (4, 4, 'old')",
)
_LOGS: Final = (
    "CREATE NAMESPACE IF NOT EXISTS prod.my_app",
    "DROP TABLE IF EXISTS prod.my_app.logs",
)
_EVENTS: Final = (
    "CREATE TABLE prod.db.all_events (session_time int, ignored boolean) USING iceberg",
    "INSERT INTO prod.db.all_events VALUES (1, false), (5, false), (9, false)",
    "CREATE TABLE prod.db.good_events USING iceberg AS SELECT 5 AS session_time",
    "CREATE TABLE prod.db.orders (oid int, order_status string) USING iceberg",
    "INSERT INTO prod.db.orders VALUES (1, 'new'), (2, 'new')",
    "CREATE TABLE prod.db.returned_orders USING iceberg AS SELECT 2 AS oid",
    "CREATE TABLE prod.db.table (c1 string, c2 string, ts timestamp) USING iceberg",
    "INSERT INTO prod.db.table VALUES ('a', 'b', timestamp'2020-05-03 00:00:00'), ('c', 'd', timestamp'2021-01-01 00:00:00')",
)
_BRANCH: Final = "prod.db.table.branch_audit"
_MAY: Final = "WHERE ts >= '2020-05-01 00:00:00' and ts < '2020-06-01 00:00:00'"
_OLDER: Final = "WHERE session_time < (SELECT min(session_time) FROM prod.db.good_events)"
_RETURNED: Final = "WHERE EXISTS (SELECT oid FROM prod.db.returned_orders WHERE t1.oid = oid)"


def _merge(source: str, clauses: str, target: str = "prod.db.target") -> str:
    return f"MERGE INTO {target} t USING ({source}) s ON t.id = s.id {clauses}"


WRITES: Final = (
    Section(
        "Writes",
        "INSERT INTO",
        (
            Statement("INSERT INTO prod.db.table VALUES (1, 'a'), (2, 'b')", check=count(2, _T)),
            Statement("INSERT INTO prod.db.table SELECT id + 2, data FROM prod.db.table", check=count(4, _T)),
        ),
        ("CREATE TABLE prod.db.table (id bigint, data string) USING iceberg",),
    ),
    Section(
        "Writes",
        "MERGE INTO",
        (
            Statement(
                _merge(
                    "SELECT * FROM VALUES (1, 'delete'), (2, 'increment'), (3, 'increment') AS v(id, op)",
                    "WHEN MATCHED AND s.op = 'delete' THEN DELETE "
                    "WHEN MATCHED AND t.count IS NULL AND s.op = 'increment' THEN UPDATE SET t.count = 0 "
                    "WHEN MATCHED AND s.op = 'increment' THEN UPDATE SET t.count = t.count + 1",
                ),
                check="SELECT count(*) = 3 AND sum(count) = 8 FROM prod.db.target",
            ),
            Statement(
                _merge("SELECT 5L AS id, 5 AS count, 'new' AS status", "WHEN NOT MATCHED THEN INSERT *"),
                check="SELECT count(*) = 4 FROM prod.db.target",
            ),
            Statement(
                _merge(
                    "SELECT * FROM VALUES (6L, 1), (7L, 9) AS v(id, event_time)",
                    "WHEN NOT MATCHED AND s.event_time > 5 THEN INSERT (id, count) VALUES (s.id, 1)",
                ),
                check="SELECT max(id) = 7 AND count(*) = 5 FROM prod.db.target",
            ),
            Statement(
                _merge("SELECT 7L AS id", "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET status = 'invalid'"),
                check="SELECT count(*) = 4 FROM prod.db.target WHERE status = 'invalid'",
            ),
        ),
        _TARGET,
        "test_random_statements.py",
    ),
    Section(
        "Writes",
        "INSERT OVERWRITE",
        (
            Statement(
                "CREATE TABLE prod.my_app.logs (uuid string NOT NULL, level string NOT NULL, ts timestamp NOT NULL, message string) "
                "USING iceberg "
                "PARTITIONED BY (level, hours(ts))",
                table="prod.my_app.logs",
            ),
            Statement(
                "INSERT OVERWRITE prod.my_app.logs SELECT uuid, first(level), first(ts), first(message) FROM prod.my_app.logs "
                "WHERE cast(ts as date) = '2020-07-01' GROUP BY uuid",
                (
                    "INSERT INTO prod.my_app.logs VALUES ('u', 'INFO', timestamp'2020-07-01 03:00:00', 'm'), "
                    "('u', 'INFO', timestamp'2020-07-01 03:00:00', 'm'), ('w', 'WARN', timestamp'2020-08-01 03:00:00', 'm')",
                    "SET spark.sql.sources.partitionOverwriteMode=dynamic",
                ),
                check=count(2, "prod.my_app.logs"),
            ),
            Statement(
                "INSERT OVERWRITE prod.my_app.logs PARTITION (level = 'INFO') SELECT uuid, first(ts), first(message) FROM prod.my_app.logs "
                "WHERE level = 'INFO' GROUP BY uuid",
                ("RESET spark.sql.sources.partitionOverwriteMode",),
                check=count(2, "prod.my_app.logs"),
            ),
        ),
        _LOGS,
        "test_random_statements.py",
    ),
    Section(
        "Writes",
        "DELETE FROM, UPDATE",
        (
            Statement(
                f"UPDATE prod.db.table SET c1 = 'update_c1', c2 = 'update_c2' {_MAY}",
                check="SELECT max(c1) = 'update_c1' FROM prod.db.table",
            ),
            Statement(
                f"UPDATE prod.db.all_events SET session_time = 0, ignored = true {_OLDER}",
                check="SELECT min(session_time) = 0 AND count_if(ignored) = 1 FROM prod.db.all_events",
            ),
            Statement(
                f"UPDATE prod.db.orders AS t1 SET order_status = 'returned' {_RETURNED}",
                check="SELECT max(order_status) = 'returned' FROM prod.db.orders",
            ),
            Statement(f"DELETE FROM prod.db.table {_MAY}", check=count(1, _T)),
            Statement(f"DELETE FROM prod.db.all_events {_OLDER}", check=count(2, "prod.db.all_events")),
            Statement(f"DELETE FROM prod.db.orders AS t1 {_RETURNED}", check=count(1, "prod.db.orders")),
        ),
        _EVENTS,
        "test_random_statements.py",
    ),
    Section(
        "Writes",
        "Writing to branches",
        (
            Statement(f"INSERT INTO {_BRANCH} VALUES (1, 'a'), (2, 'b')", check=count(2, _BRANCH)),
            Statement(
                _merge("SELECT 1L AS id, 'm' AS val", "WHEN MATCHED THEN UPDATE SET t.val = s.val", _BRANCH),
                check=f"SELECT count(*) = 1 FROM {_BRANCH} WHERE val = 'm'",
            ),
            Statement(f"UPDATE {_BRANCH} AS t1 SET val = 'c'", check=f"SELECT min(val) = 'c' FROM {_BRANCH}"),
            Statement(f"DELETE FROM {_BRANCH} WHERE id = 2", check=count(1, _BRANCH)),
            Statement(
                "INSERT INTO prod.db.table VALUES (3, 'c')",
                ("SET spark.wap.branch = audit", "ALTER TABLE prod.db.table SET TBLPROPERTIES ('write.wap.enabled'='true')"),
                check="SELECT count(*) = 2 AND (SELECT count(*) FROM prod.db.table VERSION AS OF 'main') = 0 FROM prod.db.table",
            ),
        ),
        (
            "CREATE TABLE prod.db.table (id bigint, val string) USING iceberg",
            "INSERT INTO prod.db.table VALUES (0, 'z')",
            "DELETE FROM prod.db.table",
            "CALL prod.system.create_branch(table => 'db.table', branch => 'audit')",
        ),
    ),
    Section(
        "Writes",
        "Distribution modes",
        (
            Statement(
                "CREATE TABLE prod.db.sample (id bigint, data string, category string, ts timestamp) USING iceberg "
                "PARTITIONED BY (days(ts), category)"
            ),
            Statement("INSERT INTO prod.db.sample SELECT id, data, category, ts FROM prod.db.another_table", check=count(1)),
        ),
        (
            "CREATE TABLE prod.db.another_table USING iceberg AS SELECT 1L AS id, 'a' AS data, 'x' AS category, "
            "timestamp'2026-01-01 00:00:00' AS ts",
        ),
    ),
)
