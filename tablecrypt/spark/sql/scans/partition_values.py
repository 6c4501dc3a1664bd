"""Partition values in Spark: one struct for all partition specs of a table, as in Iceberg's `_partition`.

    struct    a field for each partition field that ever was, in order of their ids; void ones and those of dropped columns are left out
    values    one for each field, null where the file's spec does not have it

A value is JSON that Java makes Spark's own form of (java/JsonValue.java):

    boolean, int, long, string      as they are
    date, timestamps                days, microseconds since 1970-01-01
    float, double                   a number, or "NaN", "Infinity", "-Infinity"
    decimal                         text
    binary, fixed                   base64
    uuid                            text, 8-4-4-4-12 hexadecimal digits
"""

from __future__ import annotations

import base64
import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import NestedField, UUIDType


@dataclass(frozen=True)
class PartitionStruct:
    """The struct of one table."""

    metadata: TableMetadata

    @cached_property
    def fields(self) -> Sequence[NestedField]:
        """The struct's fields. Their ids are those of partition fields."""
        # Today's schema alone, as in Iceberg: its types are those that all values fit, and a dropped column has no field any more.
        schema = self.metadata.schema()
        known: dict[int, NestedField] = {}
        # The newest first, whose name of a renamed field is the one that stays.
        for spec in sorted(self.metadata.partition_specs, key=lambda spec: spec.spec_id, reverse=True):
            for field in spec.fields:
                found = None if isinstance(field.transform, VoidTransform) else _partition_field(field, schema)
                if found is not None:
                    known.setdefault(field.field_id, found)

        return _with_distinct_names([known[field_id] for field_id in sorted(known)])

    def values(self, file: DataFile, names: Iterable[str]) -> list[Any]:
        """Return a data file's values of fields of the struct as JSON."""
        position = self._positions[file.spec_id]
        fields = [self._by_name[name] for name in names]
        return [json_value(file.partition[position[field.field_id]], field) if field.field_id in position else None for field in fields]

    @cached_property
    def _by_name(self) -> Mapping[str, NestedField]:
        return {field.name: field for field in self.fields}

    @cached_property
    def _positions(self) -> Mapping[int, Mapping[int, int]]:
        return {spec.spec_id: {field.field_id: at for at, field in enumerate(spec.fields)} for spec in self.metadata.partition_specs}


def json_value(value: Any, field: NestedField) -> Any:
    """Return a value, as manifests hold it, as JSON."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value).replace("inf", "Infinity").replace("nan", "NaN")
    if isinstance(value, Decimal):
        # Not str(), which writes 1E+3.
        return f"{value:f}"
    if isinstance(field.field_type, UUIDType):
        return str(value if isinstance(value, uuid.UUID) else uuid.UUID(bytes=bytes(value)))

    return base64.b64encode(bytes(value)).decode()


def _partition_field(field: PartitionField, schema: Schema) -> NestedField | None:
    if field.source_id not in schema.field_ids:
        return None
    kind = field.transform.result_type(schema.find_type(field.source_id))
    return NestedField(field.field_id, field.name, kind, required=False)


def _with_distinct_names(fields: Sequence[NestedField]) -> list[NestedField]:
    taken: set[str] = set()
    distinct: list[NestedField] = []
    for field in fields:
        # Spark resolves names without case, and would find two fields.
        name = field.name if field.name.lower() not in taken else f"{field.name}_{field.field_id}"
        taken.add(name.lower())
        distinct.append(field.model_copy(update={"name": name}))

    return distinct
