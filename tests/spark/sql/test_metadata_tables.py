"""Metadata tables show partitions as Iceberg does, whatever the table's partitioning was, and can be read whatever its columns are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.transforms import BucketTransform

from tablecrypt.spark.sql.local_rows import local_rows
from tablecrypt.spark.sql.metadata_tables import NAMES, metadata_table
from tablecrypt.table.table import EncryptedTable
from tests.spark.conftest import Lake
from tests.support.tables import ENCRYPTED, MERGE_ON_READ, encrypted_table, new_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = pa.table({"id": [1, 2], "category": ["c1", "c2"], "data": ["d1", "d2"]})


@pytest.fixture
def table(catalog: Catalog) -> EncryptedTable:
    return new_table(catalog, appends=[ROWS])


def partitions(table: EncryptedTable, name: str) -> Counter[tuple[Any, ...]]:
    rows = metadata_table(encrypted_table(table.refresh()), name, None)["partition"].to_pylist()
    return Counter(tuple(row.items()) for row in rows)


def test_a_table_without_partitions_has_no_column_for_them(table: EncryptedTable) -> None:
    for name in ("files", "data_files", "all_files", "all_data_files", "partitions"):
        rows = metadata_table(table, name, None)
        assert "partition" not in rows.column_names and rows.num_rows == 1
    with table.update_spec() as update:
        update.add_identity("data")
    assert metadata_table(table, "files", None)["partition"].to_pylist() == [{"data": None}]


def test_entries_say_with_which_spec_a_file_was_written(table: EncryptedTable) -> None:
    for name in ("entries", "all_entries"):
        file = metadata_table(table, name, None).schema.field("data_file").type
        assert [each.name for each in file][:5] == ["content", "file_path", "file_format", "spec_id", "record_count"]

    with table.update_spec() as update:
        update.add_identity("data")
    table.append(ROWS)
    for name in ("entries", "all_entries"):
        files = metadata_table(encrypted_table(table.refresh()), name, None)["data_file"].to_pylist()
        assert sorted((file["spec_id"], file["partition"]["data"]) for file in files if file["spec_id"]) == [(1, "d1"), (1, "d2")]
        assert [file["partition"] for file in files if not file["spec_id"]] == [{"data": None}]


def test_a_partition_field_has_the_name_that_it_had_last(table: EncryptedTable) -> None:
    with table.update_spec() as update:
        update.add_identity("data").add_field("category", BucketTransform(1), "bucket")
    table.append(ROWS)
    with table.update_spec() as update:
        update.rename_field("bucket", "other")
    table.append(ROWS)

    empty = (("data", None), ("other", None))
    first, second = (("data", "d1"), ("other", 0)), (("data", "d2"), ("other", 0))
    for name in ("files", "data_files", "all_files"):
        found = partitions(table, name)
        assert found == {empty: 1, first: 2, second: 2}, name
    assert partitions(table, "partitions") == {empty: 1, first: 1, second: 1}


def test_a_partition_is_one_row_in_whichever_order_its_fields_stood(table: EncryptedTable) -> None:
    with table.update_spec() as update:
        update.add_identity("data").add_identity("category")
    table.append(ROWS)
    with table.update_spec() as update:
        update.remove_field("data").remove_field("category")
    with table.update_spec() as update:
        update.add_identity("category").add_identity("data")
    table.append(ROWS.slice(1))

    rows = {row["partition"]["data"]: row for row in metadata_table(encrypted_table(table.refresh()), "partitions", None).to_pylist()}
    assert {data: (row["file_count"], row["record_count"]) for data, row in rows.items()} == {None: (1, 2), "d1": (1, 1), "d2": (2, 2)}
    assert rows["d2"]["last_updated_snapshot_id"] == table.metadata.current_snapshot_id
    assert rows["d2"]["spec_id"] == table.spec().spec_id


def test_partitions_have_the_fields_of_every_spec(table: EncryptedTable) -> None:
    with table.update_spec() as update:
        update.add_identity("data")
    rows = metadata_table(encrypted_table(table.refresh()), "partitions", None)
    assert [(row["partition"], row["spec_id"]) for row in rows.to_pylist()] == [({"data": None}, 0)]
    table.overwrite(ROWS.slice(1))
    with table.update_spec() as update:
        update.add_identity("category")
    rows = metadata_table(encrypted_table(table.refresh()), "partitions", None)
    assert [row["partition"] for row in rows.to_pylist()] == [{"data": "d2", "category": None}]


def test_partitions_of_fewer_fields_are_rows_of_their_own(table: EncryptedTable) -> None:
    """Of fields that are there: a dropped column's is not, and those of two specs then are one row."""
    null = pa.table({"id": [3], "category": ["c1"], "data": pa.array([None], pa.string())})
    for name in ("data", "category"):
        with table.update_spec() as update:
            update.add_identity(name)
        table.append(null)

    def counted() -> list[tuple[object, ...]]:
        rows = metadata_table(encrypted_table(table.refresh()), "partitions", None).to_pylist()
        return sorted((row["spec_id"], row["partition"].get("data"), row["record_count"]) for row in rows)

    assert counted() == [(0, None, 2), (1, None, 1), (2, None, 1)]
    with table.update_spec() as update:
        update.remove_field("category")
    with table.update_schema() as schema:
        schema.delete_column("category")
    assert counted() == [(0, None, 2), (2, None, 2)]


