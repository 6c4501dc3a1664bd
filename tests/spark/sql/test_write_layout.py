"""How rows are laid out before they are written, as the table, the command and the write's options say."""

from __future__ import annotations

from typing import Any, Final

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.snapshots import IsolationLevel
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, VoidTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType, TimestampType

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.sql.writes.layout import WriteKind, layout_of
from tablecrypt.spark.sql.writes.options import SqlWriteOptions

SCHEMA: Final = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "a.b", StructType(NestedField(4, "at", TimestampType()))),
    NestedField(3, "region", StringType()),
)
PLAIN: Final = PartitionSpec()
SPEC: Final = PartitionSpec(
    PartitionField(3, 1000, IdentityTransform(), "region"),
    PartitionField(1, 1001, VoidTransform(), "gone"),
    PartitionField(4, 1002, DayTransform(), "day"),
    PartitionField(1, 1003, BucketTransform(8), "bucket"),
)
ORDER: Final = SortOrder(
    SortField(3, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST),
    SortField(1, BucketTransform(4), SortDirection.DESC, NullOrder.NULLS_LAST),
)
ROWS: Final = WriteKind(None, is_delta=False, has_rows=True)
REGION: Final = {"column": ["region"], "name": "identity", "parameter": 0}
DAY: Final = {"column": ["a.b", "at"], "name": "days", "parameter": 0}
BUCKET: Final = {"column": ["id"], "name": "bucket", "parameter": 8}
FILE: Final = {"column": ["_file"], "name": "identity", "parameter": 0}
UNSORTED: Final = {"ranges": [], "ordering": [], "groups": True, "advisory_bytes": 0}
FIRST: Final = {"ascending": True, "nulls_first": True}
BY_ORDER: Final = {"column": ["id"], "name": "bucket", "parameter": 4, "ascending": False, "nulls_first": False}


def layout(
    spec: PartitionSpec = PLAIN,
    order: SortOrder = UNSORTED_SORT_ORDER,
    kind: WriteKind = ROWS,
    options: dict[str, str] | None = None,
    properties: dict[str, str] | None = None,
) -> dict[str, Any]:
    named = {f"write.{name}": value for name, value in (properties or {}).items()}
    return layout_of(metadata(spec, order, named), SqlWriteOptions.of(options or {}), kind)


def metadata(spec: PartitionSpec, order: SortOrder, properties: dict[str, str]) -> TableMetadata:
    made = new_table_metadata(SCHEMA, PartitionSpec(), UNSORTED_SORT_ORDER, "file:///lake", {"format-version": "2", **properties})
    # New metadata has ids of its own; these are the ones that the fields above name.
    return made.model_copy(
        update={
            "schemas": [SCHEMA],
            "current_schema_id": 0,
            "partition_specs": [spec],
            "default_spec_id": spec.spec_id,
            "sort_orders": [order],
            "default_sort_order_id": order.order_id,
        }
    )


def test_a_plain_table_is_left_as_spark_brings_it() -> None:
    assert layout() == {**UNSORTED, "distribution": "none", "clustering": [], "groups": False}


def test_a_partitioned_table_is_clustered_and_its_writer_or_spark_brings_rows_of_a_partition_together() -> None:
    clustered = {"distribution": "hash", "clustering": [{**each, **FIRST} for each in (REGION, DAY, BUCKET)]}
    by_spark = {**UNSORTED, **clustered, "groups": False, "ordering": clustered["clustering"]}

    assert layout(SPEC) == {**UNSORTED, **clustered}
    assert layout(SPEC, properties={"spark.fanout.enabled": "false"}) == by_spark
    assert layout(SPEC, options={"fanout-enabled": "false"}) == by_spark
    protected = metadata(SPEC, UNSORTED_SORT_ORDER, {"encryption.column.1.key-id": "pii"})
    assert layout_of(protected, SqlWriteOptions.of({}), ROWS)["groups"] is False
    with pytest.raises(ConfigurationError, match="fanout"):
        layout(SPEC, properties={"spark.fanout.enabled": "maybe"})


