"""Table metadata as Iceberg Java serialises it, byte for byte, and the hash of it that Java keeps in the Hive metastore.

Java hashes not the bytes of metadata.json but its own serialisation of what it parsed, so a client that shares a metastore with it has to
know that form. UTF-8, no white space; `?` is left out where null, `*` also where empty, all others are always written:

    metadata              format-version, table-uuid, location, last-sequence-number, last-updated-ms, last-column-id, current-schema-id,
                          schemas, default-spec-id, partition-specs, last-partition-id, default-sort-order-id, sort-orders, properties,
                          current-snapshot-id (none: null in version 3, -1 in version 2), next-row-id (version 3), encryption-keys*, refs,
                          snapshots, statistics, partition-statistics, snapshot-log, metadata-log
    schema                type, schema-id, identifier-field-ids*, fields            a nested struct: type, fields
    field                 id, name, required, type, doc?, initial-default?, write-default?
    list, map             type, element-id, element, element-required;  type, key-id, key, value-id, value, value-required
    partition spec        spec-id, fields [name, transform, source-id, field-id]
    sort order            order-id, fields [transform, source-id, direction, null-order]
    encryption key        key-id, encrypted-key-metadata, encrypted-by-id?, properties*
    ref                   snapshot-id, type, min-snapshots-to-keep?, max-snapshot-age-ms?, max-ref-age-ms?
    snapshot              sequence-number (not if 0), snapshot-id, parent-snapshot-id?, timestamp-ms, summary* (operation first),
                          manifest-list, schema-id?, first-row-id?, added-rows?, key-id?
    statistics            snapshot-id, statistics-path, file-size-in-bytes, file-footer-size-in-bytes,
                          blob-metadata [type, snapshot-id, sequence-number, fields, properties*]
    partition statistics  snapshot-id, statistics-path, file-size-in-bytes
    snapshot log, metadata log    timestamp-ms, snapshot-id;  timestamp-ms, metadata-file

Lists keep their order, and so do the maps properties, summary and refs. Fields that Java does not know are not in its form. Strings escape
only the quotation mark, the backslash and what lies below U+0020, with upper-case hex where there is no short escape.

Some forms depend on the version of Java: defaults of type float or double, several properties of one encryption key, and a few spellings
that no writer known uses. Such metadata has no canonical form here, and the caller leaves the hash out. Checked with Iceberg Java 1.12.

A form is a function from a parsed value to text. Those of objects, lists and maps also tell which keys of a value they do not know,
whatever else is wrong with it: a reader that ignores such a key ignores something that it does not understand.

Pure. Raises FormatError where the document is not table metadata of version 2 or 3. Iceberg table spec, "Appendix C: JSON serialization".
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from tablecrypt.errors import FormatError

Writer = Callable[[Any], str]


class When(Enum):
    """When a key is written."""

    ALWAYS = auto()
    EVEN_IF_NULL = auto()
    NOT_NULL = auto()
    NOT_EMPTY = auto()


@dataclass(frozen=True)
class Key:
    """One key of a JSON object: how its value is written, and when it is left out."""

    name: str
    write: Writer
    when: When = When.ALWAYS

    def is_left_out(self, value: Any) -> bool:
        """Whether the key is not written with this value."""
        if self.when is When.NOT_EMPTY:
            return not value
        return self.when is When.NOT_NULL and value is None


class Form(ABC):
    """A form whose values may hold keys."""

    @abstractmethod
    def __call__(self, value: Any) -> str:
        """Return a value as text."""

    @abstractmethod
    def stray_keys(self, value: Any, path: str) -> Iterator[str]:
        """Yield the path of each key that the form does not know. A part that is of another kind than the form says has none."""


class ObjectOf(Form):
    """An object with known keys, written in this order."""

    def __init__(self, *keys: Key) -> None:
        self._keys = keys
        self._names = frozenset(key.name for key in keys)
        self._nested = [(key.name, key.write) for key in keys if isinstance(key.write, Form)]

    def __call__(self, value: Any) -> str:
        """Return the object without what is left out.

        Raises:
            FormatError: it is no object, or a key is missing.
        """
        fields = checked(value, dict)
        parts = []
        for key in self._keys:
            item = fields.get(key.name)
            if key.is_left_out(item):
                continue
            if item is None and key.when is not When.EVEN_IF_NULL:
                raise FormatError(f"not readable as table metadata: {key.name} is missing")
            parts.append(f'"{key.name}":{"null" if item is None else key.write(item)}')

        return "{" + ",".join(parts) + "}"

    def stray_keys(self, value: Any, path: str) -> Iterator[str]:
        """Yield the path of each key that is none of these."""
        if not isinstance(value, dict):
            return

        # Of the many snapshots of a table hardly one has such a key.
        if not value.keys() <= self._names:
            yield from (path + name for name in sorted(value.keys() - self._names))
        for name, form in self._nested:
            if name in value:
                yield from form.stray_keys(value[name], f"{path}{name}.")


@dataclass(frozen=True)
class ListOf(Form):
    """A list of values of one form."""

    item: Writer

    def __call__(self, value: Any) -> str:
        """Return the list. Raises FormatError if it is not a list."""
        return "[" + ",".join(self.item(item) for item in checked(value, list)) + "]"

    def stray_keys(self, value: Any, path: str) -> Iterator[str]:
        """Yield the stray keys of the items."""
        if isinstance(value, list) and isinstance(self.item, Form):
            for item in value:
                yield from self.item.stray_keys(item, path)


@dataclass(frozen=True)
class MapOf(Form):
    """An object whose keys may be any, with values of one form."""

    item: Writer

    def __call__(self, value: Any) -> str:
        """Return the map. Raises FormatError if it is not a map."""
        return "{" + ",".join(f"{string(key)}:{self.item(item)}" for key, item in checked(value, dict).items()) + "}"

    def stray_keys(self, value: Any, path: str) -> Iterator[str]:
        """Yield the stray keys of the values."""
        if isinstance(value, dict) and isinstance(self.item, Form):
            for name, item in value.items():
                yield from self.item.stray_keys(item, f"{path}{name}.")


def checked(value: Any, kind: type) -> Any:
    """Return a value that is of a kind.

    Raises:
        FormatError: it is of another. A bool is an int to isinstance, and not here.
    """
    # isinstance would take true for 1, and the hash would be that of another document.
    if type(value) is not kind:
        raise FormatError(f"not readable as table metadata: {str(value)[:80]!r} where {kind.__name__} is expected")
    return value


_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
_SHORT_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def _escape(match: re.Match[str]) -> str:
    return _SHORT_ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04X}"


def string(value: Any) -> str:
    """Return a string, escaped as little as JSON allows."""
    return '"' + _ESCAPED.sub(_escape, checked(value, str)) + '"'


def integer(value: Any) -> str:
    """Return an integer."""
    return str(checked(value, int))


def boolean(value: Any) -> str:
    """Return a boolean."""
    return "true" if checked(value, bool) else "false"


def metadata_hash(document: bytes) -> str | None:
    """Return what Java keeps as `metadata_hash` for this metadata.json (uncompressed), or None where that depends on Java's version.

    Base64 of the SHA-256 of `canonical_metadata(document)`.

    Raises:
        FormatError: the document is not table metadata of version 2 or 3.
    """
    canonical = canonical_metadata(document)
    return None if canonical is None else hash_of(canonical)


def hash_of(canonical: bytes) -> str:
    """Return the base64 of the SHA-256 of bytes."""
    return base64.b64encode(hashlib.sha256(canonical).digest()).decode("ascii")


def canonical_metadata(document: bytes) -> bytes | None:
    """Return this metadata.json (uncompressed) as Java would write it, or None where that depends on Java's version.

    Raises:
        FormatError: the document is not table metadata of version 2 or 3.
    """
    try:
        return _METADATA(_with_what_java_fills_in(json.loads(document.decode("utf-8")))).encode("utf-8")
    except _UncertainFormError:
        return None
    except UnicodeEncodeError:
        # Half of a surrogate pair, which JSON can escape and UTF-8 cannot hold.
        return None
    except FormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not readable as table metadata: {error}") from error


def unknown_keys(document: Any) -> Iterator[str]:
    """Yield the path of each key of table metadata, as JSON was parsed, that Java does not know and this hash leaves out."""
    return _METADATA.stray_keys(document, "")


class _UncertainFormError(Exception):
    """Java's form of this value is not the same in all its versions, or not known."""


