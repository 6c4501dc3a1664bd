"""One scan task as Arrow batches: a data file's rows, without the deleted ones, filtered, in the columns that the scan asks for.

    opened file ──▶ stored columns ──deletes──▶ ──row filter──▶ ──projection by field id──▶ ──row lineage──▶ ──restrictions──▶ batch

Where nothing needs the position of a row in its file, the filter is handed to Arrow with the read. Deletes and _row_id need positions:
then every row of the row groups that the filter leaves is read, and one mask keeps what deletes and filter leave. A filter that NaN can
pass leaves all of them: Parquet's smallest and greatest values leave NaN out. Where both are 1.0, Arrow concludes that all values are, and
so that none of them is NaN or differs from 1.0, and the scan would lose rows. Nor can Arrow compare a uuid with the statistics of its
column.

Columns, defaults, promotions and renames are resolved by PyIceberg's own projection, through field ids.

Iceberg table spec, "Column Projection", "Row Lineage".
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, BoundIsNaN, BoundNotEqualTo, BoundNotIn, BoundPredicate, Not, Or
from pyiceberg.expressions.visitors import bind, extract_field_ids, translate_column_names
from pyiceberg.io.pyarrow import expression_to_pyarrow, pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE, FileScanTask, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import parse_mapping_from_json
from pyiceberg.types import DoubleType, FloatType, ListType, MapType, UUIDType

from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.manifests.records import FORMAT_VERSION, EncryptedDataFile
from tablecrypt.parquet.storage import is_local
from tablecrypt.parquet.uniform import PositionedBatch, kept, passing
from tablecrypt.table._pyiceberg.arrow import column_projection_values, to_requested_schema
from tablecrypt.table.data_file_reader import OpenedFile, opened_file
from tablecrypt.table.datasets.castable import castable
from tablecrypt.table.deletes import DeleteReader, TaskDeletes
from tablecrypt.table.filters import DeleteFilter, check_evaluable, pruned
from tablecrypt.table.lineage import LAST_UPDATED, LINEAGE_FIELD_IDS, ROW_ID, inherit_row_ids, inherit_sequence_numbers
from tablecrypt.table.planning import EncryptedFileScanTask, FilePart
from tablecrypt.table.prefetch import RowSource
from tablecrypt.table.protection.visible_columns import ERROR, visible_columns
from tablecrypt.table.restrictions.read_restrictions import RestrictedRows, refuse_restricted, restrictions_of

LOCAL_TOGETHER: Final = 1024 * 1024
"""Local files of which so many bytes are read together are read by one thread, one after another: a thread for each takes longer."""
_POSITION: Final = "__tablecrypt_position"
_LARGE: Final = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


@dataclass(frozen=True)
class _Projection:
    """How the columns of one file become those of the scan.

    Attributes:
        unchanged: of batches in this schema the wanted columns are these, as they are, in that schema.
    """

    read: Schema
    missing: dict[int, Any]
    row_filter: pc.Expression | None
    unchanged: dict[pa.Schema, tuple[list[int], pa.Schema]] = dataclasses.field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        return [column.name for column in self.read.columns]


class TaskReader:
    """Reads the tasks of one scan; used by many threads.

    Args:
        table_metadata: for the schema, partition specs and name mapping.
        io: the table's EncryptingFileIO.
        projected: the columns of the result; may hold the lineage fields.
        row_filter: unbound, on the table's schema.
        dictionary_columns: columns to return as Arrow dictionaries, from Parquet files.
        read_ahead: how many bytes of a Parquet file may be fetched ahead; None: all that the columns and the filter need.
        masked: what is done about protected columns whose keys may not be used: `mask`, or `error` where values are needed.

    Raises:
        ColumnKeyDeniedError: values of a protected column are needed that the reader may not see.
    """

    def __init__(
        self,
        table_metadata: TableMetadata,
        io: EncryptingFileIO,
        projected: Schema,
        row_filter: BooleanExpression,
        case_sensitive: bool = True,
        dictionary_columns: tuple[str, ...] = (),
        read_ahead: int | None = None,
        masked: str = ERROR,
    ) -> None:
        self._table_metadata = table_metadata
        self.io = io
        self._projected = projected
        self._row_filter = row_filter
        self._bound_filter = bind(table_metadata.schema(), row_filter, case_sensitive=case_sensitive)
        filtered, seen = extract_field_ids(self._bound_filter), projected
        if not isinstance(self._bound_filter, AlwaysTrue):
            compared = pruned(table_metadata.schema(), filtered)
            check_evaluable(compared, expression_to_pyarrow(self._bound_filter, compared))
        self._may_prune = may_prune_row_groups(self._bound_filter)
        self._case_sensitive = case_sensitive
        restrictions = restrictions_of(io)
        self._restricted: RestrictedRows | None = None

        if restrictions is not None:
            self._restricted = RestrictedRows(restrictions, table_metadata.schema(), projected, self._bound_filter)
            # The server's filter is for true values: of a protected column, the reader has to have them.
            filtered, seen = filtered | self._restricted.filtered, self._restricted.columns
            # Filters and masks are for plain columns; and a filter on masked values is not for stored ones.
            dictionary_columns = ()
            self._bound_filter = ALWAYS_TRUE if self._restricted.filters_masks else self._bound_filter

        self._visible = visible_columns(table_metadata, io, seen, filtered, masked)
        self._dictionary_columns = dictionary_columns
        self._read_ahead = read_ahead
        self._deletes = DeleteReader(io, table_metadata)
        self._stored_schemas: dict[bytes, Schema] = {}
        self._projections: dict[tuple[int, tuple[int, ...]], _Projection] = {}

    @property
    def may_prune(self) -> bool:
        """Whether the statistics of a file's row groups may rule them out by the filter."""
        return self._may_prune

    def filter_on(self, columns: Schema) -> pc.Expression | None:
        """Return the filter for Arrow, on columns that may have other names than the table's; None where all rows pass."""
        return self._arrow_filter(columns, {})

    def stores(self, stored: pa.Schema, columns: Schema) -> bool:
        """Whether a file with that schema stores all of these columns as they are: with their field ids, names and types."""
        by_id, named = {field.field_id: field for field in self._stored_schema(stored).fields}, Counter(stored.names)
        for field, expected in zip(columns.fields, schema_to_pyarrow(columns, include_field_ids=False), strict=True):
            found = by_id.get(field.field_id)
            if found is None or found.name != field.name or found.field_type != field.field_type:
                return False
            if named[field.name] != 1 or not _is_read_as(stored.field(field.name).type, expected.type):
                return False

        return True

    def opened(self, task: FileScanTask) -> AbstractContextManager[OpenedFile]:
        """Open a task's data file, with what this read sees of protected columns."""
        number = task.data_sequence_number if isinstance(task, EncryptedFileScanTask) else None
        return opened_file(self.io, task.file, self._dictionary_columns, self._visible, number)

    def batches(self, task: FileScanTask) -> Iterator[pa.RecordBatch]:
        """Yield a task's rows; none of the batches is empty.

        Raises:
            PlaintextRefusedError: the data file or a delete file has no key, or is plaintext.
            TamperedFileError: one of them is not what was written.
            FormatError: one of them cannot be read, or deletes do not fit their data file.
            ReadRestrictionError: a value cannot be masked as the catalog's server requires.
        """
        deletes = self._deletes.deletes_of(task)
        for _, rows in self._live_rows(task, deletes):
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
        return len(stored & self._field_ids_to_read(self._projected)) / max(1, len(stored))

    def _source(self, tasks: list[FileScanTask]) -> RowSource[pa.RecordBatch]:
        rows = partial(itertools.chain.from_iterable, map(self.batches, tasks))
        file = tasks[0].file
        # Nothing is won by reading more local files at once than there are workers.
        return RowSource(rows) if is_local(file.file_path) else RowSource(rows, file.file_size_in_bytes)

    def positioned_batches(self, task: FileScanTask) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        """Yield a task's rows with their positions in the data file. The reader must project _row_id, which makes positions known.

        Raises:
            ReadRestrictionError: the table's reader is restricted: positions are for changing the rows that lie there.
            Others as `batches`.
        """
        refuse_restricted(self.io, "changing rows")
        deletes = self._deletes.deletes_of(task)
        for positions, rows in self._live_rows(task, deletes):
            if positions is not None:
                yield positions, rows

    def matching_positions(self, task: FileScanTask) -> pa.ChunkedArray:
        """Return where those of a task's rows lie in their data file that a delete by the filter takes, which may be fewer than match it.

        Only the columns of the filter are read. The reader must project _row_id, which makes positions known.

        Raises:
            As `positioned_batches`.
        """
        refuse_restricted(self.io, "changing rows")
        deletes = self._deletes.deletes_of(task)
        delete = self._delete_filter
        matching: list[pa.Array] = []
        for positions, rows in self._live_rows(task, deletes, delete.columns):
            if positions is not None:
                at = pa.table([positions, *rows.columns], names=[_POSITION, *rows.schema.names])
                matching += delete.deleted(at).column(_POSITION).chunks

        return pa.chunked_array(matching, pa.int64())

    @cached_property
    def _delete_filter(self) -> DeleteFilter:
        return DeleteFilter(self._table_metadata.schema(), self._row_filter, self._case_sensitive)

    def _live_rows(
        self, task: FileScanTask, deletes: TaskDeletes, projected: Schema | None = None
    ) -> Iterator[tuple[pa.Array | None, pa.RecordBatch]]:
        """Yield a task's rows without the deleted ones, with their positions where these are known.

        Args:
            projected: the columns of the rows; None for the reader's own.
        """
        restricted = self._restricted
        if restricted is not None:
            projected = restricted.columns
        projected = self._projected if projected is None else projected
        wanted = self._with_equality_columns(task, projected)

        with self.opened(task) as opened:
            projection = self._projection(opened, task.file, wanted)
            part = task.part if isinstance(task, EncryptedFileScanTask) else None
            for stored_positions, batch in self._rows(opened, projection, deletes, part):
                if not batch.num_rows:
                    continue

                rows = self._projected_rows(task, wanted, projection, stored_positions, batch)
                positions, rows = _without_equal(stored_positions, rows, deletes)
                # Columns that only the equality deletes compare are not part of the result.
                rows = rows.select(list(range(len(projected.fields))))
                if restricted is not None and rows.num_rows:
                    # The restrictions drop rows, so the positions fit no longer. Changing rows by position was refused before.
                    positions, rows = None, restricted.applied(rows)
                if rows.num_rows:
                    yield positions, rows

    def _rows(
        self, opened: OpenedFile, projection: _Projection, deletes: TaskDeletes, part: FilePart | None
    ) -> Iterator[tuple[pa.Array | None, pa.RecordBatch]]:
        """Yield stored rows that are not deleted by position and pass the filter, with positions where they are needed."""
        gives_positions = ROW_ID.field_id in self._projected.field_ids
        if self._may_prune and deletes.positions is None and not gives_positions:
            for batch in opened.batches(projection.columns, projection.row_filter, self._read_ahead, part):
                yield None, batch
            return

        prune_by = projection.row_filter if self._may_prune else None
        for stored in opened.positioned_batches(projection.columns, prune_by, self._read_ahead, part):
            mask = _live_mask(stored, deletes, projection.row_filter)
            positions = stored.positions if gives_positions else None
            yield positions if positions is None or mask is None else positions.filter(mask), kept(stored.batch, mask)

    def _projected_rows(
        self, task: FileScanTask, wanted: Schema, projection: _Projection, positions: pa.Array | None, batch: pa.RecordBatch
    ) -> pa.RecordBatch:
        if not wanted.fields:
            return batch.select([])
        rows = _in_columns(wanted, projection, batch)
        if not LINEAGE_FIELD_IDS & wanted.field_ids:
            return rows
        return self._with_inherited_lineage(task, wanted, positions, rows)

    def _with_inherited_lineage(
        self, task: FileScanTask, wanted: Schema, positions: pa.Array | None, rows: pa.RecordBatch
    ) -> pa.RecordBatch:
        for at, field in enumerate(wanted.fields):
            if field.field_id == ROW_ID.field_id and positions is not None:
                column = inherit_row_ids(rows.column(at), positions, EncryptedDataFile.of(task.file).first_row_id)
            elif field.field_id == LAST_UPDATED.field_id:
                number = task.data_sequence_number if isinstance(task, EncryptedFileScanTask) else None
                column = inherit_sequence_numbers(rows.column(at), number)
            else:
                continue

            rows = rows.set_column(at, rows.schema.field(at), column)

        return rows

    def _with_equality_columns(self, task: FileScanTask, projected: Schema) -> Schema:
        compared = self._deletes.equality_fields_of(task).fields
        if not compared:
            return projected

        known = {field.field_id for field in projected.fields}
        if self._visible is not None:
            # Compared by its mask, a protected column would let the delete take other rows than it means.
            self._visible.check_compared(task.file.file_path, {field.field_id for field in compared}, self._table_metadata.schema())
        return Schema(*projected.fields, *(field for field in compared if field.field_id not in known))

    def _projection(self, opened: OpenedFile, file: DataFile, wanted: Schema) -> _Projection:
        stored = self._stored_schema(opened.schema)
        missing = column_projection_values(
            file, wanted, self._table_metadata.schema(), self._table_metadata.specs().get(file.spec_id), stored.field_ids
        )
        # Values of partitions differ from file to file, so such a projection is not shared.
        if missing:
            return self._made_projection(stored, wanted, missing)

        # What a scan's files have in common is worked out once.
        # The reader keeps its stored schemas, so no other object can get this id.
        key = (id(stored), tuple(column.field_id for column in wanted.fields))
        known = self._projections.get(key)
        if known is None:
            known = self._projections[key] = self._made_projection(stored, wanted, missing)
        return known

    def _made_projection(self, stored: Schema, wanted: Schema, missing: dict[int, Any]) -> _Projection:
        read = pruned(stored, self._field_ids_to_read(wanted))
        return _Projection(read, missing, self._arrow_filter(stored, missing))

    def _field_ids_to_read(self, wanted: Schema) -> set[int]:
        leaves = {each for each in wanted.field_ids if not isinstance(wanted.find_type(each), (MapType, ListType))}
        return leaves | extract_field_ids(self._bound_filter)

    def _arrow_filter(self, stored: Schema, missing: dict[int, Any]) -> pc.Expression | None:
        if isinstance(self._bound_filter, AlwaysTrue):
            return None
        translated = translate_column_names(self._bound_filter, stored, case_sensitive=self._case_sensitive, projected_field_values=missing)
        return expression_to_pyarrow(bind(stored, translated, case_sensitive=self._case_sensitive), stored)

    def _stored_schema(self, arrow_schema: pa.Schema) -> Schema:
        # Most files of a table have the same columns, and converting the schema costs more than reading a small file.
        key = arrow_schema.serialize().to_pybytes()
        stored = self._stored_schemas.get(key)
        if stored is None:
            stored = _converted(key, self._table_metadata.properties.get(TableProperties.DEFAULT_NAME_MAPPING))
            self._stored_schemas[key] = stored
        return stored


