"""A statement that fails in a task: one line with the cause, and one stack trace in the log. Run as a program, as a user does."""

from __future__ import annotations

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

START: Final = textwrap.dedent(f"""
    import shutil
    from pathlib import Path
    from pyspark.sql import SparkSession
    import tablecrypt.spark as tcs
    builder = SparkSession.builder.master("local[2,2]").config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    tcs.catalog(spark, "prod")
    spark.sql("CREATE TABLE prod.db.rows (id bigint, page string) TBLPROPERTIES ('encryption.key-id' = 'orders')")
    spark.sql("INSERT INTO prod.db.rows SELECT id, '{CANARY}' FROM range(2000)")
    rows = spark.range(10).selectExpr("id", "'{CANARY}' AS page")
    data = Path("warehouse/db/rows/data")
    """)
TAMPERED: Final = textwrap.dedent("""
    for path in data.glob("*.parquet"):
        content = bytearray(path.read_bytes())
        content[len(content) // 3] ^= 1
        path.write_bytes(content)
    """)
NO_FOLDER: Final = 'shutil.rmtree(data)\ndata.write_text("no folder")\n'
OF_KEY: Final = "TBLPROPERTIES ('encryption.key-id' = 'orders')"
READ: Final = (
    r"\[FAILED_READ_FILE.NO_HINT\] Encountered error while reading file TamperedFileError: file:///\S+\.parquet: does not authenticate"
)
WRITE: Final = r"\[TASK_WRITE_FAILED\] Task failed while writing rows to file:///\S+\.parquet: FileAlreadyExistsException: "


@pytest.mark.parametrize(
    ("fault", "statement", "told"),
    [
        (TAMPERED, 'spark.sql("SELECT count(page) FROM prod.db.rows").show()', READ),
        (TAMPERED, f'spark.sql("CREATE TABLE prod.db.copy {OF_KEY} AS SELECT * FROM prod.db.rows")', READ),
        (TAMPERED, "spark.sql(\"UPDATE prod.db.rows SET page = 'x' WHERE id = 3\")", READ),
        (NO_FOLDER, "spark.sql(\"INSERT INTO prod.db.rows VALUES (1, 'home'), (2, 'search')\")", WRITE),
        (NO_FOLDER, 'rows.writeTo("prod.db.rows").append()', WRITE),
        (NO_FOLDER, 'tcs.write_table(rows, "prod.db.rows", path="jvm")', WRITE),
    ],
    ids=["select", "create table as select", "update", "insert", "writeTo", "write_table"],
)
def test_a_task_that_fails_is_one_line_and_one_stack_trace(warehouse: Path, fault: str, statement: str, told: str) -> None:
    run_page((DOCS / "start/sql-catalog.md").read_text(encoding="utf-8"), warehouse, {})
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "catalog")]), "PYSPARK_PYTHON": sys.executable}

    done = subprocess.run(
        [sys.executable, "-c", START + fault + statement],
        cwd=warehouse,
        env=environment | {"SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=280,
    )

    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert re.match(rf"pyspark\.errors\.exceptions\.captured\.SparkRuntimeException: {told}", lines[-1])
    assert done.stderr.count("ERROR TaskErrors: a task fails: ") == 1
    assert len([line for line in lines if line.startswith("\tat ")]) < 80
    assert len(lines) < 130
    assert CANARY not in done.stderr
    with sqlite3.connect(warehouse / "catalog.db") as database:
        assert {name for (name,) in database.execute("SELECT table_name FROM iceberg_tables")} == {"orders", "rows"}
