"""A table that another writer replaced, with a column of another type under the same field id, as Iceberg Java's replacement leaves it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AddSchemaUpdate, RemoveSnapshotRefUpdate, SetCurrentSchemaUpdate, SetSnapshotRefUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tablecrypt.errors import ConfigurationError, FormatError, TamperedFileError
from tablecrypt.maintenance import compact, relocate, rotate_kek, verify
from tablecrypt.table.table import RedactedInspectTable
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edited
from tests.support.tables import encrypted_table, memory_catalog, new_table, unpinned_catalog

BEFORE = Schema(NestedField(1, "id", LongType()), NestedField(2, "note", StringType()))
AFTER = Schema(NestedField(1, "id", StringType()), NestedField(2, "note", StringType()), schema_id=1)


BY_ID: Final = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"), PartitionField(1, 1001, BucketTransform(1), "bucket"))


def rows(schema: Schema, *ids: object) -> pa.Table:
    return pa.table({"id": list(ids), "note": [f"note {each}" for each in ids]}, schema=schema.as_arrow())


def replace(table: Table) -> Table:
    """Give `id` the type of `AFTER`, in a table without rows."""
    updates = (AddSchemaUpdate(schema_=AFTER), SetCurrentSchemaUpdate(schema_id=-1), RemoveSnapshotRefUpdate(ref_name=MAIN_BRANCH))
    table.catalog.commit_table(table, (), updates)
    return table.catalog.load_table(table.name())


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return memory_catalog(tmp_path)


@pytest.fixture
def replaced(catalog: Catalog) -> Table:
    table = new_table(catalog, schema=BEFORE, appends=[rows(BEFORE, 1, 2), rows(BEFORE, 30)])
    first = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().create_branch(snapshot_id=first, branch_name="audit").commit()
    replace(table).append(rows(AFTER, "x", "30"))
    return catalog.load_table("db.t")


def of_snapshot(table: Table, number: int) -> int:
    return table.metadata.snapshots[number].snapshot_id


def test_each_snapshot_is_read_by_its_own_schema(replaced: Table) -> None:
    assert replaced.scan(snapshot_id=of_snapshot(replaced, 1)).to_arrow().sort_by("id")["id"].to_pylist() == [1, 2, 30]
    assert replaced.scan().use_ref("audit").to_arrow().sort_by("id")["id"].to_pylist() == [1, 2]
    assert replaced.scan().to_arrow().sort_by("id")["id"].to_pylist() == ["30", "x"]


def test_a_filter_looks_at_the_values_that_the_snapshot_has(replaced: Table) -> None:
    assert replaced.scan("id > 2", snapshot_id=of_snapshot(replaced, 1)).to_arrow()["id"].to_pylist() == [30]
    assert replaced.scan("id > 1", snapshot_id=of_snapshot(replaced, 1)).count() == 2
    assert replaced.scan("id > '2'").to_arrow().sort_by("id")["id"].to_pylist() == ["30", "x"]


CHANGES: Final[dict[str, Callable[[Table], object]]] = {
    "delete": lambda table: table.delete("note = 'note 1'", branch="audit"),
    "overwrite": lambda table: table.overwrite(rows(AFTER, "y"), branch="audit"),
    "upsert": lambda table: table.upsert(rows(AFTER, "1", "y"), join_cols=["id"], branch="audit"),
    "append": lambda table: table.append(rows(AFTER, "y"), branch="audit"),
    "compact": lambda table: compact(table, rewrite_all=True, branch="audit"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_branch_of_before_is_not_changed_by_the_current_schema(replaced: Table, change: str) -> None:
    """Nobody could read both afterwards."""
    with pytest.raises(ConfigurationError, match=r"column id is long in snapshot \d+, and string since the table was replaced"):
        CHANGES[change](replaced)
    assert replaced.refresh().scan().use_ref("audit").to_arrow().sort_by("id")["id"].to_pylist() == [1, 2]


def test_a_snapshot_that_the_current_schema_cannot_read_does_not_become_current(replaced: Table) -> None:
    with pytest.raises(ConfigurationError, match="Read that snapshot by its id"):
        replaced.manage_snapshots().set_current_snapshot(snapshot_id=of_snapshot(replaced, 1)).commit()
    assert replaced.refresh().scan().count() == 2


def test_inspection_verification_and_rotation_take_every_snapshot(replaced: Table, tmp_path: Path) -> None:
    assert replaced.inspect.entries().num_rows == 1
    assert [replaced.inspect.files(snapshot_id=of_snapshot(replaced, number)).num_rows for number in range(3)] == [1, 2, 1]
    assert verify(replaced).is_good

    rotate_kek(replaced)
    relocate(replaced, f"file://{tmp_path}/copy", register_as="db.copy")
    copy = replaced.catalog.load_table("db.copy")
    assert copy.scan(snapshot_id=of_snapshot(copy, 1)).to_arrow().sort_by("id")["id"].to_pylist() == [1, 2, 30]


def bounds(files: pa.Table) -> list[tuple[object, object]]:
    metrics = [row["readable_metrics"] for row in files.to_pylist()]
    return sorted(((each["id"]["lower_bound"], each["note"]["lower_bound"]) for each in metrics), key=str)


def test_a_snapshots_bounds_and_partitions_are_shown_by_its_own_schema(catalog: Catalog) -> None:
    table = new_table(catalog, schema=BEFORE, partitioned_by=BY_ID, appends=[rows(BEFORE, 1, 2)])
    replace(table).append(rows(AFTER, "x"))
    inspect, first = catalog.load_table("db.t").inspect, table.metadata.snapshots[0].snapshot_id

    for shown in (inspect.files(first), inspect.data_files(first), inspect.entries(first)):
        assert bounds(shown) == [(1, "note 1"), (2, "note 2")]
    assert sorted(row["partition"]["id"] for row in inspect.partitions(first).to_pylist()) == [1, 2]
    assert [row["partition"] for row in inspect.files().to_pylist()] == [{"id": "x", "bucket": 0}]
    summaries = {row["reference_snapshot_id"]: row["partition_summaries"] for row in inspect.all_manifests().to_pylist()}
    assert [(each["lower_bound"], each["upper_bound"]) for each in summaries[first]] == [("1", "2"), ("0", "0")]


def test_what_all_snapshots_have_is_shown_without_values_of_another_type(catalog: Catalog) -> None:
    table = new_table(catalog, schema=BEFORE, partitioned_by=BY_ID, appends=[rows(BEFORE, 1, 2)])
    replace(table).append(rows(AFTER, "x"))
    inspect = RedactedInspectTable(encrypted_table(catalog.load_table("db.t")))
    all_files, all_entries = inspect.all_files().to_pylist(), inspect.all_entries().to_pylist()

    for files, shown in ((all_files, inspect.all_files()), ([each["data_file"] for each in all_entries], inspect.all_entries())):
        assert bounds(shown) == [("x", "note x"), (None, "note 1"), (None, "note 2")]
        partitions = [tuple(file["partition"].values()) for file in files]
        assert sorted(partitions, key=str) == [("x", 0), (None, 0), (None, 0)]
        assert sorted(dict(file["lower_bounds"])[1] for file in files) == [bytes([1, *bytes(7)]), bytes([2, *bytes(7)]), b"x"]


def test_a_snapshot_from_before_that_became_current_again_is_not_called_tampered_with(replaced: Table) -> None:
    """Iceberg Java's rollback lets it become current, and fails when it reads it."""
    first = of_snapshot(replaced, 0)
    back = SetSnapshotRefUpdate.model_validate({"ref-name": MAIN_BRANCH, "type": "branch", "snapshot-id": first})
    replaced.catalog.commit_table(replaced, (), (back,))
    table = replaced.catalog.load_table("db.t")

    for read in (lambda: table.scan().to_arrow(), table.inspect.files, lambda: table.delete("id = '1'")):
        with pytest.raises((FormatError, ConfigurationError), match="since the table was replaced"):
            read()
    (bad,) = verify(table).bad
    assert "since the table was replaced" in bad.problems[0].message
    assert table.scan(snapshot_id=first).to_arrow()["id"].to_pylist() == [1, 2]

    table.manage_snapshots().set_current_snapshot(snapshot_id=of_snapshot(table, 2)).commit()
    assert table.refresh().scan().count() == 2


def _with_another_type(metadata: dict[str, Any]) -> None:
    metadata["schemas"].append({**metadata["schemas"][0], "schema-id": 7})
    metadata["schemas"][-1]["fields"] = [{**metadata["schemas"][0]["fields"][0], "type": "double"}]
    metadata["snapshots"][1]["schema-id"] = 7


@pytest.mark.parametrize("row_filter", ["true", "id > 1"])
def test_a_snapshot_is_not_read_by_a_schema_that_an_edit_gave_it(tmp_path: Path, aws: AwsServer, row_filter: str) -> None:
    """Bounds of longs, read as those of doubles, would rule out the file."""
    table = new_table(unpinned_catalog(tmp_path, aws), schema=BEFORE, appends=[rows(BEFORE, 1, 2), rows(BEFORE, 30)])
    table.append(rows(BEFORE, 4))
    planted = edited(table, _with_another_type)
    with pytest.raises(TamperedFileError, match="schema-id is 0 in the authenticated manifest list, but 7"):
        planted.scan(row_filter, snapshot_id=of_snapshot(planted, 1)).to_arrow()
