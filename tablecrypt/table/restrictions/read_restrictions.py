"""Read restrictions: the row filter and the masks of a catalog's server, parsed, checked, and applied to every row that is read here.

    live rows of a file ──▶ the server's row filter, on true values ──▶ masks, by field id ──▶ the reader's own filter, where it
    looks at a masked column ──▶ the columns that were asked for

So a reader's filter on a masked column sees the masks: it rules out no file by statistics or partition, and nothing is counted unread.
A filter on other columns prunes as it always does. Whatever cannot be applied is refused before a row is read; so is what would write rows
that were read under restrictions, or copy rows as they are stored (`refuse_restricted`).

This is kept by the client that applies it. It is no encryption: see docs/threat-model.md.

Iceberg REST catalog specification, `loadTable`, `ReadRestrictions`.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import ListType, MapType, NestedField, StructType

from tablecrypt.errors import ReadRestrictionError
from tablecrypt.files.encrypting_file_io import ReadRestrictions
from tablecrypt.keys.nested_columns import fields_by_id, fields_in
from tablecrypt.table._pyiceberg.arrow import to_requested_schema
from tablecrypt.table.arrow_filter import arrow_filter
from tablecrypt.table.restrictions.column_masks import MaskAction, mask_column, takes
from tablecrypt.table.restrictions.row_filter import RestrictingFilter, path_to, referenced_ids

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


def restrictions_of(carried: ReadRestrictions) -> Restrictions:
    """Return what readers through a FileIO that carries these have to apply, with the salt of a query that begins now or has begun."""
    known = _of_text(carried.text)
    return Restrictions(known.row_filter, known.masks, carried.of_query().salt or b"")


def check_restrictions(carried: ReadRestrictions, metadata: TableMetadata) -> None:
    """Check that restrictions can be applied to a table: types and field ids fit.

    Raises:
        ReadRestrictionError: they cannot.
    """
    restrictions = _of_text(carried.text)
    if restrictions.row_filter is not None:
        RestrictingFilter(restrictions.row_filter, metadata.schema())
    for field_id, action in restrictions.masks.items():
        # All schemas and not the current one alone: time travel reads by older ones.
        found = [masked for schema in metadata.schemas if (masked := fields_by_id(schema).get(field_id)) is not None]
        if not found:
            raise ReadRestrictionError(f"{action.value} is required of field id {field_id}, which no column of the table has or had")
        for field in found:
            _check_mask(field, action)

    for schema in metadata.schemas:
        _check_nesting(schema.fields, restrictions.masks, None)


def plannable(carried: ReadRestrictions, row_filter: BooleanExpression, schema: Schema, case_sensitive: bool) -> BooleanExpression:
    """Return what of a reader's filter may rule out files: all of it, or nothing where it looks at a masked column."""
    if isinstance(row_filter, AlwaysTrue):
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

    # A restriction of a newer specification is refused: to skip it would show what the server wants hidden.
    unknown = answered.keys() - {_ROW_FILTER, _PROJECTIONS}
    if unknown:
        raise ReadRestrictionError(f"the server restricts reading by {', '.join(sorted(unknown))}, which is not known here")

    projections = answered.get(_PROJECTIONS)
    if not isinstance(projections, (list, type(None))):
        raise ReadRestrictionError(f"{_PROJECTIONS} is {type(projections).__name__}, not a list")

    masks: dict[int, MaskAction] = {}

    for each in projections or ():
        field_id, action = _action(each)
        # Two actions on one column contradict each other, and the later one would win although it may show more.
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
        raise ReadRestrictionError(f"{_PROJECTIONS} names {field_id!r}, which is not a field id")

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
        # The outer mask would replace what the inner one made, and a mask that the server asked for would not be applied.
        if field.field_id in masks and inside is not None:
            raise ReadRestrictionError(f"actions are required of field id {inside} and of {field.field_id}, which is inside of it")

        outer = field.field_id if field.field_id in masks else inside
        kind = field.field_type
        if isinstance(kind, MapType) and not masks.keys().isdisjoint({kind.key_id, *_ids_below(kind.key_field)}):
            raise ReadRestrictionError(f"an action is required of the keys of the map {field.name!r}, which would become equal or null")

        _check_nesting(fields_in(kind), masks, outer)


def filtered_columns(restrictions: Restrictions, schema: Schema) -> set[int]:
    """Return the field ids of the columns that the row filter looks at."""
    return {path_to(schema, each)[0].field_id for each in referenced_ids(restrictions.row_filter)}


