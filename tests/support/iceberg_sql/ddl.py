"""Every statement of Iceberg's page on DDL; a statement that a page repeats is here once."""

from __future__ import annotations

from typing import Final

from tests.support.iceberg_sql.statements import Section, Statement, count

_SAMPLE: Final = "CREATE TABLE prod.db.sample (id bigint NOT NULL, data string, category string, ts timestamp) USING iceberg"
_ROWS: Final = (
    "INSERT INTO prod.db.sample VALUES (1, 'a', 'x', timestamp'2026-01-01 00:00:00'), (2, 'b', 'y', timestamp'2026-01-02 01:00:00')",
    "INSERT INTO prod.db.sample VALUES (3, 'c', 'x', timestamp'2026-02-01 00:00:00')",
)
_SOURCE: Final = "SELECT 1 AS part, 'a' AS data UNION ALL SELECT 2, 'b'"

_CREATE: Final = (
    Section(
        "DDL",
        "CREATE TABLE",
        (
            Statement(
                "CREATE TABLE prod.db.sample (id bigint NOT NULL COMMENT 'unique id', data string) USING iceberg",
                columns="struct<id:bigint,data:string>",
            ),
            Statement(
                "CREATE TABLE prod.db.sample (id bigint, data string, category string) USING iceberg PARTITIONED BY (category)",
                ("DROP TABLE prod.db.sample",),
                columns="struct<id:bigint,data:string,category:string>",
            ),
            Statement(
                "CREATE TABLE prod.db.sample (id bigint, data string, category string, ts timestamp) USING iceberg "
                "PARTITIONED BY (bucket(16, id), days(ts), category)",
                ("DROP TABLE prod.db.sample",),
                columns="struct<id:bigint,data:string,category:string,ts:timestamp>",
            ),
            *(
                Statement(
                    f"CREATE TABLE prod.db.sample (id bigint, data string, ts timestamp) USING iceberg PARTITIONED BY ({transform})",
                    ("DROP TABLE prod.db.sample",),
                )
                for transform in (
                    "year(ts)",
                    "month(ts)",
                    "day(ts)",
                    "hour(ts)",
                    "years(ts)",
                    "months(ts)",
                    "hours(ts)",
                    "truncate(4, data)",
                )
            ),
            Statement(
                "CREATE TABLE prod.db.sample (id bigint) USING iceberg LOCATION '$warehouse/elsewhere' COMMENT 'table documentation' "
                "TBLPROPERTIES ('key'='value')",
                ("DROP TABLE prod.db.sample",),
            ),
        ),
        also="test_definitions.py",
    ),
    Section(
        "DDL",
        "CREATE TABLE … AS SELECT",
        (
            Statement(f"CREATE TABLE prod.db.sample USING iceberg AS {_SOURCE}", check=count(2)),
            Statement(
                f"CREATE TABLE prod.db.sample USING iceberg PARTITIONED BY (part) TBLPROPERTIES ('key'='value') AS {_SOURCE}",
                ("DROP TABLE prod.db.sample",),
                check=count(2),
            ),
        ),
    ),
    Section(
        "DDL",
        "REPLACE TABLE … AS SELECT",
        (
            Statement("REPLACE TABLE prod.db.sample USING iceberg AS SELECT 1 AS part, 'a' AS data", check=count(1)),
            Statement(
                f"REPLACE TABLE prod.db.sample USING iceberg PARTITIONED BY (part) TBLPROPERTIES ('key'='value') AS {_SOURCE}",
                check=count(2),
            ),
            Statement(
                f"CREATE OR REPLACE TABLE prod.db.sample USING iceberg AS {_SOURCE}",
                check="SELECT count(*) >= 4 FROM prod.db.sample.snapshots",
            ),
        ),
        (_SAMPLE, *_ROWS),
    ),
    Section(
        "DDL",
        "DROP TABLE",
        (
            Statement("DROP TABLE prod.db.sample"),
            Statement("DROP TABLE prod.db.sample PURGE", (_SAMPLE, *_ROWS)),
        ),
        (_SAMPLE,),
    ),
    Section(
        "DDL",
        "ALTER TABLE",
        (
            Statement(
                "ALTER TABLE prod.db.sample RENAME TO prod.db.new_name", table="prod.db.new_name", check=count(0, "prod.db.new_name")
            ),
            Statement(
                "ALTER TABLE prod.db.sample SET TBLPROPERTIES ('read.split.target-size'='268435456')",
                ("ALTER TABLE prod.db.new_name RENAME TO prod.db.sample",),
            ),
            Statement("ALTER TABLE prod.db.sample UNSET TBLPROPERTIES ('read.split.target-size')"),
            Statement("ALTER TABLE prod.db.sample SET TBLPROPERTIES ('comment' = 'A table comment.')"),
            Statement("ALTER TABLE prod.db.sample SET TBLPROPERTIES ('write.spark.accept-any-schema'='true')"),
        ),
        (_SAMPLE,),
    ),
    Section(
        "DDL",
        "ALTER TABLE … ADD COLUMN",
        (
            Statement(
                "ALTER TABLE prod.db.sample ADD COLUMNS (new_column string comment 'new_column docs')",
                columns="struct<id:bigint,new_column:string>",
            ),
            Statement("ALTER TABLE prod.db.sample ADD COLUMN point struct<x: double, y: double>"),
            Statement(
                "ALTER TABLE prod.db.sample ADD COLUMN point.z double",
                columns="struct<id:bigint,new_column:string,point:struct<x:double,y:double,z:double>>",
            ),
            Statement("ALTER TABLE prod.db.sample ADD COLUMN points array<struct<x: double, y: double>>"),
            Statement("ALTER TABLE prod.db.sample ADD COLUMN points.element.z double"),
            Statement(
                "ALTER TABLE prod.db.sample ADD COLUMN points map<struct<x: int>, struct<a: int>>",
                ("ALTER TABLE prod.db.sample DROP COLUMN points",),
            ),
            Statement(
                "ALTER TABLE prod.db.sample ADD COLUMN points.value.b int",
                columns="struct<id:bigint,new_column:string,point:struct<x:double,y:double,z:double>,"
                "points:map<struct<x:int>,struct<a:int,b:int>>>",
            ),
            Statement(
                "ALTER TABLE prod.db.sample ADD COLUMN new_column bigint AFTER other_column",
                ("ALTER TABLE prod.db.sample RENAME COLUMN new_column TO other_column",),
            ),
            Statement(
                "ALTER TABLE prod.db.sample ADD COLUMN nested.new_column bigint FIRST",
                ("ALTER TABLE prod.db.sample RENAME COLUMN point TO nested", "ALTER TABLE prod.db.sample DROP COLUMN points"),
                columns="struct<id:bigint,other_column:string,new_column:bigint,nested:struct<new_column:bigint,x:double,y:double,z:double>>",
            ),
        ),
        ("CREATE TABLE prod.db.sample (id bigint) USING iceberg", "INSERT INTO prod.db.sample VALUES (1)"),
    ),
    Section(
        "DDL",
        "ALTER TABLE … RENAME, ALTER and DROP COLUMN",
        (
            Statement("ALTER TABLE prod.db.sample RENAME COLUMN data TO payload", check="SELECT payload = 'a' FROM prod.db.sample"),
            Statement(
                "ALTER TABLE prod.db.sample RENAME COLUMN location.lat TO latitude",
                check="SELECT location.latitude = 1 FROM prod.db.sample",
            ),
            Statement(
                "ALTER TABLE prod.db.sample ALTER COLUMN measurement TYPE double", check="SELECT measurement = 0.5 FROM prod.db.sample"
            ),
            Statement(
                "ALTER TABLE prod.db.sample ALTER COLUMN measurement TYPE double COMMENT 'unit is bytes per second'",
                check="SELECT measurement = 0.5 FROM prod.db.sample",
            ),
            Statement("ALTER TABLE prod.db.sample ALTER COLUMN measurement COMMENT 'unit is kilobytes per second'"),
            Statement("ALTER TABLE prod.db.sample ALTER COLUMN col FIRST", ("ALTER TABLE prod.db.sample RENAME COLUMN payload TO col",)),
            Statement(
                "ALTER TABLE prod.db.sample ALTER COLUMN nested.col AFTER other_col",
                columns="struct<col:string,id:bigint,location:struct<latitude:int,long:int>,measurement:double,point:struct<x:int,z:int>,"
                "nested:struct<other_col:int,col:int>>",
            ),
            Statement("ALTER TABLE prod.db.sample ALTER COLUMN id DROP NOT NULL"),
            Statement("ALTER TABLE prod.db.sample DROP COLUMN id"),
            Statement(
                "ALTER TABLE prod.db.sample DROP COLUMN point.z",
                columns="struct<col:string,location:struct<latitude:int,long:int>,measurement:double,point:struct<x:int>,"
                "nested:struct<other_col:int,col:int>>",
                check="SELECT nested.col = 4 AND point.x = 1 AND col = 'a' FROM prod.db.sample",
            ),
        ),
        (
            "CREATE TABLE prod.db.sample (id bigint NOT NULL, data string, location struct<lat: int, long: int>, measurement float, "
            "point struct<x: int, z: int>, nested struct<col: int, other_col: int>) USING iceberg",
            "INSERT INTO prod.db.sample VALUES (1, 'a', struct(1, 2), CAST(0.5 AS float), struct(1, 2), struct(4, 5))",
        ),
    ),
)