def test_a_sort_order_makes_a_range_and_follows_the_partitions() -> None:
    assert layout(SPEC, ORDER) == {
        "distribution": "range",
        "clustering": [],
        "ranges": [*({**each, **FIRST} for each in (REGION, DAY, BUCKET)), BY_ORDER],
        "ordering": [*({**each, **FIRST} for each in (REGION, DAY, BUCKET)), BY_ORDER],
        "groups": False,
        "advisory_bytes": 0,
    }
    assert layout(order=ORDER)["ordering"] == [{**REGION, "ascending": False, "nulls_first": False}, BY_ORDER]


@pytest.mark.parametrize(
    ("kind", "spec", "distribution", "clustering"),
    [
        (WriteKind("delete", is_delta=True, has_rows=False), SPEC, "none", []),
        (WriteKind("delete", is_delta=False, has_rows=True), SPEC, "hash", [FILE]),
        (WriteKind("update", is_delta=False, has_rows=True), PLAIN, "hash", [FILE]),
        (WriteKind("update", is_delta=True, has_rows=True), SPEC, "hash", [FILE, REGION, DAY, BUCKET]),
        (WriteKind("update", is_delta=True, has_rows=True), PLAIN, "none", []),
        (WriteKind("merge", is_delta=True, has_rows=True), SPEC, "hash", [FILE, REGION, DAY, BUCKET]),
        (WriteKind("merge", is_delta=False, has_rows=True), SPEC, "hash", [REGION, DAY, BUCKET]),
        (WriteKind("merge", is_delta=False, has_rows=True), PLAIN, "none", []),
    ],
    ids=lambda value: f"{value.command}-{value.is_delta}" if isinstance(value, WriteKind) else None,
)
def test_row_level_changes_are_clustered_by_what_they_write(
    kind: WriteKind, spec: PartitionSpec, distribution: str, clustering: list[dict[str, Any]]
) -> None:
    found = layout(spec, kind=kind)

    assert found["distribution"] == distribution
    assert [{name: field[name] for name in FILE} for field in found["clustering"]] == clustering
    assert found["groups"] == (kind.has_rows and spec is SPEC)
    assert found["ordering"] == []


def test_properties_and_options_say_otherwise() -> None:
    assert layout(SPEC, properties={"distribution-mode": "none"})["distribution"] == "none"
    assert layout(SPEC, options={"Distribution-Mode": "RANGE"})["distribution"] == "range"
    assert layout(SPEC, options={"use-table-distribution-and-ordering": "false"})["distribution"] == "none"
    assert layout(SPEC, options={"use-table-distribution-and-ordering": "false"})["ordering"] == layout(SPEC)["ordering"]
    assert layout(properties={"distribution-mode": "range"})["distribution"] == "none"
    assert layout(SPEC, properties={"spark.advisory-partition-size-bytes": "1000"})["advisory_bytes"] == 1000
    assert layout(properties={"spark.advisory-partition-size-bytes": "1000"})["advisory_bytes"] == 0
    merge = WriteKind("merge", is_delta=True, has_rows=True)
    assert layout(SPEC, kind=merge, properties={"merge.distribution-mode": "none"})["distribution"] == "none"
    assert layout(SPEC, kind=merge, properties={"distribution-mode": "range"})["distribution"] == "range"


@pytest.mark.parametrize(
    "properties",
    [{"distribution-mode": "sideways"}, {"merge.distribution-mode": ""}, {"spark.advisory-partition-size-bytes": "-3"}],
    ids=str,
)
def test_layouts_that_are_none_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(properties))):
        layout(SPEC, kind=WriteKind("merge", is_delta=True, has_rows=True), properties=properties)


def test_options_are_read_without_case_and_snapshot_properties_keep_theirs() -> None:
    options = SqlWriteOptions.of(
        {"Snapshot-Property.Who": "me", "ISOLATION-LEVEL": "Snapshot", "target-FILE-size-bytes": "7", "other": "x"}
    )

    assert options.snapshot_properties == {"engine-name": "spark", "Who": "me"}
    assert options.isolation == IsolationLevel.SNAPSHOT
    assert options.over({"write.target-file-size-bytes": "9", "kept": "1"}) == {"write.target-file-size-bytes": "7", "kept": "1"}


@pytest.mark.parametrize(
    "options",
    [{"write-format": "avro"}, {"validate-from-snapshot-id": "3"}, {"isolation-level": "chaos"}],
    ids=str,
)
def test_options_that_would_change_what_is_checked_or_written_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        SqlWriteOptions.of(options)
