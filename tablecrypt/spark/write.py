"""Writing a Spark DataFrame into an encrypted table.

    driver     checks the schema ─▶ seals what the tasks need (SHARED)
    executor   mapInArrow: each partition's rows ─▶ encrypted Parquet files under fresh DEKs ─▶ their entries, sealed (RESULT)
    driver     opens the entries that Spark collected, and adds exactly those in one commit

Spark collects the output of one attempt per partition, the one that won, so files of failed and of speculative attempts are never
committed. A failed attempt deletes its files as far as it can; what remains is ciphertext that no manifest names. A partition without
rows writes nothing.
"""

from __future__ import annotations

import logging
import pickle
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal, cast, get_args

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from tablecrypt.errors import AuthenticationError, ConfigurationError, TablecryptError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.kms.factory import shared_kms
from tablecrypt.spark.attempt_locations import with_attempt_names
from tablecrypt.spark.columns import batch_for_table
from tablecrypt.spark.file_entries import FileEntryCodec
from tablecrypt.spark.requirements import check_session
from tablecrypt.spark.sealed_tasks import JobKey, JobTicket, Role
from tablecrypt.spark.tables import LocatedTable, TableAccess
from tablecrypt.spark.types import schema_for_table
from tablecrypt.table.encrypted_table import EncryptedTable
from tablecrypt.table.parquet_properties import parquet_writer_options
from tablecrypt.table.write import write_data_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

Mode = Literal["append", "overwrite"]

_RESULT_SCHEMA: Final = "task long, sealed binary"
_ARROW_RESULT_SCHEMA: Final = pa.schema([("task", pa.int64()), ("sealed", pa.binary())])


def write_table(
    df: DataFrame,
    identifier: str,
    mode: Mode = "append",
    *,
    snapshot_properties: Mapping[str, str] | None = None,
    catalog_properties: Mapping[str, str] | None = None,
) -> None:
    """Write a DataFrame's rows into an encrypted table, in one commit.

    Columns are matched by name. Optional columns that the DataFrame lacks are null. Each Spark partition becomes at least one file (one
    for each table partition that it touches), so give the DataFrame as many partitions as there should be files.

    Args:
        df: the rows; evaluated once.
        identifier: "catalog.namespace.table", as for `read_table`. The table exists already.
        mode: "append", or "overwrite" to replace all rows that the table has at the time of the commit.
        snapshot_properties: for the summary of the new snapshot.
        catalog_properties: properties for load_catalog, beside those that it finds.

    Raises:
        ConfigurationError: before any data is written, where the schema, a table property, the mode, the catalog or the Spark version
            does not fit; and where the table's schema or partitioning changed while the rows were written.
        AuthenticationError: an executor's answer was changed on its way. Nothing is committed.
        CommitFailedException: other writers were faster, again and again. Nothing is committed.
        KmsError: the KMS refused the table's key to the driver.

    What goes wrong on an executor fails the Spark job, and nothing is committed.
    """
    check_session(df.sparkSession)
    if mode not in get_args(Mode):
        raise ConfigurationError(f"mode {mode!r} is not known: use append or overwrite")
    located = LocatedTable.of(identifier, catalog_properties)
    schema_for_table(_arrow_schema(df), located.table.schema())
    parquet_writer_options(located.table.metadata.properties)

    ticket, job_key = located.issue_job(df.sparkSession)
    sealed_access = job_key.seal(Role.SHARED, 0, pickle.dumps(TableAccess.of(located.table)))

    def write_encrypted_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_partition(ticket, sealed_access, batches)

    results = df.mapInArrow(write_encrypted_files, _RESULT_SCHEMA).collect()
    answers = [(int(row["task"]), bytes(row["sealed"])) for row in results]
    files = opened_results(job_key, FileEntryCodec(located.table.metadata), answers)
    io = cast(EncryptingFileIO, located.table.io)
    # Files are deleted only where it is certain that nothing was committed: after a lost connection they may be the table's.
    try:
        current = _unchanged(located)
    except TablecryptError:
        _delete(io, files)
        raise
    try:
        _commit(current, files, mode, dict(snapshot_properties or {}))
    except CommitFailedException:
        _delete(io, files)
        raise


