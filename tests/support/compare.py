"""Do two Arrow tables hold the same rows, when neither their order nor the spelling of their types matters?

Engines spell one Iceberg type in several Arrow types. Each spelling is brought to one name and its values to one form:

    Iceberg        Arrow spellings                              value compared
    int            int8, int16, int32, uint8, uint16            int
    long           int64, uint32                                int
    string, uuid   string, large_string, string_view, uuid      str (Spark hands a uuid out as string)
    binary, fixed  binary, large_…, …_view, fixed_size_binary   bytes
    timestamp(tz)  any unit down to us, any spelling of UTC or of another zone: the instant in microseconds, UTC
    float, double  all NaNs are one value; 0.0 and -0.0 are two
    list           list, large_list, …                          tuple
    map            map                                          frozenset of pairs: maps have no order
    dictionary     as the type of its values

int and long, float and double, decimals of another precision or scale, and timestamps with and without zone are different types: a table
that reads with the wrong one of them has not been read right.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

Row = tuple[Any, ...]
_SHOWN: Final = 5

_NAMED: Final[list[tuple[Callable[[pa.DataType], bool], str]]] = [
    (pa.types.is_null, "unknown"),
    (pa.types.is_boolean, "boolean"),
    (lambda t: t in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()), "int"),
    (lambda t: t in (pa.int64(), pa.uint32()), "long"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t), "string"),
    (lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t) or pa.types.is_binary_view(t), "binary"),
    (pa.types.is_fixed_size_binary, "binary"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time"),
]


def assert_same_rows(actual: pa.Table, expected: pa.Table) -> None:
    """Fail, saying how, unless both have the same columns of the same Iceberg types and each row equally often. Order does not matter."""
    _assert_same_columns(actual, expected)
    names = expected.column_names
    actual_rows, expected_rows = Counter(_rows(actual, names)), Counter(_rows(expected, names))
    if actual_rows == expected_rows:
        return
    missing, surplus = expected_rows - actual_rows, actual_rows - expected_rows
    lines = [
        f"rows differ: of {expected.num_rows} expected rows {missing.total()} are missing; "
        f"of {actual.num_rows} actual rows {surplus.total()} are not expected"
    ]
    lines += [f"  missing:      {_shown(row, names)}" for row in _some_of(missing)]
    lines += [f"  not expected: {_shown(row, names)}" for row in _some_of(surplus)]
    raise AssertionError("\n".join(lines))


def type_name(data_type: pa.DataType) -> str:
    """The Iceberg type that an Arrow type spells."""
    for matches, name in _NAMED:
        if matches(data_type):
            return name
    if isinstance(data_type, pa.UuidType):
        return "string"
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision}, {data_type.scale})"
    if pa.types.is_timestamp(data_type):
        return ("timestamptz" if data_type.tz else "timestamp") + ("_ns" if data_type.unit == "ns" else "")
    if pa.types.is_dictionary(data_type):
        return type_name(data_type.value_type)
    if pa.types.is_struct(data_type):
        return "struct<" + ", ".join(f"{field.name}: {type_name(field.type)}" for field in data_type) + ">"
    if pa.types.is_map(data_type):
        return f"map<{type_name(data_type.key_type)}, {type_name(data_type.item_type)}>"
    if _is_any_list(data_type):
        return f"list<{type_name(data_type.value_type)}>"
    raise TypeError(f"no Iceberg type is spelled {data_type}")


def _is_any_list(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(data_type) or pa.types.is_large_list(data_type) or pa.types.is_fixed_size_list(data_type))


def _assert_same_columns(actual: pa.Table, expected: pa.Table) -> None:
    found = sorted((field.name, type_name(field.type)) for field in actual.schema)
    wanted = sorted((field.name, type_name(field.type)) for field in expected.schema)
    if found == wanted:
        return
    lines = ["columns differ:"]
    lines += [f"  missing:      {name}: {kind}" for name, kind in (Counter(wanted) - Counter(found)).elements()]
    lines += [f"  not expected: {name}: {kind}" for name, kind in (Counter(found) - Counter(wanted)).elements()]
    raise AssertionError("\n".join(lines))


def _rows(table: pa.Table, names: list[str]) -> Iterator[Row]:
    if not names:
        return iter([()] * table.num_rows)
    return zip(*(_column(table[name]) for name in names), strict=True)


def _column(column: pa.ChunkedArray) -> list[Any]:
    return [value for chunk in column.chunks for value in _values(_without_slice(chunk))]


def _without_slice(array: pa.Array) -> pa.Array:
    """A copy that begins at its own buffers' start: offsets of lists and children of structs then agree with the values they point into."""
    if not pa.types.is_nested(array.type):
        return array
    return array.take(pa.array(range(len(array)), pa.int64()))


def _values(array: pa.Array) -> list[Any]:
    """The comparable, hashable form of each value; None for null."""
    data_type = array.type
    if pa.types.is_dictionary(data_type):
        return _values(array.dictionary_decode())
    if isinstance(data_type, pa.UuidType):
        return [None if value is None else str(UUID(bytes=value)) for value in array.storage.to_pylist()]
    if pa.types.is_floating(data_type):
        return [_float(value) for value in array.to_pylist()]
    if pa.types.is_timestamp(data_type):
        return _as_text(array.cast(pa.timestamp("ns" if data_type.unit == "ns" else "us", tz="UTC" if data_type.tz else None)))
    if pa.types.is_time(data_type):
        return _as_text(array.cast(pa.time64("us")))
    if pa.types.is_date(data_type):
        return _as_text(array.cast(pa.date32()))
    if pa.types.is_struct(data_type):
        return _structs(array)
    if pa.types.is_map(data_type):
        return _maps(array)
    if pa.types.is_fixed_size_list(data_type):
        return _lists(array.cast(pa.list_(data_type.value_type)))
    if _is_any_list(data_type):
        return _lists(array)
    values: list[Any] = array.to_pylist()
    return values


def _as_text(array: pa.Array) -> list[Any]:
    """Dates and times as text: Python's own types cannot hold all that Iceberg's can."""
    texts: list[Any] = pc.cast(array, pa.string()).to_pylist()
    return texts


def _float(value: float | None) -> float | str | None:
    if value is None:
        return None
    if math.isnan(value):
        return "NaN"
    return value if value else str(value)


def _structs(array: pa.StructArray) -> list[Any]:
    names = [field.name for field in array.type]
    children = [_values(array.field(index)) for index in range(len(names))]
    valid = array.is_valid().to_pylist()
    return [
        tuple((name, child[index]) for name, child in zip(names, children, strict=True)) if valid[index] else None
        for index in range(len(array))
    ]


def _maps(array: pa.MapArray) -> list[Any]:
    pairs = list(zip(_values(array.keys), _values(array.items), strict=True))
    return _slices(array, pairs, frozenset)


def _lists(array: pa.ListArray) -> list[Any]:
    return _slices(array, _values(array.values), tuple)


def _slices(array: pa.Array, values: list[Any], collect: Callable[[list[Any]], Any]) -> list[Any]:
    offsets = array.offsets.to_pylist()
    valid = array.is_valid().to_pylist()
    return [collect(values[offsets[index] : offsets[index + 1]]) if valid[index] else None for index in range(len(array))]


def _some_of(rows: Counter[Row]) -> list[Row]:
    return sorted(rows.elements(), key=repr)[:_SHOWN]


def _shown(row: Row, names: list[str]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in zip(names, row, strict=True))
