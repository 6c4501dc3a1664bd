"""One scan task as Arrow batches: a data file's rows, without the deleted ones, filtered, in the columns that the scan asks for.

    opened file ──▶ stored columns ──deletes──▶ ──row filter──▶ ──projection by field id──▶ ──row lineage──▶ ──restrictions──▶ batch

Where nothing needs the position of a row in its file, the filter is handed to Arrow with the read. Deletes and _row_id need positions:
then every row of the row groups that the filter leaves is read, and one mask keeps what deletes and filter leave.

Columns, defaults, promotions and renames are resolved by PyIceberg's own projection, through field ids.

The rows of several files are read ahead, in order and within bounds (`prefetched`):

    file 0 ──▶ [queue of a few batches] ──┐
    file 1 ──▶ [queue of a few batches] ──┼──▶ the consumer takes all of file 0, then all of file 1, ...
    file 2 ──▶ [queue of a few batches] ──┘         and file 3 starts once file 0 is used up

Each is read in its own thread, which waits when its queue is full. The threads are not from a shared pool, where waiting would keep
other work from running, and are daemons, so that a consumer that is never finished does not keep the process from ending.

A store takes its time for each request, however small the file is. So small files are read many at a time: more than `workers` run
together while all that run have at most SMALL_TOGETHER bytes.

Iceberg table spec, "Column Projection", "Row Lineage".
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Condition, Thread, current_thread
from typing import Any, Final, Generic, TypeAlias, TypeVar
from weakref import finalize

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE, FileScanTask, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import BinaryType, ListType, MapType, StringType

from tablecrypt._arrow_types import LARGE, cast_values
from tablecrypt.errors import FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, is_local, refuse_restricted
from tablecrypt.keys.nested_columns import all_ancestors, displaced
from tablecrypt.parquet.uniform import PositionedBatch, ReadRequest, kept, passing
from tablecrypt.table._pyiceberg.arrow import (
    check_types,
    column_projection_values,
    has_nanosecond_columns,
    stored_schema,
    to_requested_schema,
)
from tablecrypt.table.data_file_reader import FileInMicroseconds, OpenedFile, opened_file
from tablecrypt.table.deletes import DeleteReader, TaskDeletes
from tablecrypt.table.filters import DeleteFilter, RowFilter, pruned
from tablecrypt.table.lineage import LINEAGE_FIELD_IDS, ROW_ID, with_lineage, with_lineage_of
from tablecrypt.table.metadata import has_column_keys
from tablecrypt.table.planning import EncryptedFileScanTask, FilePart
from tablecrypt.table.protection.visible_columns import ERROR, visible_columns
from tablecrypt.table.restrictions.read_restrictions import RestrictedRows, restrictions_of

LOCAL_TOGETHER: Final = 1024 * 1024
"""Local files of which so many bytes are read together are read by one thread, one after another: a thread for each takes longer."""
SMALL_TOGETHER: Final = 32 * 1024 * 1024
READ_AHEAD: Final = 16 * 1024 * 1024
"""How many bytes ahead (or one row group) tasks, and rows that are written again, are read of each file."""
MOST_AT_ONCE: Final = 32
_POSITION: Final = "__tablecrypt_position"
_TEXT: Final = (StringType, BinaryType)

T = TypeVar("T")
PositionedRows: TypeAlias = tuple[pa.Array, pa.RecordBatch]
"""Rows, and their positions in the data file, ascending."""


@dataclass(frozen=True)
class ReadOptions:
    """How a scan's tasks are read.

    Attributes:
        case_sensitive: whether the filter names columns as they are written.
        dictionary_columns: columns to return as Arrow dictionaries, from Parquet files.
        read_ahead: how many bytes of a Parquet file may be fetched ahead; None: all that the columns and the filter need.
        masked: what is done about protected columns whose keys may not be used: `mask`, or `error` where values are needed.
    """

    case_sensitive: bool = True
    dictionary_columns: tuple[str, ...] = ()
    read_ahead: int | None = None
    masked: str = ERROR


class TaskReader:
    """Reads the tasks of one scan; used by many threads.

    Args:
        table_metadata: for the schema, partition specs and name mapping.
        io: the table's EncryptingFileIO.
        projected: the columns of the result; may hold the lineage fields.
        row_filter: unbound, on the table's schema.

    Attributes:
        filter: of the stored rows.
        projections: how the columns of each file become those of the scan.

    Raises:
        ColumnKeyDeniedError: values of a protected column are needed that the reader may not see.
    """

    def __init__(
        self,
        table_metadata: TableMetadata,
        io: EncryptingFileIO,
        projected: Schema,
        row_filter: BooleanExpression,
        options: ReadOptions = ReadOptions(),
    ) -> None:
        schema = table_metadata.schema()
        asked = RowFilter(schema, row_filter, options.case_sensitive)
        restrictions = None if io.read_restrictions is None else restrictions_of(io.read_restrictions)
        restricted = None if restrictions is None else RestrictedRows(restrictions, schema, projected, asked.bound)
        filtered, seen = asked.columns, projected
        if restricted is not None:
            # The server's filter is for true values: of a protected column, the reader has to have them.
            filtered, seen = filtered | restricted.filtered, restricted.columns

        self.io = io
        self._table_metadata = table_metadata
        self._projected = projected
        self._row_filter = row_filter
        self._options = options
        self._restricted = restricted
        # A filter on masked values is not for stored ones.
        self.filter = RowFilter(schema, ALWAYS_TRUE) if restricted is not None and restricted.filters_masks else asked
        self.projections = Projections(table_metadata, self.filter)
        is_protected = has_column_keys(table_metadata)
        self._visible = visible_columns(table_metadata, io, seen, filtered, options.masked) if is_protected else None
        self._deletes = DeleteReader(io, table_metadata)

    def opened(self, task: FileScanTask) -> AbstractContextManager[OpenedFile]:
        """Open a task's data file, with what this read sees of protected columns."""
        # The server's filters and masks are for plain columns.
        dictionaries = self._options.dictionary_columns if self._restricted is None else ()
        return opened_file(self.io, task.file, dictionaries, self._visible, _sequence_number(task))

    def batches(self, task: FileScanTask) -> Iterator[pa.RecordBatch]:
        """Yield a task's rows; none of the batches is empty.

        Raises:
            PlaintextRefusedError: the data file or a delete file has no key, or is plaintext.
            TamperedFileError: one of them is not what was written.
            FormatError: one of them cannot be read, or deletes do not fit their data file.
            ReadRestrictionError: a value cannot be masked as the catalog's server requires.
        """
        for _, rows in self._live_rows(task):
            yield rows

    def sources(self, tasks: Iterable[FileScanTask]) -> Iterator[RowSource[pa.RecordBatch]]:
        """Yield the rows of tasks, as `batches` yields them, to be read ahead: small local files together, each other file alone."""
        run: list[FileScanTask] = []
        length, share = 0.0, self._share_read()
        for task in tasks:
            size = task.file.file_size_in_bytes * share if is_local(task.file.file_path) else LOCAL_TOGETHER
            if run and length + size >= LOCAL_TOGETHER:
                yield self._source(run)
                run, length = [], 0.0
            run.append(task)
            length += size

        if run:
            yield self._source(run)

    def _share_read(self) -> float:
        """How much of a file is read, as if all columns were equally long."""
        stored = self._table_metadata.schema().field_ids
        return len(stored & self.projections.needed(self._projected)) / max(1, len(stored))

    def _source(self, tasks: list[FileScanTask]) -> RowSource[pa.RecordBatch]:
        rows = partial(itertools.chain.from_iterable, map(self.batches, tasks))
        file = tasks[0].file
        # Nothing is won by reading more local files at once than there are workers.
        return RowSource(rows) if is_local(file.file_path) else RowSource(rows, file.file_size_in_bytes)

    def positioned_batches(self, task: FileScanTask) -> Iterator[PositionedRows]:
        """Yield a task's rows with their positions in the data file. The reader must project _row_id, which makes positions known.

        Raises:
            ReadRestrictionError: the table's reader is restricted: positions are for changing the rows that lie there.
            Others as `batches`.
        """
        refuse_restricted(self.io, "reading where rows lie, as for changing them,")
        for positions, rows in self._live_rows(task):
            if positions is not None:
                yield positions, rows

    def matching_positions(self, task: FileScanTask) -> pa.ChunkedArray:
        """Return where those of a task's rows lie in their data file that a delete by the filter takes, which may be fewer than match it.

        Only the columns of the filter are read. The reader must project _row_id, which makes positions known.

        Raises:
            As `positioned_batches`.
        """
        refuse_restricted(self.io, "changing rows")
        delete = self._delete_filter
        matching: list[pa.Array] = []
        for positions, rows in self._live_rows(task, delete.columns):
            if positions is not None:
                at = pa.table([positions, *rows.columns], names=[_POSITION, *rows.schema.names])
                matching += delete.deleted(at).column(_POSITION).chunks

        return pa.chunked_array(matching, pa.int64())

    @cached_property
    def _delete_filter(self) -> DeleteFilter:
        return DeleteFilter(self._table_metadata.schema(), self._row_filter, self._options.case_sensitive)

    def _live_rows(self, task: FileScanTask, projected: Schema | None = None) -> Iterator[tuple[pa.Array | None, pa.RecordBatch]]:
        """Yield a task's rows without the deleted ones, with their positions where these are known.

        Args:
            projected: the columns of the rows; None for the reader's own.
        """
        restricted = self._restricted
        if restricted is not None:
            projected = restricted.columns
        projected = self._projected if projected is None else projected
        wanted = self._with_equality_columns(task, projected)

        with self.opened(task) as stored:
            # Not before: a Parquet file has as many rows as its entry says now, which bounds the memory that deletion vectors take.
            deletes = self._deletes.deletes_of(task)
            opened, projection = self.projections.of(stored, task.file, wanted)
            part = task.part if isinstance(task, EncryptedFileScanTask) else None
            for stored_positions, batch in self._rows(opened, projection, deletes, part):
                if not batch.num_rows:
                    continue

                rows = projection.applied(batch)
                if LINEAGE_FIELD_IDS & wanted.field_ids:
                    rows = with_lineage_of(task.file, _sequence_number(task), wanted, stored_positions, rows)
                positions, rows = _without_equal(stored_positions, rows, deletes)
                # Columns that only the equality deletes compare are not part of the result.
                rows = rows.select(list(range(len(projected.fields))))
                if restricted is not None and rows.num_rows:
                    # The restrictions drop rows, so the positions fit no longer. Changing rows by position was refused before.
                    positions, rows = None, restricted.applied(rows)
                if rows.num_rows:
                    yield positions, rows

    def _rows(
        self, opened: OpenedFile, projection: Projection, deletes: TaskDeletes, part: FilePart | None
    ) -> Iterator[tuple[pa.Array | None, pa.RecordBatch]]:
        """Yield stored rows that are not deleted by position and pass the filter, with positions where they are needed."""
        may_prune, gives_positions = self.filter.may_prune, ROW_ID.field_id in self._projected.field_ids
        request = ReadRequest(projection.columns, projection.row_filter, self._options.read_ahead, part)
        if may_prune and deletes.positions is None and not gives_positions:
            for batch in opened.batches(request):
                yield None, batch
            return

        for stored in opened.positioned_batches(request if may_prune else dataclasses.replace(request, row_filter=None)):
            mask = _live_mask(stored, deletes, projection.row_filter)
            positions = stored.positions if gives_positions else None
            yield positions if positions is None or mask is None else positions.filter(mask), kept(stored.batch, mask)

    def _with_equality_columns(self, task: FileScanTask, projected: Schema) -> Schema:
        compared = self._deletes.equality_fields_of(task).fields
        if not compared:
            return projected

        known = {field.field_id for field in projected.fields}
        if self._visible is not None:
            # Compared by its mask, a protected column would let the delete take other rows than it means.
            self._visible.check_compared(task.file.file_path, {field.field_id for field in compared}, self._table_metadata.schema())
        return Schema(*projected.fields, *(field for field in compared if field.field_id not in known))


