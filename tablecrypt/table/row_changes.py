"""What changes in the rows and files of a table, before a producer commits it: delete, update, add, upsert.

    found rows: (file, positions) ──copy-on-write──▶ those files are written again without the rows
                                  ──merge-on-read──▶ deletion vectors (deletes.py), written when the change is staged
    new files                     ──────────────────▶ added

Rows leave their data files in one of these two ways, as the table's properties say. `EncryptedTransaction.stage_rows` makes one snapshot of
a change, whoever found and wrote it: a table, Spark or Ray.

A row that only moves keeps its `_row_id` and its `_last_updated_sequence_number`.

A Parquet file that is encrypted already is added only with the key metadata that opens it: its footer is decrypted and authenticated here,
and the statistics for the manifest come from it. Plaintext is refused, since nothing would encrypt it afterwards.

An upsert finds which rows of a table have the keys of new rows, which of them differ, and what takes their place:

    keys of the new rows ──ranges──▶ files that may hold them ──key columns alone──▶ files that do ──all columns──▶ rows that differ
                                                                                     └─ joined by column, with positions ─┘

A key is the values of the key columns; keys are compared as columns, never row by row. Files without a match are read no further than
their key columns. Of a file with rows that differ, the positions of these rows go into a deletion vector (merge-on-read), or the file is
written again without them (copy-on-write): a short file from the same read that compared them, a long one from another, so that no long
file is ever in memory as a whole. Two files are compared at a time.

An updated row keeps the `_row_id` of the row that it replaces, and its `_last_updated_sequence_number` is left null, so that it becomes the
sequence number of the commit.

Iceberg table spec, "Row Lineage" and "Deletion Vectors".
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Final, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual, Or, Reference
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE, TableProperties, upsert_util
from pyiceberg.table.snapshots import IsolationLevel, Operation
from pyiceberg.types import DateType, IntegerType, LongType, StringType
from pyroaring import BitMap64

from tablecrypt._arrow_types import cast_values, with_leaves
from tablecrypt.arguments import names_of
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError, PlaintextRefusedError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, encrypting_io
from tablecrypt.iceberg_properties import ROW_MODES
from tablecrypt.parquet.dictionaries import keeps_unused_values
from tablecrypt.parquet.text_columns import plain_schema
from tablecrypt.parquet.uniform import UniformParquetFile
from tablecrypt.setting_kinds import one_of
from tablecrypt.table._pyiceberg.arrow import check_pyarrow_schema_compatible, stored_as, stored_schema
from tablecrypt.table.arrow_filter import comparable
from tablecrypt.table.deletes import row_numbers
from tablecrypt.table.filters import fitted
from tablecrypt.table.lineage import LAST_UPDATED, ROW_ID, with_lineage
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.parquet_options import FileStatistics
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.reader import READ_AHEAD, PositionedRows, RowSource, among, prefetched, remaining_rows
from tablecrypt.table.scan import EncryptedDataScan
from tablecrypt.table.table_files import TableFileIO, removing_on_error
from tablecrypt.table.write import write_data_files

_Column = TypeVar("_Column", pa.Array, pa.ChunkedArray)
_WORKERS: Final = 3
FEW_KEYS: Final = 200
"""PyIceberg holds so many values of a filter against the bounds of a file; with more it reads every file."""
_RANGES: Final = 8
_HELD_BYTES: Final = 64 * 1024 * 1024
"""Reading again takes longer, and a file's rows may take ten times its length."""
_ORDERED: Final = (IntegerType, LongType, DateType, StringType)
_FOUND: Final = pa.schema([("position", pa.int64()), ("number", pa.int64())])
_DIFFERING: Final = pa.schema([*_FOUND, ("row_id", pa.int64())])

Positions: TypeAlias = npt.NDArray[np.int64]
"""Of rows in a data file, ascending."""


@dataclass
class RowChange:
    """What was found and written, before it is committed."""

    conflicts_with: BooleanExpression = ALWAYS_TRUE
    """Rows that other writers must not have changed in the meantime."""
    dropped: list[DataFile] = field(default_factory=list)
    """Data files that are removed as a whole."""
    position_deleted: list[tuple[EncryptedFileScanTask, BitMap64]] = field(default_factory=list)
    """Data files that lose some of their rows, with the positions of these rows."""
    rewritten: list[DataFile] = field(default_factory=list)
    """New files with the remaining rows of dropped files."""
    added: list[DataFile] = field(default_factory=list)
    """New rows."""
    write_uuid: uuid.UUID = field(default_factory=uuid.uuid4)
    """Part of the names of files that are written for it."""
    is_merge: bool = False
    """Whether rows were looked for one by one: a snapshot that only adds rows is an append then, and that of an overwrite never is."""

    def __bool__(self) -> bool:
        return bool(self.dropped or self.position_deleted or self.rewritten or self.added)

    @property
    def written(self) -> list[DataFile]:
        """Data files that exist for this change alone."""
        return [*self.rewritten, *self.added]

    @property
    def takes_out(self) -> bool:
        """Whether rows that the table has go out of it."""
        return bool(self.dropped or self.position_deleted)

    @property
    def operation(self) -> Operation:
        """What its snapshot does to the table, as Iceberg Java has it: streams read the rows of appends alone."""
        if self.is_merge and not self.takes_out:
            return Operation.APPEND
        return self.isolated_as

    @property
    def isolated_as(self) -> Operation:
        """Whose isolation level counts: what a merge adds depends on rows that it has looked for, also where it found none."""
        return Operation.OVERWRITE if self.written else Operation.DELETE