_EXTENSIONS: Final = (
    Section(
        "DDL",
        "ALTER TABLE … PARTITION FIELD",
        (
            Statement("ALTER TABLE prod.db.sample ADD PARTITION FIELD catalog"),
            Statement("ALTER TABLE prod.db.sample ADD PARTITION FIELD bucket(16, id)"),
            Statement("ALTER TABLE prod.db.sample ADD PARTITION FIELD truncate(4, data)"),
            Statement("ALTER TABLE prod.db.sample ADD PARTITION FIELD year(ts)"),
            Statement("ALTER TABLE prod.db.sample DROP PARTITION FIELD catalog"),
            Statement("ALTER TABLE prod.db.sample DROP PARTITION FIELD bucket(16, id)"),
            Statement("ALTER TABLE prod.db.sample DROP PARTITION FIELD truncate(4, data)"),
            Statement("ALTER TABLE prod.db.sample DROP PARTITION FIELD year(ts)"),
            Statement("ALTER TABLE prod.db.sample ADD PARTITION FIELD bucket(16, id) AS shard"),
            Statement("ALTER TABLE prod.db.sample DROP PARTITION FIELD shard"),
            Statement(
                "ALTER TABLE prod.db.sample REPLACE PARTITION FIELD ts_day WITH hour(ts)",
                ("ALTER TABLE prod.db.sample ADD PARTITION FIELD day(ts)",),
            ),
            Statement("ALTER TABLE prod.db.sample REPLACE PARTITION FIELD ts_hour WITH day(ts) AS day_of_ts"),
        ),
        ("CREATE TABLE prod.db.sample (id bigint, data string, catalog string, ts timestamp) USING iceberg",),
    ),
    Section(
        "DDL",
        "ALTER TABLE … WRITE, IDENTIFIER FIELDS",
        (
            Statement("ALTER TABLE prod.db.sample WRITE ORDERED BY category, id"),
            Statement("ALTER TABLE prod.db.sample WRITE ORDERED BY category ASC, id DESC"),
            Statement("ALTER TABLE prod.db.sample WRITE ORDERED BY category ASC NULLS LAST, id DESC NULLS FIRST"),
            Statement(
                "INSERT INTO prod.db.sample SELECT id + 10, data, category, ts FROM prod.db.another_table ORDER BY ts, category",
                check=count(6),
            ),
            Statement("ALTER TABLE prod.db.sample WRITE LOCALLY ORDERED BY category, id"),
            Statement("ALTER TABLE prod.db.sample WRITE UNORDERED"),
            Statement("ALTER TABLE prod.db.sample WRITE DISTRIBUTED BY PARTITION"),
            Statement("ALTER TABLE prod.db.sample WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY category, id"),
            Statement("ALTER TABLE prod.db.sample SET IDENTIFIER FIELDS id"),
            Statement("ALTER TABLE prod.db.sample SET IDENTIFIER FIELDS id, data"),
            Statement("ALTER TABLE prod.db.sample DROP IDENTIFIER FIELDS id"),
            Statement(
                "ALTER TABLE prod.db.sample DROP IDENTIFIER FIELDS id, data", ("ALTER TABLE prod.db.sample SET IDENTIFIER FIELDS id, data",)
            ),
        ),
        (
            _SAMPLE.replace("data string", "data string NOT NULL"),
            *_ROWS,
            "CREATE TABLE prod.db.another_table USING iceberg AS SELECT * FROM prod.db.sample",
        ),
    ),
    Section(
        "DDL",
        "ALTER TABLE … BRANCH, TAG",
        (
            Statement("ALTER TABLE prod.db.sample CREATE BRANCH `audit-branch`"),
            Statement("ALTER TABLE prod.db.sample CREATE BRANCH IF NOT EXISTS `audit-branch`"),
            Statement("ALTER TABLE prod.db.sample CREATE OR REPLACE BRANCH `audit-branch`"),
            Statement(
                "ALTER TABLE prod.db.sample CREATE BRANCH `audit-branch2` AS OF VERSION $first",
                check=count(2, "prod.db.sample.`branch_audit-branch2`"),
            ),
            Statement(
                "ALTER TABLE prod.db.sample CREATE BRANCH `audit-branch3` AS OF VERSION $first RETAIN 30 DAYS "
                "WITH SNAPSHOT RETENTION 3 SNAPSHOTS 2 DAYS",
                check="SELECT min_snapshots_to_keep = 3 FROM prod.db.sample.refs WHERE name = 'audit-branch3'",
            ),
            Statement("ALTER TABLE prod.db.sample CREATE TAG `historical-tag`"),
            Statement("ALTER TABLE prod.db.sample CREATE TAG IF NOT EXISTS `historical-tag`"),
            Statement("ALTER TABLE prod.db.sample CREATE OR REPLACE TAG `historical-tag`"),
            Statement(
                "ALTER TABLE prod.db.sample CREATE TAG `historical-tag2` AS OF VERSION $first",
                check=count(2, "prod.db.sample.`tag_historical-tag2`"),
            ),
            Statement("ALTER TABLE prod.db.sample CREATE TAG `historical-tag3` AS OF VERSION $first RETAIN 365 DAYS"),
            Statement(
                "ALTER TABLE prod.db.sample REPLACE BRANCH `audit-branch` AS OF VERSION $first RETAIN 60 DAYS",
                check=count(2, "prod.db.sample.`branch_audit-branch`"),
            ),
            Statement("ALTER TABLE prod.db.sample REPLACE TAG `historical-tag` AS OF VERSION $first RETAIN 60 DAYS"),
            Statement("ALTER TABLE prod.db.sample DROP BRANCH `audit-branch`"),
            Statement("ALTER TABLE prod.db.sample DROP TAG `historical-tag`", check="SELECT count(*) = 5 FROM prod.db.sample.refs"),
        ),
        (_SAMPLE, *_ROWS),
    ),
)

