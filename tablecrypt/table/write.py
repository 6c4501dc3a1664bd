"""Writing data files: Arrow data in, encrypted Parquet files and their manifest entries out.

    Table    partitioned, packed to write.target-file-size-bytes of Arrow memory as PyIceberg packs ──▶ files written side by side
    stream   row groups written as they fill up, files ended at write.target-file-size-bytes of stored bytes (see rolling_files.py)

Transforms, statistics and locations are PyIceberg's. Each file has a DEK of its own (see data_file_writer.py). Nothing is registered
here: the caller commits the entries. If any file fails, those already written are deleted and the error is raised.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from typing import Final, TypeAlias

import pyarrow as pa
from pyiceberg.io.pyarrow import bin_pack_arrow_table
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionKey
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.table.data_file_writer import DataFileWriter
from tablecrypt.table.data_keys import DataKeySource
from tablecrypt.table.parquet_properties import target_file_size
from tablecrypt.table.partitions import rows_by_partition
from tablecrypt.table.rolling_files import write_stream

ArrowData: TypeAlias = pa.Table | pa.RecordBatchReader

_IN_FLIGHT: Final = 32
"""Files of a table written at once."""


def write_data_files(
    table_metadata: TableMetadata,
    arrow: ArrowData,
    io: EncryptingFileIO,
    manager: DataKeySource,
    write_uuid: uuid.UUID | None = None,
    counter: itertools.count[int] | None = None,
) -> Iterator[DataFile]:
    """Write Arrow data as encrypted Parquet files of the table and return their manifest entries, all written when this returns.

    A RecordBatchReader is read as it is written, with bounded memory. Columns _row_id and _last_updated_sequence_number that are not the
    table's own are stored under their reserved field ids.

    Args:
        table_metadata: its current schema, partition spec, location and properties are used.
        arrow: rows whose columns match the schema by name, or by field id where the Arrow schema has ids.
        io: writes ciphertext only.
        manager: gives each file its DEK.
        write_uuid: part of every file name.
        counter: numbers the files of one write_uuid.

    Raises:
        ConfigurationError: a table property that cannot be honoured. Nothing was written.
    """
    size = target_file_size(table_metadata.properties)
    writer = DataFileWriter.of(table_metadata, arrow.schema, io, manager, write_uuid or uuid.uuid4(), counter or itertools.count())
    try:
        if isinstance(arrow, pa.RecordBatchReader):
            return iter(write_stream(writer, arrow, size))
        return iter(_run_all(_writes(writer, arrow, size)))
    except BaseException:
        writer.delete_written()
        raise


def _writes(writer: DataFileWriter, table: pa.Table, size: int) -> Iterator[Callable[[], DataFile]]:
    for partition_key, rows in _partitions_of(writer.table_metadata, table):
        if rows.num_rows == 0:
            continue
        for batches in bin_pack_arrow_table(rows, size) if rows.nbytes else [rows.to_batches()]:
            yield partial(writer.write, next(writer.counter), partition_key, batches)


def _partitions_of(table_metadata: TableMetadata, table: pa.Table) -> Iterator[tuple[PartitionKey | None, pa.Table]]:
    spec = table_metadata.spec()
    if spec.is_unpartitioned():
        yield None, table
        return
    yield from rows_by_partition(spec, table_metadata.schema(), table)


def _run_all(writes: Iterable[Callable[[], DataFile]]) -> list[DataFile]:
    """Write on PyIceberg's executor. Writes hold rows, and Executor.map would draw all of them into memory at once."""
    executor = ExecutorFactory.get_or_create()
    futures: list[Future[DataFile]] = []
    running: set[Future[DataFile]] = set()
    try:
        for write in writes:
            if len(running) >= _IN_FLIGHT:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
            future = executor.submit(write)
            futures.append(future)
            running.add(future)
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()
        wait(futures)
