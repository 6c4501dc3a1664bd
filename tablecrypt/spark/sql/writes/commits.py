"""Writes of Spark SQL: where tasks put their files, and the commit of what they report.

    begin_write    ─▶ what tasks get: columns with field ids, the public key that results are encrypted to, settings;
                      of a table with protected columns, what Python writes files with where tasks run (portable.py)
    file_location  a task's request for its next file ─▶ the location (shared/coordinator.py)
    commit_write   the tasks' encrypted results ─▶ one snapshot
    abort_write    ─▶ no file of the write is left

    mode = append | overwrite, of all rows or of those that "filter" matches | overwrite_partitions
         | delta, groups: a row-level change by merge-on-read or copy-on-write (row_level.py)

A write ends with its commit or abort. Its private key goes then, so results of tasks that are late open nowhere. Files of attempts that did
not win are deleted before the commit; where it is certain that nothing was committed, those that won are deleted too.

Rows of a change carry `_row_id` and `_last_updated_sequence_number` in two more columns of their files, null for new rows.

A micro-batch of a stream is a write with a query id and a batch id, which the snapshot keeps: a batch that the branch holds is not
committed again (commit.py).

Metrics are what Spark's UI shows of a write: Iceberg's, under Iceberg's names (java/WriteMetrics.java describes them), numbers of files,
rows and bytes from the summary of the write's snapshot, never a value of a row. Iceberg counts deletion vectors apart and does not show
them; here they are position deletes, which they are by the specification.

Raises:
    AlreadyAddedError: add_files has copied the rows' files into the table before.
    ColumnKeyDeniedError: this user may not read a protected column, and rows may hold its masks; or may not wrap under its key either.
    ConfigurationError: before tasks run, for a table, a mode or an option that is not served; after they ran, where the table's schema or
        partitioning was changed meanwhile.
    AuthenticationError: a result was changed on its way, or names files that its task was not given.
    FormatError: a request or result that is malformed.
    CommitFailedException, ValidationException: others were faster, or changed rows that this write replaces. Nothing is committed.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.types import UUIDType
from pyroaring import BitMap64

from tablecrypt.engines.changes import check_unchanged
from tablecrypt.errors import ColumnKeyDeniedError, ConfigurationError, FormatError, TablecryptError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, refuse_restricted
from tablecrypt.manifests.records import DATA_FILE_POSITIONS
from tablecrypt.spark.commit import BatchAlreadyCommittedError, BatchMarker, check_can_replace_partitions
from tablecrypt.spark.shared.coordinator import FileLocations
from tablecrypt.spark.shared.parquet_settings import TARGET_FILE_SIZE, unsupported_codec, write_settings
from tablecrypt.spark.shared.schema import inner_ids, names_that_spark_confuses, stored_json, unwritten_type, written_by_python
from tablecrypt.spark.shared.task_keys import ResultKey
from tablecrypt.spark.shared.written_columns import stored_fields, unsupported_partitioning
from tablecrypt.spark.shared.written_files import FileOfPython, check_found, opened_results
from tablecrypt.spark.sql.catalogs import described_partitioning
from tablecrypt.spark.sql.messages import NOTHING, Request, Response, operation
from tablecrypt.spark.sql.writes.distribution import sort_order_of
from tablecrypt.spark.sql.writes.python_writes import content_for_tasks, with_column_keys
from tablecrypt.spark.sql.writes.row_level import NamedScan, changed_rows, merge_counts, scans_of, whole_files
from tablecrypt.spark.sql.writes.source_columns import SourceColumns, merged_metadata
from tablecrypt.spark.sql.writes.write_audit_publish import with_branch
from tablecrypt.spark.sql.writes.write_options import VALIDATE_FROM, SqlWriteOptions, WriteRequest, checked_since, in_asked_spec
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.spark.write import Mode, WriteOptions, commit_change, commit_written
from tablecrypt.table.conflicts import ConflictCheck, in_partitions_of, may_match
from tablecrypt.table.lineage import with_lineage
from tablecrypt.table.metadata import isolation_of
from tablecrypt.table.parquet_options import parquet_writer_options, target_file_size
from tablecrypt.table.protection.policy import policy_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from tablecrypt.spark.sql.planner import LoadedTable, Planner
    from tablecrypt.spark.sql.writes.copies import Copy
    from tablecrypt.table.row_changes import RowChange
    from tablecrypt.table.transaction import EncryptedTransaction

logger = logging.getLogger(__name__)

_DELTA: Final = "delta"
_ROW_LEVEL: Final = (_DELTA, "groups")
_DELETE: Final = "delete"
_MERGE: Final = "merge"
_OVERWRITES: Final = ("overwrite", "overwrite_partitions")
_MODES: Final = ("append", *_OVERWRITES, *_ROW_LEVEL)
_DEK_LENGTH: Final = "tablecrypt.dek-length"
_REWRITTEN: Final = "it writes rows again that it reads"
_READS_MASKS: Final = "it reads masks of"
"""What java/ProtectedColumn.java says of a column of which it is known."""
_UNKNOWN: Final = "Spark does not say where its rows come from"
_SUMMARY_FIELDS: Final = {
    "addedDataFiles": "added-data-files",
    "addedDeleteFiles": "added-delete-files",
    "addedEqualityDeleteFiles": "added-equality-delete-files",
    "addedEqualityDeletes": "added-equality-deletes",
    "addedFileSizeInBytes": "added-files-size",
    "addedPositionalDeleteFiles": "added-position-delete-files added-dvs",
    "addedPositionalDeletes": "added-position-deletes",
    "addedRecords": "added-records",
    "removedDataFiles": "deleted-data-files",
    "removedDeleteFiles": "removed-delete-files",
    "removedEqualityDeleteFiles": "removed-equality-delete-files",
    "removedEqualityDeletes": "removed-equality-deletes",
    "removedFileSizeInBytes": "removed-files-size",
    "removedPositionalDeleteFiles": "removed-position-delete-files removed-dvs",
    "removedPositionalDeletes": "removed-position-deletes",
    "removedRecords": "deleted-records",
    "totalDataFiles": "total-data-files",
    "totalDeleteFiles": "total-delete-files",
    "totalEqualityDeletes": "total-equality-deletes",
    "totalFileSizeInBytes": "total-files-size",
    "totalPositionalDeletes": "total-position-deletes",
    "totalRecords": "total-records",
}


@dataclass(frozen=True)
class OpenWrite:
    """A write whose tasks may run.

    Attributes:
        loaded: the table as it was when the write was planned.
        mode: one of those drawn above.
        replaced: what an overwrite with a condition or an isolation level takes out of the table; None for other writes.
        command: delete, update or merge, of a change.
        query_id: of the streaming query that this is a micro-batch of.
        denied: why no rows are written, where tasks may yet delete some.
        copy: the call that copies its rows.
        metadata: the table's, with the columns that the write adds.
        source_columns: the columns of its rows where they are not the table's.
    """

    loaded: LoadedTable
    metadata: TableMetadata
    source_columns: SourceColumns | None
    mode: str
    options: SqlWriteOptions
    replaced: RowChange | None
    command: str | None
    query_id: str | None
    locations: FileLocations
    key: ResultKey
    denied: TablecryptError | None
    copy: Copy | None

    @property
    def is_row_level(self) -> bool:
        """Whether it is a DELETE, UPDATE or MERGE, whose rows keep their lineage."""
        return self.mode in _ROW_LEVEL

    @property
    def located(self) -> LocatedTable:
        """The table."""
        return self.loaded.located

    @property
    def io(self) -> EncryptingFileIO:
        """The table's FileIO."""
        return self.located.table.io

    @property
    def adds_columns(self) -> bool:
        """Whether the table gets other columns by this write."""
        return self.metadata.current_schema_id != self.located.table.metadata.current_schema_id

    def stage_columns(self, transaction: EncryptedTransaction) -> None:
        """Stage the columns that the write adds. ConfigurationError where they would not be those that the files have."""
        if self.source_columns is not None:
            self.source_columns.stage(self.located.name, transaction)
        if transaction.table_metadata.schema() != self.metadata.schema():
            raise ConfigurationError(f"{self.located.name}: its columns were changed while the rows were written; nothing was committed")

    def remove_files_except(self, kept: Sequence[DataFile]) -> None:
        """Delete all files of the write but these."""
        self.locations.remove_except(self.io, [file.file_path for file in kept])


