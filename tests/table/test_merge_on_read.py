"""Merge-on-read: deletion vectors that this side writes say what a copy-on-write delete of the same rows does."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyroaring import BitMap64

from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table.deletion_vectors import encode_deletion_vector, parse_deletion_vector
from tablecrypt_catalog import EncryptedInMemoryCatalog
from tests.support.compare import assert_same_rows
from tests.support.plaintext import CANARY

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "value", LongType()), NestedField(3, "text", StringType()))
MERGE_ON_READ = {"write.delete.mode": "merge-on-read", "write.merge.mode": "merge-on-read"}


def rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "value": pa.array([i % 10 for i in ids], pa.int64()), "text": [CANARY] * count})


@pytest.fixture
def catalog(warehouse: Path) -> Catalog:
    MemoryKeyManagementClient({"kms.memory.name": "mor"}, keys={"master": b"m" * 32})
    made = EncryptedInMemoryCatalog("mor", warehouse=f"file://{warehouse}", **{"encryption.kms-type": "memory", "kms.memory.name": "mor"})
    made.create_namespace("db")
    return made


def table_with(catalog: Catalog, name: str = "db.t", spec: PartitionSpec | None = None, **properties: str) -> Table:
    encrypted = {"encryption.key-id": "master", **MERGE_ON_READ, **properties}
    return catalog.create_table(name, SCHEMA, partition_spec=spec or PartitionSpec(), properties=encrypted)


def live_deletes(table: Table) -> list[EncryptedDataFile]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [
        EncryptedDataFile.of(entry.data_file)
        for manifest in snapshot.manifests(table.io)
        if manifest.content == ManifestContent.DELETES
        for entry in manifest.fetch_manifest_entry(table.io)
    ]


def ids(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow().column("id").to_pylist())


def test_a_delete_marks_rows_and_rewrites_no_data_file(catalog: Catalog) -> None:
    table = table_with(catalog)
    table.append(rows(0, 100))
    before = {task.file.file_path for task in table.scan().plan_files()}
    table.delete("value = 3")
    assert {task.file.file_path for task in table.scan().plan_files()} == before
    assert ids(table) == [i for i in range(100) if i % 10 != 3]
    (vector,) = live_deletes(table)
    assert (vector.record_count, vector.referenced_data_file) == (10, next(iter(before)))
    assert table.scan().count() == 90


def test_a_second_delete_takes_over_what_the_first_one_said(catalog: Catalog) -> None:
    table = table_with(catalog)
    table.append(rows(0, 100))
    table.delete("value = 3")
    table.delete("value = 4 or id = 13")
    assert ids(table) == [i for i in range(100) if i % 10 not in (3, 4)]
    (vector,) = live_deletes(table)
    assert vector.record_count == 20
    summary = table.current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    counted = ("added-dvs", "removed-dvs", "added-position-deletes", "removed-position-deletes", "total-position-deletes")
    assert [summary[name] for name in counted] == ["1", "1", "20", "10", "20"]
    assert summary["total-delete-files"] == "1"


def test_a_file_whose_last_rows_go_is_dropped_with_its_vector(catalog: Catalog) -> None:
    table = table_with(catalog)
    table.append(rows(0, 10))
    table.append(rows(10, 10))
    table.delete("id in (1, 2, 3)")
    table.delete("id < 10 and value >= 0")
    assert ids(table) == list(range(10, 20))
    assert live_deletes(table) == []
    assert len(list(table.scan().plan_files())) == 1


def test_a_copy_on_write_over_marked_rows_leaves_no_vector_behind(catalog: Catalog) -> None:
    table = table_with(catalog)
    table.append(rows(0, 50))
    table.delete("value = 1")
    with table.transaction() as transaction:
        transaction.set_properties({"write.delete.mode": "copy-on-write"})
    table.delete("value = 2")
    assert ids(table) == [i for i in range(50) if i % 10 not in (1, 2)]
    assert live_deletes(table) == []


def test_rows_keep_their_ids_through_an_upsert_and_updates_move_their_sequence_number(catalog: Catalog) -> None:
    table = table_with(catalog)
    table.append(rows(0, 20))
    lineage = ("id", "_row_id", "_last_updated_sequence_number")
    before = {row["id"]: row for row in table.scan(selected_fields=lineage).to_arrow().to_pylist()}
    changed = rows(5, 3).set_column(1, "value", pa.array([99, 99, 99], pa.int64()))
    result = table.upsert(pa.concat_tables([changed, rows(100, 2)]), join_cols=["id"])
    assert (result.rows_updated, result.rows_inserted) == (3, 2)
    after = {row["id"]: row for row in table.scan(selected_fields=lineage).to_arrow().to_pylist()}
    for key, row in before.items():
        assert after[key]["_row_id"] == row["_row_id"]
        assert (after[key]["_last_updated_sequence_number"] == row["_last_updated_sequence_number"]) is (key not in (5, 6, 7))
    assert len(live_deletes(table)) == 1
    assert_same_rows(table.scan(row_filter="value = 99").to_arrow(), changed)


def test_partitioned_tables_mark_rows_in_each_partition(catalog: Catalog) -> None:
    table = table_with(catalog, spec=PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "bucket")))
    table.append(rows(0, 60))
    table.delete("value = 7")
    assert ids(table) == [i for i in range(60) if i % 10 != 7]
    vectors = live_deletes(table)
    assert len(vectors) > 1
    assert len({vector.file_path for vector in vectors}) == 1
    assert len({vector.referenced_data_file for vector in vectors}) == len(vectors)


def test_replaced_vectors_are_recorded_as_deleted(catalog: Catalog) -> None:
    table = table_with(catalog)
    table.append(rows(0, 30))
    table.delete("id = 1")
    table.delete("id = 2")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    statuses = [
        entry.status
        for manifest in snapshot.manifests(table.io)
        if manifest.content == ManifestContent.DELETES
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    ]
    assert sorted(statuses) == [ManifestEntryStatus.ADDED, ManifestEntryStatus.DELETED]


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(deletes=st.lists(st.tuples(st.sampled_from(["id", "value"]), st.sampled_from(["=", "<", ">="]), st.integers(-1, 40)), max_size=4))
def test_both_modes_leave_the_same_rows(catalog: Catalog, deletes: list[tuple[str, str, int]]) -> None:
    made = [table_with(catalog, f"db.{mode}", None, **{"write.delete.mode": mode}) for mode in ("merge-on-read", "copy-on-write")]
    for table in made:
        table.append(rows(0, 40))
        for column, operator, value in deletes:
            table.delete(f"{column} {operator} {value}")
    lineage = ("id", "value", "text", "_row_id", "_last_updated_sequence_number")
    marked, rewritten = (table.scan(selected_fields=lineage).to_arrow() for table in made)
    for table in made:
        catalog.drop_table(table.name())
    assert_same_rows(marked, rewritten)


@given(positions=st.sets(st.one_of(st.integers(0, 300), st.integers(0, 2**40))))
def test_an_encoded_vector_reads_back(positions: set[int]) -> None:
    assert list(parse_deletion_vector(encode_deletion_vector(BitMap64(positions)), "vector")) == sorted(positions)