class RestrictedRows:
    """Applies a server's restrictions to the rows of one scan; used by many threads.

    Args:
        restrictions: of the table's reader.
        table: the table's schema, for the columns that filters look at.
        projected: the columns that were asked for.
        bound_filter: the reader's filter, bound to `table`.

    Attributes:
        columns: those to read.
        filtered: field ids of what the server's filter looks at.
        filters_masks: whether the reader's filter is evaluated here, on masked values.

    Raises:
        ReadRestrictionError: they cannot be applied.
    """

    def __init__(self, restrictions: Restrictions, table: Schema, projected: Schema, bound_filter: BooleanExpression) -> None:
        self._masks = restrictions.masks
        self._salt = restrictions.salt
        self._projected = projected
        filtered = extract_field_ids(bound_filter)
        self.filters_masks = sees_masked(restrictions, filtered, table)
        tops = top_level(table)
        # Columns that only a filter looks at are read too, and left out of the result at the end.
        looked_at = filtered_columns(restrictions, table) | ({tops[each] for each in filtered} if self.filters_masks else set())
        self.columns = Schema(*_widened(projected.fields, table.fields, looked_at))
        self.filtered = set(referenced_ids(restrictions.row_filter))
        self._row_filter = None if restrictions.row_filter is None else RestrictingFilter(restrictions.row_filter, self.columns, table)
        self._own_filter = arrow_filter(bound_filter, self.columns, self.columns) if self.filters_masks else None

    def applied(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return what may be seen of rows in `columns`, in the columns that were asked for."""
        if self._row_filter is not None:
            # Before the masks: the server's filter is about true values.
            rows = self._row_filter.kept(rows)
        if not rows.num_rows:
            return rows.select(list(range(len(self._projected.fields))))

        for at, field in enumerate(self.columns.fields):
            column = rows.column(at)
            masked = _masked(column, field, self._masks, self._salt)
            if masked is not column:
                rows = rows.set_column(at, rows.schema.field(at), masked)

        if self._own_filter is not None:
            # After the masks: a reader who filters by true values could find them out one comparison at a time.
            rows = rows.filter(self._own_filter)
        return self._narrowed(rows)

    def _narrowed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        wide = self.columns.fields[: len(self._projected.fields)]
        if wide == self._projected.fields:
            return rows.select(list(range(len(wide))))
        return to_requested_schema(self._projected, self.columns, rows, downcast_ns_timestamp_to_us=False, allow_timestamp_tz_mismatch=True)


def _widened(asked: Sequence[NestedField], table: Sequence[NestedField], looked_at: Container[int]) -> list[NestedField]:
    """Return fields as they were asked for, those whole that a filter looks at, and the others that it looks at after them."""
    whole = {field.field_id: field for field in table if field.field_id in looked_at}
    widened = [_whole(field, whole.pop(field.field_id, None)) for field in asked]
    names = {field.name for field in asked}
    # A column of an older schema may have a name that another one has now. What only a filter looks at is found by its id.
    others = (each.model_copy(update={"name": f"{each.name}\0{each.field_id}"}) if each.name in names else each for each in whole.values())
    return [*widened, *others]


def _whole(asked: NestedField, whole: NestedField | None) -> NestedField:
    # A snapshot's own schema may have a narrower primitive type, and fields that the table has no longer: both stay as they were asked for.
    if whole is None or not isinstance(asked.field_type, StructType) or not isinstance(whole.field_type, StructType):
        return asked
    fields = _widened(asked.field_type.fields, whole.field_type.fields, Schema(whole).field_ids)
    return asked.model_copy(update={"field_type": StructType(*fields)})


def _masked(column: pa.Array, field: NestedField, masks: Mapping[int, MaskAction], salt: bytes) -> pa.Array:
    """Return a column with its own mask, or those of what is inside of it; the column itself where there is none."""
    action = masks.get(field.field_id)
    if action is not None:
        return mask_column(column, action, salt)

    kind: Any = field.field_type
    if kind.is_primitive or masks.keys().isdisjoint(Schema(field).field_ids):
        return column
    if isinstance(kind, StructType):
        children = [_masked(column.field(at), child, masks, salt) for at, child in enumerate(kind.fields)]
        return pa.StructArray.from_arrays(children, fields=list(column.type), mask=column.is_null())
    if isinstance(kind, ListType):
        elements = _masked(column.flatten(), kind.element_field, masks, salt)
        made = pa.LargeListArray if pt.is_large_list(column.type) else pa.ListArray
        return made.from_arrays(_offsets(column), elements, type=column.type, mask=column.is_null())

    assert isinstance(kind, MapType)
    pairs = column.cast(pa.list_(pa.struct([column.type.key_field, column.type.item_field])))
    entries = pairs.flatten()
    values = _masked(entries.field(1), kind.value_field, masks, salt)

    return pa.MapArray.from_arrays(_offsets(pairs), entries.field(0), values, type=column.type, mask=column.is_null())


def _offsets(lists: pa.Array) -> pa.Array:
    """Return offsets that begin at 0 and give null lists no elements, as `flatten` does."""
    width = pa.int64() if pt.is_large_list(lists.type) else pa.int32()
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(width)
    return pa.concat_arrays([pa.array([0], width), pc.cumulative_sum(lengths)])