class BeginWrite(WriteRequest):
    """A write to open.

    Attributes:
        query_id: of the streaming query that it is a micro-batch of.
        masks: "" where Spark's plan shows that no row holds a mask of a protected column, else why a row may (java/RowSources.java); None
            where nobody has looked at the plan.
    """

    query_id: str | None = None
    masks: str | None = None


@operation
def begin_write(planner: Planner, request: BeginWrite) -> Response:
    """Open a write."""
    loaded, query_id = planner.tables[request.table], request.query_id
    if query_id is not None:
        # A streaming query loaded the table when it began; each micro-batch goes into the table as it is now.
        loaded = _loaded_now(loaded)
    loaded.check_writable(is_stream=query_id is not None)
    # A branch that the session names is made before tasks run, so that their commit has one to move.
    loaded = with_branch(loaded)
    command, options = request.command, SqlWriteOptions.of(request)
    mode = _asked_mode(request, options)
    replaced = _checked(loaded, mode, request.filter, options)
    if mode in _ROW_LEVEL:
        options = replace(options, isolation=isolation_of(loaded.located.table.metadata.properties, str(command)))
    copy = _checked_copy(planner, loaded, options)
    source_columns = _source_columns(request, is_stream=query_id is not None)
    merged = in_asked_spec(
        loaded.located.table.metadata if source_columns is None else merged_metadata(loaded, source_columns), options, mode
    )
    # A change writes the rows that it has read, masks and all, whatever Spark's plan says.
    masks = _REWRITTEN if mode in _ROW_LEVEL else request.masks
    # Only a change that marks rows may turn out to write none, and so need no key of a protected column.
    marks_for = command if mode == _DELTA else None
    writer = _writer(loaded, merged, source_columns, options, marks_for, _UNKNOWN if masks is None else masks)
    metadata = writer.metadata
    locations, key = FileLocations(metadata), ResultKey()
    write = OpenWrite(
        writer.loaded, metadata, source_columns, mode, options, replaced, command, query_id, locations, key, writer.denied, copy
    )
    stored = with_lineage(writer.stored) if write.is_row_level else writer.stored

    return Response(
        {
            "write": planner.writes.add(write),
            "id": base64.b64encode(write.key.write_id).decode(),
            "public_key": base64.b64encode(write.key.public_key).decode(),
            "schema": stored_json(stored),
            "inner_ids": inner_ids(stored),
            "settings": writer.settings,
            "partition": _partition(metadata),
            "lineage": write.is_row_level,
            "python": writer.is_python,
        },
        writer.content,
    )


