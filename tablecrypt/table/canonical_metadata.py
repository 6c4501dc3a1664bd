"""Table metadata as Iceberg Java serialises it, byte for byte, and the hash of it that Java keeps in the Hive metastore.

Java hashes not the bytes of metadata.json but its own serialisation of what it parsed, so whoever shares a metastore with it has to know
that form. UTF-8, no white space; `?` is left out where null, `*` also where empty, all others are always written:

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

Pure. Raises FormatError where the document is not table metadata of version 2 or 3. Iceberg table spec, "Appendix C: JSON serialization".
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from tablecrypt.errors import FormatError

Writer = Callable[[Any], str]


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


class _UncertainFormError(Exception):
    """Java's form of this value is not the same in all its versions, or not known."""


class _When(Enum):
    ALWAYS = auto()
    EVEN_IF_NULL = auto()
    NOT_NULL = auto()
    NOT_EMPTY = auto()


@dataclass(frozen=True)
class _Key:
    """One key of a JSON object: how its value is written, and when it is left out."""

    name: str
    write: Writer
    when: _When = _When.ALWAYS

    def is_left_out(self, value: Any) -> bool:
        if self.when is _When.NOT_EMPTY:
            return not value
        return self.when is _When.NOT_NULL and value is None


def _object(*keys: _Key) -> Writer:
    def write(value: Any) -> str:
        fields = _checked(value, dict)
        parts = []
        for key in keys:
            item = fields.get(key.name)
            if key.is_left_out(item):
                continue
            if item is None and key.when is not _When.EVEN_IF_NULL:
                raise FormatError(f"not readable as table metadata: {key.name} is missing")
            parts.append(f'"{key.name}":{"null" if item is None else key.write(item)}')
        return "{" + ",".join(parts) + "}"

    return write


def _list(write_item: Writer) -> Writer:
    return lambda value: "[" + ",".join(write_item(item) for item in _checked(value, list)) + "]"


def _map(write_item: Writer) -> Writer:
    return lambda value: "{" + ",".join(f"{_string(key)}:{write_item(item)}" for key, item in _checked(value, dict).items()) + "}"


def _checked(value: Any, kind: type) -> Any:
    # A bool is an int to isinstance.
    if type(value) is not kind:
        raise FormatError(f"not readable as table metadata: {str(value)[:80]!r} where {kind.__name__} is expected")
    return value


_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
_SHORT_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def _escape(match: re.Match[str]) -> str:
    return _SHORT_ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04X}"


def _string(value: Any) -> str:
    return '"' + _ESCAPED.sub(_escape, _checked(value, str)) + '"'


def _integer(value: Any) -> str:
    return str(_checked(value, int))


def _boolean(value: Any) -> str:
    return "true" if _checked(value, bool) else "false"


_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_FIXED: Final = re.compile(r"fixed\[\s*(\d+)\s*\]")
_PLAIN_TYPES: Final = frozenset(
    {
        *("boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"),
        *("string", "uuid", "binary", "unknown", "variant"),
    }
)


def _type(value: Any) -> str:
    if isinstance(value, str):
        return _string(_primitive_name(value))
    kind = _checked(value, dict).get("type")
    write = {"struct": _STRUCT, "list": _LIST_TYPE, "map": _MAP_TYPE}.get(str(kind))
    if write is None:
        raise FormatError(f"not readable as table metadata: no type is called {str(kind)[:80]!r}")
    return write(value)


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
        return _boolean(value)
    if type_name in {"int", "long"}:
        return _integer(value)
    if not isinstance(value, str):
        raise _UncertainFormError
    return _string(_text_default(_primitive_name(type_name), value))


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
    if not pattern.fullmatch(text):
        raise _UncertainFormError
    return text


def _without_last_zeros(fraction: re.Match[str]) -> str:
    return f".{fraction[1]}" if fraction[1] else ""


def _field(value: Any) -> str:
    type_name = _checked(value, dict).get("type")

    def write_default(default: Any) -> str:
        return _default(type_name, default)

    return _object(
        _Key("id", _integer),
        _Key("name", _string),
        _Key("required", _boolean),
        _Key("type", _type),
        _Key("doc", _string, _When.NOT_NULL),
        _Key("initial-default", write_default, _When.NOT_NULL),
        _Key("write-default", write_default, _When.NOT_NULL),
    )(value)


def _one_property(value: Any) -> str:
    # Java puts these into a hash map, whose order differs between its versions.
    if len(_checked(value, dict)) > 1:
        raise _UncertainFormError
    return _STRING_MAP(value)


def _summary(value: Any) -> str:
    summary = _checked(value, dict)
    return _STRING_MAP({"operation": summary.get("operation"), **summary})


