"""Restrictions at work on the rows of one scan: the server's row filter, masks inside of structs, lists and maps, the reader's filter.

Rows come in with the columns that were asked for and those that a filter looks at besides, and go out with those that were asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids, translate_column_names
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, MapType, NestedField, StructType

from tablecrypt.table._pyiceberg.arrow import to_requested_schema
from tablecrypt.table.column_masks import MaskAction, mask_column
from tablecrypt.table.read_restrictions import Restrictions, filtered_columns, sees_masked, top_level
from tablecrypt.table.restricting_filter import RestrictingFilter


class RestrictedRows:
    """Applies a server's restrictions to the rows of one scan; used by many threads.

    Args:
        restrictions: of the table's reader.
        table: the table's schema, for the columns that filters look at.
        projected: the columns that were asked for.
        bound_filter: the reader's filter, bound to `table`.

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
        looked_at = filtered_columns(restrictions, table) | ({tops[each] for each in filtered} if self.filters_masks else set())
        self.columns = _widened(projected, table, looked_at)
        self._row_filter = None if restrictions.row_filter is None else RestrictingFilter(restrictions.row_filter, self.columns)
        self._own_filter = _as_arrow(bound_filter, self.columns) if self.filters_masks else None

    def applied(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return what may be seen of rows in `columns`, in the columns that were asked for."""
        if self._row_filter is not None:
            rows = self._row_filter.kept(rows)
        if not rows.num_rows:
            return rows.select(list(range(len(self._projected.fields))))
        for at, field in enumerate(self.columns.fields):
            column = rows.column(at)
            masked = _masked(column, field, self._masks, self._salt)
            if masked is not column:
                rows = rows.set_column(at, rows.schema.field(at), masked)
        if self._own_filter is not None:
            rows = rows.filter(self._own_filter)
        return self._narrowed(rows)

    def _narrowed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        wide = self.columns.fields[: len(self._projected.fields)]
        if wide == self._projected.fields:
            return rows.select(list(range(len(wide))))
        return to_requested_schema(self._projected, self.columns, rows, downcast_ns_timestamp_to_us=False, allow_timestamp_tz_mismatch=True)


def _widened(projected: Schema, table: Schema, looked_at: set[int]) -> Schema:
    """Return the projected columns, those whole that a filter looks at, and the others that it looks at after them."""
    whole = {field.field_id: field for field in table.fields if field.field_id in looked_at}
    asked = [_whole(field, whole.pop(field.field_id, None)) for field in projected.fields]
    return Schema(*asked, *whole.values())


def _whole(asked: NestedField, whole: NestedField | None) -> NestedField:
    # A snapshot's own schema may have a narrower primitive type; only of nested ones may fields be left out.
    return asked if whole is None or asked.field_type.is_primitive else whole


def _as_arrow(bound: BooleanExpression, columns: Schema) -> pc.Expression:
    named = translate_column_names(bound, columns, case_sensitive=True)
    return expression_to_pyarrow(bind(columns, named, case_sensitive=True), columns)


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