def remaining_rows(
    table_metadata: TableMetadata,
    io: EncryptingFileIO,
    task: FileScanTask,
    gone: npt.NDArray[np.int64],
    held: Iterable[PositionedRows] | None = None,
) -> pa.RecordBatchReader:
    """Return the live rows of a data file that is written again, but those at some positions, with their lineage.

    They are read as they are drawn.

    Args:
        table_metadata: the table's.
        io: the table's.
        task: the file with its deletes.
        gone: positions of rows in the file, ascending.
        held: all live rows of the file, with their lineage, where they are in memory already.

    Raises:
        As `TaskReader.positioned_batches`, also when rows are drawn.
    """
    projected = with_lineage(table_metadata.schema())
    if held is None:
        # The old file goes as a whole: every row that stays has to reach the new one, whatever the condition says that found the others.
        reader = TaskReader(table_metadata, io, projected, ALWAYS_TRUE, ReadOptions(read_ahead=READ_AHEAD))
        held = reader.positioned_batches(task)

    return rows_of_file((rows_without(rows, among(gone, positions)[1]) for positions, rows in held), projected)


def rows_of_file(batches: Iterator[pa.RecordBatch], projected: Schema) -> pa.RecordBatchReader:
    """Return rows of one file as a stream in the Arrow types that the file has: who reads them written again gets the same as before.

    Args:
        batches: the rows, which are drawn as the stream is, but for the first of them.
        projected: their columns.
    """
    first = next(batches, None)
    if first is None:
        return pa.RecordBatchReader.from_batches(schema_to_pyarrow(projected, include_field_ids=False), ())
    return pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], batches))