def _asked_mode(request: WriteRequest, options: SqlWriteOptions) -> str:
    """Return a write's mode. As in Iceberg, the option counts where all rows would be replaced, and not those of a condition."""
    replaces_all = request.mode == "overwrite" and not request.filter
    return "overwrite_partitions" if replaces_all and options.replaces_partitions else request.mode


@dataclass(frozen=True)
class _Writer:
    """What writes a table's files in tasks: Parquet's Java writer, or Python.

    Attributes:
        loaded: the table, with the column keys that files need.
        stored: the columns of the rows that it gets.
        metadata: the table's, with the columns that the write adds.
        settings: see write_settings.
        content: what Python needs of the table.
        denied: as of an `OpenWrite`.
    """

    loaded: LoadedTable
    metadata: TableMetadata
    stored: Schema
    settings: dict[str, str]
    is_python: bool = False
    content: bytes = field(default=b"", repr=False)
    denied: TablecryptError | None = None


def _writer(
    loaded: LoadedTable,
    metadata: TableMetadata,
    source_columns: SourceColumns | None,
    options: SqlWriteOptions,
    marks_for: str | None,
    masks: str,
) -> _Writer:
    """Return what writes the rows of a write.

    Args:
        loaded: the table.
        metadata: its own, with the columns that the write adds.
        source_columns: the columns of the rows where they are not the table's.
        options: of the write.
        marks_for: delete, update or merge, of a change that marks the rows which it deletes, and may have none to write.
        masks: why rows may hold masks; empty where none does.
    """
    # Refused before tasks run: they would fail one by one, after Spark has computed the rows.
    if reason := _unsupported(metadata.schema()) or unsupported_partitioning(metadata.spec(), metadata.schema()):
        raise ConfigurationError(f"{loaded.located.name} cannot be written by Spark SQL: {reason}")

    properties = options.over(metadata.properties)
    if _is_written_by_python(metadata):
        return _python_writer(loaded, metadata, source_columns, properties, marks_for, masks)
    if reason := unsupported_codec(properties):
        raise ConfigurationError(f"{loaded.located.name} cannot be written by Spark SQL: {reason}")

    dek_length = loaded.located.table.io.manager.data_key_length

    return _Writer(loaded, metadata, sanitize_column_names(metadata.schema()), write_settings(properties) | {_DEK_LENGTH: str(dek_length)})


