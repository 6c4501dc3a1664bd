"""Orphan files: what nothing names is found and removed, and nothing else, on a disk and in a bucket."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Identifier

from tablecrypt.maintenance import remove_orphan_files
from tablecrypt.table.other_tables import OtherTables
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY
from tests.support.tables import (
    MASTER_KEY,
    SCHEMA,
    current_snapshot,
    data_files,
    data_paths,
    encrypted_sql_catalog,
    files_below,
    new_table,
    path_of,
)

pytestmark = pytest.mark.slow

BY_NOTE = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "note"))
LATER = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)


def rows(first: int) -> pa.Table:
    return pa.table({"id": range(first, first + 20), "note": [f"{CANARY} {each % 2}" for each in range(20)]}, schema=SCHEMA.as_arrow())


def busy_table(warehouse: str, tmp_path: Path, aws: AwsServer, io: str) -> Table:
    """A table with deletion vectors, rewritten files and a dropped branch of history."""
    catalog = encrypted_sql_catalog(tmp_path, aws, {"warehouse": warehouse, "py-io-impl": io})
    properties = {"encryption.key-id": MASTER_KEY, "write.delete.mode": "merge-on-read"}
    table = catalog.create_table("db.rows", SCHEMA, partition_spec=PartitionSpec(), properties=properties)
    for first in (0, 100):
        table.append(rows(first))
    table.delete("id = 3")
    return table


@pytest.fixture(params=["pyiceberg.io.pyarrow.PyArrowFileIO", "pyiceberg.io.fsspec.FsspecFileIO"])
def io(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["disk", "bucket"])
def table(request: pytest.FixtureRequest, io: str, aws: AwsServer, tmp_path: Path) -> Table:
    if request.param == "disk":
        return busy_table(f"file://{tmp_path}/warehouse", tmp_path, aws, io)
    bucket = aws.bucket(f"orphans-{io.rpartition('.')[2].lower()}")
    return busy_table(f"s3://{bucket}/warehouse", tmp_path, aws, io)


def put(table: Table, name: str) -> str:
    location = f"{table.location()}/{name}"
    with table.io.inner.new_output(location).create() as stream:  # type: ignore[attr-defined]
        stream.write(b"left over")
    return location


def test_files_that_nothing_names_are_found_then_removed(table: Table) -> None:
    before = table.scan().to_arrow()
    left = {put(table, "data/00001-0-left.parquet"), put(table, "metadata/left-m0.avro"), put(table, "data/note=a b/x.parquet")}

    found = remove_orphan_files(table, LATER)

    assert {file.location for file in found.found} == left
    assert found.size == 27
    assert not found.deleted
    assert {file.location for file in remove_orphan_files(table, LATER).found} == left

    removed = remove_orphan_files(table, LATER, dry_run=False)

    assert set(removed.deleted) == left
    assert not removed.failed
    assert not remove_orphan_files(table, LATER).found
    assert table.refresh().scan().to_arrow() == before


def test_young_and_hidden_files_stay(table: Table) -> None:
    put(table, "data/under-way.parquet")
    hidden = put(table, "data/_temporary/x.parquet")

    assert not remove_orphan_files(table).found
    assert hidden not in {file.location for file in remove_orphan_files(table, LATER).found}


def test_what_expired_snapshots_alone_held_is_an_orphan(aws: AwsServer, tmp_path: Path) -> None:
    table = busy_table(f"file://{tmp_path}/warehouse", tmp_path, aws, "pyiceberg.io.pyarrow.PyArrowFileIO")
    table.overwrite(rows(500))
    kept = table.refresh().scan().to_arrow()
    assert not remove_orphan_files(table, LATER).found
    head = current_snapshot(table)
    expired = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != head.snapshot_id]
    table.maintenance.expire_snapshots().by_ids(expired).commit()

    removed = remove_orphan_files(table, LATER, dry_run=False)

    assert any(location.endswith(".puffin") for location in removed.deleted)
    assert any(location.endswith(".parquet") for location in removed.deleted)
    assert table.refresh().scan().to_arrow() == kept


def test_files_of_a_commit_made_while_files_are_listed_stay(aws: AwsServer, tmp_path: Path) -> None:
    writer = busy_table(f"file://{tmp_path}/warehouse", tmp_path, aws, "pyiceberg.io.pyarrow.PyArrowFileIO")

    class OvertakenCatalog(EncryptedSqlCatalog):
        """Another commits as soon as a table was loaded."""

        def load_table(self, identifier: str | Identifier) -> Table:
            loaded = super().load_table(identifier)
            writer.append(rows(900))
            return loaded

    table = OvertakenCatalog("prod", **writer.catalog.properties).load_table("db.rows")

    assert not remove_orphan_files(table, LATER).found
    assert len(writer.snapshots()) > len(table.snapshots()) + 1


ODD_FOLDERS = {
    "an empty name": "{location}//data",
    "a dot": "{location}/./data",
    "up and down": "{location}/../{name}/data",
    "another link": "{link}/data",
}


@pytest.mark.parametrize("set_by", ["write.data.path", "write.metadata.path"])
@pytest.mark.parametrize("folder", ODD_FOLDERS.values(), ids=ODD_FOLDERS)
def test_files_of_a_folder_that_is_spelled_in_another_way_are_no_orphans(
    catalog: EncryptedSqlCatalog, tmp_path: Path, folder: str, set_by: str
) -> None:
    """A store lists them by their plain names, and metadata name them as the property does."""
    table = new_table(catalog)
    location = table.location()
    link = tmp_path / "link"
    link.symlink_to(path_of(location))
    spelled = folder.format(location=location, name=location.rpartition("/")[2], link=f"file://{link}")
    table.transaction().set_properties({set_by: spelled}).commit_transaction()
    table.append(rows(0))
    kept = table.scan().to_arrow()

    removed = remove_orphan_files(table, LATER, dry_run=False)

    assert removed.deleted == ()
    assert catalog.load_table(table.name()).scan().to_arrow() == kept


def test_what_a_live_file_leads_to_is_no_orphan(catalog: EncryptedSqlCatalog) -> None:
    """As where somebody put files of a disk elsewhere, with links in their places."""
    table = new_table(catalog, appends=[rows(0)])
    kept = table.scan().to_arrow()
    for live in data_paths(table):
        live.symlink_to(live.rename(live.with_name(f"moved-{live.name}")))

    assert remove_orphan_files(table, LATER, dry_run=False).deleted == ()
    assert catalog.load_table(table.name()).scan().to_arrow() == kept


@pytest.mark.parametrize("content", [b"", b'{"format-version": 3, "table-uu', b"\0" * 40])
def test_a_table_below_whose_metadata_cannot_be_read_keeps_its_files(catalog: EncryptedSqlCatalog, content: bytes) -> None:
    """A store that cuts an answer makes nobody's files orphans; a name alone, elsewhere, keeps none."""
    table = new_table(catalog, "db.outer", appends=[rows(0)])
    inner = catalog.create_table("db.inner", SCHEMA, location=f"{table.location()}/inner", properties={"encryption.key-id": MASTER_KEY})
    inner.append(rows(0))
    files = files_below(path_of(inner.location()))
    for metadata in path_of(inner.location()).glob("metadata/*.metadata.json"):
        metadata.write_bytes(content)
    orphans = {put(table, "data/left.parquet"), put(table, "data/some.metadata.json"), put(table, "metadata/00099-half.metadata.json")}

    result = remove_orphan_files(table, LATER, dry_run=False)

    assert set(result.deleted) == orphans
    assert files_below(path_of(inner.location())) == files
    assert {path_of(location) for location in result.refused} == files
    assert all("may be another table's" in why and "cannot be read" in why for why in result.refused.values())
    assert set(remove_orphan_files(table, LATER, dry_run=False, delete_below=[inner.location()]).deleted) == set(result.refused)


