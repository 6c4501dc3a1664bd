"""Timestamps as arguments: Spark's reach 290,000 years in both directions, Python's moments the years 1 to 9999."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.sql.calls import Call, moment_of
from tablecrypt.spark.sql.procedures import PROCEDURES
from tests.support.aws import AwsServer
from tests.support.tables import encrypted_sql_catalog, table_with_history

MOMENTS: Final = sorted((name, each.name) for name, run in PROCEDURES.items() for each in run.parameters if each.type == "TIMESTAMP")
SECOND: Final = 1_000_000
YEAR_10000: Final = 253_402_300_800 * SECOND
YEAR_0: Final = -62_135_596_801 * SECOND


@pytest.fixture(scope="module")
def catalog(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = encrypted_sql_catalog(tmp_path_factory.mktemp("moments"), aws)
    table_with_history(catalog, "db.t")
    return catalog


def called(catalog: Catalog, procedure: str, **arguments: Any) -> list[Any]:
    return list(PROCEDURES[procedure].run(Call(catalog, "prod", (), {"table": "db.t", **arguments})))


@pytest.mark.parametrize("microseconds", [YEAR_10000, YEAR_0, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize(("procedure", "argument"), MOMENTS)
def test_a_timestamp_that_python_has_not_is_refused_by_its_name(catalog: Catalog, procedure: str, argument: str, microseconds: int) -> None:
    before = catalog.load_table("db.t").metadata_location
    with pytest.raises(ConfigurationError, match=f"^{argument} is a timestamp outside of the years 1 to 9999"):
        called(catalog, procedure, **{argument: microseconds})
    assert catalog.load_table("db.t").metadata_location == before


@pytest.mark.parametrize("microseconds", [YEAR_10000 - 1, YEAR_0 + SECOND])
@pytest.mark.parametrize(("procedure", "argument"), MOMENTS)
def test_the_first_and_the_last_moment_that_python_has_are_taken(
    catalog: Catalog, procedure: str, argument: str, microseconds: int
) -> None:
    """Nothing that is computed with one leaves its range."""
    try:
        called(catalog, procedure, **{argument: microseconds})
    except ConfigurationError as refused:
        assert "is older than" in str(refused), "a rollback to before the first snapshot"


def test_the_moments_of_files_in_a_view_are_moments_too(catalog: Catalog, tmp_path: Path) -> None:
    file = (tmp_path / "left").as_uri()
    arguments = {"file_list_view": "files", "file_list": [[file, YEAR_10000]], "location": catalog.load_table("db.t").location()}
    with pytest.raises(ConfigurationError, match=f"^last_modified of {file} is a timestamp outside of the years"):
        called(catalog, "remove_orphan_files", **arguments)


def test_a_moment_is_in_utc() -> None:
    assert moment_of(SECOND, "older_than") == dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
