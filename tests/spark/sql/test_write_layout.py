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
from tablecrypt.iceberg_properties import ADVISORY_BYTES
from tablecrypt.spark.sql.scans.read_settings import ReadSettings
from tablecrypt.spark.sql.statements.iceberg_settings import IcebergSettings
from tablecrypt.spark.sql.writes.distribution import WriteKind, layout_of
from tablecrypt.spark.sql.writes.write_options import SqlWriteOptions, WriteRequest

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
UNSERVED: Final = (
    "locality.enabled",
    "executor-cache.enabled",
    "executor-cache.delete-files.enabled",
    "executor-cache.locality.enabled",
    "identifier-fields-rely",
    "async-micro-batch-planning-enabled",
    "handle-timestamp-without-timezone",
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
    return layout_of(metadata(spec, order, named), SqlWriteOptions.of(request(options or {})), kind)


def request(options: dict[str, str], **settings: str) -> WriteRequest:
    return WriteRequest(table="", mode="append", filter=[], options=options, settings=settings, case_sensitive=False)


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
    assert layout(SPEC, ORDER, options={"use-table-distribution-and-ordering": "false", "fanout-enabled": "false"})["groups"] is True
    assert layout(SPEC, ORDER, options={"use-table-distribution-and-ordering": "false"})["ordering"] == []
    assert layout(properties={"distribution-mode": "range"})["distribution"] == "none"
    assert layout(SPEC, properties={"spark.advisory-partition-size-bytes": "1000"})["advisory_bytes"] == 1000
    assert layout(properties={"spark.advisory-partition-size-bytes": "1000"})["advisory_bytes"] == 0
    merge = WriteKind("merge", is_delta=True, has_rows=True)
    assert layout(SPEC, kind=merge, properties={"merge.distribution-mode": "none"})["distribution"] == "none"
    assert layout(SPEC, kind=merge, properties={"distribution-mode": "range"})["distribution"] == "hash"
    for changed in (WriteKind("delete", is_delta=False, has_rows=True), WriteKind("update", is_delta=True, has_rows=True)):
        by_file = layout(kind=changed, properties={f"{changed.command}.distribution-mode": "range"})
        assert (by_file["distribution"], [each["column"] for each in by_file["ranges"]], by_file["ordering"]) == ("range", [["_file"]], [])
    assert (
        layout(SPEC, kind=merge, properties={"merge.distribution-mode": "hash"}, options={"distributionMode": "none"})["clustering"] == []
    )
    delete = WriteKind("delete", is_delta=True, has_rows=False)
    assert layout(kind=delete, properties={"delete.distribution-mode": "hash"})["clustering"] == [FILE]


@pytest.mark.parametrize(
    "properties",
    [{"distribution-mode": "sideways"}, {"merge.distribution-mode": ""}, {"spark.advisory-partition-size-bytes": "-3"}],
    ids=str,
)
def test_layouts_that_are_none_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(properties))):
        layout(SPEC, kind=WriteKind("merge", is_delta=True, has_rows=True), properties=properties)


def test_settings_of_the_session_come_behind_options_and_before_properties() -> None:
    session = {"distribution-mode": "none", "advisoryPartitionSize": "7", "compression-codec": "gzip"}
    options = SqlWriteOptions.of(request({"Advisory-Partition-Size": "9"}, **session))
    table = {"write.parquet.compression-codec": "zstd", "write.merge.distribution-mode": "hash", "write.distribution-mode": "hash"}
    assert options.over(table)["write.parquet.compression-codec"] == "gzip"
    for kind in (ROWS, WriteKind("merge", is_delta=True, has_rows=True)):
        assert layout_of(metadata(SPEC, ORDER, table), options, kind)["distribution"] == "none"
    sized = SqlWriteOptions.of(request({"advisory-partition-size": "9"}, **(session | {"distribution-mode": "HASH"})))
    assert layout_of(metadata(SPEC, ORDER, table | {ADVISORY_BYTES.name: "8"}), sized, ROWS)["advisory_bytes"] == 9


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        *((name, "true", f"spark.sql.iceberg.{name}=true is not supported") for name in UNSERVED),
        *((f"{kind}-planning-mode", "Distributed", "no executor gets their keys") for kind in ("data", "delete")),
        ("distributon-mode", "hash", "Did you mean distribution-mode"),
        ("compression-strategy", "fast", "compression-strategy is 'fast'; it must be speed or compression"),
        ("read.split-size", "0", "spark.sql.iceberg.read.split-size is '0'"),
        ("executor-cache.timeout", "soon", "it must be a time"),
        ("vectorizationEnabled", "maybe", "Did you mean vectorization.enabled"),
        ("checkOrdering", "maybe", "spark.sql.iceberg.check-ordering is 'maybe'"),
    ],
)
def test_a_setting_that_asks_for_what_does_not_happen_is_refused_by_its_name(name: str, value: str, said: str) -> None:
    for fields in ({name: value}, {name: value, "others-own.setting": "kept"}):
        with pytest.raises(ConfigurationError, match=said):
            IcebergSettings.of(request({}, **fields))
    for served in ({name: "false"} if name in UNSERVED else {}, {"executor-cache.timeout": "10m"}, {"dataPlanningMode": "LOCAL"}):
        IcebergSettings.of(request({}, **served))


