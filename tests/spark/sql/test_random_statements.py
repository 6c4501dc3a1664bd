"""Random statements of SQL on encrypted tables, in both write modes, while columns and partitions change and others write in between.

After every statement the catalog and Python read the rows of a model, with the row ids and sequence numbers that row lineage asks for. A
random condition finds the model's rows, and an older snapshot has what it had. In the end every file verifies, no file lies around that no
metadata names, and Iceberg Java reads the same rows and lineage.
"""

from __future__ import annotations

import datetime as dt
import itertools
from typing import TYPE_CHECKING, Final

import pytest
from pyiceberg.catalog import load_catalog

import tablecrypt.spark as tcs
from tablecrypt.maintenance import remove_orphan_files, verify
from tests.spark.conftest import Lake
from tests.spark.sql.partitionings import PARTITIONINGS
from tests.spark.sql.proof import Proof
from tests.spark.sql.table_model import MAIN, without_lineage
from tests.support.java import RUNS_HERE, JavaOracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.java
MODES: Final = ("merge-on-read", "copy-on-write")
SEEDS: Final = range(100, 120)
_numbers = itertools.count()


@pytest.fixture
def oracle(request: pytest.FixtureRequest) -> JavaOracle | None:
    """Iceberg Java; None on a release of Spark on which it does not run."""
    return request.getfixturevalue("java") if RUNS_HERE else None


def prove(seed: int, steps: int, spark: SparkSession, lake: Lake, oracle: JavaOracle | None, *, replaces: bool) -> None:
    name = f"proof{next(_numbers)}"
    catalog = load_catalog(name, **lake.properties)
    catalog.create_namespace("db")
    tcs.catalog(spark, name, lake.properties)
    proof = Proof(seed, spark, name, catalog, MODES[seed % 2], PARTITIONINGS[seed // 2 % len(PARTITIONINGS)], replaces=replaces)
    proof.run(steps)

    table = proof.table
    assert verify(table).is_good
    tomorrow = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    assert not remove_orphan_files(table, older_than=tomorrow).found
    if oracle is None:
        return
    oracle.register(f"proved.{name}", table.metadata_location)
    found = without_lineage(oracle.rows(f"proved.{name}", lineage=True).to_pylist(), proof.model.columns[0].name)
    assert found == (proof.model.shown(proof.model.branches[MAIN], proof.model.columns), proof.model.lineage[MAIN])


@pytest.mark.parametrize("seed", [0, pytest.param(3, marks=pytest.mark.campaign)])
def test_tables_are_what_a_model_says(seed: int, spark: SparkSession, lake: Lake, oracle: JavaOracle | None) -> None:
    prove(seed, 12, spark, lake, oracle, replaces=False)


@pytest.mark.releases
@pytest.mark.parametrize("seed", SEEDS)
def test_tables_of_many_seeds_are_what_a_model_says(seed: int, spark: SparkSession, lake: Lake, oracle: JavaOracle | None) -> None:
    prove(seed, 6, spark, lake, oracle, replaces=True)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", SEEDS)
def test_tables_are_what_a_model_says_for_long(seed: int, spark: SparkSession, lake: Lake, oracle: JavaOracle | None) -> None:
    prove(seed, 24, spark, lake, oracle, replaces=True)
