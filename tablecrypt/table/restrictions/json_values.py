"""Single values in JSON, as the table specification writes them, checked against the type that they are to be of.

Iceberg table spec, "JSON Single-Value Serialization".
"""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
from decimal import Decimal, localcontext
from typing import Any, Final

from pydantic import ValidationError
from pyiceberg.exceptions import ValidationError as InvalidTypeError
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tablecrypt.errors import ReadRestrictionError

_LONGS: Final = range(-(2**63), 2**63)
_LARGEST_FLOAT: Final = 3.4028234663852886e38
_EPOCH: Final = dt.datetime(1970, 1, 1)
_DAY: Final = r"\d{4}-\d\d-\d\d"
_CLOCK: Final = r"\d\d:\d\d:\d\d"
_PATTERNS: Final[dict[type[IcebergType], re.Pattern[str]]] = {
    DateType: re.compile(_DAY),
    TimeType: re.compile(rf"{_CLOCK}(\.\d{{1,6}})?"),
    TimestampType: re.compile(rf"{_DAY}T{_CLOCK}(\.\d{{1,6}})?"),
    TimestamptzType: re.compile(rf"{_DAY}T{_CLOCK}(\.\d{{1,6}})?\+00:00"),
    TimestampNanoType: re.compile(rf"{_DAY}T{_CLOCK}(\.\d{{1,9}})?"),
    TimestamptzNanoType: re.compile(rf"{_DAY}T{_CLOCK}(\.\d{{1,9}})?\+00:00"),
    UUIDType: re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    FixedType: re.compile(r"([0-9a-fA-F]{2})*"),
    BinaryType: re.compile(r"([0-9a-fA-F]{2})*"),
    DecimalType: re.compile(r"-?\d{1,38}(\.\d{1,38})?([eE][+-]?\d{1,2})?"),
    StringType: re.compile(r".*", re.DOTALL),
}


def value_in_json(value: object, kind: IcebergType) -> Any:
    """Return a value as Arrow takes it for a column of a type: a uuid as its bytes, nanoseconds as an int.

    Raises:
        ReadRestrictionError: it is not of the type, is null, or cannot be held exactly.
    """
    try:
        return _value(value, kind)
    except (ValueError, ArithmeticError) as error:
        raise ReadRestrictionError(f"the value {value!r} does not have type {kind}: {error}") from None


def primitive_type(name: object) -> PrimitiveType:
    """Return the type of a name like "long" or "decimal(9,2)".

    Raises:
        ReadRestrictionError: there is no such type.
    """
    try:
        kind = NestedField.model_validate({"id": 1, "name": "value", "type": name, "required": False}).field_type
    except (ValidationError, InvalidTypeError, ValueError, TypeError):
        kind = None

    if not isinstance(kind, PrimitiveType):
        raise ReadRestrictionError(f"there is no primitive type {name!r}")

    return kind


def _value(value: object, kind: IcebergType) -> Any:
    if isinstance(kind, BooleanType) and isinstance(value, bool):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _number(value, kind)

    pattern = _PATTERNS.get(type(kind))
    if not isinstance(value, str) or pattern is None or not pattern.fullmatch(value):
        raise ValueError("not written as one")

    return _text_value(value, kind)


def _number(value: float, kind: IcebergType) -> float:
    if isinstance(kind, (IntegerType, LongType)):
        # JSON has one kind of number: 1.0 is the long 1, and 1.5 must not be cut to it.
        if not math.isfinite(value) or value != int(value) or int(value) not in _LONGS:
            raise ValueError("not a whole number of 64 bits")
        return int(value)
    if isinstance(kind, (FloatType, DoubleType)):
        number = float(value)
        if not math.isfinite(number) or (isinstance(kind, FloatType) and abs(number) > _LARGEST_FLOAT):
            raise ValueError("out of its range")
        return number

    raise ValueError("a number")


def _text_value(value: str, kind: IcebergType) -> Any:
    if isinstance(kind, DateType):
        return dt.date.fromisoformat(value)
    if isinstance(kind, TimeType):
        return dt.time.fromisoformat(value)
    if isinstance(kind, (TimestampType, TimestamptzType)):
        return dt.datetime.fromisoformat(value)
    if isinstance(kind, (TimestampNanoType, TimestamptzNanoType)):
        return _nanoseconds(value.removesuffix("+00:00"))
    if isinstance(kind, UUIDType):
        return uuid.UUID(value).bytes
    if isinstance(kind, DecimalType):
        return _decimal(value, kind)
    if isinstance(kind, (FixedType, BinaryType)):
        content = bytes.fromhex(value)
        if isinstance(kind, FixedType) and len(content) != len(kind):
            raise ValueError(f"{len(content)} bytes")
        return content

    return value


def _nanoseconds(value: str) -> int:
    seconds, _, fraction = value.partition(".")
    whole = (dt.datetime.fromisoformat(seconds) - _EPOCH) // dt.timedelta(seconds=1)
    nanoseconds = whole * 10**9 + int(fraction.ljust(9, "0"))
    if nanoseconds not in _LONGS:
        raise ValueError("out of its range")
    return nanoseconds


def _decimal(value: str, kind: DecimalType) -> Decimal:
    with localcontext() as exact:
        # Python's default of 28 digits would round a 38-digit literal without a word, and the filter would keep other rows.
        exact.prec = 100
        given = Decimal(value)
        scaled = given.quantize(Decimal(1).scaleb(-kind.scale))

    if scaled != given or len(scaled.as_tuple().digits) > kind.precision:
        raise ValueError("too many digits")

    return scaled