def test_fields_of_the_same_name_are_told_apart(table: EncryptedTable) -> None:
    with table.update_spec() as update:
        update.add_field("data", BucketTransform(4), "part")
    table.append(ROWS.slice(1))
    with table.update_spec() as update:
        update.remove_field("part")
    with table.update_spec() as update:
        update.add_field("category", BucketTransform(4), "part")
    table.append(ROWS.slice(1))

    [columns] = {tuple(row) for row in metadata_table(encrypted_table(table.refresh()), "files", None)["partition"].to_pylist()}
    assert columns == ("part_1000", "part")


def test_metrics_of_columns_in_columns_have_their_full_names(catalog: Catalog) -> None:
    """As Iceberg shows them: PyIceberg has those of columns at the top alone."""
    part = {"b": 1, "a": "x"}
    rows = pa.table({"part": [part], "id": [7], "list": [[part]], "map": pa.array([[("k", 2)]], pa.map_(pa.string(), pa.int64()))})
    table = new_table(catalog, "db.nested", rows.schema, appends=[rows])

    for name in ("files", "all_data_files", "entries", "all_entries"):
        [metrics] = metadata_table(table, name, None)["readable_metrics"].to_pylist()
        assert list(metrics) == ["id", "list.element.a", "list.element.b", "map.key", "map.value", "part.a", "part.b"]
        bounds = {column: (each["lower_bound"], each["upper_bound"], each["value_count"]) for column, each in metrics.items()}
        assert (bounds["id"], bounds["part.a"], bounds["part.b"]) == ((7, 7, 1), ("x", "x", 1), (1, 1, 1))


def test_all_entries_are_those_of_each_manifest_once(catalog: Catalog) -> None:
    table = new_table(catalog, "db.vectors", appends=[ROWS, ROWS], properties=MERGE_ON_READ)
    table.delete("id = 1")
    table.append(ROWS)

    files = metadata_table(encrypted_table(table), "all_entries", None)["data_file"].to_pylist()
    vectors = [(file["file_path"], file["content_offset"]) for file in files if file["content"] == 1]
    assert len({path for path, _ in vectors}) == 1
    assert len(vectors) == len(set(vectors)) == 2
    assert len(files) == 5
    assert {file["key_metadata"] for file in files} == {None}


@pytest.mark.java
@pytest.mark.slow
def test_each_metadata_table_of_a_table_with_columns_of_any_type_can_be_read(spark: SparkSession, prod: Lake, new_name: str) -> None:
    types = {
        "list": pa.list_(pa.struct([("at", pa.time64("us")), ("names", pa.list_(pa.string()))])),
        "map": pa.map_(pa.string(), pa.list_(pa.binary(5))),
    }
    columns = {name: pa.nulls(3, kind) for name, kind in types.items()}
    columns["map"] = pa.array([[("k", [b"fixed"])]] * 3, types["map"])
    rows = pa.table({"id": [0, 1, 2], **columns})
    table = new_table(prod.catalog, new_name, rows.schema, appends=[rows], properties={**ENCRYPTED, **MERGE_ON_READ})
    table.delete("id = 1")

    counts = {name: spark.sql(f"SELECT * FROM prod.{new_name}.{name}").toArrow().num_rows for name in NAMES}
    assert {name: counts[name] for name in ("entries", "data_files", "position_deletes")} == {
        "entries": 2,
        "data_files": 1,
        "position_deletes": 1,
    }


def test_nested_types_become_such_as_spark_has() -> None:
    nested = pa.large_list(
        pa.struct([("id", pa.uuid()), ("content", pa.int8()), ("map", pa.map_(pa.large_string(), pa.large_list(pa.binary(5))))])
    )
    shown = local_rows("rows", pa.table({"of_struct": pa.nulls(2, pa.struct([("nested", nested)]))}))

    of_spark = pa.list_(pa.struct([("id", pa.string()), ("content", pa.int32()), ("map", pa.map_(pa.string(), pa.list_(pa.binary())))]))
    assert pa.ipc.open_stream(shown.content).read_all().schema.field("of_struct").type == pa.struct([("nested", of_spark)])
