"""Orders in which compaction writes rows: by columns, up or down, with nulls first or last; or along a Z-order curve of several columns.

SortColumn("at", descending=True)     as SQL's ORDER BY at DESC NULLS LAST
ZOrder(("x", "y"))                    rows that are near each other in x and in y lie near each other
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BooleanType, DateType, DecimalType, IntegerType, LongType, StringType, TimestampType, TimestamptzType

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance.sorting.z_values import z_values

_ORDERED_ALIKE: Final = (BooleanType, IntegerType, LongType, DateType, TimestampType, TimestamptzType, DecimalType, StringType)


@dataclass(frozen=True)
class SortColumn:
    """A column to sort by."""

    name: str
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class ZOrder:
    """Columns whose Z-values to sort by."""

    names: tuple[str, ...]


SortKey: TypeAlias = SortColumn | ZOrder


def sort_keys(sort_by: str | SortColumn | ZOrder | Sequence[str | SortColumn | ZOrder]) -> tuple[SortKey, ...]:
    """Return what a caller wants rows sorted by. The name of a column means ascending, with nulls last.

    Raises:
        ConfigurationError: it is something else, or a ZOrder has no column or is not alone.
    """
    given = tuple(sort_by) if isinstance(sort_by, (list, tuple)) else (sort_by,)
    keys = tuple(SortColumn(each) if isinstance(each, str) else each for each in given)
    if not all(isinstance(each, (SortColumn, ZOrder)) for each in keys):
        raise ConfigurationError("sort_by must be names of columns, or SortColumn or ZOrder of tablecrypt.maintenance")

    orders = [each for each in keys if isinstance(each, ZOrder)]
    if orders and (len(keys) > 1 or not orders[0].names):
        raise ConfigurationError("a ZOrder names at least one column, and must be the only entry of sort_by")

    return keys


def order_id_of(metadata: TableMetadata, keys: Sequence[SortKey]) -> int | None:
    """Return the id of the table's sort order that rows sorted by these keys are in; None where it has none such.

    Columns of floating-point numbers are in none, since Arrow places NaN elsewhere, nor are fields of structs.
    """
    schema, asked = metadata.schema(), []
    for key in keys:
        field = None if isinstance(key, ZOrder) else next((each for each in schema.fields if each.name == key.name), None)
        if field is None or isinstance(key, ZOrder) or not isinstance(field.field_type, _ORDERED_ALIKE):
            return None
        asked.append((field.field_id, key.descending, key.nulls_first))

    for order in metadata.sort_orders:
        own = [(each.source_id, each.direction == SortDirection.DESC, each.null_order == NullOrder.NULLS_FIRST) for each in order.fields]
        # Order 0 has no fields, and stands for unsorted.
        if own and own == asked and all(isinstance(each.transform, IdentityTransform) for each in order.fields):
            return order.order_id

    return None


def names_in(keys: Iterable[SortKey]) -> list[str]:
    """Return the columns that an order needs."""
    return [name for key in keys for name in (key.names if isinstance(key, ZOrder) else (key.name,))]


def sorted_rows(rows: pa.Table, keys: Sequence[SortKey]) -> pa.Table:
    """Return rows in an order."""
    columns: list[pa.ChunkedArray | pa.Array] = []
    directions: list[str] = []
    for key in keys:
        if isinstance(key, ZOrder):
            values = z_values([rows[name] for name in key.names])
            columns += values
            directions += ["ascending"] * len(values)
        else:
            column = rows[key.name]
            # Arrow places nulls alike for all keys: a flag before each column places them for one.
            columns += [pc.cast(pc.is_null(column), pa.int8()), column]
            directions += ["descending" if key.nulls_first else "ascending", "descending" if key.descending else "ascending"]

    names = [str(number) for number in range(len(columns))]

    return rows.take(pc.sort_indices(pa.table(columns, names=names), sort_keys=list(zip(names, directions, strict=True))))
