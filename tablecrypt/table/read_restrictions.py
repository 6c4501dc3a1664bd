"""What a catalog's server lets a reader see of a table: a row filter and masks of columns, applied to every row that is read here.

    living rows of a file ──▶ the server's row filter, on true values ──▶ masks, by field id ──▶ the reader's own filter, where it
    looks at a masked column ──▶ the columns that were asked for

So a reader's filter on a masked column sees the masks: it rules out no file by statistics or partition, and nothing is counted unread.
A filter on other columns prunes as ever. Whatever cannot be applied is refused before a row is read; so is what would write rows that were
read under restrictions, or copy rows as they are stored (`refuse_restricted`).

This is kept by the client that applies it. It is no encryption: see docs/threat-model.md.

Iceberg REST catalog specification, `loadTable`, `ReadRestrictions`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import ListType, MapType, NestedField, StructType

from tablecrypt.errors import ReadRestrictionError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.files.read_restrictions import ReadRestrictions
from tablecrypt.table.column_masks import MaskAction, takes
from tablecrypt.table.restricting_filter import RestrictingFilter, path_to, referenced_ids

_ROW_FILTER: Final = "required-row-filter"
_PROJECTIONS: Final = "required-column-projections"


@dataclass(frozen=True)
class Restrictions:
    """Restrictions, read.

    Attributes:
        row_filter: the expression's JSON; None where all rows may be returned.
        masks: what is done to a column, by field id.
        salt: of the query, for sha-256-query-local.
    """

    row_filter: object
    masks: Mapping[int, MaskAction]
    salt: bytes = b""


def parse_restrictions(answered: object) -> ReadRestrictions | None:
    """Return what a server's answer restricts, as a table's FileIO carries it; None where it restricts nothing.

    Args:
        answered: the answer's `read-restrictions`, parsed; None where it has none.

    Raises:
        ReadRestrictionError: it holds something that is not known here.
    """
    if answered is None:
        return None
    restrictions = _parsed(answered)
    if restrictions.row_filter is None and not restrictions.masks:
        return None
    return ReadRestrictions(json.dumps(answered, sort_keys=True))


def restrictions_of(io: FileIO) -> Restrictions | None:
    """Return what readers through a FileIO have to apply, with the salt of a query that begins now or has begun."""
    carried = io.read_restrictions if isinstance(io, EncryptingFileIO) else None
    if carried is None:
        return None
    known = _of_text(carried.text)
    return Restrictions(known.row_filter, known.masks, carried.of_query().salt or b"")


def refuse_restricted(io: FileIO, operation: str) -> None:
    """Refuse what would go past the restrictions of a table, or make masked values the table's own.

    Args:
        io: the table's.
        operation: what was asked for, as the error says it.

    Raises:
        ReadRestrictionError: the table's reader is restricted.
    """
    if isinstance(io, EncryptingFileIO) and io.read_restrictions is not None:
        raise ReadRestrictionError(
            f"{operation} is not possible: the catalog's server restricts which rows and values you may read of this table. "
            "Reading and appending are; for anything else connect as somebody whom the server does not restrict"
        )


def check_restrictions(carried: ReadRestrictions, metadata: TableMetadata) -> None:
    """Check that restrictions can be applied to a table: types and field ids fit.

    Raises:
        ReadRestrictionError: they cannot.
    """
    restrictions = _of_text(carried.text)
    if restrictions.row_filter is not None:
        RestrictingFilter(restrictions.row_filter, metadata.schema())
    for field_id, action in restrictions.masks.items():
        found = [masked for schema in metadata.schemas if (masked := _fields_by_id(schema).get(field_id)) is not None]
        if not found:
            raise ReadRestrictionError(f"{action.value} is required of field id {field_id}, which no column of the table has or had")
        for field in found:
            _check_mask(field, action)
    for schema in metadata.schemas:
        _check_nesting(schema.fields, restrictions.masks, None)


def plannable(io: FileIO, row_filter: BooleanExpression, schema: Schema, case_sensitive: bool) -> BooleanExpression:
    """Return what of a reader's filter may rule out files: all of it, or nothing where it looks at a masked column."""
    carried = io.read_restrictions if isinstance(io, EncryptingFileIO) else None
    if carried is None or isinstance(row_filter, AlwaysTrue):
        return row_filter
    filtered = extract_field_ids(bind(schema, row_filter, case_sensitive=case_sensitive))
    return ALWAYS_TRUE if sees_masked(_of_text(carried.text), filtered, schema) else row_filter