_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_FIXED: Final = re.compile(r"fixed\[\s*(\d+)\s*\]")
_PLAIN_TYPES: Final = frozenset(
    {
        *("boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"),
        *("string", "uuid", "binary", "unknown", "variant"),
    }
)


class _Type(Form):
    """A type: the name of a primitive one, or the object of a nested one."""

    def __call__(self, value: Any) -> str:
        if isinstance(value, str):
            return string(_primitive_name(value))
        kind = str(checked(value, dict).get("type"))
        if kind not in _NESTED_TYPES:
            raise FormatError(f"not readable as table metadata: no type is called {kind[:80]!r}")
        return _NESTED_TYPES[kind](value)

    def stray_keys(self, value: Any, path: str) -> Iterator[str]:
        form = _NESTED_TYPES.get(str(value.get("type"))) if isinstance(value, dict) else None
        return iter(()) if form is None else form.stray_keys(value, path)


def _primitive_name(name: str) -> str:
    if name in _PLAIN_TYPES:
        return name
    if decimal := _DECIMAL.fullmatch(name):
        return f"decimal({decimal[1]}, {decimal[2]})"
    if fixed := _FIXED.fullmatch(name):
        return f"fixed[{fixed[1]}]"
    raise _UncertainFormError


_TIME: Final = r"\d{2}:\d{2}:\d{2}(?:\.\d{1,%d})?"
_DATE: Final = r"\d{4}-\d{2}-\d{2}"
# What Java writes as it stands, but for zeros that end a fraction of a second.
_TEXT_DEFAULTS: Final[Mapping[str, re.Pattern[str]]] = {
    "string": re.compile(r".*", re.DOTALL),
    "uuid": re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    "date": re.compile(_DATE),
    "time": re.compile(_TIME % 6),
    "timestamp": re.compile(f"{_DATE}T{_TIME % 6}"),
    "timestamptz": re.compile(rf"{_DATE}T{_TIME % 6}\+00:00"),
    "timestamp_ns": re.compile(f"{_DATE}T{_TIME % 9}"),
    "timestamptz_ns": re.compile(rf"{_DATE}T{_TIME % 9}\+00:00"),
}
_FRACTION: Final = re.compile(r"\.(\d*?)0*(?=\+|$)")
_DECIMAL_DEFAULT: Final = re.compile(r"(?!-0(?:\.0+)?$)-?(?:0|[1-9]\d*)(?:\.\d+)?")
_HEX_DEFAULT: Final = re.compile(r"(?:[0-9a-fA-F]{2})*")


