"""Somebody who can write metadata.json edits schemas and partition specs: a scan refuses, instead of losing or renaming rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from tablecrypt.errors import TamperedFileError
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edited
from tests.support.tables import new_table, unpinned_catalog

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "city", StringType()),
    NestedField(4, "size", IntegerType()),
)
SPEC = PartitionSpec(PartitionField(2, 1000, BucketTransform(8), "name_bucket"), PartitionField(3, 1001, IdentityTransform(), "city"))
ROWS = pa.table({"id": [1, 2, 3], "name": ["ann", "bob", "eve"], "city": ["x", "y", "x"], "size": [1, 2, 3]}, schema=SCHEMA.as_arrow())


@pytest.fixture
def table(tmp_path: Path, aws: AwsServer) -> Table:
    catalog = unpinned_catalog(tmp_path, aws)
    return new_table(catalog, schema=SCHEMA, appends=[ROWS], partitioned_by=SPEC)


def _fields(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    return metadata["schemas"][0]["fields"]  # type: ignore[no-any-return]


def _spec(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    return metadata["partition-specs"][0]["fields"]  # type: ignore[no-any-return]


def _add_column(metadata: dict[str, Any]) -> None:
    _fields(metadata).append({"id": 9, "name": "new", "type": "long", "required": False})
    metadata["last-column-id"] = 9


def _swap_names(metadata: dict[str, Any]) -> None:
    _fields(metadata)[1]["name"], _fields(metadata)[2]["name"] = "city", "name"


def _type_under_a_new_schema(metadata: dict[str, Any]) -> None:
    fields = [{**field, "type": "string"} if field["name"] == "size" else field for field in _fields(metadata)]
    metadata["schemas"].append({**metadata["schemas"][0], "schema-id": 7, "fields": fields})
    metadata["current-schema-id"] = 7


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "transform": lambda metadata: _spec(metadata)[0].update(transform="bucket[4]"),
    "source": lambda metadata: _spec(metadata)[1].update({"source-id": 2}),
    "field id": lambda metadata: _spec(metadata)[1].update({"field-id": 1007}),
    "partition name": lambda metadata: _spec(metadata)[1].update(name="town"),
    "fields exchanged": lambda metadata: _spec(metadata).reverse(),
    "field dropped": lambda metadata: _spec(metadata).pop(),
    "spec renumbered": lambda metadata: (metadata["partition-specs"][0].update({"spec-id": 5}), metadata.update({"default-spec-id": 5})),
    "names swapped": _swap_names,
    "column renamed": lambda metadata: _fields(metadata)[1].update(name="nom"),
    "column dropped": lambda metadata: _fields(metadata).pop(),
    "column added": _add_column,
    "type": lambda metadata: _fields(metadata)[3].update(type="long"),
    "required": lambda metadata: _fields(metadata)[0].update(required=True),
    "default": lambda metadata: _fields(metadata)[0].update({"initial-default": 7}),
    "type under a new schema": _type_under_a_new_schema,
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_schema_or_spec_is_refused_and_no_row_is_lost(table: Table, edit: str) -> None:
    planted = edited(table, EDITS[edit])
    with pytest.raises(TamperedFileError, match=r"authenticated manifest|does not have|in the manifest"):
        planted.scan(row_filter="id > 0").to_arrow()


@pytest.mark.parametrize("edit", ["transform", "source", "names swapped"])
@pytest.mark.parametrize("row_filter", ["name = 'bob'", "city = 'y'", "name = 'nobody'", "city = 'nowhere'"])
def test_manifests_that_a_filter_leaves_out_do_not_hide_the_edit(table: Table, edit: str, row_filter: str) -> None:
    planted = edited(table, EDITS[edit])
    with pytest.raises(TamperedFileError, match="authenticated manifest"):
        planted.scan(row_filter=row_filter).to_arrow()


def test_a_legitimate_evolution_of_schema_and_spec_goes_on_working(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("name", "full_name")
        update.update_column("size", field_type=LongType())
        update.add_column("note", StringType(), default_value="none")
        update.move_first("city")
    with table.update_spec() as update:
        update.remove_field("name_bucket")
        update.add_field("id", BucketTransform(4), "id_bucket")
    table.append(
        pa.table({"city": ["z"], "id": [4], "full_name": ["zoe"], "size": [2**40], "note": ["new"]}, schema=table.schema().as_arrow())
    )
    with table.update_schema() as update:
        update.delete_column("note")
    fresh = table.catalog.load_table("db.t")
    assert sorted(fresh.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]
    assert fresh.scan(row_filter="full_name = 'bob'").to_arrow()["id"].to_pylist() == [2]
    fresh.delete("id = 1")
    assert sorted(fresh.scan().to_arrow()["id"].to_pylist()) == [2, 3, 4]


def test_a_schema_that_was_removed_since_is_not_missed(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("name", "full_name")
    without = edited(table, lambda metadata: metadata["schemas"].pop(0))
    assert without.scan(row_filter="full_name = 'bob'").to_arrow()["id"].to_pylist() == [2]
