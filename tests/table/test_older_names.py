"""Names in a scan of another snapshot: the snapshot's own, as in Iceberg Java, in the columns that it shows and in its filter alike.

A branch has the columns of the table, since rows are written to it with these; so have deletes, upserts and erasures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import LongType

from tablecrypt.maintenance import erase, share
from tablecrypt.table.table import EncryptedTable
from tests.support.tables import ENCRYPTED, encrypted_table, memory_kms

ROWS = pa.table({"id": [1, 2, 3], "a": [10, 20, 30], "b": [30, 20, 10]})


@pytest.fixture
def swapped(catalog: Catalog) -> EncryptedTable:
    """A table whose columns changed their names since its rows were written: a is x now, and b is a. A tag and a branch are there."""
    table = encrypted_table(catalog.create_table("db.swapped", ROWS.schema, properties=ENCRYPTED))
    table.append(ROWS)
    written = _head(table)
    with table.manage_snapshots() as refs:
        refs.create_tag(written, "before").create_branch(written, "work")
    for old, new in (("a", "x"), ("b", "a")):
        with table.update_schema() as update:
            update.rename_column(old, new)

    return table


def _head(table: EncryptedTable) -> int:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def _every_way(scan: Any) -> list[list[dict[str, Any]]]:
    assert scan.count() == scan.to_arrow().num_rows
    taken = scan.to_duckdb("rows").sql("SELECT * FROM rows").to_arrow_table()
    read = (scan.to_arrow(), scan.to_arrow_batch_reader().read_all(), pa.table(scan.to_polars()), taken, scan.to_arrow_dataset().to_table())
    return [each.to_pylist() for each in read]


def test_the_filter_of_a_snapshot_means_the_columns_that_it_shows(swapped: EncryptedTable) -> None:
    written = _head(swapped)
    for scan in (swapped.scan("a = 10", snapshot_id=written), swapped.scan("a = 10").use_ref("before")):
        assert _every_way(scan) == [[{"id": 1, "a": 10, "b": 30}]] * 5
    assert swapped.scan("b > 15 and a < 20", ("id",), snapshot_id=written).to_arrow().to_pylist() == [{"id": 1}]
    assert swapped.scan("A = 10", ("ID",), case_sensitive=False, snapshot_id=written).to_arrow().to_pylist() == [{"id": 1}]
    assert _every_way(swapped.scan("a = 10")) == [[{"id": 3, "x": 30, "a": 10}]] * 5


def test_a_name_of_now_is_none_of_an_older_snapshot(swapped: EncryptedTable) -> None:
    with pytest.raises(ValueError, match="Could not find field with name x"):
        swapped.scan("x = 10", snapshot_id=_head(swapped)).to_arrow()


def test_a_column_that_was_dropped_and_added_again_is_another_one(catalog: Catalog) -> None:
    table = encrypted_table(catalog.create_table("db.again", ROWS.schema, properties=ENCRYPTED))
    table.append(ROWS)
    written = _head(table)
    with table.update_schema() as update:
        update.delete_column("a")
    assert table.scan("a = 10", snapshot_id=written).to_arrow().to_pylist() == [{"id": 1, "a": 10, "b": 30}]
    with table.update_schema() as update:
        update.add_column("a", LongType())

    assert table.scan("a = 10", snapshot_id=written).to_arrow().to_pylist() == [{"id": 1, "a": 10, "b": 30}]
    assert table.scan("a is null", snapshot_id=written).count() == 0
    assert table.scan("a is null").count() == 3


def test_a_branch_has_the_columns_of_the_table(swapped: EncryptedTable) -> None:
    for branch in ("work", "main"):
        assert _every_way(swapped.scan("a = 10").use_ref(branch)) == [[{"id": 3, "x": 30, "a": 10}]] * 5
        assert swapped.scan("x = 10", ("_row_id", "a")).use_ref(branch).to_arrow().to_pylist() == [{"a": 30, "_row_id": 0}]


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("branch", ["main", "work"])
def test_changes_of_a_branch_name_the_columns_of_the_table(swapped: EncryptedTable, branch: str, mode: str) -> None:
    with swapped.transaction() as transaction:
        transaction.set_properties({"write.delete.mode": mode, "write.merge.mode": mode, "write.update.mode": mode})
    swapped.delete("a = 10", branch=branch)
    swapped.upsert(pa.table({"id": [1, 9], "x": [11, 99], "a": [33, 88]}), ["id"], branch=branch)

    assert sorted(swapped.scan().use_ref(branch).to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "x": 11, "a": 33},
        {"id": 2, "x": 20, "a": 20},
        {"id": 9, "x": 99, "a": 88},
    ]


def test_an_erasure_names_the_columns_of_the_table_in_tags_too(swapped: EncryptedTable) -> None:
    erase(swapped, "a = 10", delete_below=swapped.location())

    for scan in (swapped.scan(), swapped.scan().use_ref("before"), swapped.scan().use_ref("work")):
        assert sorted(scan.to_arrow()["id"].to_pylist()) == [1, 2]


def test_a_share_names_the_columns_that_it_gives(swapped: EncryptedTable, catalog: Catalog, warehouse: Path, tmp_path: Path) -> None:
    memory_kms(warehouse, "alias/partner")
    of_now = share(swapped, "alias/partner", f"file://{tmp_path}/now", "a = 10", rewrite=True)
    of_then = share(swapped, "alias/partner", f"file://{tmp_path}/then", "a = 10", _head(swapped), rewrite=True)

    assert catalog.register_table("db.now", of_now.metadata_location).scan().to_arrow().to_pylist() == [{"id": 3, "x": 30, "a": 10}]
    assert catalog.register_table("db.then", of_then.metadata_location).scan().to_arrow().to_pylist() == [{"id": 1, "a": 10, "b": 30}]
