"""Writing a Spark DataFrame into an encrypted table, and deleting rows from it.

    driver     checks the schema ─▶ encrypts what the tasks need (SHARED)
    executor   mapInArrow: each partition's rows ─▶ encrypted Parquet files under fresh DEKs ─▶ their entries, encrypted (RESULT)
    driver     opens the entries that Spark collected, and adds exactly those in one commit

Spark collects the output of one attempt per partition, the one that won, so files of failed and of speculative attempts are never
committed. A failed attempt tries to delete its files; what remains is ciphertext that no manifest names. A partition without
rows writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import IsolationLevel, Snapshot

from tablecrypt.engines.changes import check_unchanged, committing
from tablecrypt.engines.job_keys import JobTicket
from tablecrypt.engines.overwrite import stage_overwrite
from tablecrypt.engines.protected_columns import ensure_column_keys
from tablecrypt.engines.tasks import decrypted_results
from tablecrypt.errors import ConfigurationError
from tablecrypt.files.encrypting_file_io import refuse_restricted
from tablecrypt.keys.nested_columns import path_through_structs
from tablecrypt.manifests.copied_files import CopiedFiles
from tablecrypt.parquet.text_columns import with_checked_utf8
from tablecrypt.spark.columns import arrow_schema, batch_for_table, schema_for_table
from tablecrypt.spark.commit import BatchMarker, begin, check_can_replace_partitions, replaced_partitions
from tablecrypt.spark.delete import change_without, rewrite_marked
from tablecrypt.spark.distribution import Distribution, laid_out
from tablecrypt.spark.executor_job import filled_batches, open_task, result_batch, results_of
from tablecrypt.spark.masked_columns import check_values
from tablecrypt.spark.merge import checked_keys, merge_counts, merged_change
from tablecrypt.spark.read import Path
from tablecrypt.spark.session import check_session
from tablecrypt.spark.tables import LocatedTable, table_access
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.metadata import isolation_of
from tablecrypt.table.parquet_options import parquet_writer_options, target_file_size
from tablecrypt.table.protection.exposed_values import check_sort_columns
from tablecrypt.table.row_changes import RowChange, marks_rows
from tablecrypt.table.snapshots import CommitOptions
from tablecrypt.table.table import EncryptedTable, check_branch
from tablecrypt.table.table_files import removing_on_error
from tablecrypt.table.transaction import EncryptedTransaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Mode = Literal["append", "overwrite", "overwrite_partitions", "merge"]


@dataclass(frozen=True)
class WriteOptions:
    """How rows go into a table; see `write_table`. With `branch=None` the snapshot belongs to no branch."""

    mode: Mode = "append"
    overwrite_filter: str | BooleanExpression | None = None
    keys: Sequence[str] | None = None
    branch: str | None = MAIN_BRANCH
    distribute_by: Distribution | None = None
    sort_by: Sequence[str] | None = None
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    isolation: IsolationLevel | None = None
    marker: BatchMarker | None = None
    path: Path | None = None
    stage_first: Callable[[EncryptedTransaction], None] | None = None
    """What is staged before the rows, in their commit."""
    check_base: Callable[[TableMetadata], None] | None = None
    """What must hold of each base that the commit is tried on."""
    copied: CopiedFiles | None = None
    """The files that appended rows are copied from, where the table is to remember them."""

    def __post_init__(self) -> None:
        """Raise ConfigurationError for options that contradict each other, and for text that could not be committed."""
        CommitOptions(self.branch, self.snapshot_properties)
        if self.mode not in get_args(Mode):
            raise ConfigurationError(f"mode {self.mode!r} is not known: use append, overwrite, overwrite_partitions or merge")
        if self.overwrite_filter is not None and self.mode != "overwrite":
            raise ConfigurationError(f"overwrite_filter goes with mode 'overwrite', not {self.mode!r}")
        if self.keys is not None and self.mode != "merge":
            raise ConfigurationError(f"keys go with mode 'merge', not {self.mode!r}")
        if self.mode == "merge" and (self.distribute_by or self.sort_by):
            raise ConfigurationError("mode 'merge' distributes and sorts rows by their keys: leave distribute_by and sort_by out")
        if self.path not in (None, *get_args(Path)):
            raise ConfigurationError(f"path {self.path!r} is not known: use jvm or python")
        if self.mode == "merge" and self.path == "jvm":
            raise ConfigurationError("mode 'merge' writes on the Python path alone: leave path out")

    @property
    def summary(self) -> dict[str, str]:
        """Properties of the new snapshot."""
        return {**self.snapshot_properties, **(self.marker.summary if self.marker is not None else {})}

    @property
    def commit(self) -> CommitOptions:
        """How the rows are committed."""
        return CommitOptions(self.branch, self.summary, isolation=self.isolation)


def write_table(
    df: DataFrame,
    identifier: str,
    mode: Mode = "append",
    *,
    overwrite_filter: str | BooleanExpression | None = None,
    keys: Sequence[str] | None = None,
    branch: str = MAIN_BRANCH,
    distribute_by: Distribution | None = None,
    sort_by: Sequence[str] | None = None,
    path: Path | None = None,
    snapshot_properties: Mapping[str, str] | None = None,
    catalog_properties: Mapping[str, str] | None = None,
) -> None:
    """Write a DataFrame's rows into an encrypted table, in one commit.

    Columns are matched by name. Optional columns that the DataFrame lacks are null. Each Spark partition becomes at least one file (one
    for each table partition that it touches), and files end at the table's write.target-file-size-bytes. So give the DataFrame as many
    partitions as there should be files, and a partitioned table `distribute_by="partition"`.

    Args:
        df: the rows; evaluated once.
        identifier: "catalog.namespace.table", as for `read_table`. The table exists already.
        mode: "append"; "overwrite" to replace all rows that the table has at the time of the commit, or those of `overwrite_filter`;
            "overwrite_partitions" to replace the table partitions that the rows fall into; "merge" to update the rows with the same
            keys and add the others (see merge.py).
        overwrite_filter: with "overwrite", PyIceberg's filter of the rows to replace, as text or expression.
        keys: with "merge", the columns that name a row; by default the schema's identifier fields.
        branch: the branch to write to; it exists already.
        distribute_by: "partition" to bring the rows of a table partition together before they are written (see layout.py).
        sort_by: columns to order each task's rows by, which makes row groups prune better.
        path: "jvm" for Parquet's Java writer, "python" for mapInArrow; by default the first where it can write the rows (see
            shared/support.py) and Spark's messages are authenticated and encrypted, else the second.
        snapshot_properties: for the summary of the new snapshot.
        catalog_properties: properties for load_catalog, beside those that it finds.

    Raises:
        ConfigurationError: before any data is written, where the schema, a table property, an option, the catalog or the Spark version
            does not fit, or the DataFrame has masks for a protected column; and where the table's schema or partitioning changed while the
            rows were written.
        AuthenticationError: an executor's result was changed on its way. Nothing is committed.
        CommitFailedException: other writers committed first, several times in a row. Nothing is committed.
        ValidationException: others changed rows meanwhile that an overwrite or merge replaces. Nothing is committed.
        KmsError: the KMS refused the table's key to the driver. ColumnKeyDeniedError: it refused that of a protected column.

    What goes wrong on an executor fails the Spark job, and nothing is committed.
    """
    options = WriteOptions(mode, overwrite_filter, keys, branch, distribute_by, sort_by, snapshot_properties or {}, path=path)
    write_rows(df, LocatedTable.of(identifier, catalog_properties), options)


def write_rows(df: DataFrame, located: LocatedTable, options: WriteOptions) -> None:
    """Do what `write_table` says, on a table that is loaded.

    Raises:
        BatchAlreadyCommittedError: the table holds the options' micro-batch already; its files are removed again.
    """
    check_session(df.sparkSession)
    prepare(df.schema, located, options)
    # Only to look for the batch: one that the table has is not written again to be thrown away.
    begin(located.table, options.marker)

    if options.mode == "merge":
        merge_keys = checked_keys(located.table.schema(), df.columns, options.keys)
        change = merged_change(df, located, merge_keys, options.branch)
        # Counted now: copy-on-write empties the list of marks.
        updated = sum(len(positions) for _, positions in change.position_deleted)
        # The second job may fail after the first has written its files.
        with removing_on_error(located.table.io, change.written):
            if not _marks_merged(located):
                rewrite_marked(df.sparkSession, located, change)
        summary = {**merge_counts(change, updated), **options.snapshot_properties}
        isolation = isolation_of(located.table.metadata.properties, "merge")
        commit_change(located, change, replace(options, snapshot_properties=summary, isolation=isolation))
    elif options.overwrite_filter is not None:
        added = _written(df, located, options)
        with removing_on_error(located.table.io, added):
            change = change_without(df.sparkSession, located, options.overwrite_filter, options.branch, _marks_merged(located))
        change.added = added
        commit_change(located, change, options)
    else:
        commit_written(located, _written(df, located, options), options)


def delete_where(
    spark: SparkSession,
    identifier: str,
    row_filter: str | BooleanExpression,
    *,
    branch: str = MAIN_BRANCH,
    snapshot_properties: Mapping[str, str] | None = None,
    catalog_properties: Mapping[str, str] | None = None,
) -> None:
    """Delete the matching rows of an encrypted table in one commit. If no row matches, there is no commit.

    Args:
        spark: a session of Spark 4.0 or newer.
        identifier: "catalog.namespace.table", as for `read_table`.
        row_filter: PyIceberg's filter, as text ("id > 3 and region = 'eu'") or expression.
        branch: the branch to delete from.
        snapshot_properties: for the summary of the new snapshot.
        catalog_properties: properties for load_catalog, beside those that it finds.

    The table's write.delete.mode says how rows go: copy-on-write (executors write the remaining rows again; they keep their `_row_id`), or
    merge-on-read (deletion vectors).

    Raises:
        ConfigurationError: not an encrypted table, a branch that it does not have, or properties that UTF-8 cannot hold; or the table's
            schema or partitioning was changed meanwhile.
        ValueError: a filter that does not fit the table.
        CommitFailedException, ValidationException: others were faster, or changed rows that match. Nothing is committed.
        KmsError: the KMS refused the table's key to the driver.
    """
    options = WriteOptions(branch=branch, snapshot_properties=snapshot_properties or {})
    check_session(spark)
    located = LocatedTable.of(identifier, catalog_properties)
    # A user would delete rows that the server does not let that user see.
    refuse_restricted(located.table.io, "delete_where")
    check_branch(located.table, branch)
    by_vectors = marks_rows(located.table.metadata.properties, "delete")
    # Deletion vectors hold no values, so marking rows needs no column key.
    if not by_vectors:
        ensure_column_keys(located.table)
    commit_change(located, change_without(spark, located, row_filter, branch, by_vectors), options)


def prepare(schema: StructType, located: LocatedTable, options: WriteOptions) -> None:
    """Commit column keys that the table lacks, and check what can be known before data is written.

    Raises:
        ColumnKeyDeniedError: a column's key cannot be made or used.
        ConfigurationError: rows hold masks, are to be sorted by a protected column, or a column, a partition column, a table property or
            the branch does not fit.
        ReadRestrictionError: rows would be replaced, and the catalog's server restricts which of them may be read.
    """
    table = located.table
    check_sort_columns(table.metadata, options.sort_by or ())
    # This may commit, and what follows has to look at the metadata of that commit.
    ensure_column_keys(table)
    # After the keys: a user who may not read the column is refused by them already.
    check_values(schema, table)
    if options.mode != "append":
        refuse_restricted(table.io, f"writing in mode {options.mode}")
    columns = arrow_schema(schema)
    schema_for_table(columns, table.schema())

    for partition_field in table.spec().fields:
        path = path_through_structs(table.schema(), partition_field.source_id)
        if path and path[0].name not in columns.names:
            name = table.schema().find_column_name(partition_field.source_id)
            raise ConfigurationError(f"column {name!r} is missing from the DataFrame, and the table is partitioned by it")

    # The next two calls are for their errors, which would else come from every executor.
    parquet_writer_options(table.metadata.properties)
    target_file_size(table.metadata.properties)
    if options.branch is not None:
        check_branch(table, options.branch)
    if options.mode == "overwrite_partitions":
        check_can_replace_partitions(located, options.branch)


def write_partition(ticket: JobTicket, encrypted_access: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write one partition's rows and yield one row with its files, encrypted; nothing for no rows. Runs on an executor.

    Args:
        ticket: of the job.
        encrypted_access: the SHARED message, a TableAccess.
        batches: the rows.

    Raises:
        ConfigurationError: a value that its column cannot hold.
        FormatError: text is not UTF-8.
        KmsError: this executor may not unwrap the job key.
    """
    rows_of_partition = filled_batches(batches)
    if rows_of_partition is None:
        return

    first, filled = rows_of_partition
    job = open_task(ticket, encrypted_access)
    files = job.write(_as_reader(first.schema, filled, job.metadata.schema()))
    yield result_batch(job.number, job.encrypted_result(files))


