"""The struct of partition values: a field for each partition field whose column the table still has."""

from __future__ import annotations

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from tablecrypt.spark.sql.scans.partition_values import PartitionStruct


def test_a_dropped_column_has_no_field_and_a_promoted_one_its_type_of_today() -> None:
    before = Schema(NestedField(1, "team", StringType()), NestedField(2, "day", IntegerType()))
    after = Schema(NestedField(2, "day", LongType()), schema_id=1)
    fields = [PartitionField(each, 999 + each, IdentityTransform(), name) for each, name in ((1, "team"), (2, "day"))]
    metadata = new_table_metadata(before, PartitionSpec(*fields), UNSORTED_SORT_ORDER, "s3://b/t", {})
    assert [field.name for field in PartitionStruct(metadata).fields] == ["team", "day"]

    specs = [*metadata.partition_specs, PartitionSpec(fields[1], spec_id=1)]
    current = {"schemas": [*metadata.schemas, after], "current_schema_id": 1, "partition_specs": specs, "default_spec_id": 1}
    changed = PartitionStruct(metadata.model_copy(update=current))

    assert list(changed.fields) == [NestedField(1001, "day", LongType(), required=False)]
