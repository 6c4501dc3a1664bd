"""How the tables of random statements are partitioned, and in which partition a row lies.

Some are partitioned by one column alone, at times twice. Only then Spark pushes the values of matching rows down while a statement runs: of
several columns it pushes none.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import BooleanType, DateType, DecimalType, IcebergType, IntegerType, LongType, StringType, TimestamptzType

from tests.spark.sql.conditions import Row

ID, REGION, ITEM, NUMBER, PRICE, RATIO, INSTANT, DAY, FLAG, TAGS, PART = range(1, 12)
Field = tuple[int, str, Transform[Any, Any], IcebergType]
"""The key of a column, the transform's SQL for a name, the transform, and the column's type."""

_BY_REGION: Final[Field] = (REGION, "{}", IdentityTransform(), StringType())
_BY_PREFIX: Final[Field] = (ITEM, "truncate(2, {})", TruncateTransform(2), StringType())
_MONEY: Final = DecimalType(9, 2)
PARTITIONINGS: Final[tuple[tuple[Field, ...], ...]] = (
    (_BY_REGION, (REGION, "bucket(2, {})", BucketTransform(2), StringType())),
    ((ID, "bucket(3, {})", BucketTransform(3), LongType()), (INSTANT, "days({})", DayTransform(), TimestamptzType())),
    (_BY_REGION, (INSTANT, "months({})", MonthTransform(), TimestamptzType())),
    ((NUMBER, "truncate(10, {})", TruncateTransform(10), IntegerType()), (DAY, "bucket(2, {})", BucketTransform(2), DateType())),
    (),
    (_BY_REGION, _BY_PREFIX),
    (_BY_PREFIX, (ITEM, "bucket(3, {})", BucketTransform(3), StringType())),
    ((INSTANT, "days({})", DayTransform(), TimestamptzType()), (INSTANT, "bucket(2, {})", BucketTransform(2), TimestamptzType())),
    ((PRICE, "bucket(2, {})", BucketTransform(2), _MONEY), (DAY, "years({})", YearTransform(), DateType())),
    ((FLAG, "{}", IdentityTransform(), BooleanType()),),
)
MORE_FIELDS: Final[tuple[Field, ...]] = (
    (ITEM, "truncate(3, {})", TruncateTransform(3), StringType()),
    (ID, "bucket(2, {})", BucketTransform(2), LongType()),
    _BY_REGION,
    (NUMBER, "truncate(30, {})", TruncateTransform(30), IntegerType()),
    (DAY, "{}", IdentityTransform(), DateType()),
)


def partition_of(row: Row, fields: Sequence[Field]) -> tuple[Any, ...]:
    """The partition that a row lies in."""
    return tuple(transform.transform(kind)(_internal(row.get(key))) for key, _, transform, kind in fields)


def _internal(value: Any) -> Any:
    """A value as PyIceberg's transforms take it: instants as microseconds, dates as days, decimals with their type's scale."""
    if isinstance(value, dt.datetime):
        return (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    if isinstance(value, Decimal):
        return value.quantize(Decimal(1).scaleb(-_MONEY.scale))
    return (value - dt.date(1970, 1, 1)).days if isinstance(value, dt.date) else value