def sees_masked(restrictions: Restrictions, field_ids: Iterable[int], schema: Schema) -> bool:
    """Whether one of some fields is masked, is inside of a masked one, or has a masked one inside."""
    masked = restrictions.masks.keys() & schema.field_ids
    tops = top_level(schema)
    return not {tops[each] for each in masked}.isdisjoint(tops.get(each) for each in field_ids)


def top_level(schema: Schema) -> dict[int, int]:
    """Return for each field id of a schema the one of the column that it is, or is inside of."""
    return {each: field.field_id for field in schema.fields for each in (field.field_id, *_ids_below(field))}


def _ids_below(field: NestedField) -> set[int]:
    return set(Schema(field).field_ids)


@lru_cache(maxsize=64)
def _of_text(text: str) -> Restrictions:
    return _parsed(json.loads(text))


def _parsed(answered: object) -> Restrictions:
    if not isinstance(answered, dict):
        raise ReadRestrictionError(f"the server's read-restrictions are {type(answered).__name__}, not an object")
    unknown = answered.keys() - {_ROW_FILTER, _PROJECTIONS}
    if unknown:
        raise ReadRestrictionError(f"the server restricts reading by {', '.join(sorted(unknown))}, which is not known here")
    projections = answered.get(_PROJECTIONS)
    if not isinstance(projections, (list, type(None))):
        raise ReadRestrictionError(f"{_PROJECTIONS} is {type(projections).__name__}, not a list")
    masks: dict[int, MaskAction] = {}
    for each in projections or ():
        field_id, action = _action(each)
        if field_id in masks:
            raise ReadRestrictionError(f"{_PROJECTIONS} names field id {field_id} twice")
        masks[field_id] = action
    row_filter = answered.get(_ROW_FILTER)
    return Restrictions(None if row_filter is True else row_filter, MappingProxyType(masks))


def _action(projection: object) -> tuple[int, MaskAction]:
    if not isinstance(projection, dict) or projection.keys() != {"action", "field-id"}:
        raise ReadRestrictionError(f"{_PROJECTIONS} holds {projection!r}, which is not an action and a field id")
    field_id, name = projection["field-id"], projection["action"]
    if not isinstance(field_id, int) or isinstance(field_id, bool):
        raise ReadRestrictionError(f"{_PROJECTIONS} names {field_id!r}, which is no field id")
    known = {action.value: action for action in MaskAction}
    if not isinstance(name, str) or name not in known:
        raise ReadRestrictionError(f"the action {name!r} is required of field id {field_id}, and is not known here")
    return field_id, known[name]


def _check_mask(field: NestedField, action: MaskAction) -> None:
    if takes(action, field.field_type, field.required):
        return
    kind = f"{'required ' if field.required else ''}{field.field_type}"
    raise ReadRestrictionError(f"{action.value} is required of {field.name!r} (field id {field.field_id}), and is not for {kind}")


def _check_nesting(fields: Iterable[NestedField], masks: Mapping[int, MaskAction], inside: int | None) -> None:
    for field in fields:
        if field.field_id in masks and inside is not None:
            raise ReadRestrictionError(f"actions are required of field id {inside} and of {field.field_id}, which is inside of it")
        outer = field.field_id if field.field_id in masks else inside
        kind = field.field_type
        if isinstance(kind, MapType) and not masks.keys().isdisjoint({kind.key_id, *_ids_below(kind.key_field)}):
            raise ReadRestrictionError(f"an action is required of the keys of the map {field.name!r}, which would become equal or null")
        _check_nesting(_children(kind), masks, outer)


def _children(kind: Any) -> tuple[NestedField, ...]:
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ListType):
        return (kind.element_field,)
    return (kind.key_field, kind.value_field) if isinstance(kind, MapType) else ()


def _fields_by_id(schema: Schema) -> dict[int, NestedField]:
    found: dict[int, NestedField] = {}
    waiting = list(schema.fields)
    while waiting:
        field = waiting.pop()
        found[field.field_id] = field
        waiting += _children(field.field_type)
    return found


def filtered_columns(restrictions: Restrictions, schema: Schema) -> set[int]:
    """Return the field ids of the columns that the row filter looks at."""
    return {path_to(schema, each)[0].field_id for each in referenced_ids(restrictions.row_filter)}