_NO_VIEW: Final = ("DROP VIEW IF EXISTS prod.db.v",)
_VIEWS: Final = (
    Section(
        "DDL",
        "Views",
        (
            Statement("CREATE VIEW prod.db.v AS SELECT * FROM prod.db.sample", check=count(3, "prod.db.v")),
            Statement("CREATE VIEW IF NOT EXISTS prod.db.v AS SELECT * FROM prod.db.sample", check=count(3, "prod.db.v")),
            Statement(
                "CREATE VIEW prod.db.v (ID COMMENT 'Unique ID', ZIP COMMENT 'Zipcode') COMMENT 'View Comment' "
                "AS SELECT id, data FROM prod.db.sample",
                _NO_VIEW,
                check="SELECT count(ZIP) = 3 FROM prod.db.v",
            ),
            Statement(
                "CREATE VIEW prod.db.v TBLPROPERTIES ('key1' = 'val1', 'key2' = 'val2') AS SELECT * FROM prod.db.sample",
                _NO_VIEW,
                check=count(3, "prod.db.v"),
            ),
            Statement("SHOW TBLPROPERTIES prod.db.v"),
            Statement(
                "CREATE VIEW prod.db.v TBLPROPERTIES ('location' = '$warehouse/views/v') AS SELECT * FROM prod.db.sample",
                _NO_VIEW,
                check=count(3, "prod.db.v"),
            ),
            Statement("DROP VIEW prod.db.v"),
            Statement("DROP VIEW IF EXISTS prod.db.v"),
            Statement(
                "CREATE OR REPLACE VIEW prod.db.v (updated_id COMMENT 'updated ID') TBLPROPERTIES ('key1' = 'new_val1') "
                "AS SELECT id FROM prod.db.sample",
                ("CREATE VIEW prod.db.v AS SELECT * FROM prod.db.sample",),
                check="SELECT sum(updated_id) = 6 FROM prod.db.v",
            ),
            Statement("ALTER VIEW prod.db.v SET TBLPROPERTIES ('key1' = 'val1', 'key2' = 'val2')"),
            Statement("ALTER VIEW prod.db.v UNSET TBLPROPERTIES ('key1', 'key2')"),
            Statement("SHOW VIEWS IN prod.db"),
            Statement("SHOW CREATE TABLE prod.db.v"),
            Statement("DESCRIBE EXTENDED prod.db.v"),
        ),
        (_SAMPLE, *_ROWS),
        also="test_views.py",
    ),
)

DDL: Final = (*_CREATE, *_EXTENSIONS, *_VIEWS)
