"""Columns of an Avro record as Arrow arrays: the mapping of types that avro_data.py draws.

A Column knows its Arrow field and builds an array from decoded Avro values (None for null). Raises FormatError for a type that Iceberg
does not store in Avro, or a field without its id.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from tablecrypt.errors import FormatError

FIELD_ID_KEY: Final = b"PARQUET:field_id"
_MAX_DEPTH: Final = 64
_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.large_string(),
    "bytes": pa.large_binary(),
    "null": pa.null(),
}


class Column(ABC):
    """One Avro field and how to build its Arrow array."""

    def __init__(self, name: str, field_id: int, arrow_type: pa.DataType, nullable: bool) -> None:
        self.field = pa.field(name, arrow_type, nullable=nullable, metadata={FIELD_ID_KEY: str(field_id).encode()})

    @abstractmethod
    def array(self, values: Sequence[Any]) -> pa.Array:
        """Return the values as an Arrow array of the field's type."""


class _Plain(Column):
    def array(self, values: Sequence[Any]) -> pa.Array:
        return pa.array(values, self.field.type)


class _Uuid(Column):
    def array(self, values: Sequence[Any]) -> pa.Array:
        return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))


class _Decimal(Column):
    """Big-endian two's complement of any length, which Arrow keeps as 16 bytes little endian."""

    def array(self, values: Sequence[Any]) -> pa.Array:
        numbers = (0 if value is None else int.from_bytes(value, "big", signed=True) for value in values)
        data = b"".join(number.to_bytes(16, "little", signed=True) for number in numbers)
        valid = pa.array([value is not None for value in values], pa.bool_())
        return pa.Array.from_buffers(self.field.type, len(values), [valid.buffers()[1], pa.py_buffer(data)])


class _Struct(Column):
    def __init__(self, name: str, field_id: int, nullable: bool, children: list[Column]) -> None:
        super().__init__(name, field_id, pa.struct([child.field for child in children]), nullable)
        self._children = children

    def array(self, values: Sequence[Any]) -> pa.Array:
        if not self._children:
            return pa.array(values, self.field.type)
        arrays = [child.array([None if value is None else value[child.field.name] for value in values]) for child in self._children]
        return pa.StructArray.from_arrays(arrays, fields=list(self.field.type), mask=_null_mask(values))


class _List(Column):
    def __init__(self, name: str, field_id: int, nullable: bool, element: Column) -> None:
        super().__init__(name, field_id, pa.large_list(element.field), nullable)
        self._element = element

    def array(self, values: Sequence[Any]) -> pa.Array:
        elements = self._element.array(list(itertools.chain.from_iterable(value for value in values if value is not None)))
        return pa.LargeListArray.from_arrays(
            pa.array(_offsets(values), pa.int64()), elements, type=self.field.type, mask=_null_mask(values)
        )


class _Map(Column):
    """Entries as key/value records, or an Avro map, whose keys are strings."""

    def __init__(self, name: str, field_id: int, nullable: bool, key: Column, value: Column) -> None:
        super().__init__(name, field_id, pa.map_(key.field, value.field), nullable)
        self._key = key
        self._value = value

    def array(self, values: Sequence[Any]) -> pa.Array:
        entries = [None if value is None else self._entries(value) for value in values]
        flat = [entry for each in entries if each is not None for entry in each]
        return pa.MapArray.from_arrays(
            pa.array(_offsets(entries), pa.int32()),
            self._key.array([key for key, _ in flat]),
            self._value.array([value for _, value in flat]),
            type=self.field.type,
            mask=_null_mask(values),
        )

    def _entries(self, value: Any) -> list[tuple[Any, Any]]:
        if isinstance(value, dict):
            return list(value.items())
        return [(entry[self._key.field.name], entry[self._value.field.name]) for entry in value]


def record_columns(avro: Any) -> list[Column]:
    """Return the columns of an Avro record schema (parsed JSON)."""
    if not isinstance(avro, dict) or avro.get("type") != "record":
        raise FormatError("its Avro schema is not a record")
    return _Types().fields(avro, 0)


