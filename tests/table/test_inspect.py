"""PyIceberg's metadata tables of an encrypted table with deletion vectors: all of them, and no key in any."""

from __future__ import annotations

import datetime as dt
import itertools
import uuid

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.inspect import InspectTable
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, NestedField, StructType, UUIDType

from tablecrypt.maintenance.expiry import expire_snapshots
from tablecrypt.maintenance.reachable import reachable_files
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.tables import MASTER_KEY, new_table

TABLES = sorted(name for name, method in vars(InspectTable).items() if not name.startswith("_") and callable(method))


@pytest.mark.parametrize("name", TABLES)
def test_every_metadata_table_is_shown_without_a_key(module_table: Table, name: str) -> None:
    shown: pa.Table = getattr(module_table.inspect, name)()
    assert shown.num_rows > 0
    text = repr(shown.to_pylist())
    for file in reachable_files(module_table.metadata, module_table.io).files.values():
        assert file.key is not None
        assert repr(file.key.encryption_key.reveal())[2:-1] not in text


@pytest.mark.parametrize("name", [each for each in TABLES if each.endswith(("files", "partitions", "manifests")) or each == "entries"])
def test_a_snapshot_without_files_has_no_rows_in_metadata_tables(catalog: EncryptedSqlCatalog, name: str) -> None:
    table = new_table(catalog, appends=[pa.table({"id": [1]})])
    table.delete("id = 1")
    table.append(pa.table({"id": pa.array([], pa.int64())}))
    if name.startswith("all"):
        expire_snapshots(table, dt.datetime.now(dt.UTC), 1)
    assert getattr(table.refresh().inspect, name)().num_rows == 0


def test_bounds_and_partitions_of_uuids_are_shown_as_their_bytes(catalog: EncryptedSqlCatalog) -> None:
    nested = StructType(NestedField(3, "id", UUIDType()), NestedField(4, "ids", ListType(5, UUIDType())))
    schema = Schema(NestedField(1, "id", UUIDType()), NestedField(2, "nested", nested))
    by_id = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    one = uuid.UUID(int=1).bytes

    for name, spec in (("db.whole", PartitionSpec()), ("db.by_id", by_id)):
        table = catalog.create_table(name, schema, partition_spec=spec, properties={"encryption.key-id": MASTER_KEY})
        table.append(pa.table({"id": pa.array([one], pa.binary(16)).cast(pa.uuid())}))

        for file in (*table.inspect.files().to_pylist(), *table.inspect.entries().to_pylist()):
            assert file["readable_metrics"]["id"]["lower_bound"] == one
    assert [row["partition"] for row in table.inspect.partitions().to_pylist()] == [{"id": one}]


def test_the_entry_of_a_deletion_vector_is_shown(module_table: Table) -> None:
    entries = module_table.inspect.entries().to_pylist()
    vectors = [entry for entry in entries if entry["data_file"]["content"] == 1]
    (vector,) = vectors
    assert vector["data_file"]["record_count"] == 1
    assert vector["data_file"]["file_format"] == "PUFFIN"
    assert vector["data_file"]["column_sizes"] == []
    assert vector["readable_metrics"]["id"]["column_size"] is None
    files = {row["file_path"] for row in module_table.inspect.files().to_pylist()}
    assert {entry["data_file"]["file_path"] for entry in entries if entry["status"] != 2} == files
    assert all(entry["data_file"]["column_sizes"] for entry in entries if entry not in vectors)


def test_deletion_vectors_are_counted_in_their_partition(module_table: Table) -> None:
    by_team = {row["partition"]["team"]: row for row in module_table.inspect.partitions().to_pylist()}
    assert {team: row["position_delete_record_count"] for team, row in by_team.items()} == {"north": 0, "south": 1}
    assert {row["content"] for row in module_table.inspect.delete_files().to_pylist()} == {1}


def test_files_and_entries_show_where_rows_and_deletion_vectors_lie(module_table: Table) -> None:
    files = module_table.inspect.files().to_pylist()
    (vector,) = (file for file in files if file["content"] == 1)
    data = {file["file_path"]: file for file in files if file["content"] == 0}
    assert vector["referenced_data_file"] in data
    assert (vector["first_row_id"], vector["content_offset"]) == (None, 4)
    assert 0 < vector["content_size_in_bytes"] < vector["file_size_in_bytes"]
    assert vector["column_sizes"] is None
    assert {(file["referenced_data_file"], file["content_offset"], file["content_size_in_bytes"]) for file in data.values()} == {
        (None,) * 3
    }

    ends = sorted((file["first_row_id"], file["first_row_id"] + file["record_count"]) for file in data.values())
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))

    entries = [entry["data_file"] for entry in module_table.inspect.entries().to_pylist() if entry["status"] != 2]
    columns = ("file_path", "first_row_id", "referenced_data_file", "content_offset", "content_size_in_bytes")
    assert {tuple(entry[name] for name in columns) for entry in entries} == {tuple(file[name] for name in columns) for file in files}
