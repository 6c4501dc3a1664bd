"""Spark's schemas, as their JSON says them, as schemas of Iceberg tables: what CREATE and ALTER TABLE ask for.

    byte, short, integer → int      char(n), varchar(n), string → string      timestamp → timestamptz      timestamp_ntz → timestamp

Field ids are given level by level, as Iceberg Java gives them. The other direction is in tablecrypt/spark/shared/schema.py.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IcebergType, IntegerType, ListType, MapType, NestedField, StringType, StructType

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.shared.schema import PRIMITIVES

_PRIMITIVES: Final[Mapping[str, IcebergType]] = {
    **{name: kind() for kind, name in PRIMITIVES.items()},
    "byte": IntegerType(),
    "short": IntegerType(),
}
JSON_NAMES: Final = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long", "timestamp_ltz": "timestamp"}
"""What Spark's JSON calls types that its SQL calls otherwise."""
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_TEXT: Final = re.compile(r"(var)?char\(\d+\)|string collate UTF8_BINARY")
"""Spark 4.2 names a collation that a statement names, and SHOW CREATE TABLE names this one, which every text has."""
_COLLATIONS: Final = "__COLLATIONS"
"""Where the JSON of a field says which texts in it have another collation than that, since their types do not."""


def iceberg_schema(spark: Mapping[str, Any]) -> Schema:
    """Return the Iceberg schema of a Spark schema.

    Args:
        spark: what `StructType.json` says.

    Raises:
        ConfigurationError: a column has a type that Iceberg has not, or two columns have one name.
    """
    return Schema(*_Ids().fields(spark["fields"], ""))


def iceberg_type(spark: Mapping[str, Any], path: Sequence[str]) -> IcebergType:
    """Return the Iceberg type of a Spark type. The ids in it are for a catalog to replace.

    Args:
        spark: what `StructType.json` says of a struct whose only field has the type.
        path: whose type it is, for the error.

    Raises:
        ConfigurationError: Iceberg has no such type.
    """
    [field] = spark["fields"]
    return _Ids().type_of(field, ".".join(path))


class _Ids:
    """Makes Iceberg types whose fields have ids from 1 on."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)

    def fields(self, spark: Sequence[Mapping[str, Any]], path: str) -> list[NestedField]:
        numbered = [(next(self._ids), field) for field in spark]
        return [self._field(field_id, field, path) for field_id, field in numbered]

    def _field(self, field_id: int, field: Mapping[str, Any], path: str) -> NestedField:
        name = field["name"]
        return NestedField(
            field_id,
            name,
            self.type_of(field, f"{path}.{name}" if path else name),
            required=not field["nullable"],
            doc=field.get("metadata", {}).get("comment"),
        )

    def type_of(self, field: Mapping[str, Any], path: str) -> IcebergType:
        # As the plain text that files hold, it would be compared otherwise than the statement asks for.
        if collations := field.get("metadata", {}).get(_COLLATIONS):
            raise _unknown(f"string collate {', '.join(sorted(set(collations.values())))}", path)
        return self.type(field["type"], path)

    def type(self, spark: Any, path: str) -> IcebergType:
        if isinstance(spark, str):
            return _primitive(spark, path)
        if spark["type"] == "struct":
            return StructType(*self.fields(spark["fields"], path))
        if spark["type"] == "array":
            element_id = next(self._ids)
            return ListType(element_id, self.type(spark["elementType"], f"{path}.element"), element_required=not spark["containsNull"])
        if spark["type"] == "map":
            key_id, value_id = next(self._ids), next(self._ids)
            key, value = self.type(spark["keyType"], f"{path}.key"), self.type(spark["valueType"], f"{path}.value")
            return MapType(key_id, key, value_id, value, value_required=not spark["valueContainsNull"])

        raise _unknown(str(spark["type"]), path)


def _primitive(spark: str, path: str) -> IcebergType:
    if known := _PRIMITIVES.get(spark):
        return known
    if decimal := _DECIMAL.fullmatch(spark):
        return DecimalType(int(decimal[1]), int(decimal[2]))
    if _TEXT.fullmatch(spark):
        return StringType()
    raise _unknown(spark, path)


def _unknown(spark: str, path: str) -> ConfigurationError:
    return ConfigurationError(f"column {path}: Spark's type {spark} has no type of Iceberg tables here that would hold it; use another")