def among(wanted: npt.NDArray[np.int64], positions: pa.Array) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Return which of the wanted positions are among others, and at which places there. Both ascend, so no row is looked up by a hash."""
    others = positions.to_numpy(zero_copy_only=False)
    at = np.searchsorted(others, wanted)
    is_here = at < len(others)
    is_here[is_here] = others[at[is_here]] == wanted[is_here]
    return is_here, at[is_here]


def rows_without(rows: pa.RecordBatch, places: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Return rows but those at these places in the batch."""
    if not len(places):
        return rows
    is_kept = np.ones(rows.num_rows, np.bool_)
    is_kept[places] = False
    return rows.filter(pa.array(is_kept))


class Projections:
    """How the columns of a scan's files become those of the scan; used by many threads.

    Args:
        table_metadata: for the schema, partition specs and name mapping.
        row_filter: whose columns are read too.
    """

    def __init__(self, table_metadata: TableMetadata, row_filter: RowFilter) -> None:
        self._table_metadata = table_metadata
        self._row_filter = row_filter
        self._filtered = pruned(table_metadata.schema(), row_filter.columns)
        self._stored_schemas: dict[bytes, tuple[Schema, bool]] = {}
        self._known: dict[tuple[int, tuple[int, ...]], Projection] = {}

    def of(self, opened: OpenedFile, file: DataFile, wanted: Schema) -> tuple[OpenedFile, Projection]:
        """Return a file as it is read for the table, and how its columns become the wanted ones.

        Raises:
            FormatError: the file has no field id for a column, and neither has the table's name mapping; a column is of a type that is not
                read as the table's; or a file of a table with protected columns has a column in another struct than the table.
        """
        metadata = self._table_metadata
        stored, is_finer = self._stored_schema(opened.schema, file.file_path)
        if is_finer:
            opened = FileInMicroseconds(opened)
            stored, _ = self._stored_schema(opened.schema, file.file_path)

        spec, missing = metadata.specs().get(file.spec_id), dict[int, Any]()
        for columns in (wanted, self._filtered):
            missing |= column_projection_values(file, columns, metadata.schema(), spec, stored.field_ids)
        # Values of partitions differ from file to file, so such a projection is not shared.
        if missing:
            return opened, self._made(stored, wanted, missing, file.file_path)

        # What a scan's files have in common is worked out once.
        # The stored schemas are kept, so no other object can get this id.
        key = (id(stored), tuple(column.field_id for column in wanted.fields))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._made(stored, wanted, missing, file.file_path)
        return opened, known

    def needed(self, wanted: Schema) -> set[int]:
        """Return the field ids that are read for the wanted columns and the filter."""
        leaves = {each for each in wanted.field_ids if not isinstance(wanted.find_type(each), (MapType, ListType))}
        return leaves | self._row_filter.read

    def stores(self, stored: pa.Schema, columns: Schema, location: str) -> bool:
        """Whether the file of that schema and location stores all of these columns as they are: with their field ids, names and types."""
        by_id, named = {field.field_id: field for field in self._stored_schema(stored, location)[0].fields}, Counter(stored.names)
        for field, expected in zip(columns.fields, schema_to_pyarrow(columns, include_field_ids=False), strict=True):
            found = by_id.get(field.field_id)
            if found is None or found.name != field.name or found.field_type != field.field_type:
                return False
            if named[field.name] != 1 or not _is_read_as(stored.field(field.name).type, expected.type):
                return False

        return True

    def _made(self, stored: Schema, wanted: Schema, missing: dict[int, Any], location: str) -> Projection:
        if has_column_keys(self._table_metadata):
            self._check_places(stored, wanted, location)
        check_types(wanted, stored, location)
        return Projection(wanted, pruned(stored, self.needed(wanted)), missing, self._row_filter.on(stored, missing))

    def _check_places(self, stored: Schema, wanted: Schema, location: str) -> None:
        places = {**all_ancestors(self._table_metadata.schema()), **all_ancestors(wanted)}
        elsewhere = displaced(all_ancestors(stored).items(), places)
        # PyIceberg looks it up by its stored name, in whatever struct the table has it: a protected column there may have that name.
        if elsewhere is not None:
            raise FormatError(f"{location}: has the column with field id {elsewhere} in another struct than the table has it")

    def _stored_schema(self, arrow_schema: pa.Schema, location: str) -> tuple[Schema, bool]:
        """Return the schema of a file, and whether it has nanoseconds where the table has microseconds."""
        # Most files of a table have the same columns, and converting the schema costs more than reading a small file.
        key = arrow_schema.serialize().to_pybytes()
        known = self._stored_schemas.get(key)
        if known is None:
            stored = stored_schema(key, self._table_metadata.properties.get(TableProperties.DEFAULT_NAME_MAPPING), location)
            is_finer = has_nanosecond_columns(stored) and not has_nanosecond_columns(self._table_metadata.schema())
            known = self._stored_schemas[key] = stored, is_finer
        return known


