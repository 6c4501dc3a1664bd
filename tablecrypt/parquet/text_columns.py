"""Columns of text and bytes in the forms that Arrow has for them beside the plain one: views, and dictionaries.

Newer engines give views, and a Parquet file stores them as it stores plain text. But Arrow notes in the file which type its writer had,
and reads views again, which it can neither compare, filter nor sort: a filtered scan of such a file fails. Dictionaries, as pandas has them
for categories, come back likewise, and Arrow puts them and plain text into no one table. Worse, a dictionary keeps the values of rows that
a filter took away, and Arrow writes them all: a row that was deleted would stay in the file. So rows of tables are written without both,
and files of others are read without.

Columns that a file stores as dictionaries are read as dictionaries, filtered, and then decoded:

    dictionary page    "open" "paid" "sent"            distinct values, once
    data pages         2 0 0 1 2 ...                   an index for each row
                       └─ Arrow's reader ─▶ dictionary array ─ row filter ─▶ fewer rows ─ decoded ─▶ plain text

Arrow's reader makes plain text of such pages value by value, for rows that a filter leaves out too. Copying the values by their indices,
for the rows that are left, takes less than half the time. For a page that is no dictionary the way over one would take longer, so only
columns are read like this whose dictionary page is small beside their data pages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tablecrypt._arrow_types import LARGE, with_leaves
from tablecrypt.errors import FormatError

_CODED: Final = tuple(LARGE)
_NESTED: Final = ("STRUCT", "LIST", "LARGE_LIST", "FIXED_SIZE_LIST", "MAP")
_NOT_PLAIN: Final = frozenset(getattr(pa.lib, f"Type_{name}") for name in ("STRING_VIEW", "BINARY_VIEW", "DICTIONARY", *_NESTED))
"""Types that are views or dictionaries, or may hold some."""

_TEXT: Final = frozenset(getattr(pa.lib, f"Type_{name}") for name in ("STRING", "LARGE_STRING", "STRING_VIEW"))

Rows = TypeVar("Rows", pa.Table, pa.RecordBatchReader)


def without_views(schema: pa.Schema) -> pa.Schema:
    """Return the schema with large strings and large bytes instead of views, inside of structs, lists and maps too."""
    return _with_types(schema, _no_view)


def plain_schema(schema: pa.Schema, dictionaries: Collection[str] = ()) -> pa.Schema:
    """Return the schema without views, and with the types of their values instead of dictionaries, inside of structs, lists and maps too.

    Args:
        schema: of a file, or of rows to write.
        dictionaries: columns that may be some.
    """
    plain = _with_types(schema, _plain)
    if not dictionaries or plain is schema:
        return plain
    return pa.schema([given if given.name in dictionaries else field for given, field in zip(schema, plain, strict=True)], schema.metadata)


def plain_rows(rows: Rows) -> Rows:
    """Return the rows in the schema that `plain_schema` gives; the same object where they have it."""
    schema = plain_schema(rows.schema)
    return rows if schema == rows.schema else rows.cast(schema)


def check_utf8(rows: pa.Table | pa.RecordBatch) -> None:
    """Check that text in rows is UTF-8, as the type of its column says.

    Raises:
        FormatError: it is not. Other engines, and bounds of manifests, take it for UTF-8.
    """
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if not _holds_text(column.type):
            continue
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise FormatError(f"column {name!r}: text of the rows is not UTF-8, as the table's type says: {error}") from None


def with_checked_utf8(rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return the rows of a stream, of which each batch is checked as by `check_utf8` when it comes."""

    def checked() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            check_utf8(batch)
            yield batch

    return pa.RecordBatchReader.from_batches(rows.schema, checked())


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _holds_text(kind.value_type)
    return kind.id in _TEXT or any(_holds_text(kind.field(each).type) for each in range(kind.num_fields))


def _with_types(schema: pa.Schema, other: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
    if not any(each.id in _NOT_PLAIN for each in schema.types):
        return schema
    return pa.schema([field.with_type(with_leaves(field.type, other)) for field in schema], schema.metadata)


def _no_view(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind


def _plain(kind: pa.DataType) -> pa.DataType:
    if not pa.types.is_dictionary(kind):
        return _no_view(kind)
    # Each row gets a copy of its value, and Arrow counts the text of an array of short strings in 32 bits.
    return LARGE.get(kind.value_type, kind.value_type)


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
    limits: CodingLimits,
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
    text = {name for name in columns if named[name] == 1 and schema.field(name).type in _CODED}
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