def test_half_of_a_commit_keeps_no_orphan_where_the_tables_metadata_has_a_folder_of_its_own(catalog: EncryptedSqlCatalog) -> None:
    table = new_table(catalog, "db.t", appends=[rows(0)])
    folder = f"{table.location()}/own/metadata"
    table.transaction().set_properties({"write.metadata.path": folder}).commit_transaction()
    orphans = {put(table, "own/metadata/00099-half.metadata.json"), put(table, "own/left.parquet")}

    assert set(remove_orphan_files(table, LATER, dry_run=False, delete_below=[folder]).deleted) == orphans


def test_deletions_spare_a_folder_whose_metadata_cannot_be_read(catalog: EncryptedSqlCatalog) -> None:
    table, other = new_table(catalog, "db.t"), new_table(catalog, "db.other", appends=[rows(0)])
    [file] = data_files(other)
    owners = OtherTables(table.io.inner, table.metadata.table_uuid)
    assert "another table uses" in str(owners.reason_against(file.file_path, ()))

    for metadata in path_of(other.location()).glob("metadata/*.metadata.json"):
        metadata.write_bytes(metadata.read_bytes()[:50])

    fresh = OtherTables(table.io.inner, table.metadata.table_uuid)
    assert "cannot be read: name the folder if not" in str(fresh.reason_against(file.file_path, ()))
    assert fresh.reason_against(file.file_path, (other.location(),)) is None
    assert fresh.reason_against(f"{table.location()}/data/x.parquet", ()) is None
