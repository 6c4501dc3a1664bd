"""What executors import, each of their Python workers again, is what they need."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

HEAVY = ("tablecrypt.maintenance", "tablecrypt_catalog", "sqlalchemy", "pyiceberg.catalog.sql")


@pytest.mark.parametrize("module", ["tablecrypt.spark.read", "tablecrypt.spark.write", "tablecrypt.spark.executor_job"])
def test_workers_that_read_and_write_import_no_maintenance_and_no_catalog(module: str) -> None:
    look = f"import {module}, sys; print([each for each in sys.modules if each.startswith({HEAVY})])"

    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=120).stdout

    assert found.strip() == "[]"
