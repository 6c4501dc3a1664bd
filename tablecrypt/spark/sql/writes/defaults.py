"""Defaults of columns as Spark keeps them, so that a statement without a column writes its default and not null.

Spark has the text of an expression: of the write-default in CURRENT_DEFAULT, and of the initial default in EXISTS_DEFAULT, which it shows.
Spark does not fill in rows of files that lack the column: their initial default comes from the reader.

A DEFAULT of a statement is one value. CREATE TABLE and ALTER COLUMN make it the write-default, and ADD COLUMN the initial default too.
DROP DEFAULT takes the write-default away; the initial default stays, as rows that are there have it.

Iceberg table spec, "Default values".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from pyiceberg.conversions import to_json
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.sql.scans.filters import UntranslatedError, literal_of

_NO_DEFAULT: Final = "NULL"


def default_metadata(field: NestedField) -> dict[str, str]:
    """Return the entries of a column's metadata in Spark that say its defaults.

    None for a column without a write-default, or of a type that Spark SQL does not write (uuid, fixed, …).
    """
    current = None if field.write_default is None else _expression(field, field.write_default)
    initial = None if field.initial_default is None else _expression(field, field.initial_default)
    return {} if current is None else {"CURRENT_DEFAULT": current, "EXISTS_DEFAULT": initial or _NO_DEFAULT}


def default_value(given: Mapping[str, Any], kind: IcebergType, column: str) -> Any:
    """Return the value of a statement's DEFAULT, for PyIceberg. ConfigurationError where the column cannot hold it.

    Args:
        given: {"value": …, "type": …}, as in scans/filters.py.
        kind: the column's type.
        column: its name, for the error.
    """
    try:
        return literal_of(given, kind).value
    except UntranslatedError as error:
        raise ConfigurationError(f"column {column} of {kind} cannot have the default {given.get('value')!r}") from error


def _expression(field: NestedField, value: Any) -> str | None:
    if not isinstance(field.field_type, PrimitiveType):
        return None

    told = to_json(field.field_type, value)
    match field.field_type:
        case BooleanType():
            return "true" if told else "false"
        case IntegerType():
            return str(told)
        case LongType():
            return f"{told}L"
        case FloatType():
            return f"float('{_number(value)}')"
        case DoubleType():
            return f"double('{_number(value)}')"
        case DecimalType():
            return f"CAST('{told}' AS DECIMAL({field.field_type.precision}, {field.field_type.scale}))"
        case DateType():
            return f"DATE '{told}'"
        case TimestampType():
            return f"TIMESTAMP_NTZ '{told}'"
        case TimestamptzType():
            return f"TIMESTAMP '{told}'"
        case BinaryType():
            return f"X'{told}'"
        case StringType():
            return _text(str(told))

    return None


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    # As text that Spark casts: its literals have no infinities and no NaN.
    return repr(float(value)) if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def _text(value: str) -> str:
    # What a backslash means in a literal is a setting of the session, and so is whether ${env:HOME} is replaced.
    return f"'{value}'" if not set("'\\$") & set(value) else f"CAST(X'{value.encode().hex()}' AS STRING)"
