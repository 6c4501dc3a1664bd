"""What an upsert does: which rows of a table have the keys of new rows, which of them differ, and what takes their place.

    keys of the new rows ──ranges──▶ files that may hold them ──key columns alone──▶ files that do ──all columns──▶ rows that differ
                                                                                     └─ joined by column, with positions ─┘

A key is the values of the key columns; keys are compared as columns, never row by row. Files without a match are read no further than
their key columns. Of a file with rows that differ, the positions of these rows go into a deletion vector (merge-on-read), or the file is
written again without them (copy-on-write), from the same read that compared them. A few files at a time are in memory.

An updated row keeps the `_row_id` of the row that it replaces, and its `_last_updated_sequence_number` is left null, so that it becomes the
sequence number of the commit.

Iceberg table spec, "Row Lineage".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual, Or, Reference
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import upsert_util
from pyiceberg.types import DateType, IntegerType, LongType, StringType
from pyroaring import BitMap64

from tablecrypt.table.deletes import comparable, row_numbers
from tablecrypt.table.lineage import LAST_UPDATED, ROW_ID, with_lineage
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.prefetch import RowSource, prefetched
from tablecrypt.table.row_changes import RowChange
from tablecrypt.table.scan import EncryptedDataScan
from tablecrypt.table.table_files import TableFileIO
from tablecrypt.table.write import write_data_files

Positions: TypeAlias = npt.NDArray[np.int64]
"""Of rows in a data file, ascending."""
_WORKERS: Final = 3
FEW_KEYS: Final = 200
"""PyIceberg holds so many values of a filter against the bounds of a file; with more it reads every file."""
_RANGES: Final = 8
_ORDERED: Final = (IntegerType, LongType, DateType, StringType)
_FOUND: Final = pa.schema([("position", pa.int64()), ("number", pa.int64())])
_DIFFERING: Final = pa.schema([*_FOUND, ("row_id", pa.int64())])


@dataclass(frozen=True)
class UpsertPlan:
    """What an upsert does.

    Attributes:
        updated: rows to write in place of others, with their lineage columns.
        inserted: rows to add, whose keys the table does not have.
        replaced: takes away the rows in whose place others come. It conflicts with these, and maybe with rows of other keys.
    """

    updated: pa.Table
    inserted: pa.Table
    replaced: RowChange


@dataclass(frozen=True)
class _Matched:
    """The live rows of one data file that have a key: their positions, and the number of the new row with that key (`_FOUND`)."""

    task: EncryptedFileScanTask
    found: pa.Table


@dataclass(frozen=True)
class _Change:
    """The rows of one data file that differ (`_DIFFERING`), and the files that take its place, where it is written again."""

    task: EncryptedFileScanTask
    differing: pa.Table
    files: list[DataFile]


@dataclass(frozen=True)
class Upsert:
    """An upsert of rows into what a scan without a filter reads.

    Attributes:
        rows: at most one for each key.
        scan: of the table and the branch.
        keys: the key columns.
        by_vectors: whether the rows that are replaced are position-deleted; nothing is written then.
    """

    rows: pa.Table
    scan: EncryptedDataScan
    keys: list[str]
    by_vectors: bool
    _replaced: RowChange = field(default_factory=RowChange)
    _counter: itertools.count[int] = field(default_factory=itertools.count)

    def plan(self, update_matched: bool = True, insert_unmatched: bool = True) -> UpsertPlan:
        """Find the rows, and write the files again that hold rows which differ, unless these are position-deleted.

        Args:
            update_matched: whether rows that differ from their match are updated.
            insert_unmatched: whether rows without a match are inserted.

        Raises:
            ValueError: a key is null, or occurs twice in the table; or the rows have not all of its columns, and some would be updated.
        """
        matched = self._checked_matches()
        numbers = _combined([each.found for each in matched], _FOUND).column("number")
        changes = self._changes(matched, numbers) if update_matched and matched else []
        updated = self._with_lineage(_combined([each.differing for each in changes], _DIFFERING))

        self._replaced.conflicts_with = keys_filter(updated.select(self.keys), self._schema)
        if self.by_vectors:
            positions = [BitMap64(each.differing.column("position").to_pylist()) for each in changes]
            self._replaced.position_deleted = [(each.task, deleted) for each, deleted in zip(changes, positions, strict=True)]
        else:
            self._replaced.dropped = [each.task.file for each in changes]
            self._replaced.rewritten = [file for each in changes for file in each.files]

        return UpsertPlan(updated, self._without(numbers) if insert_unmatched else self.rows.slice(0, 0), self._replaced)

    def _checked_matches(self) -> list[_Matched]:
        for key in self.keys:
            if self.rows.column(key).null_count:
                raise ValueError(f"the key column {key} has nulls, which are equal to nothing: an upsert cannot find their rows")
        return list(self._matched()) if self.rows.num_rows else []

    def _without(self, numbers: pa.ChunkedArray) -> pa.Table:
        """Return the rows but those with these numbers."""
        return self.rows.filter(pc.invert(pc.is_in(_numbers(self.rows), value_set=numbers.combine_chunks())))

    @property
    def _schema(self) -> Schema:
        return self.scan.table_metadata.schema()

    def _matched(self) -> Iterator[_Matched]:
        key_fields = [self._schema.find_field(key) for key in self.keys]
        keys = pa.table([_as_type(self.rows.column(each.name), schema_to_pyarrow(each.field_type)) for each in key_fields], names=self.keys)
        scan = self.scan.filter(keys_filter(keys, self._schema))
        reader = scan.reader_of(Schema(*key_fields, ROW_ID))

        def matched(task: EncryptedFileScanTask) -> Iterator[_Matched]:
            parts: list[pa.RecordBatch] = []
            for positions, rows in reader.positioned_batches(task):
                numbers = row_numbers(keys, rows, self.keys)
                parts.append(pa.record_batch([positions, numbers], schema=_FOUND).filter(numbers.is_valid()))
            found = pa.Table.from_batches(parts, _FOUND)
            if found.num_rows:
                yield _Matched(task, found)

        sources = (RowSource(partial(matched, task), task.file.file_size_in_bytes) for task in scan.tasks())
        yield from prefetched(sources, _WORKERS, 1)

    def _changes(self, matched: list[_Matched], numbers: pa.ChunkedArray) -> list[_Change]:
        # Two rows of the table have the key: which one the update replaces would depend on the order of files.
        if len(pc.unique(numbers)) < len(numbers):
            raise ValueError("Target table has duplicate rows, aborting upsert")
        missing = [each.name for each in self._schema.fields if each.name not in self.rows.column_names]
        if missing:
            raise ValueError(f"the rows of an upsert have all columns of the table; these lack {', '.join(missing)}")
        sources = (RowSource(partial(self._change, each)) for each in matched)
        return list(prefetched(sources, _WORKERS - 1, 1))

    def _change(self, matched: _Matched) -> Iterator[_Change]:
        """Read one file whole, and yield its change, if any row differs."""
        stored: list[tuple[pa.Array, pa.RecordBatch]] = []
        parts: list[pa.RecordBatch] = []
        known, numbers = (matched.found.column(name).to_numpy() for name in _FOUND.names)

        for positions, rows in self.scan.reader_of(with_lineage(self._schema)).positioned_batches(matched.task):
            is_here, at = _places(known, positions)
            here, existing = pa.array(numbers[is_here]), rows.take(at)
            columns = [pa.array(known[is_here]), here, existing.column(ROW_ID.name)]
            parts.append(pa.record_batch(columns, schema=_DIFFERING).filter(self._differ(here, existing)))
            if not self.by_vectors:
                stored.append((positions, rows))

        differing = pa.Table.from_batches(parts, _DIFFERING)
        if differing.num_rows:
            yield _Change(matched.task, differing, self._rewritten(stored, differing.column("position").to_numpy()))

    def _differ(self, numbers: pa.Array, existing: pa.RecordBatch) -> pa.Array:
        """Which rows differ from the new ones with these numbers in any column."""
        others = [name for name in self.rows.column_names if name not in self.keys]
        each = (_unequal(self.rows.column(name).take(numbers), existing.column(name)) for name in others)
        return reduce(pc.or_, each, pa.repeat(pa.scalar(False), len(numbers)))

    def _rewritten(self, stored: list[tuple[pa.Array, pa.RecordBatch]], gone: Positions) -> list[DataFile]:
        kept = [_without(rows, _places(gone, positions)[1]) for positions, rows in stored]
        if not any(rows.num_rows for rows in kept):
            return []
        io = cast("TableFileIO", self.scan.io)
        return write_data_files(
            self.scan.table_metadata, pa.Table.from_batches(kept), io, io.manager, self._replaced.write_uuid, self._counter
        )

    def _with_lineage(self, differing: pa.Table) -> pa.Table:
        """The new rows that take the place of these, in their own order."""
        ordered = differing.sort_by("number")
        rows = self.rows.take(ordered.column("number")).append_column(ROW_ID.name, ordered.column("row_id"))
        return rows.append_column(LAST_UPDATED.name, pa.nulls(rows.num_rows, pa.int64()))


def keys_filter(keys: pa.Table, schema: Schema, few: int = FEW_KEYS) -> BooleanExpression:
    """Return a filter that matches all rows with these keys, and others too where the keys are many.

    Args:
        keys: without nulls, in the key columns and maybe with types narrower than theirs.
        schema: the table's.
        few: up to this number of keys, the filter names each key.
    """
    if keys.num_rows <= few:
        return upsert_util.create_match_filter(keys, keys.column_names)
    ranges = (_ranges(name, keys.column(name)) for name in keys.column_names if isinstance(schema.find_type(name), _ORDERED))
    every: BooleanExpression = AlwaysTrue()
    return reduce(_both, ranges, every)


def _ranges(name: str, values: pa.ChunkedArray) -> BooleanExpression:
    """A few ranges that hold all values. Whole numbers are parted at the greatest gaps between them."""
    ordered = comparable(values).combine_chunks()
    ordered = ordered.take(pc.sort_indices(ordered))
    ends = [len(ordered) - 1]
    if pa.types.is_integer(ordered.type):
        gaps = pc.pairwise_diff(ordered)
        widest = pc.sort_indices(gaps, sort_keys=[("", "descending")])[: _RANGES - 1]
        ends = sorted({*(at - 1 for at in widest.to_pylist() if at), *ends})

    starts = [0, *(end + 1 for end in ends[:-1])]
    column = Reference(name)
    each: list[BooleanExpression] = [
        And(GreaterThanOrEqual(column, ordered[start].as_py()), LessThanOrEqual(column, ordered[end].as_py()))  # type: ignore[call-arg]
        for start, end in zip(starts, ends, strict=True)
    ]

    return reduce(_either, each)


def _both(one: BooleanExpression, other: BooleanExpression) -> BooleanExpression:
    return And(one, other)


def _either(one: BooleanExpression, other: BooleanExpression) -> BooleanExpression:
    return Or(one, other)


def _unequal(new: pa.ChunkedArray, existing: pa.Array) -> pa.Array:
    """Which values differ: null is equal to null, and NaN to nothing."""
    one = _as_type(new, existing.type).combine_chunks()
    if pa.types.is_nested(existing.type):
        # Arrow compares no nested values.
        return pa.array([mine != theirs for mine, theirs in zip(one.to_pylist(), existing.to_pylist(), strict=True)], pa.bool_())
    one, other = comparable(one), comparable(existing)
    return pc.or_(pc.fill_null(pc.not_equal(one, other), False), pc.xor(one.is_null(), other.is_null()))


def _as_type(values: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    return values if values.type == wanted else values.cast(wanted)


def _combined(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _places(wanted: Positions, positions: pa.Array) -> tuple[npt.NDArray[np.bool_], Positions]:
    """Return which of the wanted positions are among others, and at which places there. Both ascend, so no row is looked up by a hash."""
    among = positions.to_numpy(zero_copy_only=False)
    at = np.searchsorted(among, wanted)
    is_here = at < len(among)
    is_here[is_here] = among[at[is_here]] == wanted[is_here]
    return is_here, at[is_here]


def _without(rows: pa.RecordBatch, places: Positions) -> pa.RecordBatch:
    is_kept = np.ones(rows.num_rows, np.bool_)
    is_kept[places] = False
    return rows.filter(pa.array(is_kept))


def _numbers(rows: pa.Table) -> pa.Array:
    return pa.arange(0, rows.num_rows)
