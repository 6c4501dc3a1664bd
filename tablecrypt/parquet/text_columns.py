"""Text columns that a file stores as dictionaries: read as dictionaries, filtered, and then decoded.

    dictionary page    "open" "paid" "sent"            distinct values, once
    data pages         2 0 0 1 2 ...                   an index for each row
                       └─ Arrow's reader ─▶ dictionary array ─ row filter ─▶ fewer rows ─ decoded ─▶ plain text

Arrow's reader makes plain text of such pages value by value, for rows that a filter leaves out too. Copying the values by their indices,
for the rows that are left, takes less than half the time. For a page that is no dictionary the way over one would take longer, so only
columns are read like this whose dictionary page is small beside their data pages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_PLAIN: Final = (pa.string(), pa.binary())


@dataclass(frozen=True, slots=True)
class CodingLimits:
    """When columns are read as dictionaries, and how much text a batch holds.

    Attributes:
        least_rows: in fewer rows there is less to win than opening the file for it costs.
        share: a dictionary page is small where it is at most one in so many of a column's bytes.
        most_bytes: of text in a column of a batch, which Arrow counts in 32 bits.
    """

    least_rows: int = 16_384
    share: int = 16
    most_bytes: int = 2**31 - 1


LIMITS: Final = CodingLimits()


def coded_columns(
    footer: pq.FileMetaData,
    schema: pa.Schema,
    columns: Collection[str],
    row_filter: pc.Expression | None,
    limits: CodingLimits = LIMITS,
) -> frozenset[str]:
    """Return those of the columns that are worth reading as dictionaries.

    Args:
        footer: of the file. Its first row group speaks for all.
        schema: of the file.
        columns: that are read.
        row_filter: what it compares is read plain. Not all that can be asked of text can Arrow ask of dictionaries.
        limits: say when it is worth it.
    """
    named = Counter(schema.names)
    text = {name for name in columns if named[name] == 1 and schema.field(name).type in _PLAIN}
    if not text or not footer.num_row_groups or footer.row_group(0).num_rows < limits.least_rows:
        return frozenset()

    group, stored = footer.row_group(0), footer.schema
    paths = [stored.column(number).path for number in range(group.num_columns)]
    # A column "a.b" and a field "b" of a struct "a" have the same path.
    occurs = Counter(paths)
    # Of the others no chunk is looked at: Arrow ends the process where it has no key for one.
    asked = [(number, path) for number, path in enumerate(paths) if path in text and occurs[path] == 1]
    small = {path for number, path in asked if _has_small_dictionary(group.column(number), limits.share)}
    # An expression does not tell its columns, but its text has their names as they are.
    compared = "" if row_filter is None else str(row_filter)

    return frozenset(name for name in text & small if name not in compared)


def with_dictionaries(schema: pa.Schema, coded: frozenset[str]) -> pa.Schema:
    """Return the schema in which these columns are dictionaries."""
    if not coded:
        return schema
    fields = (field.with_type(pa.dictionary(pa.int32(), field.type)) if field.name in coded else field for field in schema)
    return pa.schema(fields, schema.metadata)


def decoded(batch: pa.RecordBatch, coded: frozenset[str], limits: CodingLimits = LIMITS) -> Iterator[pa.RecordBatch]:
    """Yield the rows with plain values in these columns: in several batches, where one could not hold their text."""
    places = [at for at, name in enumerate(batch.schema.names) if name in coded]
    if not places:
        yield batch
        return

    longest = max(pc.max(pc.binary_length(batch.column(at).dictionary)).as_py() or 0 for at in places)
    # At worst each row has the longest value, and Arrow counts the text of an array in 32 bits.
    step = max(1, min(batch.num_rows, limits.most_bytes // max(longest, 1)))

    for start in range(0, max(batch.num_rows, 1), step):
        part = batch.slice(start, step)
        for at in places:
            values = part.column(at).dictionary_decode()
            part = part.set_column(at, part.schema.field(at).with_type(values.type), values)
        yield part


def _has_small_dictionary(chunk: object, share: int) -> bool:
    first, data, total = (getattr(chunk, name) for name in ("dictionary_page_offset", "data_page_offset", "total_compressed_size"))
    return bool(first) and (data - first) * share <= total