def _python_writer(
    loaded: LoadedTable,
    metadata: TableMetadata,
    source_columns: SourceColumns | None,
    properties: dict[str, str],
    marks_for: str | None,
    masks: str,
) -> _Writer:
    parquet_writer_options(properties)
    settings = {TARGET_FILE_SIZE: str(target_file_size(properties))}
    writer = _Writer(loaded, metadata, metadata.schema(), settings, is_python=True)
    # No key is asked for, since marking rows writes no value. A task that asks for a file all the same is refused.
    if marks_for == _DELETE:
        return replace(writer, denied=ConfigurationError(f"{loaded.located.name}: a DELETE that marks rows writes none"))

    try:
        keyed = with_column_keys(loaded, write_only=not masks)
    except ColumnKeyDeniedError as refused:
        denied = _for_masks(masks, refused)
        # A MERGE whose clauses only delete may run: the refusal waits until a task asks for a file.
        if marks_for != _MERGE:
            raise denied from None
        return replace(writer, denied=denied)

    if loaded.source is not None and masks.startswith(_READS_MASKS):
        # Its rows may have been read by somebody else, who sees masks: as values, they would stay.
        raise ConfigurationError(f"{loaded.located.name}: {masks}, which would be stored as values of a protected column")

    # The keys may have been committed just now.
    metadata = keyed.loaded.located.table.metadata if source_columns is None else merged_metadata(keyed.loaded, source_columns)
    content = content_for_tasks(keyed, metadata, properties)

    return replace(writer, loaded=keyed.loaded, metadata=metadata, stored=metadata.schema(), content=content)


def _for_masks(masks: str, denied: ColumnKeyDeniedError) -> ColumnKeyDeniedError:
    if not masks:
        return denied
    reason = f"{denied.message}; permission to wrap alone is not enough for this statement, which may write masks as values: {masks}"
    return ColumnKeyDeniedError(denied.field_id, denied.column_key_id, reason, column_name=denied.column_name)


class OpenWriteRequest(Request):
    """About an open write, by its handle."""

    write: str


class FileLocation(OpenWriteRequest):
    """What a task asks the driver (shared/coordinator.py), for the location of its next file."""

    request: str


@operation
def file_location(planner: Planner, request: FileLocation) -> Response:
    """Give a task the location of its next file.

    Raises:
        ColumnKeyDeniedError, ConfigurationError: it is a change that may only delete, and writes rows all the same.
    """
    write = planner.writes[request.write]
    if write.denied is not None:
        raise write.denied
    return Response({"location": write.locations.respond(request.request)})


class CommitWrite(OpenWriteRequest):
    """A write whose tasks are done.

    Attributes:
        content: the encrypted results of the attempts that won, in the order of their tasks.
        batch_id: of a stream's micro-batch.
        scans: what the rows of a change came from.
        counts: what Spark counted in a MERGE, by the names of its methods.
    """

    content: bytes
    batch_id: int | None = None
    scans: list[NamedScan] | None = None
    counts: Mapping[str, int] = NOTHING


@operation
def commit_write(planner: Planner, request: CommitWrite) -> Response:
    """Commit the results of tasks."""
    write, files, change = ended_write(planner, request)
    if write.copy is not None:
        # Counted before the commit, after which an error would suggest that nothing was committed.
        write.copy.count(files)
    # CREATE and REPLACE TABLE commit rows with the table, in commit_staged.
    if write.loaded.staged is not None:
        copied = frozenset[bytes]() if write.copy is None else write.copy.files.fingerprints
        write.loaded.staged.keep(files, _options(write, None).summary, copied)
        return Response({"files": len(files)})

    marker = _marker(write, request.batch_id)
    options = replace(_options(write, marker), check_base=_conflicts(write, files))
    if write.command == _MERGE:
        options = replace(options, snapshot_properties={**options.snapshot_properties, **merge_counts(request.counts)})

    try:
        committed = commit_written(write.located, files, options) if change is None else commit_change(write.located, change, options)
    # Spark repeats a batch if it does not know that the commit succeeded: the rows must not come twice.
    except BatchAlreadyCommittedError:
        logger.info("%s already contains the batch: %s", write.located.name, marker)
        committed = None

    return Response({"files": len(files), "metrics": write_metrics(committed)})


