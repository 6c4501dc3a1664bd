"""Spark's partition transforms as Iceberg's partition fields: PARTITIONED BY (region, bucket(16, id), days(ts)).

Fields are named as Iceberg Java names them: region, id_bucket, ts_day, item_trunc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import NestedField

from tablecrypt.errors import ConfigurationError

_TIMES: Final[Mapping[str, tuple[Transform[Any, Any], str]]] = {
    **dict.fromkeys(("year", "years"), (YearTransform(), "year")),
    **dict.fromkeys(("month", "months"), (MonthTransform(), "month")),
    **dict.fromkeys(("day", "days", "date"), (DayTransform(), "day")),
    **dict.fromkeys(("hour", "hours", "date_hour"), (HourTransform(), "hour")),
}


@dataclass(frozen=True)
class SparkTransform:
    """A transform as Spark's parser gives it: `bucket(16, id)` has the parameter 16 and the column ("id",)."""

    name: str
    parameters: tuple[int, ...]
    columns: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> SparkTransform:
        """Take a transform from a request. Raises ConfigurationError where a parameter is no whole number."""
        if not all(type(parameter) is int for parameter in fields["parameters"]):
            raise ConfigurationError(f"PARTITIONED BY {fields['transform']}: a parameter is no whole number: {fields['parameters']}")
        return cls(str(fields["transform"]).lower(), tuple(fields["parameters"]), tuple(map(tuple, fields["columns"])))

    def __str__(self) -> str:
        return f"{self.name}({', '.join([*map(str, self.parameters), *map('.'.join, self.columns)])})"


def partition_spec(schema: Schema, transforms: Sequence[SparkTransform]) -> PartitionSpec:
    """Return the partition spec of a new table.

    Raises:
        ConfigurationError: there is no such transform or column, a transform does not take the column's type, or two fields are the same.
    """
    fields = [partition_field(schema, each, PARTITION_FIELD_ID_START + index) for index, each in enumerate(transforms)]
    names: set[str] = set()
    for field, each in zip(fields, transforms, strict=True):
        if field.name in names:
            raise ConfigurationError(f"PARTITIONED BY {each}: there is a partition field {field.name} already")
        names.add(field.name)

    return PartitionSpec(*fields)


def partition_field(schema: Schema, wanted: SparkTransform, field_id: int) -> PartitionField:
    """Return one partition field. Raises ConfigurationError as `partition_spec`."""
    transform, suffix = iceberg_transform(wanted)
    if len(wanted.columns) != 1:
        raise ConfigurationError(f"PARTITIONED BY {wanted}: a partition field has one column, not {len(wanted.columns)}")

    source = find_column(schema, wanted.columns[0])
    name = schema.find_column_name(source.field_id) or source.name
    if not transform.can_transform(source.field_type):
        raise ConfigurationError(f"PARTITIONED BY {wanted}: {name} is of type {source.field_type}, which {wanted.name} does not take")

    return PartitionField(source.field_id, field_id, transform, f"{name}_{suffix}" if suffix else name)


def iceberg_transform(wanted: SparkTransform) -> tuple[Transform[Any, Any], str]:
    """Return the transform, and what the name of a field ends with.

    Raises:
        ConfigurationError: Iceberg has no such transform, or it takes another number of parameters.
    """
    takes = 1 if wanted.name in ("bucket", "truncate") else 0
    if len(wanted.parameters) == takes:
        if wanted.name == "identity":
            return IdentityTransform(), ""
        if wanted.name == "bucket":
            return BucketTransform(_positive(wanted)), "bucket"
        if wanted.name == "truncate":
            return TruncateTransform(_positive(wanted)), "trunc"
        if wanted.name in _TIMES:
            return _TIMES[wanted.name]

    raise ConfigurationError(
        f"PARTITIONED BY {wanted}: not a transform of Iceberg. Use a column, bucket(n, column), truncate(width, column), years(column), "
        "months(column), days(column) or hours(column)"
    )


def find_column(schema: Schema, path: Sequence[str], is_case_sensitive: bool = False) -> NestedField:
    """Return a column by its name: the one that is written so, else the only one that is written so but for upper and lower case.

    Args:
        is_case_sensitive: whether only the first will do, as spark.sql.caseSensitive says. Where Spark has looked the name up, any will.

    Raises:
        ConfigurationError: there is none.
    """
    name = ".".join(path)
    # The exact name first: columns may differ in nothing but case.
    for case_sensitive in (True,) if is_case_sensitive else (True, False):
        try:
            return schema.find_field(name, case_sensitive)
        except ValueError:
            continue

    raise ConfigurationError(f"there is no column {name}; there are {', '.join(schema.column_names)}")


def _positive(wanted: SparkTransform) -> int:
    parameter = wanted.parameters[0]
    if not 0 < parameter < 2**31:
        raise ConfigurationError(f"PARTITIONED BY {wanted}: the parameter must be from 1 to {2**31 - 1}")
    return parameter
