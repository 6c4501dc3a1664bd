"""Whoever may commit to a table names files of another one in it: no operation on the first deletes them, wherever the second lies.

The analyst may commit to `db.t` and read both tables. The other one lies below the first one's folder, as where a namespace has a table's
name; or the analyst sets write.data.path of the first to the other one's folder, which pins then remember as a folder of the first.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.table import Table

from tablecrypt.maintenance import compact, erase, migrate, remove_orphan_files
from tablecrypt.maintenance.expiry import expire_snapshots
from tablecrypt.table.other_tables import OtherTables
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edit_json
from tests.support.handwritten_manifests import HandwrittenManifest, commit_by_hand, named_otherwise
from tests.support.tables import (
    ENCRYPTED,
    MASTER_KEY,
    SCHEMA,
    contents_below,
    data_files,
    data_paths,
    encrypted_sql_catalog,
    files_below,
    folder_of,
    new_table,
    rows,
    team_table,
)
from tests.support.unlistable_io import UnlistableFileIO

SAYS: Final = "lies in a folder that another table uses, as "


def other_at(catalog: EncryptedSqlCatalog, location: str | None) -> Table:
    other = catalog.create_table("db.other", SCHEMA, location=location, properties=ENCRYPTED)
    other.append(rows(100))
    return other.refresh()


def below(catalog: EncryptedSqlCatalog, table: Table) -> Table:
    return other_at(catalog, f"{table.location()}/other")


def as_the_data_folder(catalog: EncryptedSqlCatalog, table: Table) -> Table:
    return other_at(catalog, f"{table.location()}/data")


def named_as_a_folder(catalog: EncryptedSqlCatalog, table: Table) -> Table:
    other = other_at(catalog, None)
    table.transaction().set_properties({"write.data.path": f"{other.location()}/data"}).commit_transaction()
    return other


PLACES: Final = [below, as_the_data_folder, named_as_a_folder]


def expired(catalog: EncryptedSqlCatalog, **options: Any) -> Any:
    table = catalog.load_table("db.t")
    table.delete("id >= 100")
    return expire_snapshots(table, snapshots=[each.snapshot_id for each in table.refresh().snapshots()[:-1]], **options)


def erased(catalog: EncryptedSqlCatalog, **options: Any) -> Any:
    return erase(catalog.load_table("db.t"), "id >= 100", **options)


def purged(catalog: EncryptedSqlCatalog, **options: Any) -> Any:
    return catalog.purge_files("db.t", **options)


OPERATIONS: Final = [expired, erased, purged]


def brought(catalog: EncryptedSqlCatalog, place: Callable[[EncryptedSqlCatalog, Table], Table]) -> Table:
    """Make db.t, and the other table whose file the analyst commits to it."""
    table = new_table(catalog, "db.t", appends=[rows(0)])
    other = place(catalog, table)
    commit_by_hand(table.refresh(), HandwrittenManifest([named_otherwise(file, first_row_id=None) for file in data_files(other)]))
    return other


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("place", PLACES, ids=lambda each: each.__name__)
def test_files_of_another_table_stay(
    catalog: EncryptedSqlCatalog, place: Callable[[EncryptedSqlCatalog, Table], Table], operation: Callable[..., Any]
) -> None:
    other = brought(catalog, place)

    result = operation(catalog)

    assert other.refresh().scan().to_arrow().num_rows == 20
    assert {reason.startswith(SAYS) for reason in result.refused.values()} == {True}
    assert [path.name for path in data_paths(other)] == [location.rpartition("/")[2] for location in result.refused]


def cleaned(catalog: EncryptedSqlCatalog) -> Any:
    return remove_orphan_files(catalog.load_table("db.t"), dt.datetime.now(dt.UTC) + dt.timedelta(days=1), dry_run=False)


def with_a_variant(metadata: dict[str, Any]) -> None:
    metadata["schemas"][0]["fields"].append({"id": 9, "name": "more", "required": False, "type": "variant"})
    metadata["last-column-id"] = 9


def of_version_4(metadata: dict[str, Any]) -> None:
    metadata["format-version"] = 4


@pytest.mark.parametrize("operation", [expired, purged, cleaned], ids=lambda each: each.__name__)
@pytest.mark.parametrize("edit", [with_a_variant, of_version_4], ids=lambda each: each.__name__)
def test_files_of_a_table_stay_whose_metadata_only_a_newer_iceberg_reads(
    catalog: EncryptedSqlCatalog, edit: Callable[[dict[str, Any]], None], operation: Callable[..., Any]
) -> None:
    folder = folder_of(brought(catalog, below))
    for path in files_below(folder, ".metadata.json"):
        edit_json(path, edit)
    before = contents_below(folder)

    result = operation(catalog)

    assert contents_below(folder) == before
    assert {reason.startswith(SAYS) for reason in result.refused.values()} == {True}


@pytest.mark.parametrize("place", PLACES, ids=lambda each: each.__name__)
def test_to_name_the_folder_of_the_table_does_not_give_those_of_others_away(
    catalog: EncryptedSqlCatalog, place: Callable[[EncryptedSqlCatalog, Table], Table]
) -> None:
    other = brought(catalog, place)

    expired(catalog, delete_below=[catalog.load_table("db.t").location()])

    assert other.refresh().scan().to_arrow().num_rows == 20


def test_a_caller_who_names_the_folder_itself_is_served(catalog: EncryptedSqlCatalog) -> None:
    other = brought(catalog, below)

    result = expired(catalog, delete_below=[other.location()])

    assert not result.refused
    assert not data_paths(other)[0].exists()


def test_a_link_below_the_table_to_another_one_below_it_is_followed_first(catalog: EncryptedSqlCatalog) -> None:
    table = new_table(catalog, "db.t", appends=[rows(0)])
    other = below(catalog, table)
    (folder_of(table) / "data" / "part=1").symlink_to(folder_of(other) / "data")
    [file] = data_files(other)
    linked = f"{table.location()}/data/part=1/{file.file_path.rpartition('/')[2]}"
    commit_by_hand(table.refresh(), HandwrittenManifest([named_otherwise(file, first_row_id=None, file_path=linked)]))

    reason = catalog.load_table("db.t").io.deletable.reason_against(linked)  # type: ignore[attr-defined]

    assert reason.startswith(SAYS)


def test_a_migration_leaves_the_files_that_the_plain_table_has_of_others(unwatched_warehouse: Path, aws: AwsServer) -> None:
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws)
    plain = catalog.create_table("db.t", SCHEMA)
    plain.append(rows(0))
    inner = catalog.create_table("db.inner", SCHEMA, location=f"{plain.location()}/inner")
    inner.append(rows(100))
    plain.add_files([task.file.file_path for task in inner.scan().plan_files()])

    migrated = migrate(plain, MASTER_KEY)

    assert inner.refresh().scan().to_arrow().num_rows == 20
    assert [reason for reason in migrated.refused.values() if reason.startswith(SAYS)]


def test_files_of_a_table_whose_metadata_lies_in_a_folder_of_its_own_are_its_own(catalog: EncryptedSqlCatalog, warehouse: Path) -> None:
    properties = {"write.metadata.path": f"file://{warehouse}/apart/metadata", "write.data.path": f"file://{warehouse}/apart/data"}
    table = new_table(catalog, appends=[rows(0), rows(100)], properties=properties)
    table.transaction().set_properties(properties).commit_transaction()

    stored = set(data_paths(table))

    result = expired(catalog)

    assert not result.refused
    assert len(stored - {path for path in stored if path.exists()}) == 1


@pytest.mark.parametrize("layout", [{}, {"write.object-storage.enabled": "true"}], ids=str)
def test_for_files_in_folders_that_tables_make_nothing_is_listed(catalog: EncryptedSqlCatalog, layout: dict[str, str]) -> None:
    table = team_table(catalog, 0, 20, properties=layout)
    compact(table)
    owners, location = OtherTables(UnlistableFileIO(), table.metadata.table_uuid), table.location()

    stored = [*contents_below(folder_of(table))]

    assert len(stored) > 10
    assert {owners.reason_against(str(path), (location,)) for path in stored} == {None}


def test_where_nothing_can_be_listed_a_file_in_an_odd_folder_stays(catalog: EncryptedSqlCatalog) -> None:
    table = new_table(catalog)
    owners, odd = OtherTables(UnlistableFileIO(), table.metadata.table_uuid), f"{table.location()}/odd"

    reason = owners.reason_against(f"{odd}/x.parquet", (table.location(),))

    assert reason is not None
    assert "cannot be listed (ConfigurationError): name the folder if not" in reason
    assert owners.reason_against(f"{odd}/x.parquet", (table.location(), odd)) is None


@pytest.mark.slow
def test_in_a_bucket_they_stay_too(tmp_path: Path, aws: AwsServer) -> None:
    catalog = encrypted_sql_catalog(tmp_path, aws, {"warehouse": f"s3://{aws.bucket('files-of-other-tables')}/warehouse"})
    other = brought(catalog, below)

    result = expired(catalog)

    assert other.refresh().scan().to_arrow().num_rows == 20
    assert {reason.startswith(SAYS) for reason in result.refused.values()} == {True}