_STRING_MAP: Final = _map(_string)
_STRUCT: Final = _object(_Key("type", _string), _Key("fields", _list(_field)))
_LIST_TYPE: Final = _object(_Key("type", _string), _Key("element-id", _integer), _Key("element", _type), _Key("element-required", _boolean))
_MAP_TYPE: Final = _object(
    _Key("type", _string),
    _Key("key-id", _integer),
    _Key("key", _type),
    _Key("value-id", _integer),
    _Key("value", _type),
    _Key("value-required", _boolean),
)
_SCHEMA: Final = _object(
    _Key("type", _string),
    _Key("schema-id", _integer),
    _Key("identifier-field-ids", _list(_integer), _When.NOT_EMPTY),
    _Key("fields", _list(_field)),
)
_PARTITION_FIELD: Final = _object(
    _Key("name", _string), _Key("transform", _string), _Key("source-id", _integer), _Key("field-id", _integer)
)
_PARTITION_SPEC: Final = _object(_Key("spec-id", _integer), _Key("fields", _list(_PARTITION_FIELD)))
_SORT_FIELD: Final = _object(
    _Key("transform", _string), _Key("source-id", _integer), _Key("direction", _string), _Key("null-order", _string)
)
_SORT_ORDER: Final = _object(_Key("order-id", _integer), _Key("fields", _list(_SORT_FIELD)))
_ENCRYPTION_KEY: Final = _object(
    _Key("key-id", _string),
    _Key("encrypted-key-metadata", _string),
    _Key("encrypted-by-id", _string, _When.NOT_NULL),
    _Key("properties", _one_property, _When.NOT_EMPTY),
)
_REF: Final = _object(
    _Key("snapshot-id", _integer),
    _Key("type", _string),
    _Key("min-snapshots-to-keep", _integer, _When.NOT_NULL),
    _Key("max-snapshot-age-ms", _integer, _When.NOT_NULL),
    _Key("max-ref-age-ms", _integer, _When.NOT_NULL),
)
_SNAPSHOT: Final = _object(
    # Not empty: not 0, which version 1 had.
    _Key("sequence-number", _integer, _When.NOT_EMPTY),
    _Key("snapshot-id", _integer),
    _Key("parent-snapshot-id", _integer, _When.NOT_NULL),
    _Key("timestamp-ms", _integer),
    _Key("summary", _summary, _When.NOT_EMPTY),
    _Key("manifest-list", _string),
    _Key("schema-id", _integer, _When.NOT_NULL),
    _Key("first-row-id", _integer, _When.NOT_NULL),
    _Key("added-rows", _integer, _When.NOT_NULL),
    _Key("key-id", _string, _When.NOT_NULL),
)
_BLOB: Final = _object(
    _Key("type", _string),
    _Key("snapshot-id", _integer),
    _Key("sequence-number", _integer),
    _Key("fields", _list(_integer)),
    _Key("properties", _STRING_MAP, _When.NOT_EMPTY),
)
_STATISTICS: Final = _object(
    _Key("snapshot-id", _integer),
    _Key("statistics-path", _string),
    _Key("file-size-in-bytes", _integer),
    _Key("file-footer-size-in-bytes", _integer),
    _Key("blob-metadata", _list(_BLOB)),
)
_PARTITION_STATISTICS: Final = _object(
    _Key("snapshot-id", _integer), _Key("statistics-path", _string), _Key("file-size-in-bytes", _integer)
)
_METADATA: Final = _object(
    _Key("format-version", _integer),
    _Key("table-uuid", _string),
    _Key("location", _string),
    _Key("last-sequence-number", _integer),
    _Key("last-updated-ms", _integer),
    _Key("last-column-id", _integer),
    _Key("current-schema-id", _integer),
    _Key("schemas", _list(_SCHEMA)),
    _Key("default-spec-id", _integer),
    _Key("partition-specs", _list(_PARTITION_SPEC)),
    _Key("last-partition-id", _integer),
    _Key("default-sort-order-id", _integer),
    _Key("sort-orders", _list(_SORT_ORDER)),
    _Key("properties", _STRING_MAP),
    _Key("current-snapshot-id", _integer, _When.EVEN_IF_NULL),
    _Key("next-row-id", _integer, _When.NOT_NULL),
    _Key("encryption-keys", _list(_ENCRYPTION_KEY), _When.NOT_EMPTY),
    _Key("refs", _map(_REF)),
    _Key("snapshots", _list(_SNAPSHOT)),
    _Key("statistics", _list(_STATISTICS)),
    _Key("partition-statistics", _list(_PARTITION_STATISTICS)),
    _Key("snapshot-log", _list(_object(_Key("timestamp-ms", _integer), _Key("snapshot-id", _integer)))),
    _Key("metadata-log", _list(_object(_Key("timestamp-ms", _integer), _Key("metadata-file", _string)))),
)
_WRITTEN_EVEN_IF_EMPTY: Final = ("snapshots", "statistics", "partition-statistics", "snapshot-log", "metadata-log")


def _with_what_java_fills_in(document: Any) -> dict[str, Any]:
    metadata = dict(_checked(document, dict))
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
    metadata["location"] = _without_last_slashes(_checked(metadata.get("location"), str))
    metadata["properties"] = metadata.get("properties") or {}
    for name in _WRITTEN_EVEN_IF_EMPTY:
        metadata[name] = metadata.get(name) or []
    return metadata


def _without_last_slashes(location: str) -> str:
    while location.endswith("/") and not location.endswith("://"):
        location = location[:-1]
    return location
