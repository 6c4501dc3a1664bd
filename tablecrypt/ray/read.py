"""Reading an encrypted table into a Ray Dataset.

    driver    plans files, pruned by the scan's filter; each file, or part of a long one, is one TASK message
    Ray       makes as many read tasks as it wants to of them
    worker    opens its messages, and yields the rows in blocks

The Dataset is of the snapshot that was current when it was made, however often it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import ray
from pyiceberg.table import DataScan, IncrementalAppendScan, Table
from ray.data import Dataset, Datasource, ReadTask
from ray.data.block import BlockMetadata

from tablecrypt.engines.reads import ReadPlan, planned_read, rows_of, scan_of
from tablecrypt.engines.spreading import balanced
from tablecrypt.errors import TablecryptError
from tablecrypt.ray.failures import ENGINE, failure


def read_table(table_or_scan: Table | DataScan | IncrementalAppendScan, **options: Any) -> Dataset:
    """Return the rows of an encrypted table as a Dataset, which workers read and decrypt when it is used.

    Args:
        table_or_scan: a table, or `table.scan(...)` with a filter, columns or a snapshot.
        options: those of `ray.data.read_datasource`, such as override_num_blocks, concurrency and num_cpus.

    Raises:
        ColumnKeyDeniedError: the columns include a protected one that this user may not see, and the scan does not ask for masks.
        ConfigurationError: not an encrypted table, or workers cannot be sent the way to the KMS or the table's storage.
        KmsError: the KMS refused the table's key to the driver.

    What goes wrong in a worker fails the Dataset when it is used, with an error that is both Ray's RayTaskError and this package's: a
    TamperedFileError that names the file, a KmsAccessDeniedError that names the key and the node.
    """
    scan = scan_of(table_or_scan, "tablecrypt.ray.read_table", "ray.data.read_iceberg")
    dataset = ray.data.read_datasource(EncryptedDatasource(planned_read(scan, ENGINE)), **options)
    return dataset if scan.limit is None else dataset.limit(scan.limit)


class EncryptedDatasource(Datasource):  # type: ignore[misc]
    """What Ray Data reads an encrypted table through. Can be pickled: it holds ciphertext."""

    def __init__(self, plan: ReadPlan) -> None:
        super().__init__()
        self._plan = plan
        self._projection_map: dict[str, str] | None = None

    def get_name(self) -> str:
        """Return what Ray calls the read."""
        return "EncryptedTable"

    def supports_projection_pushdown(self) -> bool:
        """Whether unused columns are left out: they are."""
        return True

    def estimate_inmemory_data_size(self) -> int:
        """Return about how many bytes the rows take."""
        return self._read.size_in_memory

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None) -> list[ReadTask]:
        """Return as many tasks as Ray asks for, where there are files for them; one at least, which knows the schema."""
        count = max(1, min(parallelism, len(self._plan.files)))
        plan = self._read
        lists = balanced(plan.files, lambda file: file.size, count)
        return [self._task(replace(plan, files=tuple(files)), per_task_row_limit) for files in lists]

    @property
    def _read(self) -> ReadPlan:
        columns = self._get_data_columns()
        return self._plan if columns is None else replace(self._plan, columns=tuple(columns))

    def _task(self, plan: ReadPlan, limit: int | None) -> ReadTask:
        metadata = BlockMetadata(num_rows=plan.rows, size_bytes=plan.size_in_memory, input_files=None, exec_stats=None)
        return ReadTask(partial(read_files, plan), metadata, plan.read_schema, limit)


def read_files(plan: ReadPlan) -> Iterator[pa.Table]:
    """Yield the rows of a task's files. Runs in a worker."""
    try:
        empty = True
        for batch in rows_of(plan):
            empty = False
            yield pa.Table.from_batches([batch])
        # Ray takes the schema from blocks, of which there has to be one.
        if empty:
            yield pa.Table.from_batches([], plan.read_schema)
        return
    except TablecryptError as error:
        failed = failure(error)

    raise failed
