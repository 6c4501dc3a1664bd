"""Orders in which compaction writes rows: by columns, up or down, with nulls first or last; or along a Z-order curve of several columns.

SortColumn("at", descending=True)     as SQL's ORDER BY at DESC NULLS LAST
ZOrder(("x", "y"))                    rows that are near each other in x and in y lie near each other

The second is an order by Z-values: numbers by which rows lie near each other that are near in each of several columns. A Z-value takes 64
bits of each column, most significant first, and interleaves them:

    integers, dates, times     the value, with its sign bit turned
    floats, decimals           IEEE 754 double, all bits of negative ones turned, else the sign bit
    booleans                   0 or 1, as the highest bit
    strings, binary            the first 8 bytes
    null                       0
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

from tablecrypt.arguments import check_switches, names_of
from tablecrypt.errors import ConfigurationError
from tablecrypt.table.arrow_filter import comparable

_ORDERED_ALIKE: Final = (BooleanType, IntegerType, LongType, DateType, TimestampType, TimestamptzType, DecimalType, StringType)
_BITS: Final = 64
_SIGN: Final = 1 << 63
_PREFIX: Final = 8
_PART_BYTES: Final = 1 << 23


@dataclass(frozen=True)
class SortColumn:
    """A column to sort by."""

    name: str
    descending: bool = False
    nulls_first: bool = False

    def __post_init__(self) -> None:
        check_switches(descending=self.descending, nulls_first=self.nulls_first)


@dataclass(frozen=True)
class ZOrder:
    """Columns whose Z-values to sort by."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", names_of("names", self.names))


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


def sorted_rows(rows: pa.RecordBatchReader, keys: Sequence[SortKey]) -> pa.RecordBatchReader:
    """Return rows in an order. Memory holds them once, and beside them one column again and eight bytes a row."""
    held = _in_one_piece(rows.read_all())
    order = _order(held, keys)
    step = max(1, held.num_rows * _PART_BYTES // max(1, held.nbytes))
    parts = (held.take(order.slice(start, step)) for start in range(0, held.num_rows, step))

    return pa.RecordBatchReader.from_batches(rows.schema, (batch for part in parts for batch in part.to_batches()))


def _in_one_piece(rows: pa.Table) -> pa.Table:
    """Return rows whose columns have one chunk each: of more, Arrow copies strings together anew for each part that is taken."""
    schema, columns = rows.schema, rows.columns
    # Nobody else holds the chunks, so that those of a column go before the next is copied.
    del rows
    for at in range(len(columns)):
        columns[at] = columns[at].combine_chunks()

    return pa.Table.from_arrays(columns, schema=schema)


def _order(rows: pa.Table, keys: Sequence[SortKey]) -> pa.UInt64Array:
    """Return the positions of rows, in an order. ConfigurationError: a column is of a type without one, such as a list."""
    columns: list[pa.ChunkedArray | pa.Array] = []
    directions: list[str] = []
    for key in keys:
        if isinstance(key, ZOrder):
            values = z_values([rows[name] for name in key.names])
            columns += values
            directions += ["ascending"] * len(values)
        else:
            column = comparable(rows[key.name])
            # Arrow places nulls alike for all keys: a flag before each column places them for one.
            columns += [pc.cast(pc.is_null(column), pa.int8()), column]
            directions += ["descending" if key.nulls_first else "ascending", "descending" if key.descending else "ascending"]

    names = [str(number) for number in range(len(columns))]

    try:
        return pc.sort_indices(pa.table(columns, names=names), sort_keys=list(zip(names, directions, strict=True)))
    except (pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise ConfigurationError(f"rows cannot be sorted by {', '.join(names_in(keys))} ({error}): sort by other columns") from error


def z_values(columns: Sequence[pa.ChunkedArray | pa.Array]) -> list[pa.ChunkedArray | pa.Array]:
    """Return Z-values as as many columns of int64 as are given, to be compared one after the other.

    Raises:
        ConfigurationError: a column is of a type without a Z-value, such as a struct.
    """
    words = [_ordered_bits(column) for column in columns]
    bits = [(word, bit) for bit in reversed(range(_BITS)) for word in words]
    return [_signed(_word(bits[at : at + _BITS])) for at in range(0, len(bits), _BITS)]


def _word(bits: Sequence[tuple[pa.Array, int]]) -> pa.Array:
    """Return the 64-bit number of some bits, each of one number and its position there."""
    result = None
    for position, (number, bit) in zip(reversed(range(_BITS)), bits, strict=True):
        one = pc.bit_wise_and(pc.shift_right(number, _uint64(bit)), _uint64(1))
        shifted = pc.shift_left(one, _uint64(position))
        result = shifted if result is None else pc.bit_wise_or(result, shifted)
    return result


def _ordered_bits(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return numbers of 64 bits without a sign that compare as the values do."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = values.type
    if pa.types.is_boolean(kind):
        bits = pc.shift_left(values.cast(pa.uint64()), _uint64(_BITS - 1))
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        number = values.cast(pa.float64())
        raw = number.view(pa.uint64())
        bits = pc.if_else(pc.less(number.view(pa.int64()), 0), pc.bit_wise_not(raw), pc.bit_wise_xor(raw, _uint64(_SIGN)))
    elif pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        # Arrow does not cast date32 to int64 in one step.
        number = values.cast(pa.int32()).cast(pa.int64()) if pa.types.is_date32(kind) else values.cast(pa.int64())
        bits = pc.bit_wise_xor(number.view(pa.uint64()), _uint64(_SIGN))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        # Arrow cannot read the first bytes of a value as a number.
        prefixes = (None if value is None else _bytes(value)[:_PREFIX].ljust(_PREFIX, b"\0") for value in values.to_pylist())
        bits = pa.array([None if prefix is None else int.from_bytes(prefix) for prefix in prefixes], pa.uint64())
    else:
        raise ConfigurationError(f"a column of type {kind} cannot be part of a Z-order: sort by other columns")

    return pc.fill_null(bits, _uint64(0))


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _signed(word: pa.Array) -> pa.Array:
    return pc.bit_wise_xor(word, _uint64(_SIGN)).view(pa.int64())


def _uint64(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint64())
