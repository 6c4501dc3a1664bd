"""Of which columns a file can be whose key metadata does not bind them: its footer says how writers store their types, and nothing else."""

from __future__ import annotations

import pytest
from pyiceberg.types import DecimalType, FixedType, IcebergType, NestedField, StringType, StructType

from tablecrypt.keys.bound_schemas import OPTIONAL, BoundSchema, SchemaNode

INT32, INT64, BYTE_ARRAY, FIXED = 1, 2, 6, 7
MOST_DIGITS = 38


def _is_stored_as(kind: IcebergType, physical: int, meaning: str, length: int = 0) -> bool:
    bound = BoundSchema((SchemaNode(5, True, OPTIONAL, physical, length, meaning),), (b"",), "s3://lake/file.parquet")
    return bound.is_of(lambda field_id: (NestedField(field_id, "amount", kind),))


def _bytes_of(precision: int) -> int:
    """The fewest bytes in two's complement that hold this many digits."""
    return next(length for length in range(1, 17) if 10**precision - 1 < 1 << (8 * length - 1))


@pytest.mark.parametrize("precision", range(1, MOST_DIGITS + 1))
def test_a_decimal_is_an_integer_that_holds_its_digits_and_those_it_was_widened_from(precision: int) -> None:
    kind, meanings = DecimalType(precision, 2), {digits: f"DECIMAL({digits}, 2)" for digits in range(MOST_DIGITS + 2)}

    assert [digits for digits, each in meanings.items() if _is_stored_as(kind, INT32, each)] == list(range(1, min(precision, 9) + 1))
    assert [digits for digits, each in meanings.items() if _is_stored_as(kind, INT64, each)] == list(range(1, min(precision, 18) + 1))
    assert not _is_stored_as(kind, INT32, "DECIMAL(1, 1)"), "another scale moves the point"


@pytest.mark.parametrize("precision", range(1, MOST_DIGITS + 1))
def test_a_decimal_in_bytes_has_as_many_as_its_digits_need(precision: int) -> None:
    kind, meaning = DecimalType(precision, 0), f"DECIMAL({precision}, 0)"
    lengths = [length for length in range(20) if _is_stored_as(kind, FIXED, meaning, length)]
    assert lengths == [_bytes_of(precision)]


def test_bytes_of_a_fixed_length_have_that_one() -> None:
    assert [length for length in range(20) if _is_stored_as(FixedType(7), FIXED, "", length)] == [7]


def test_a_struct_has_no_values_of_its_own() -> None:
    assert _is_stored_as(StringType(), BYTE_ARRAY, "STRING")
    assert not _is_stored_as(StructType(), BYTE_ARRAY, "STRING")