@lru_cache(maxsize=64)
def _converted(serialized: bytes, name_mapping: str | None) -> Schema:
    """Return an Arrow schema, as it is serialized, as Iceberg's. Kept from one scan to the next, whose files have the same columns."""
    mapping = parse_mapping_from_json(name_mapping) if name_mapping else None
    arrow_schema = pa.ipc.read_schema(pa.py_buffer(serialized))
    return pyarrow_to_schema(arrow_schema, mapping, downcast_ns_timestamp_to_us=False, format_version=FORMAT_VERSION)


def may_prune_row_groups(bound: BooleanExpression, negated: bool = False) -> bool:
    """Whether no part of a bound filter is about a uuid or can be true of NaN.

    Args:
        negated: whether the filter stands under a `not`.
    """
    if isinstance(bound, (And, Or)):
        return may_prune_row_groups(bound.left, negated) and may_prune_row_groups(bound.right, negated)
    if isinstance(bound, Not):
        return may_prune_row_groups(bound.child, not negated)
    if not isinstance(bound, BoundPredicate):
        return True

    field_type = bound.term.ref().field.field_type
    if isinstance(field_type, (FloatType, DoubleType)):
        return not negated and not isinstance(bound, (BoundIsNaN, BoundNotEqualTo, BoundNotIn))

    return not isinstance(field_type, UUIDType)