class _Types:
    """Turns Avro types into columns; remembers named types, which may be defined once and then be named."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def fields(self, record: dict[str, Any], depth: int) -> list[Column]:
        return [self.column(field["name"], _id(field, "field-id"), field["type"], depth + 1) for field in record["fields"]]

    def column(self, name: str, field_id: int, avro: Any, depth: int) -> Column:
        if depth > _MAX_DEPTH:
            raise FormatError("its Avro schema is nested too deeply")
        avro, nullable = self._without_null(avro)
        if isinstance(avro, str) and avro in self._named:
            avro = self._named[avro]
        if isinstance(avro, str):
            avro = {"type": avro}
        if isinstance(avro.get("type"), dict):
            return self.column(name, field_id, ["null", avro["type"]] if nullable else avro["type"], depth + 1)
        if "name" in avro:
            self._named[avro["name"]] = avro
        return self._column(name, field_id, avro, nullable, depth)

    def _column(self, name: str, field_id: int, avro: dict[str, Any], nullable: bool, depth: int) -> Column:
        match avro["type"], avro.get("logicalType"):
            case "record", _:
                return _Struct(name, field_id, nullable, self.fields(avro, depth))
            case "array", "map":
                key, value = self.fields(_key_value_record(avro["items"]), depth)
                return _Map(name, field_id, nullable, key, value)
            case "array", _:
                return _List(name, field_id, nullable, self.column("element", _id(avro, "element-id"), avro["items"], depth + 1))
            case "map", _:
                key = self.column("key", _id(avro, "key-id"), "string", depth + 1)
                return _Map(name, field_id, nullable, key, self.column("value", _id(avro, "value-id"), avro["values"], depth + 1))
            case (("fixed" | "bytes"), "decimal"):
                return _Decimal(name, field_id, pa.decimal128(avro["precision"], avro.get("scale", 0)), nullable)
            case "fixed", "uuid":
                return _Uuid(name, field_id, pa.uuid(), nullable)
            case "fixed", _:
                return _Plain(name, field_id, pa.binary(avro["size"]), nullable)
            case _:
                return _Plain(name, field_id, _primitive(avro), nullable or avro["type"] == "null")

    def _without_null(self, avro: Any) -> tuple[Any, bool]:
        if not isinstance(avro, list):
            return avro, False
        others = [branch for branch in avro if branch != "null"]
        if len(others) != 1 or len(avro) > 2:
            raise FormatError("its Avro schema has a union of other than null and one type")
        return others[0], len(avro) == 2


def _primitive(avro: dict[str, Any]) -> pa.DataType:
    tz = "UTC" if avro.get("adjust-to-utc", False) else None
    match avro["type"], avro.get("logicalType"):
        case "int", "date":
            return pa.date32()
        case "long", "time-micros":
            return pa.time64("us")
        case "long", "timestamp-micros" | "local-timestamp-micros":
            return pa.timestamp("us", tz)
        case "long", "timestamp-nanos" | "local-timestamp-nanos":
            return pa.timestamp("ns", tz)
        case "long", "timestamp-millis":
            return pa.timestamp("ms", tz)
    if avro["type"] not in _PRIMITIVES:
        raise FormatError(f"its Avro schema has the type {avro['type']!r}, which Iceberg does not store")
    return _PRIMITIVES[avro["type"]]


def _key_value_record(items: Any) -> dict[str, Any]:
    if not isinstance(items, dict) or items.get("type") != "record" or len(items["fields"]) != 2:
        raise FormatError("its Avro schema has a map whose items are not records of key and value")
    return items


def _id(avro: dict[str, Any], name: str) -> int:
    if name not in avro:
        raise FormatError(f"its Avro schema has no {name} on {avro.get('name', 'an array or map')!r}")
    return int(avro[name])


def _offsets(values: Sequence[Any]) -> list[int]:
    return list(itertools.accumulate((0 if value is None else len(value) for value in values), initial=0))


def _null_mask(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())
