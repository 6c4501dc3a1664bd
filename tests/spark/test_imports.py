"""What executors import, each of their Python workers again, is what they need; so is what a program and the planner start with."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

pytestmark = pytest.mark.slow

HEAVY: Final = ("tablecrypt.maintenance", "tablecrypt_catalog", "sqlalchemy", "pyiceberg.catalog.sql")
OF_PROCEDURES: Final = ("tablecrypt.maintenance", "pyspark", "tablecrypt.spark.runner", "tablecrypt.spark.sql.procedures")
ALL: Final = ("pyarrow", "pyiceberg", "tablecrypt.table", "tablecrypt.spark.read", "boto3")


@pytest.mark.parametrize(
    ("module", "left_out"),
    [
        *((f"tablecrypt.spark.{each}", HEAVY) for each in ("read", "write", "executor_job")),
        ("tablecrypt.spark.sql.process", OF_PROCEDURES),
        ("tablecrypt.spark.sql.added_catalog", ALL),
    ],
)
def test_modules_import_nothing_that_only_others_need(module: str, left_out: tuple[str, ...]) -> None:
    look = f"import {module}, sys; print([each for each in sys.modules if each.startswith({left_out})])"

    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=120).stdout

    assert found.strip() == "[]"