def _default(type_name: Any, value: Any) -> str:
    if not isinstance(type_name, str):
        raise _UncertainFormError
    if type_name == "boolean":
        return boolean(value)
    if type_name in {"int", "long"}:
        return integer(value)
    if not isinstance(value, str):
        raise _UncertainFormError

    return string(_text_default(_primitive_name(type_name), value))


def _text_default(type_name: str, text: str) -> str:
    if type_name == "binary" or type_name.startswith("fixed["):
        return _matching(_HEX_DEFAULT, text).upper()
    if type_name.startswith("decimal("):
        return _matching(_DECIMAL_DEFAULT, text)
    if type_name not in _TEXT_DEFAULTS:
        raise _UncertainFormError

    found = _matching(_TEXT_DEFAULTS[type_name], text)

    return _FRACTION.sub(_without_last_zeros, found) if type_name.startswith("time") else found


def _matching(pattern: re.Pattern[str], text: str) -> str:
    # Java refuses a table whose hash differs and reads one that has no hash: so a doubtful form gets none.
    if not pattern.fullmatch(text):
        raise _UncertainFormError
    return text


def _without_last_zeros(fraction: re.Match[str]) -> str:
    return f".{fraction[1]}" if fraction[1] else ""


class _Field(Form):
    """A column, whose defaults are written as its type says."""

    def __call__(self, value: Any) -> str:
        type_name = checked(value, dict).get("type")
        return _field_with(lambda default: _default(type_name, default))(value)

    def stray_keys(self, value: Any, path: str) -> Iterator[str]:
        return _ANY_FIELD.stray_keys(value, path)