@pytest.mark.parametrize("name", ["mergeSchema", "check-nullability", "checkOrdering"])
def test_a_switch_of_a_write_has_a_value_that_it_can_have_even_where_nothing_asks_for_it(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"(merge-schema|check-nullability|check-ordering) is 'maybe'"):
        SqlWriteOptions.of(request({name: "maybe"}))
    SqlWriteOptions.of(request({name: "False"}))


def test_reads_go_by_options_then_the_session_then_the_table() -> None:
    table = {
        "read.split.target-size": "5",
        "read.split.open-file-cost": "6",
        "read.parquet.vectorization.enabled": "false",
        "read.split.adaptive-size.enabled": "false",
    }
    assert ReadSettings.of(request({}), {}).split == {"bytes": None, "open_bytes": None, "adaptive": True, "parallelism": None}
    of_table = ReadSettings.of(request({}), table)
    assert (of_table.split, of_table.is_vectorized) == ({"bytes": 5, "open_bytes": 6, "adaptive": False, "parallelism": None}, False)
    # Iceberg Java takes it, and a table that has it must be read here too.
    assert ReadSettings.of(request({}), {"read.split.open-file-cost": "0"}).split["open_bytes"] == 0
    session = {"read.split-size": "7", "read.adaptive-split-size.parallelism": "3", "vectorization.enabled": "true"}
    of_session = ReadSettings.of(request({}, **session), table)
    assert (of_session.split["bytes"], of_session.split["parallelism"], of_session.is_vectorized) == (7, 3, True)
    of_read = ReadSettings.of(request({"splitSize": "8", "vectorization-enabled": "no"}, **session), table)
    assert (of_read.split["bytes"], of_read.split["adaptive"], of_read.is_vectorized) == (8, False, False)
    assert not ReadSettings.of(request({}, **{"aggregate-push-down.enabled": "false"}), {}).asks_manifests
    for name, value in (("locality", "true"), ("lookback", "20"), ("batch-size", "1000")):
        with pytest.raises(ConfigurationError, match=f"{name}={value} is not supported"):
            ReadSettings.of(request({name: value}), {})
    with pytest.raises(ConfigurationError, match=r"encryption.masked-reads is no option of a read or write"):
        ReadSettings.of(request({"encryption.masked-reads": "error"}), {})


def test_options_are_read_without_case_and_snapshot_properties_keep_theirs() -> None:
    given = {"Snapshot-Property.Who": "me", "ISOLATION-LEVEL": "Snapshot", "target-FILE-size-bytes": "7", "other": "x"}
    options = SqlWriteOptions.of(request(given, **{"snapshot-property.Who": "you", "snapshot-property.Why": "so"}))

    assert {name: options.snapshot_properties[name] for name in ("engine-name", "Who", "Why")} == {
        "engine-name": "spark",
        "Who": "me",
        "Why": "so",
    }
    assert options.isolation == IsolationLevel.SNAPSHOT
    assert options.over({"write.target-file-size-bytes": "9", "kept": "1"}) == {"write.target-file-size-bytes": "7", "kept": "1"}


@pytest.mark.parametrize(
    "options",
    [{"write-format": "avro"}, {"validate-from-snapshot-id": "3"}, {"isolation-level": "chaos"}, {"Encryption.column-keys": "pii: ssn"}],
    ids=str,
)
def test_options_that_would_change_what_is_checked_or_written_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        SqlWriteOptions.of(request(options))