def commit_written(located: LocatedTable, files: list[DataFile], options: WriteOptions) -> Snapshot | None:
    """Commit files that executors wrote: an append, or in place of all rows or of the partitions that they fall into.

    Return the new snapshot; None where there is none, since an append has no rows.

    Args:
        located: the table as it was loaded before the files were written, or since.
        files: all of them hold rows of this write; what is certainly not committed is deleted.
        options: mode "append", "overwrite" without a filter, or "overwrite_partitions".
    """
    with removing_on_error(located.table.io, files):
        # An append goes onto the table as it is now; a change stays on the snapshot that it was planned on.
        current = _unchanged(located, options.branch)
        change = replaced_partitions(located, files, options.branch) if options.mode == "overwrite_partitions" else None

    return _commit(current, files, options) if change is None else _commit_change(located, change, options)


def _written(df: DataFrame, located: LocatedTable, options: WriteOptions) -> list[DataFile]:
    if options.path != "python":
        # Imported here: Python workers use this module too, and need nothing of the connector. It is also built on this module.
        from tablecrypt.spark.sql.writes.programs import planned_write, write_planned

        planned = planned_write(df, located, options.distribute_by, options.sort_by, forced=options.path == "jvm")
        if planned is not None:
            return write_planned(planned)

    return _written_by_python(df, located, options)