def write_partition(ticket: JobTicket, sealed_access: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write one partition's rows and yield one row with its files, sealed; nothing for no rows. Runs on an executor.

    Raises:
        ConfigurationError: a value that its column cannot hold.
        KmsError: this executor may not unwrap the job key.
    """
    from pyspark import TaskContext

    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return
    job_key = ticket.redeem()
    access: TableAccess = pickle.loads(job_key.open(Role.SHARED, 0, sealed_access))
    io, metadata = access.io(), access.metadata()
    context = TaskContext.get()
    if context is None:
        raise ConfigurationError("an encrypted partition is written inside a Spark task only")
    number, attempt = context.partitionId(), context.taskAttemptId()

    rows = _as_reader(first, filled, metadata.schema())
    manager = EncryptionManager(shared_kms(ticket.kms_properties), ticket.key_id, data_key_length=access.data_key_length)
    files = list(write_data_files(with_attempt_names(metadata, number, attempt), rows, io, manager, uuid.uuid4()))
    try:
        sealed = job_key.seal(Role.RESULT, number, FileEntryCodec(metadata).encode_files(files))
    except BaseException:
        _delete(io, files)
        raise
    yield pa.RecordBatch.from_pydict({"task": [number], "sealed": [sealed]}, schema=_ARROW_RESULT_SCHEMA)


def opened_results(job_key: JobKey, codec: FileEntryCodec, results: list[tuple[int, bytes]]) -> list[DataFile]:
    """Open what the tasks answered: (task number, sealed entries).

    Raises:
        AuthenticationError: an answer was changed or belongs to another task, or a task answered twice.
    """
    numbers = [number for number, _ in results]
    if len(set(numbers)) != len(numbers):
        raise AuthenticationError("a task of the Spark job answered twice: its rows would be committed twice")
    return [file for number, sealed in results for file in codec.decode_files(job_key.open(Role.RESULT, number, sealed))]


def _as_reader(first: pa.RecordBatch, others: Iterator[pa.RecordBatch], table: Schema) -> pa.RecordBatchReader:
    schema = schema_for_table(first.schema, table)

    def converted() -> Iterator[pa.RecordBatch]:
        yield batch_for_table(first, schema, table)
        for batch in others:
            yield batch_for_table(batch, schema, table)

    return pa.RecordBatchReader.from_batches(schema, converted())


def _unchanged(located: LocatedTable) -> EncryptedTable:
    """Return the table as it is now, if the files that were written still fit it."""
    reloaded, planned = located.reloaded(), located.table.metadata
    current = reloaded.metadata
    for what, now, then in (
        ("table", current.table_uuid, planned.table_uuid),
        ("schema", current.current_schema_id, planned.current_schema_id),
        ("partitioning", current.default_spec_id, planned.default_spec_id),
    ):
        if now != then:
            raise ConfigurationError(f"{located.name}: its {what} was changed while the rows were written; nothing was committed")
    return reloaded


def _commit(table: EncryptedTable, files: list[DataFile], mode: Mode, snapshot_properties: dict[str, str]) -> None:
    if not files and mode == "append":
        return
    transaction = table.transaction()
    with transaction:
        if mode == "overwrite":
            replaced = transaction.update_snapshot(snapshot_properties).delete()
            replaced.isolate_as(Operation.OVERWRITE)
            with replaced:
                replaced.delete_by_predicate(ALWAYS_TRUE)
        if not files:
            return
        with transaction.append_producer(snapshot_properties, MAIN_BRANCH) as producer:
            for file in files:
                producer.append_data_file(file)


def _delete(io: EncryptingFileIO, files: list[DataFile]) -> None:
    for file in files:
        try:
            io.delete(file.file_path)
        except Exception as error:  # noqa: BLE001  the error that brought us here is the one to raise
            logger.warning("could not delete %s of a failed write: %s", file.file_path, type(error).__name__)


def _arrow_schema(df: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(df.schema)