def _marker(write: OpenWrite, batch_id: int | None) -> BatchMarker | None:
    if write.query_id is None:
        return None
    # Without it Spark could commit the batch twice.
    if batch_id is None:
        raise FormatError(f"{write.located.name}: the commit of a micro-batch does not say which one it is")
    return BatchMarker(write.query_id, batch_id, write.loaded.branch)


def ended_write(planner: Planner, request: CommitWrite) -> tuple[OpenWrite, list[DataFile], RowChange | None]:
    """End a write whose tasks are done. Return it, the files of the attempts that won, which alone remain, and what they change."""
    # Popped before anything else: the private key goes with it, so that a late result opens nowhere.
    write = planner.writes.pop(request.write)
    try:
        # Here, while the files of a request that lacks something can go: afterwards nobody knows them.
        _marker(write, request.batch_id)
        files, deleted = _reported(write, request.content)
        # Executors wrote through Hadoop, which may be configured for another store than the FileIO that will read the files.
        check_found(write.io, files)
        change = _change(planner, write, request, files, deleted)
    except BaseException:
        write.remove_files_except(())
        raise

    # Before the commit, while every location that tasks were given is known: afterwards the others would be orphans.
    write.remove_files_except(files)
    return write, files, change


@operation
def abort_write(planner: Planner, request: OpenWriteRequest) -> None:
    """Delete what the tasks of a write wrote."""
    planner.writes.pop(request.write).remove_files_except(())


def _loaded_now(loaded: LoadedTable) -> LoadedTable:
    """Return the table of a streaming query as it is now. ConfigurationError where the query's rows do not fit it any more."""
    table = loaded.located.reloaded()
    check_unchanged(loaded.located.name, loaded.located.table.metadata, table.metadata)
    branch = loaded.branch if loaded.audit_first.branch is None else loaded.audit_first.branch_in(table.metadata)
    return replace(loaded, located=replace(loaded.located, table=table), branch=branch)


def _checked(loaded: LoadedTable, mode: str, predicates: list[Any], options: SqlWriteOptions) -> RowChange | None:
    """Check what can be known before rows are written. Return what an overwrite with a condition, or an isolation level, takes out."""
    located = loaded.located
    if mode not in _MODES:
        raise FormatError(f"a write of mode {mode!r} is not known")
    if options.isolation is not None and mode not in _OVERWRITES:
        raise ConfigurationError(
            "the write option isolation-level is for overwrites: write.{delete,update,merge}.isolation-level are of changes"
        )

    checked_since(located.table.metadata, options.validated_from, VALIDATE_FROM)
    # A user would replace rows that the server does not let that user see.
    if mode != "append":
        refuse_restricted(located.table.io, "a write that removes or replaces rows")
    if mode == "overwrite_partitions" and not located.table.spec().is_unpartitioned():
        check_can_replace_partitions(located, loaded.branch)
    # Without a condition, what is there at the commit goes: only an isolation level makes rows that came meanwhile a conflict.
    if not _replaces_all(loaded, mode) or (not predicates and options.isolation is None):
        return None

    return whole_files(loaded, predicates)


def _checked_copy(planner: Planner, loaded: LoadedTable, options: SqlWriteOptions) -> Copy | None:
    """Return the copy that a write is of; None for other writes. AlreadyAddedError where the branch has rows of the copy's files."""
    if options.copy is None:
        return None
    copy = planner.copies[options.copy]
    copy.files.check(loaded.located.table.io, loaded.located.table.metadata, loaded.branch)
    return copy


def _source_columns(request: WriteRequest, *, is_stream: bool) -> SourceColumns | None:
    """Return the columns of the rows where they are not the table's. ConfigurationError for a stream that would add some."""
    source_columns = SourceColumns.of(request)
    if not is_stream or source_columns is None:
        return source_columns
    if source_columns.merges:
        raise ConfigurationError("mergeSchema is for batch writes: a stream adds no columns. Add them with ALTER TABLE, and start it again")
    return None


def _replaces_all(loaded: LoadedTable, mode: str) -> bool:
    return mode == "overwrite" or (mode == "overwrite_partitions" and loaded.located.table.spec().is_unpartitioned())