def _written_by_python(df: DataFrame, located: LocatedTable, options: WriteOptions) -> list[DataFile]:
    metadata = located.table.metadata
    rows = laid_out(df, metadata.schema(), metadata.spec(), options.distribute_by, options.sort_by)
    ticket, job_key = located.issue_job(df.sparkSession)
    encrypted_access = job_key.share(table_access(located.table))

    def write_encrypted_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_partition(ticket, encrypted_access, batches)

    results = results_of(rows, write_encrypted_files)

    return [file for result in decrypted_results(job_key, FileEntryCodec(metadata), results) for file in result.files]


def _as_reader(given: pa.Schema, batches: Iterator[pa.RecordBatch], table: Schema) -> pa.RecordBatchReader:
    schema = schema_for_table(given, table)
    return with_checked_utf8(pa.RecordBatchReader.from_batches(schema, (batch_for_table(batch, schema, table) for batch in batches)))


def _unchanged(located: LocatedTable, branch: str | None) -> EncryptedTable:
    reloaded = located.reloaded()
    check_unchanged(located.name, located.table.metadata, reloaded.metadata, branch)
    return reloaded


def _commit(table: EncryptedTable, files: list[DataFile], options: WriteOptions) -> Snapshot | None:
    # No rows, no snapshot; but columns that the write adds are added all the same.
    if not files and options.mode == "append" and options.stage_first is None:
        return None

    def stage(transaction: EncryptedTransaction) -> None:
        if options.mode == "overwrite":
            stage_overwrite(transaction, files, options.commit)
            return
        if not files:
            return

        copied = options.copied.fingerprints if options.copied is not None else frozenset[bytes]()
        transaction.append_producer(options.commit, copied_files=copied).commit_files(files)

    return _committed(table, files, options, stage, replaces=options.mode == "overwrite")