def marks_rows(properties: Mapping[str, str], *commands: str) -> bool:
    """Whether a table's rows are marked in deletion vectors, and files not written again: the first of the commands with a mode says it.

    Args:
        properties: the table's.
        commands: delete, update or merge; of an upsert merge, then update.

    Raises:
        ConfigurationError: the mode is neither copy-on-write nor merge-on-read.
    """
    command = next((each for each in commands if ROW_MODES[each].name in properties), commands[0])
    return ROW_MODES[command].chosen(properties) == TableProperties.DELETE_MODE_MERGE_ON_READ


def isolation_level(level: str, name: str) -> IsolationLevel:
    """Return an isolation level by its name, as a property or an option says. ConfigurationError for any other name."""
    return IsolationLevel(one_of(name, level, (each.value for each in IsolationLevel)))


def deleted_rows(scan: EncryptedDataScan, by_vectors: bool) -> RowChange:
    """Return the change that deletes the rows which match a scan's filter; copies of files without them are written.

    Args:
        scan: the table, the branch and the filter of the rows to delete. For deletion vectors only the columns of the filter are read.
        by_vectors: mark the rows, and write no file again.
    """
    if not by_vectors:
        return _rewritten_without(scan)

    matching = ((task, BitMap64(scan.matching_positions(task).to_pylist())) for task in scan.plan_files())
    return RowChange(scan.row_filter, position_deleted=[(task, positions) for task, positions in matching if positions])


def _rewritten_without(scan: EncryptedDataScan) -> RowChange:
    """Write every data file again that holds matching rows, without those rows."""
    counter = itertools.count(0)
    change = RowChange(scan.row_filter)

    with removing_on_error(encrypting_io(scan.io), change.rewritten):
        for task in scan.plan_files():
            # Statistics only say that rows may match: a file without one stays, with its key and its place.
            if len(matching := scan.matching_positions(task)):
                change.dropped.append(task.file)
                change.rewritten += _written_again(scan, task, matching.to_numpy(), change.write_uuid, counter)

    return change


def _written_again(
    scan: EncryptedDataScan,
    task: EncryptedFileScanTask,
    gone: Positions,
    write_uuid: uuid.UUID,
    counter: itertools.count[int],
    held: list[PositionedRows] | None = None,
) -> list[DataFile]:
    metadata, io = scan.table_metadata, cast("TableFileIO", scan.io)
    return write_data_files(metadata, remaining_rows(metadata, io, task, gone, held), io, io.manager, write_uuid, counter)


def key_columns(df: pa.Table, schema: Schema, join_cols: list[str] | None) -> list[str]:
    """Return the columns that say which row is which.

    Args:
        df: the rows, at most one for each key.
        schema: the table's.
        join_cols: the key columns; None for the schema's identifier fields.

    Raises:
        ConfigurationError: `join_cols` are no names.
        ValueError: there are no key columns, or a key occurs twice.
        KeyError: a key column is not in `df`.
    """
    keys = list(dict.fromkeys(names_of("join_cols", join_cols))) if join_cols is not None else identifier_columns(schema)
    if not keys:
        raise ValueError("Join columns could not be found, please set identifier-field-ids or pass in explicitly.")
    if has_duplicates(df, keys):
        raise ValueError("Duplicate rows found in source dataset based on the key columns. No upsert executed")
    return keys


def has_duplicates(rows: pa.Table, keys: list[str]) -> bool:
    """Whether several rows have the same key."""
    return upsert_util.has_duplicate_rows(_groupable(rows.select(keys)), keys)


def identifier_columns(schema: Schema) -> list[str]:
    """Return the names of the schema's identifier fields."""
    columns = []
    for field_id in schema.identifier_field_ids:
        name = schema.find_column_name(field_id)
        if name is None:
            raise ValueError(f"Field-ID could not be found: {field_id}")
        columns.append(name)

    return columns


