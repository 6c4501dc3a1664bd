"""Statements that fail in a task: one line with the cause, and one stack trace in the log. Run as a program, as a user does."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Final

import pytest

from tests.spark.conftest import ROOT
from tests.support.pages import DOCS, run_page
from tests.support.plaintext import CANARY

pytestmark = [pytest.mark.java, pytest.mark.slow]

PROGRAM: Final = textwrap.dedent("""
    import json
    import shutil
    import sys
    from pathlib import Path
    from pyspark.sql import SparkSession
    import tablecrypt.spark as tcs

    builder = SparkSession.builder.master("local[2,2]").config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    tcs.catalog(spark, "prod")
    of_key = "TBLPROPERTIES ('encryption.key-id' = 'orders')"
    spark.sql(f"CREATE TABLE prod.db.rows (id bigint, page string) {of_key}")
    spark.sql("INSERT INTO prod.db.rows SELECT id, 'CANARY' FROM range(2000)")
    rows = spark.range(10).selectExpr("id", "'CANARY' AS page")
    data = Path("warehouse/db/rows/data")

    def attempt(name, statement):
        print("#", name, file=sys.stderr, flush=True)
        try:
            statement()
        except Exception as error:
            print(json.dumps([name, type(error).__name__, str(error)]), flush=True)

    stored = {path: path.read_bytes() for path in data.glob("*.parquet")}
    for path, content in stored.items():
        third = len(content) // 3
        path.write_bytes(content[:third] + bytes([content[third] ^ 1]) + content[third + 1 :])
    attempt("tampered: SELECT", lambda: spark.sql("SELECT * FROM prod.db.rows").collect())
    attempt("tampered: CREATE TABLE", lambda: spark.sql(f"CREATE TABLE prod.db.copy {of_key} AS SELECT * FROM prod.db.rows"))
    attempt("tampered: read_table", lambda: tcs.read_table(spark, "prod.db.rows", path="jvm").collect())
    for path in stored:
        path.unlink()
    data.rmdir()
    data.write_text("a file in the place of the folder")
    attempt("unwritable: INSERT", lambda: spark.sql("INSERT INTO prod.db.rows VALUES (1, 'home'), (2, 'search')"))
    attempt("unwritable: writeTo", lambda: rows.writeTo("prod.db.rows").append())
    attempt("unwritable: write_table", lambda: tcs.write_table(rows, "prod.db.rows", path="jvm"))
    """).replace("CANARY", CANARY)
_READ: Final = r"\[FAILED_READ_FILE.NO_HINT\] Encountered error while reading file "
TOLD: Final = {
    "tampered": _READ + r"TamperedFileError: file:/+\S+\.parquet: does not authenticate \(.*",
    "unwritable": r"\[TASK_WRITE_FAILED\] Task failed while writing rows to file:///\S+\.parquet: FileAlreadyExistsException: .*",
}
STATEMENTS: Final = 6


def test_a_task_that_fails_is_one_line_and_one_stack_trace(warehouse: Path) -> None:
    run_page((DOCS / "start/sql-catalog.md").read_text(encoding="utf-8"), warehouse, {})
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "catalog")]), "PYSPARK_PYTHON": sys.executable}

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=warehouse,
        env=environment | {"SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=580,
    )

    assert done.returncode == 0, done.stderr
    errors = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(errors) == STATEMENTS
    for name, kind, message in errors:
        assert kind == "SparkRuntimeException", (name, message)
        assert re.fullmatch(TOLD[name.partition(":")[0]], message), (name, message)
    for logged in done.stderr.split("\n# ")[1:]:
        assert logged.count("ERROR TaskErrors: a task fails: ") <= 2, logged
        # Of a CREATE TABLE … AS SELECT, Spark also logs the driver's stack: where the query was planned, and where it ran.
        assert len(logged.splitlines()) < (300 if logged.startswith("tampered: CREATE TABLE") else 200), logged
    assert CANARY not in done.stderr + done.stdout
    with sqlite3.connect(warehouse / "catalog.db") as database:
        assert {name for (name,) in database.execute("SELECT table_name FROM iceberg_tables")} == {"orders", "rows"}
