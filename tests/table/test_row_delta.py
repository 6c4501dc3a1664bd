"""A new deletion vector holds what earlier deletes of its data file said: write_row_delta sees to it, whoever asks for the delete.

Callers hand over the rows that go now. What others committed between the scan and the commit is either in the new vector, or a conflict.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import LongType, NestedField
from pyroaring import BitMap64

from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table.deletes import DeletionVectorReader, RowDelta, write_row_delta
from tablecrypt.table.snapshots import EncryptedUpdateSnapshot
from tablecrypt.table.table import EncryptedTable
from tests.support.table_files import vectors_of
from tests.support.tables import MERGE_ON_READ, ids, new_table, rows

SCHEMA: Final = Schema(NestedField(1, "id", LongType()))
PROPERTIES: Final = {**MERGE_ON_READ, "write.delete.isolation-level": "snapshot"}


@pytest.fixture
def table(catalog: Catalog) -> EncryptedTable:
    """Two files of ten rows, of which one is deleted each, in one Puffin file."""
    table = new_table(catalog, schema=SCHEMA, appends=[rows(0, 10, SCHEMA), rows(10, 10, SCHEMA)], properties=PROPERTIES)
    table.delete("id in (3, 13)")
    return table


def task_of(table: EncryptedTable, row_id: int) -> FileScanTask:
    [task] = table.scan(f"id = {row_id}").plan_files()
    return task


def written(table: EncryptedTable, deleted: Iterable[tuple[FileScanTask, BitMap64]]) -> RowDelta:
    return write_row_delta(table.metadata, table.io, deleted, uuid.uuid4())


def commit(table: EncryptedTable, delta: RowDelta, operation: Operation = Operation.DELETE) -> None:
    with table.transaction() as transaction:
        cast("EncryptedUpdateSnapshot", transaction.update_snapshot()).row_delta(delta, operation).commit()


def positions_in(table: EncryptedTable, vector: EncryptedDataFile) -> list[int]:
    return list(DeletionVectorReader(table.io).positions(vector, 10))


def test_the_rows_of_earlier_deletes_are_in_the_new_vector_without_the_caller_knowing_them(table: EncryptedTable) -> None:
    task = task_of(table, 5)
    delta = written(table, [(task, BitMap64([5]))])

    [vector] = delta.added
    assert positions_in(table, vector) == [3, 5]
    assert list(delta.replaced) == list(task.delete_files)


def test_a_replaced_vector_leaves_the_manifests_once_and_others_of_its_puffin_file_stay(table: EncryptedTable) -> None:
    first, second = (task_of(table, row_id) for row_id in (5, 15))
    [old], [other] = first.delete_files, second.delete_files
    assert old.file_path == other.file_path

    commit(table, written(table, [(first, BitMap64([5]))]))

    assert vectors_of(table.refresh(), ManifestEntryStatus.DELETED) == [EncryptedDataFile.of(old)]
    assert {each.referenced_data_file for each in vectors_of(table.refresh())} == {first.file.file_path, second.file.file_path}
    assert len(vectors_of(table.refresh())) == 2
    assert ids(table.refresh()) == [each for each in range(20) if each not in (3, 5, 13)]
    assert table.metadata.current_snapshot().summary["removed-dvs"] == "1"  # type: ignore[union-attr,index]


def test_a_file_that_is_named_twice_gets_one_vector(table: EncryptedTable) -> None:
    task = task_of(table, 5)
    delta = written(table, [(task, BitMap64([5])), (task, BitMap64([6, 5]))])

    [vector] = delta.added
    assert positions_in(table, vector) == [3, 5, 6]
    commit(table, delta)
    assert len(vectors_of(table.refresh())) == 2


def test_a_file_without_a_newly_deleted_row_keeps_its_vector(table: EncryptedTable) -> None:
    assert not written(table, [(task_of(table, 5), BitMap64())])


def test_a_file_whose_other_rows_went_before_is_dropped_whole(table: EncryptedTable) -> None:
    task = task_of(table, 5)
    delta = written(table, [(task, BitMap64(set(range(10)) - {3}))])

    assert (list(delta.dropped), delta.added, delta.replaced) == ([task.file], (), [])
    commit(table, delta)
    assert ids(table.refresh()) == [each for each in range(10, 20) if each != 13]
    assert [each.referenced_data_file for each in vectors_of(table.refresh())] == [task_of(table, 15).file.file_path]


@pytest.mark.parametrize("operation", [Operation.DELETE, Operation.REPLACE, Operation.OVERWRITE])
def test_a_vector_that_others_committed_after_the_scan_is_a_conflict_whatever_they_call_it(
    catalog: Catalog, table: EncryptedTable, operation: Operation
) -> None:
    """Two vectors of one data file are against the specification, and the rows of one of them would be back."""
    delta = written(table, [(task_of(table, 5), BitMap64([5]))])
    other = cast("EncryptedTable", catalog.load_table("db.t"))
    commit(other, written(other, [(task_of(other, 7), BitMap64([7]))]), operation)

    for late in (table, other):
        with pytest.raises(ValidationException, match="deletion vector"):
            commit(late, delta)
    assert ids(table.refresh()) == [each for each in range(20) if each not in (3, 7, 13)]
    assert len(vectors_of(table.refresh())) == 2


def test_a_commit_of_others_that_leaves_the_vectors_alone_is_no_conflict(catalog: Catalog, table: EncryptedTable) -> None:
    delta = written(table, [(task_of(table, 5), BitMap64([5]))])
    catalog.load_table("db.t").append(pa.table({"id": [99]}))

    commit(table, delta)

    assert ids(table.refresh()) == [each for each in (*range(20), 99) if each not in (3, 5, 13)]


def test_two_deletes_in_one_transaction_leave_one_vector_for_each_file(catalog: Catalog, table: EncryptedTable) -> None:
    """Also when the commit is tried again on what others appended."""
    with table.transaction() as transaction:
        transaction.delete("id in (4, 14)")
        transaction.delete("id in (5, 15)")
        catalog.load_table("db.t").append(pa.table({"id": [99]}))

    assert ids(table.refresh()) == [each for each in (*range(20), 99) if each not in (3, 4, 5, 13, 14, 15)]
    assert len(vectors_of(table.refresh())) == 2