def _marks_merged(located: LocatedTable) -> bool:
    return marks_rows(located.table.metadata.properties, "merge")


def commit_change(located: LocatedTable, change: RowChange, options: WriteOptions) -> Snapshot | None:
    """Commit a change, and return the new snapshot; nothing, and None, for an empty change.

    Args:
        located: the table as it was when the change was planned.
        change: its new files hold rows of this change; what is certainly not committed is deleted.
        options: say the snapshot's summary and the micro-batch.

    Raises:
        ConfigurationError: the table's schema or partitioning was changed meanwhile.
        CommitFailedException, ValidationException: others were faster, or changed rows that this change is about. Nothing is committed.
    """
    with removing_on_error(located.table.io, change.written):
        _unchanged(located, options.branch)

    return _commit_change(located, change, options)


def _commit_change(located: LocatedTable, change: RowChange, options: WriteOptions) -> Snapshot | None:
    def stage(transaction: EncryptedTransaction) -> None:
        transaction.stage_rows(change, options.commit)

    return _committed(located.table, change.written, options, stage, replaces=change.takes_out)


def _committed(
    table: EncryptedTable,
    files: Sequence[DataFile],
    options: WriteOptions,
    stage: Callable[[EncryptedTransaction], None],
    *,
    replaces: bool,
) -> Snapshot | None:
    """Commit what `stage` stages, after what the options say comes first. Return the new snapshot; None where nothing made one."""
    io = table.io
    with removing_on_error(io, files):
        transaction = begin(table, options.marker)
        if options.check_base is not None:
            transaction.check_each_base(options.check_base)
        if options.copied is not None:
            # On each base: another call may have copied the same files while this one wrote.
            transaction.check_each_base(partial(options.copied.check, table.io, branch=options.branch))

    with committing(transaction, io, files, replaces=replaces):
        if options.stage_first is not None:
            # In the same commit, so that no reader sees the columns without the rows.
            options.stage_first(transaction)
        before = transaction.table_metadata.snapshots
        stage(transaction)
        staged = transaction.table_metadata.snapshots

    # A commit that is tried again keeps its snapshot's id, and counts its totals anew.
    return transaction.table_metadata.snapshot_by_id(staged[-1].snapshot_id) if len(staged) > len(before) else None
