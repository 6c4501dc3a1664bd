"""Which columns of a data file are worth a dictionary, told from its first rows.

A dictionary page holds each value once, and for every row the data pages hold an index into it:

    dictionary   distinct values × length + rows × bits of an index / 8       worth it where this is less than
    plain        rows × length

Arrow tries a dictionary for every column until it has `write.parquet.dict-size-bytes`. For values that hardly ever repeat (ids, amounts,
free text) that takes longer than all the rest of writing, and makes the file longer, since the pages written until then stay as they are.
parquet-java asks the same question of the first page of a column chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

SAMPLE_VALUES: Final = 65536
SAMPLE_BYTES: Final = 8 * 1024 * 1024
"""The first rows are as many as this, and about as many bytes of Arrow memory as this, at most."""

_LENGTH_BYTES: Final = 4
_LEAST_BYTES: Final = 4
_INT32_DIGITS: Final = 9
_INT64_DIGITS: Final = 18


def dictionary_columns(rows: pa.Table) -> list[str]:
    """Return the Parquet paths ("props.key_value.key") of the leaf columns that a dictionary makes shorter.

    Args:
        rows: the first rows of the file, in its own columns.
    """
    within_bytes = rows.num_rows * SAMPLE_BYTES // max(rows.nbytes, 1)
    sample = rows.slice(0, max(1, min(SAMPLE_VALUES, within_bytes))).combine_chunks()
    return [
        path
        for batch in sample.to_batches()
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        for path, values in _leaves(name, column)
        if _is_worth_it(values.slice(0, SAMPLE_VALUES))
    ]


def _leaves(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield the leaf columns of a column, under the names that they have in a Parquet file."""
    if isinstance(array, pa.StructArray):
        for field, child in zip(array.type, array.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", child)
    elif isinstance(array, pa.MapArray):
        yield from _leaves(f"{path}.key_value.key", _of_these_rows(array, array.keys))
        yield from _leaves(f"{path}.key_value.value", _of_these_rows(array, array.items))
    elif isinstance(array, (pa.ListArray, pa.LargeListArray)):
        yield from _leaves(f"{path}.list.element", _of_these_rows(array, array.values))
    else:
        yield path, array.storage if isinstance(array, pa.ExtensionArray) else array


def _of_these_rows(array: pa.MapArray | pa.ListArray | pa.LargeListArray, values: pa.Array) -> pa.Array:
    """Return what the rows of a slice hold, of the values that the whole array holds."""
    start, stop = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return values.slice(start, stop - start)


def _is_worth_it(values: pa.Array) -> bool:
    count = _count(values)
    if count == 0 or isinstance(values, pa.DictionaryArray):
        return True
    distinct = values.drop_null().unique()
    index_bits = max(len(distinct) - 1, 1).bit_length()
    return _plain_bytes(distinct) + count * index_bits // 8 < _plain_bytes(values)


def _plain_bytes(values: pa.Array) -> int:
    """Return how many bytes the values take in pages without a dictionary, before compression."""
    count, arrow = _count(values), values.type
    if pa.types.is_string(arrow) or pa.types.is_large_string(arrow) or pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow):
        return int(pc.sum(pc.binary_length(values), min_count=0).as_py()) + count * _LENGTH_BYTES
    if pa.types.is_decimal(arrow) and arrow.precision <= _INT64_DIGITS:
        return count * (4 if arrow.precision <= _INT32_DIGITS else 8)
    return count * max(int(arrow.bit_width) // 8, _LEAST_BYTES)


def _count(values: pa.Array) -> int:
    return len(values) - int(values.null_count)