def encrypted_files_to_data_files(
    metadata: EncryptedTableMetadata, io: EncryptingFileIO, paths: list[str], key_metadata: Mapping[str, StandardKeyMetadata | bytes]
) -> Iterator[DataFile]:
    """Yield a manifest entry's data file for each path.

    Raises:
        PlaintextRefusedError: a path has no key metadata, or the file is plaintext.
        FormatError: a file's key metadata is not StandardKeyMetadata version 1.
        TamperedFileError: a file does not open with its key, or has another length than its key metadata says.
        ConfigurationError: a file holds values that none of its rows has.
        ValueError: a file's schema does not fit the table's, or its footer does not tell which partition it is in.
    """
    for path in paths:
        given = key_metadata.get(path)
        if given is None:
            raise PlaintextRefusedError(path, "add_files takes only encrypted files: give its key in key_metadata={path: ...}")
        yield _data_file(metadata, io, path, _decoded(path, given))


def _decoded(path: str, given: StandardKeyMetadata | bytes) -> StandardKeyMetadata:
    if isinstance(given, StandardKeyMetadata):
        return given
    try:
        return StandardKeyMetadata.decode(given)
    except FormatError as error:
        raise FormatError(f"{path}: its key metadata: {error}") from error


def _data_file(metadata: EncryptedTableMetadata, io: EncryptingFileIO, path: str, key_metadata: StandardKeyMetadata) -> DataFile:
    source = io.raw_input(path)
    length = len(source)
    schema = metadata.schema()

    with source.open() as stream:
        file = UniformParquetFile(stream, key_metadata, path, dictionary_columns=None)
        columns = plain_schema(file.schema)
        check_pyarrow_schema_compatible(schema, columns, format_version=3)
        # Whoever gets other rows of the table could get this one with them, and its key.
        if keeps_unused_values(file):
            raise ConfigurationError(
                f"{path}: its columns are dictionaries (categories), of which values are stored that none of its rows has: write it again "
                "without them (pandas: cat.remove_unused_categories()), or append its rows"
            )
        footer = file.footer()
        mapping = (metadata.name_mapping() or schema.name_mapping).model_dump_json()
        stored = stored_schema(columns.serialize().to_pybytes(), mapping, path)
    statistics = FileStatistics.of_others(stored, schema, metadata.properties)

    data_file = DataFile.from_args(
        _table_format_version=3,
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=statistics.partition(footer, metadata.spec(), schema, path),
        file_size_in_bytes=length,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=key_metadata.with_file_length(length).encode(),
        **statistics.read(footer),
    )
    data_file.spec_id = metadata.default_spec_id

    return data_file


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
    _written: list[DataFile] = field(default_factory=list)

    def plan(self, update_matched: bool = True, insert_unmatched: bool = True) -> UpsertPlan:
        """Find the rows, and write the files again that hold rows which differ, unless these are position-deleted.

        Args:
            update_matched: whether rows that differ from their match are updated.
            insert_unmatched: whether rows without a match are inserted.

        Raises:
            ConfigurationError: a key is null or NaN; or the rows have not all columns of the table, and some would be updated.
            ValueError: a key occurs twice in the table.
        """
        matched = self._checked_matches()
        numbers = _combined([each.found for each in matched], _FOUND).column("number")
        with removing_on_error(encrypting_io(self.scan.io), self._written):
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
                raise ConfigurationError(f"the key column {key} has nulls, which are equal to nothing: an upsert cannot find their rows")
            if pa.types.is_floating(self.rows.schema.field(key).type) and pc.any(pc.is_nan(self.rows.column(key))).as_py():
                raise ConfigurationError(f"the key column {key} has NaN, which is equal to nothing: an upsert cannot find its rows")
        return list(self._matched()) if self.rows.num_rows else []

    def _without(self, numbers: pa.ChunkedArray) -> pa.Table:
        """Return the rows but those with these numbers."""
        return self.rows.filter(pc.invert(pc.is_in(pa.arange(0, self.rows.num_rows), value_set=numbers.combine_chunks())))

    @property
    def _schema(self) -> Schema:
        return self.scan.table_metadata.schema()

    def _matched(self) -> Iterator[_Matched]:
        key_fields = [self._schema.find_field(key) for key in self.keys]
        typed = (_as_type(self.rows.column(each.name), schema_to_pyarrow(each.field_type)) for each in key_fields)
        keys = pa.table(_with_one_zero(typed), names=self.keys)
        scan = self.scan.filter(keys_filter(keys, self._schema))
        reader = scan.reader_of(Schema(*key_fields, ROW_ID))

        def matched(task: EncryptedFileScanTask) -> Iterator[_Matched]:
            parts: list[pa.RecordBatch] = []
            for positions, rows in reader.positioned_batches(task):
                numbers = row_numbers(keys, pa.record_batch(_with_one_zero(rows.columns), schema=rows.schema), self.keys)
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
            raise ConfigurationError(f"the rows of an upsert have all columns of the table; these lack {', '.join(missing)}")
        sources = (RowSource(partial(self._change, each)) for each in matched)
        return list(prefetched(sources, _WORKERS - 1, 1))

    def _change(self, matched: _Matched) -> Iterator[_Change]:
        """Yield the change of one file, if any row differs."""
        parts: list[pa.RecordBatch] = []
        known, numbers = (matched.found.column(name).to_numpy() for name in _FOUND.names)
        is_short = matched.task.file.file_size_in_bytes <= _HELD_BYTES
        held: list[PositionedRows] | None = [] if is_short and not self.by_vectors else None
        reader = self.scan.reader_of(with_lineage(self._schema), None if is_short else READ_AHEAD)

        for positions, rows in reader.positioned_batches(matched.task):
            is_here, at = among(known, positions)
            here, existing = pa.array(numbers[is_here]), rows.take(at)
            columns = [pa.array(known[is_here]), here, existing.column(ROW_ID.name)]
            parts.append(pa.record_batch(columns, schema=_DIFFERING).filter(self._differ(here, existing)))
            if held is not None:
                held.append((positions, rows))

        differing = pa.Table.from_batches(parts, _DIFFERING)
        if differing.num_rows:
            yield _Change(matched.task, differing, [] if self.by_vectors else self._rewritten(matched.task, differing, held))

    def _differ(self, numbers: pa.Array, existing: pa.RecordBatch) -> pa.Array:
        """Which rows differ from the new ones with these numbers in any column."""
        others = [name for name in self.rows.column_names if name not in self.keys]
        each = (_unequal(self.rows.column(name).take(numbers), existing.column(name)) for name in others)
        return reduce(pc.or_, each, pa.repeat(pa.scalar(False), len(numbers)))

    def _rewritten(self, task: EncryptedFileScanTask, differing: pa.Table, held: list[PositionedRows] | None) -> list[DataFile]:
        gone = differing.column("position").to_numpy()
        files = _written_again(self.scan, task, gone, self._replaced.write_uuid, self._counter, held)
        self._written.extend(files)
        return files

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
        typed = [_as_type(keys.column(name), schema_to_pyarrow(schema.find_type(name))) for name in keys.column_names]
        named = _groupable(pa.table(typed, names=keys.column_names))
        return fitted(upsert_util.create_match_filter(named, named.column_names), schema)
    ranges = (_ranges(name, keys.column(name)) for name in keys.column_names if isinstance(schema.find_type(name), _ORDERED))
    every: BooleanExpression = AlwaysTrue()
    return reduce(And, ranges, every)


