"""A table that is registered under a second name: what one name leads to, nobody deletes through the other."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from pyiceberg.catalog import Catalog

from tablecrypt import maintenance as m
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance.expiry import expire_snapshots
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.tables import encrypted_sql_catalog, files_below, folder_of, ids, new_table, rows

Delete = Callable[[Catalog, str], object]


def later() -> dt.datetime:
    return dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)


DELETES: Final[dict[str, Delete]] = {
    "purge": lambda catalog, name: catalog.purge_table(name),
    "remove orphan files": lambda catalog, name: m.remove_orphan_files(catalog.load_table(name), later(), dry_run=False),
    "remove orphan files of a folder": lambda catalog, name: m.remove_orphan_files(
        catalog.load_table(name), later(), dry_run=False, folder=catalog.load_table(name).location()
    ),
    "expire snapshots": lambda catalog, name: expire_snapshots(catalog.load_table(name), older_than=later()),
}


@pytest.fixture
def twice(catalog: EncryptedSqlCatalog) -> EncryptedSqlCatalog:
    """A catalog in which db.t is registered as db.second too, before rows were appended and others replaced under the first name."""
    table = new_table(catalog, appends=[rows(0, 2)])
    catalog.register_table("db.second", table.metadata_location)
    table.append(rows(2, 2))
    return catalog


@pytest.mark.parametrize("name", ["db.t", "db.second"])
@pytest.mark.parametrize("delete", DELETES.values(), ids=DELETES)
def test_no_file_is_deleted_through_either_of_two_names_of_a_table(twice: EncryptedSqlCatalog, delete: Delete, name: str) -> None:
    other = {"db.t": "db.second", "db.second": "db.t"}[name]
    before = files_below(folder_of(twice.load_table("db.t")))

    with pytest.raises(ConfigurationError, match=f"^{name}: the catalog has this table as {other} too, .* drop the names"):
        delete(twice, name)

    assert before <= files_below(folder_of(twice.load_table("db.t")))
    assert (ids(twice.load_table("db.t")), ids(twice.load_table("db.second"))) == ([0, 1, 2, 3], [0, 1])


@pytest.mark.parametrize("delete", DELETES.values(), ids=DELETES)
def test_when_the_other_name_is_dropped_files_are_deleted_as_ever(twice: EncryptedSqlCatalog, delete: Delete) -> None:
    twice.drop_table("db.second")
    delete(twice, "db.t")
    assert twice.table_exists("db.second") is False


def test_what_deletes_nothing_goes_on_under_both_names(twice: EncryptedSqlCatalog) -> None:
    assert m.remove_orphan_files(twice.load_table("db.t"), later(), dry_run=True).found == ()
    m.rotate_kek(twice.load_table("db.second"))
    assert ids(twice.load_table("db.second")) == [0, 1]


def test_the_name_in_another_catalog_of_the_database_is_told_with_the_catalog(catalog: EncryptedSqlCatalog) -> None:
    table = new_table(catalog, appends=[rows(0, 2)])
    staging = EncryptedSqlCatalog("staging", **catalog.properties)
    staging.create_namespace_if_not_exists("db")
    staging.register_table("db.copy", table.metadata_location)

    with pytest.raises(ConfigurationError, match=r"the catalog has this table as staging\.db\.copy too"):
        catalog.purge_table("db.t")


def test_an_entry_that_no_client_of_ours_has_loaded_counts_where_it_leads_to_the_same_metadata(
    catalog: EncryptedSqlCatalog, warehouse: Path, aws: AwsServer
) -> None:
    table = new_table(catalog, appends=[rows(0, 2)])
    unpinned = encrypted_sql_catalog(warehouse, aws)
    super(EncryptedSqlCatalog, unpinned).register_table("db.second", table.metadata_location)

    with pytest.raises(ConfigurationError, match=r"as db\.second too"):
        catalog.purge_table("db.t")
