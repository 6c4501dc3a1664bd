"""Verifying a table on Spark's executors finds what it finds here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tablecrypt.maintenance import verify
from tablecrypt.spark import SparkRunner
from tests.spark.conftest import CATALOG, Lake
from tests.support.command import Command
from tests.support.tables import flip, folder_of, maintained_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.slow]


def test_a_job_verifies_as_threads_here_do(spark: SparkSession, lake: Lake) -> None:
    table = maintained_table(lake.catalog, "db.verified")

    here, there = verify(table), verify(table, runner=SparkRunner(spark))

    assert there == here
    assert there.is_good
    # The session that is there already is the one that the command finds.
    done = Command(lake.properties, CATALOG).run("verify", "db.verified", "--spark", "--json")
    assert (done.code, json.loads(done.stdout)["files"]) == (0, here.files), done.stderr


def test_a_job_names_every_bad_file(spark: SparkSession, lake: Lake) -> None:
    table = maintained_table(lake.catalog, "db.damaged")
    damaged = [next(folder_of(table).rglob("*.parquet")), next(folder_of(table).rglob("*.puffin"))]
    for path in damaged:
        flip(path, 60)

    here, there = verify(table), verify(table, runner=SparkRunner(spark))

    assert {file.location for file in there.bad} == {f"file://{path}" for path in damaged}
    assert {file.location: file.problems for file in there.bad} == {file.location: file.problems for file in here.bad}
