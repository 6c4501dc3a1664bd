"""Files that add_files takes in as they are: what their entries say of them is true of their rows, so that no filter loses one."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from tablecrypt.errors import ConfigurationError
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.table.table import EncryptedTable
from tests.support.tables import ids, memory_catalog, new_table

TEXTS = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", StringType()))
FLOATS = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", DoubleType()))
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))


@pytest.fixture
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return memory_catalog(tmp_path_factory.mktemp("added"))


def add_file_of(source: EncryptedTable, table: EncryptedTable) -> EncryptedTable:
    """Add the one file of a table to another, with its key."""
    [task] = source.scan().plan_files()
    table.add_files([task.file.file_path], key_metadata={task.file.file_path: key_metadata_of(task.file)})
    table.refresh()
    return table


def test_columns_are_those_with_the_field_ids_of_the_file_and_not_those_with_its_names(catalog: Catalog) -> None:
    source = new_table(catalog, "db.source", TEXTS, appends=[pa.table({"id": [1, 2], "part": ["x", "y"]})])
    renamed, replaced, dropped = (new_table(catalog, f"db.{name}", TEXTS) for name in ("renamed", "replaced", "dropped"))
    with renamed.update_schema() as update:
        update.rename_column("part", "place")
    for table in (replaced, dropped):
        with table.update_schema() as update:
            update.delete_column("part")
    with replaced.update_schema() as update:
        update.add_column("part", StringType())

    assert ids(add_file_of(source, renamed), row_filter="place = 'y'") == [2]
    assert ids(add_file_of(source, dropped)) == [1, 2]
    assert ids(add_file_of(source, replaced), row_filter="part is null") == [1, 2]
    replaced.delete("part > 'a'")
    assert ids(replaced.refresh()) == [1, 2]


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        (TEXTS, ["x", None]),
        (FLOATS, [1.0, math.nan]),
        (FLOATS, [math.nan, math.nan]),
        (TEXTS, ["x", "z" * 5000]),
    ],
)
def test_a_file_whose_footer_does_not_tell_its_partition_is_refused(catalog: Catalog, schema: Schema, values: list[object]) -> None:
    rows = pa.table({"id": [1, 2], "part": pa.array(values)})
    source = new_table(catalog, "db.source", schema, appends=[rows], properties={"write.parquet.row-group-limit": "1"})
    table = new_table(catalog, "db.t", schema, partitioned_by=BY_PART)
    with pytest.raises(ConfigurationError, match=r"does not tell .* by their column 'part'"):
        add_file_of(source, table)


@pytest.mark.parametrize("mode", ["none", "counts", "truncate(16)"])
@pytest.mark.parametrize(("value", "row_filter"), [("x" * 40, f"part = '{'x' * 40}'"), (None, "part is null")])
def test_a_partition_is_told_whatever_the_table_keeps_of_its_columns(
    catalog: Catalog, mode: str, value: str | None, row_filter: str
) -> None:
    source = new_table(catalog, "db.source", TEXTS, appends=[pa.table({"id": [1], "part": pa.array([value], pa.string())})])
    table = new_table(catalog, "db.t", TEXTS, partitioned_by=BY_PART, properties={"write.metadata.metrics.default": mode})
    assert ids(add_file_of(source, table), row_filter=row_filter) == [1]
