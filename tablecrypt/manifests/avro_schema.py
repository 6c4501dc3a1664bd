"""The JSON of an Avro schema, in both directions, where PyIceberg's own conversion does not meet what Iceberg Java writes and reads.

PyIceberg converts field by field. These need the whole schema, a type that it does not know, or the writer:

* A named type (fixed_16, uuid_fixed, decimal_9_2 ...) may be defined once in a schema; its later uses must be the bare name. PyIceberg
  repeats the definition, which Avro's Java parser refuses, and does not understand the bare name. A table partitioned by two UUID
  columns has it.
* "timestamp-nanos" is written by PyIceberg but not read. As a partition value it is a plain long, nanoseconds since 1970, and is read
  as one.

* Iceberg Java calls a value of fixed length "fixed" and writes it as "bytes", with its length in front; it reads no other form. Only UUIDs
  and decimals are what it says of them. Its files have its own schema in their header beside Avro's.

A few named records can stand for any number of types: with two fields of the record before it, each doubles them. They are counted as
names are replaced, and refused where they are more than the text could spell out.

Raises FormatError for a schema that is not JSON, not a record, that names a type which it does not define, or names types too often.

Specification: Avro 1.11 "Names"; Iceberg table specification, appendix A "Avro".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from tablecrypt.errors import FormatError

JAVA_SCHEMA_KEY: Final = "iceberg.schema"
"""What only files that Iceberg Java wrote have in their header."""

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "fixed", "enum"})
_MAX_DEPTH = 64
_MIN_TYPE = 16
"""Characters: the shortest field or array that carries an id is longer."""


def most_types(text: str) -> int:
    """Return how many types a schema of this text has at most, if it repeats no record: each one that is spelled out takes some of it."""
    return 1 + len(text) // _MIN_TYPE


def to_avro_json(schema: Schema, record_name: str) -> str:
    """Return `schema` as the JSON text of an Avro record named `record_name`, each named type defined once."""
    converted = AvroSchemaConversion().iceberg_to_avro(schema, schema_name=record_name)
    return json.dumps(_define_once(converted, set()), separators=(",", ":"))


def from_avro_json(text: str) -> Schema:
    """Return the Iceberg schema that an Avro file's `avro.schema` describes.

    Raises:
        FormatError: the text is not the JSON of an Avro record whose fields all carry a field id.
    """
    try:
        avro = _Expansion(most_types(text)).expand(json.loads(text), 0)
        return AvroSchemaConversion().avro_to_iceberg(avro)
    except FormatError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"the Avro schema cannot be read: {type(error).__name__}: {error}") from error


@lru_cache(maxsize=64)
def as_java_writes(text: str) -> str:
    """Return the schema that the records of a file of Iceberg Java are written by, given the one in its header."""
    if '"fixed"' not in text:
        return text
    try:
        return json.dumps(_without_fixed(json.loads(text), set()), separators=(",", ":"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # Whoever reads the schema says what is wrong with it.
        return text


def _without_fixed(avro_type: Any, names: set[str]) -> Any:
    if isinstance(avro_type, str):
        return "bytes" if avro_type in names else avro_type
    if isinstance(avro_type, dict) and avro_type["type"] == "fixed" and "logicalType" not in avro_type:
        names.add(avro_type["name"])
        return "bytes"
    return _map_children(avro_type, lambda child: _without_fixed(child, names))


def _define_once(avro_type: Any, defined: set[str]) -> Any:
    """Replace each later definition of a named type by its name."""
    if isinstance(avro_type, dict) and avro_type["type"] in _NAMED:
        if avro_type["name"] in defined:
            return avro_type["name"]
        defined.add(avro_type["name"])
    return _map_children(avro_type, lambda child: _define_once(child, defined))


class _Expansion:
    """Replaces each bare type name by its definition, and timestamp-nanos by the long that it is.

    Args:
        most: how many types the schema may have when that is done.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._types = 0
        self._defined: dict[str, tuple[Any, int]] = {}

    def expand(self, avro_type: Any, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise FormatError("the Avro schema is nested too deeply")
        if isinstance(avro_type, str):
            return self._named_type(avro_type)
        if isinstance(avro_type, list):
            return [self.expand(branch, depth + 1) for branch in avro_type]

        before = self._types
        self._count(1)
        if isinstance(avro_type, dict) and avro_type.get("logicalType") == "timestamp-nanos":
            return "long"

        expanded = _map_children(avro_type, lambda child: self.expand(child, depth + 1))
        if isinstance(expanded, dict) and expanded["type"] in _NAMED:
            self._defined[expanded["name"]] = expanded, self._types - before
        return expanded

    def _named_type(self, name: str) -> Any:
        if name in _PRIMITIVES:
            # A branch that says that a field may be null is no type of its own.
            self._count(0 if name == "null" else 1)
            return name
        if name not in self._defined:
            raise FormatError(f"the Avro schema uses the type {name!r} before defining it")

        definition, types = self._defined[name]
        self._count(types)

        return definition

    def _count(self, types: int) -> None:
        self._types += types
        # The definition is shared here, but whoever converts it walks through it at each use.
        if self._types > self._most:
            raise FormatError("the Avro schema names types too often: it would have more of them than its text can spell out")


def _map_children(avro_type: Any, change: Callable[[Any], Any]) -> Any:
    """Return the type with `change` applied to each type directly inside it: branches, fields, items or values."""
    if isinstance(avro_type, list):
        return [change(branch) for branch in avro_type]
    if not isinstance(avro_type, dict):
        return avro_type
    if avro_type["type"] == "record":
        return {**avro_type, "fields": [{**field, "type": change(field["type"])} for field in avro_type["fields"]]}
    if avro_type["type"] == "array":
        return {**avro_type, "items": change(avro_type["items"])}
    if avro_type["type"] == "map":
        return {**avro_type, "values": change(avro_type["values"])}

    return avro_type