def _groupable(keys: pa.Table) -> pa.Table:
    """Return keys in types that Arrow groups and filters take: uuids as their bytes, dates and times as whole numbers."""
    columns = (comparable(_as_type(column, stored_as(column.type))) for column in keys.columns)
    return pa.table(_with_one_zero(columns), names=keys.column_names)


def _with_one_zero(columns: Iterable[_Column]) -> list[_Column]:
    """Return columns in which -0.0 is 0.0: the two are equal, as filters and SQL have it, and Arrow groups and joins by bits."""
    floats = pa.float32(), pa.float64()
    return [pc.add(column, pa.scalar(0.0, column.type)) if column.type in floats else column for column in columns]


def _ranges(name: str, values: pa.ChunkedArray) -> BooleanExpression:
    """A few ranges that hold all values. Whole numbers are parted at the greatest gaps between them."""
    ordered = comparable(_as_type(values, stored_as(values.type))).combine_chunks()
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

    return reduce(Or, each)


def _unequal(new: pa.ChunkedArray, existing: pa.Array) -> pa.Array:
    """Which values differ: null is equal to null, and NaN to nothing."""
    if pa.types.is_null(existing.type):
        # A column of type unknown has nothing but nulls, which Arrow does not compare.
        return pa.repeat(False, len(existing))
    one = _as_type(new, existing.type).combine_chunks()
    if pa.types.is_nested(existing.type):
        # Arrow compares no nested values, and Python has not every date and time.
        kind = with_leaves(existing.type, stored_as)
        both = zip(cast_values(one, kind).to_pylist(), cast_values(existing, kind).to_pylist(), strict=True)
        return pa.array([mine != theirs for mine, theirs in both], pa.bool_())
    one, other = comparable(one), comparable(existing)
    return pc.or_(pc.fill_null(pc.not_equal(one, other), False), pc.xor(one.is_null(), other.is_null()))


def _as_type(values: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    return values if values.type == wanted else values.cast(wanted)


def _combined(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables(tables) if tables else pa.Table.from_batches([], schema)