def _in_columns(wanted: Schema, projection: _Projection, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return stored rows in the wanted columns."""
    known = projection.unchanged.get(batch.schema)
    if known is not None:
        places, schema = known
        return pa.RecordBatch.from_arrays([batch.column(at) for at in places], schema=schema)

    rows = to_requested_schema(
        wanted,
        projection.read,
        batch,
        downcast_ns_timestamp_to_us=False,
        projected_missing_fields=projection.missing,
        allow_timestamp_tz_mismatch=True,
    )
    unchanged = _unchanged(wanted, projection.read, batch.schema, rows.schema)
    if unchanged is not None:
        projection.unchanged[batch.schema] = unchanged, rows.schema
    return rows


def _unchanged(wanted: Schema, read: Schema, before: pa.Schema, after: pa.Schema) -> list[int] | None:
    """Where each wanted column is in a stored batch. None: one is nested, missing, or of another type there."""
    stored = {column.field_id: column for column in read.fields}
    places: list[int] = []
    for column, made in zip(wanted.fields, after, strict=True):
        found = stored.get(column.field_id)
        if found is None or found.field_type != column.field_type or not column.field_type.is_primitive:
            return None

        at = before.get_field_index(found.name)
        if at < 0 or before.field(at).type != made.type:
            return None

        places.append(at)

    return places


def _is_read_as(stored: pa.DataType, expected: pa.DataType) -> bool:
    """Whether Arrow's scanner gives one type as the other, at most with wider offsets."""
    return bool(stored == expected or _LARGE.get(stored) == expected)


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


def cast_batch(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows in the types of a schema whose columns are theirs, in that order."""
    columns = [column.cast(field.type) for column, field in zip(castable(rows).columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