def _is_written_by_python(metadata: TableMetadata) -> bool:
    return bool(policy_of(metadata)) or written_by_python(metadata.schema())


def _partition(metadata: TableMetadata) -> list[dict[str, Any]]:
    """Return what Java works partition values out of."""
    schema = metadata.schema()
    are_uuids = [isinstance(schema.find_type(field.source_id), UUIDType) for field in stored_fields(metadata.spec())]
    described = described_partitioning(metadata.spec(), schema)
    return [{**field, "uuid": is_uuid} for field, is_uuid in zip(described, are_uuids, strict=True)]


def _unsupported(schema: Schema) -> str | None:
    for column in schema.fields:
        if unwritten := unwritten_type(column):
            return f"Spark has no type for column {unwritten}"
    return names_that_spark_confuses(schema)


def _reported(write: OpenWrite, content: bytes) -> tuple[list[DataFile], dict[str, BitMap64]]:
    """Return the entries of the files that tasks report, and the positions of deleted rows by data file."""
    files: list[DataFile] = []
    deleted: dict[str, BitMap64] = {}
    of_python = _is_written_by_python(write.metadata)
    # Spark sorts the rows of each task, those of a stream's micro-batches too, and a file has rows of one task.
    order_id = sort_order_of(write.metadata, write.options, write.source_columns)

    for result in opened_results(write.key, write.locations, content):
        for file in result.files:
            # Parquet's Java writer knows no protected columns: its file would hold their values under the table's key.
            if isinstance(file, FileOfPython) != of_python:
                raise FormatError(f"{file.location}: another writer wrote it than the one that the table's columns need")
            entry = file.entry(write.metadata, keeps_lineage=write.is_row_level)
            entry[DATA_FILE_POSITIONS["sort_order_id"]] = order_id
            files.append(entry)

        for location, positions in result.deleted.items():
            deleted[location] = deleted.get(location, BitMap64()) | positions

    return files, deleted


def _change(
    planner: Planner, write: OpenWrite, request: CommitWrite, files: list[DataFile], deleted: Mapping[str, BitMap64]
) -> RowChange | None:
    """Return the change that a write makes; None for one that adds rows, or replaces all of them or whole partitions."""
    if write.is_row_level:
        return changed_rows(write.loaded, str(write.command), scans_of(planner, request.scans), files, deleted)
    # A forged or mistaken result must not make an append delete rows.
    if deleted:
        raise FormatError(f"{write.located.name}: tasks of a write that deletes no single row report deleted ones")
    return None if write.replaced is None else replace(write.replaced, added=files)


def _conflicts(write: OpenWrite, files: list[DataFile]) -> Callable[[TableMetadata], None] | None:
    """Return the check that an overwrite with an isolation level makes of each base; None for other writes."""
    options, located = write.options, write.located
    if options.isolation is None or write.mode not in _OVERWRITES:
        return None
    since = checked_since(located.table.metadata, options.validated_from, VALIDATE_FROM)
    matches = in_partitions_of(files) if write.replaced is None else may_match(write.replaced.conflicts_with)
    return ConflictCheck(write.io, options.isolation, since, write.loaded.branch, matches).check


def _options(write: OpenWrite, marker: BatchMarker | None) -> WriteOptions:
    mode = "append" if write.is_row_level else write.mode
    if _replaces_all(write.loaded, mode):
        mode = "overwrite"
    return WriteOptions(
        mode=cast("Mode", mode),
        branch=write.loaded.target,
        snapshot_properties={**write.options.snapshot_properties, **write.loaded.audit_first.summary},
        isolation=write.options.isolation,
        marker=marker,
        stage_first=write.stage_columns if write.adds_columns else None,
        copied=None if write.copy is None else write.copy.files,
    )


def write_metrics(snapshot: Snapshot | None) -> dict[str, int]:
    """Return the metrics of a write by name; those of no snapshot are all 0, as Spark shows a metric without a value."""
    if snapshot is None or snapshot.summary is None:
        return {}
    summary = snapshot.summary.additional_properties
    return {name: sum(_number(summary.get(field)) for field in fields.split()) for name, fields in _SUMMARY_FIELDS.items()}


def _number(text: str | None) -> int:
    # The rows are committed, so what a server made of the summary is no error any more.
    return int(text) if text is not None and text.isascii() and text.isdecimal() else 0