def _field_with(write_default: Writer) -> ObjectOf:
    return ObjectOf(
        Key("id", integer),
        Key("name", string),
        Key("required", boolean),
        Key("type", _Type()),
        Key("doc", string, When.NOT_NULL),
        Key("initial-default", write_default, When.NOT_NULL),
        Key("write-default", write_default, When.NOT_NULL),
    )


def _one_property(value: Any) -> str:
    # Java puts these into a hash map, whose order differs between its versions.
    if len(checked(value, dict)) > 1:
        raise _UncertainFormError
    return _STRING_MAP(value)


def _summary(value: Any) -> str:
    summary = checked(value, dict)
    return _STRING_MAP({"operation": summary.get("operation"), **summary})


_ANY_FIELD: Final = _field_with(string)
_STRING_MAP: Final = MapOf(string)
_STRUCT: Final = ObjectOf(Key("type", string), Key("fields", ListOf(_Field())))
_LIST_TYPE: Final = ObjectOf(Key("type", string), Key("element-id", integer), Key("element", _Type()), Key("element-required", boolean))
_MAP_TYPE: Final = ObjectOf(
    Key("type", string),
    Key("key-id", integer),
    Key("key", _Type()),
    Key("value-id", integer),
    Key("value", _Type()),
    Key("value-required", boolean),
)
_NESTED_TYPES: Final = {"struct": _STRUCT, "list": _LIST_TYPE, "map": _MAP_TYPE}
_SCHEMA: Final = ObjectOf(
    Key("type", string),
    Key("schema-id", integer),
    Key("identifier-field-ids", ListOf(integer), When.NOT_EMPTY),
    Key("fields", ListOf(_Field())),
)
_PARTITION_FIELD: Final = ObjectOf(Key("name", string), Key("transform", string), Key("source-id", integer), Key("field-id", integer))
_PARTITION_SPEC: Final = ObjectOf(Key("spec-id", integer), Key("fields", ListOf(_PARTITION_FIELD)))
_SORT_FIELD: Final = ObjectOf(Key("transform", string), Key("source-id", integer), Key("direction", string), Key("null-order", string))
_SORT_ORDER: Final = ObjectOf(Key("order-id", integer), Key("fields", ListOf(_SORT_FIELD)))
_ENCRYPTION_KEY: Final = ObjectOf(
    Key("key-id", string),
    Key("encrypted-key-metadata", string),
    Key("encrypted-by-id", string, When.NOT_NULL),
    Key("properties", _one_property, When.NOT_EMPTY),
)
_REF: Final = ObjectOf(
    Key("snapshot-id", integer),
    Key("type", string),
    Key("min-snapshots-to-keep", integer, When.NOT_NULL),
    Key("max-snapshot-age-ms", integer, When.NOT_NULL),
    Key("max-ref-age-ms", integer, When.NOT_NULL),
)
_SNAPSHOT: Final = ObjectOf(
    # Not empty: not 0, which version 1 had.
    Key("sequence-number", integer, When.NOT_EMPTY),
    Key("snapshot-id", integer),
    Key("parent-snapshot-id", integer, When.NOT_NULL),
    Key("timestamp-ms", integer),
    Key("summary", _summary, When.NOT_EMPTY),
    Key("manifest-list", string),
    Key("schema-id", integer, When.NOT_NULL),
    Key("first-row-id", integer, When.NOT_NULL),
    Key("added-rows", integer, When.NOT_NULL),
    Key("key-id", string, When.NOT_NULL),
)
_BLOB: Final = ObjectOf(
    Key("type", string),
    Key("snapshot-id", integer),
    Key("sequence-number", integer),
    Key("fields", ListOf(integer)),
    Key("properties", _STRING_MAP, When.NOT_EMPTY),
)
_STATISTICS: Final = ObjectOf(
    Key("snapshot-id", integer),
    Key("statistics-path", string),
    Key("file-size-in-bytes", integer),
    Key("file-footer-size-in-bytes", integer),
    Key("blob-metadata", ListOf(_BLOB)),
)
_PARTITION_STATISTICS: Final = ObjectOf(Key("snapshot-id", integer), Key("statistics-path", string), Key("file-size-in-bytes", integer))
_METADATA: Final = ObjectOf(
    Key("format-version", integer),
    Key("table-uuid", string),
    Key("location", string),
    Key("last-sequence-number", integer),
    Key("last-updated-ms", integer),
    Key("last-column-id", integer),
    Key("current-schema-id", integer),
    Key("schemas", ListOf(_SCHEMA)),
    Key("default-spec-id", integer),
    Key("partition-specs", ListOf(_PARTITION_SPEC)),
    Key("last-partition-id", integer),
    Key("default-sort-order-id", integer),
    Key("sort-orders", ListOf(_SORT_ORDER)),
    Key("properties", _STRING_MAP),
    Key("current-snapshot-id", integer, When.EVEN_IF_NULL),
    Key("next-row-id", integer, When.NOT_NULL),
    Key("encryption-keys", ListOf(_ENCRYPTION_KEY), When.NOT_EMPTY),
    Key("refs", MapOf(_REF)),
    Key("snapshots", ListOf(_SNAPSHOT)),
    Key("statistics", ListOf(_STATISTICS)),
    Key("partition-statistics", ListOf(_PARTITION_STATISTICS)),
    Key("snapshot-log", ListOf(ObjectOf(Key("timestamp-ms", integer), Key("snapshot-id", integer)))),
    Key("metadata-log", ListOf(ObjectOf(Key("timestamp-ms", integer), Key("metadata-file", string)))),
)
_WRITTEN_EVEN_IF_EMPTY: Final = ("snapshots", "statistics", "partition-statistics", "snapshot-log", "metadata-log")


def _with_what_java_fills_in(document: Any) -> dict[str, Any]:
    metadata = dict(checked(document, dict))
    version = metadata.get("format-version")
    if version not in (2, 3):
        raise FormatError(f"not readable as table metadata of version 2 or 3: format-version is {str(version)[:80]}")

    current = metadata.get("current-snapshot-id")
    has_snapshot = current not in (None, -1)
    metadata["current-snapshot-id"] = current if has_snapshot else (None if version == 3 else -1)
    if metadata.get("refs") is None:
        metadata["refs"] = {"main": {"snapshot-id": current, "type": "branch"}} if has_snapshot else {}
    if version == 2:
        metadata["next-row-id"] = None
    metadata["location"] = _without_last_slashes(checked(metadata.get("location"), str))
    metadata["properties"] = metadata.get("properties") or {}
    for name in _WRITTEN_EVEN_IF_EMPTY:
        metadata[name] = metadata.get(name) or []
    return metadata


def _without_last_slashes(location: str) -> str:
    while location.endswith("/") and not location.endswith("://"):
        location = location[:-1]
    return location