@dataclass(frozen=True)
class Projection:
    """How the columns of one file become those of the scan.

    Attributes:
        wanted: the columns of the scan.
        read: those of the file that are read.
        missing: what stands for those that the file lacks, by field id.
        row_filter: on stored columns; None: all rows.
    """

    wanted: Schema
    read: Schema
    missing: dict[int, Any]
    row_filter: pc.Expression | None
    # Of batches in such a schema the wanted columns are these, as they are, in that schema.
    _unchanged: dict[pa.Schema, tuple[list[int], pa.Schema]] = dataclasses.field(default_factory=dict, init=False)

    @property
    def columns(self) -> list[str]:
        """The names of the columns to read."""
        return [column.name for column in self.read.columns]

    def applied(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return stored rows in the wanted columns."""
        if not self.wanted.fields:
            return batch.select([])

        # Most columns are stored in the table's types, and PyIceberg's projection takes much longer to see it.
        unchanged = self._unchanged.get(batch.schema) or self._keep_unchanged(batch.schema, self._of_the_table)
        if unchanged is not None:
            places, schema = unchanged
            columns = batch.select(places).columns
            for at, kind in enumerate(schema.types):
                # A nested type names the field ids in it, which a cast to its equal leaves out.
                if pa.types.is_nested(kind):
                    columns[at] = cast_values(columns[at], kind)
            return pa.RecordBatch.from_arrays(columns, schema=schema)

        rows = to_requested_schema(
            self.wanted,
            self.read,
            batch,
            downcast_ns_timestamp_to_us=False,
            projected_missing_fields=self.missing,
            allow_timestamp_tz_mismatch=True,
        )
        self._keep_unchanged(batch.schema, rows.schema)
        return rows

    @cached_property
    def _of_the_table(self) -> pa.Schema:
        return schema_to_pyarrow(self.wanted, include_field_ids=False)

    def _keep_unchanged(self, before: pa.Schema, after: pa.Schema) -> tuple[list[int], pa.Schema] | None:
        """Remember where each wanted column is in a stored batch, and the schema of such rows.

        None: one is missing, or of another type than afterwards, on whatever level.
        """
        stored = {column.field_id: column for column in self.read.fields}
        places: list[int] = []
        fields: list[pa.Field] = []
        for column, made in zip(self.wanted.fields, after, strict=True):
            found = stored.get(column.field_id)
            # PyIceberg has one object of nearly every type, and takes long to compare two.
            if found is None or (found.field_type is not column.field_type and found.field_type != column.field_type):
                return None

            at = before.get_field_index(found.name)
            kind = None if at < 0 else before.field(at).type
            # Text comes as it is stored: with short or long offsets, or as dictionaries.
            if kind is None or (kind != made.type and not isinstance(column.field_type, _TEXT)):
                return None

            places.append(at)
            fields.append(made if kind == made.type else made.with_type(kind))

        known = self._unchanged[before] = places, pa.schema(fields)
        return known


def _is_read_as(stored: pa.DataType, expected: pa.DataType) -> bool:
    """Whether Arrow's scanner gives one type as the other, at most with wider offsets."""
    return bool(stored == expected or LARGE.get(stored) == expected)


def _without_equal(positions: pa.Array | None, rows: pa.RecordBatch, deletes: TaskDeletes) -> tuple[pa.Array | None, pa.RecordBatch]:
    for delete in deletes.equality:
        live = delete.live(rows)
        if live is not None:
            positions, rows = None if positions is None else positions.filter(live), rows.filter(live)
    return positions, rows


def _live_mask(stored: PositionedBatch, deletes: TaskDeletes, row_filter: pc.Expression | None) -> pa.Array | None:
    """Return a mask of the rows that are not deleted by position and pass the filter. None: all of them."""
    live = None if deletes.positions is None else deletes.positions.live(stored.parts)
    if row_filter is None or not stored.batch.num_rows:
        return live

    passes = passing(stored.batch, row_filter)

    return passes if live is None else pc.and_(passes, live)


def _sequence_number(task: FileScanTask) -> int | None:
    return task.data_sequence_number if isinstance(task, EncryptedFileScanTask) else None


@dataclass(frozen=True)
class RowSource(Generic[T]):
    """Something to read.

    Attributes:
        start: begins to read it.
        size: how many bytes reading it takes, estimated beforehand.
    """

    start: Callable[[], Iterator[T]]
    size: int = SMALL_TOGETHER


def prefetched(sources: Iterable[RowSource[T]], workers: int, depth: int | None) -> Iterator[T]:
    """Yield all items of all sources, in order.

    Args:
        sources: drawn when they are about to be started.
        workers: how many of them are read at once; more, if they are small.
        depth: how many items of each wait to be taken, at most. None: all; then a source that is read to its end gives way to another.

    Raises:
        Whatever a source raises, in the place of its next item. The others are stopped, also when the consumer stops early.
    """
    lanes = _Lanes(iter(sources), workers, depth)
    try:
        yield from lanes.items()
    finally:
        lanes.stop()


class _Lanes(Generic[T]):
    """The sources that are being read, in order."""

    def __init__(self, sources: Iterator[RowSource[T]], workers: int, depth: int | None) -> None:
        self._sources = sources
        self._following = next(sources, None)
        self._workers = workers
        self._depth = depth
        self._running: deque[_Lane[T]] = deque()
        self._changed = Condition()
        self._consumer = _Consumer()
        # Ctrl-C may keep `stop` from its work, and a lane that has just been started from being known to it.
        finalize(self, _leave, self._consumer, self._changed).atexit = False

    def items(self) -> Iterator[T]:
        while True:
            while self._following is not None and self._has_room_for(self._following):
                self._running.append(_Lane(self._following, self._depth, self._changed, self._consumer))
                self._following = next(self._sources, None)
            if not self._running:
                return

            first = self._running[0]

            with self._changed:
                self._changed.wait_for(partial(self._may_go_on, first))
                taken = [first.items.popleft()] if first.items else []
                ended = first.finished and not taken
                self._changed.notify_all()

            # Outside the lock: the consumer may take its time with a batch while the threads go on.
            yield from taken
            if ended:
                self._running.popleft()
                if first.error is not None:
                    raise first.error

    def stop(self) -> None:
        """Stop what runs, and wait for it."""
        with self._changed:
            for lane in self._running:
                lane.stopped = True
                lane.items.clear()
            self._changed.notify_all()

        for lane in self._running:
            lane.join()

    def _may_go_on(self, first: _Lane[T]) -> bool:
        return bool(first.items) or first.finished or (self._following is not None and self._has_room_for(self._following))

    def _has_room_for(self, source: RowSource[T]) -> bool:
        busy = [lane.size for lane in self._running if self._depth is not None or not lane.finished]
        return len(busy) < self._workers or (len(busy) < MOST_AT_ONCE and sum(busy) + source.size <= SMALL_TOGETHER)


@dataclass
class _Consumer:
    """Who takes the items, as lanes know of it: `has_left` where nobody will take any more."""

    has_left: bool = False


def _leave(consumer: _Consumer, changed: Condition) -> None:
    with changed:
        consumer.has_left = True
        changed.notify_all()


class _Lane(Generic[T]):
    """One source, read by a thread into a bounded queue."""

    def __init__(self, source: RowSource[T], depth: int | None, changed: Condition, consumer: _Consumer) -> None:
        self.size = source.size
        self.items: deque[T] = deque()
        self.finished = False
        self.stopped = False
        self.error: BaseException | None = None
        self._source = source
        self._depth = depth
        self._changed = changed
        self._consumer = consumer
        self._thread = Thread(target=self._run, name="tablecrypt-prefetch", daemon=True)
        self._thread.start()

    def join(self) -> None:
        # A forgotten consumer is finished by the garbage collector, which may run in this very thread.
        if self._thread is not current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            for item in self._source.start():
                if not self._put(item):
                    return
        except BaseException as error:  # noqa: BLE001  carried to the consumer's thread and raised there
            self.error = error
        finally:
            with self._changed:
                self.finished = True
                self._changed.notify_all()

    def _put(self, item: T) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_unwanted() or self._depth is None or len(self.items) < self._depth)
            if self._is_unwanted():
                return False
            self.items.append(item)
            self._changed.notify_all()
            return True

    def _is_unwanted(self) -> bool:
        return self.stopped or self._consumer.has_left
