"""Merge-on-read: deletion vectors that this side writes say what a copy-on-write delete of the same rows does."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyroaring import BitMap64

from tablecrypt.table.deletes import encode_deletion_vector, parse_deletion_vector
from tests.support.compare import assert_same_rows
from tests.support.plaintext import CANARY
from tests.support.table_files import vectors_of
from tests.support.tables import ids, new_table

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "value", LongType()), NestedField(3, "text", StringType()))
MERGE_ON_READ = {"write.delete.mode": "merge-on-read", "write.merge.mode": "merge-on-read"}


def rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "value": pa.array([i % 10 for i in ids], pa.int64()), "text": [CANARY] * count})


def table_with(catalog: Catalog, name: str = "db.t", spec: PartitionSpec | None = None, **properties: str) -> Table:
    return new_table(catalog, name, SCHEMA, partitioned_by=spec or PartitionSpec(), properties={**MERGE_ON_READ, **properties})


def test_a_delete_marks_rows_and_rewrites_no_data_file(catalog: Catalog) -> None:
    table = table_with(catalog)
    table.append(rows(0, 100))
    before = {task.file.file_path for task in table.scan().plan_files()}
    table.delete("value = 3")
    assert {task.file.file_path for task in table.scan().plan_files()} == before
    assert ids(table) == [i for i in range(100) if i % 10 != 3]
    (vector,) = vectors_of(table)
    assert (vector.record_count, vector.referenced_data_file) == (10, next(iter(before)))
    assert table.scan().count() == 90


def test_a_second_delete_takes_over_what_the_first_one_said(catalog: Catalog) -> None:
    table = table_with(catalog)
    table.append(rows(0, 100))
    table.delete("value = 3")
    table.delete("value = 4 or id = 13")
    assert ids(table) == [i for i in range(100) if i % 10 not in (3, 4)]
    (vector,) = vectors_of(table)
    assert vector.record_count == 20
    summary = table.current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    counted = ("added-dvs", "removed-dvs", "added-position-deletes", "removed-position-deletes", "total-position-deletes")
    assert [summary[name] for name in counted] == ["1", "1", "20", "10", "20"]
    assert summary["total-delete-files"] == "1"
    assert not any("position-delete-files" in name for name in summary.additional_properties), "a vector is no position delete file"


def test_a_copy_on_write_over_marked_rows_leaves_no_vector_behind(catalog: Catalog) -> None:
    table = table_with(catalog)
    table.append(rows(0, 50))
    table.delete("value = 1")
    table.transaction().set_properties({"write.delete.mode": "copy-on-write"}).commit_transaction()
    table.delete("value = 2")
    assert ids(table) == [i for i in range(50) if i % 10 not in (1, 2)]
    assert vectors_of(table) == []


def test_partitioned_tables_mark_rows_in_each_partition(catalog: Catalog) -> None:
    table = table_with(catalog, spec=PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "bucket")))
    table.append(rows(0, 60))
    table.delete("value = 7")
    assert ids(table) == [i for i in range(60) if i % 10 != 7]
    vectors = vectors_of(table)
    assert len(vectors) > 1
    assert len({vector.file_path for vector in vectors}) == 1
    assert len({vector.referenced_data_file for vector in vectors}) == len(vectors)


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
