"""Dynamic overwrite: the table partitions that new files fall into lose the files that they had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pyiceberg.manifest import DataFile
from pyiceberg.table import ALWAYS_TRUE

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.row_change import RowChange
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.table.planning import EncryptedFileScanTask, partition_values


def check_can_replace_partitions(located: LocatedTable, branch: str) -> None:
    """Check a table before rows are written.

    Raises:
        ConfigurationError: the table has no partitions, or live files of an earlier partitioning, whose rows may belong into any of today's
            partitions.
    """
    spec = located.table.spec()
    if spec.is_unpartitioned():
        raise ConfigurationError(f"{located.name} has no partitions: use mode 'overwrite'")
    if any(task.file.spec_id != spec.spec_id for task in _tasks(located, branch)):
        raise ConfigurationError(
            f"{located.name} has files from before its partitioning was changed: use mode 'overwrite' with overwrite_filter"
        )


def replaced_partitions(located: LocatedTable, files: Sequence[DataFile], branch: str) -> RowChange:
    """Return the change that puts these files in place of what their partitions hold."""
    replaced = {partition_values(file.partition) for file in files}
    dropped = [task.file for task in _tasks(located, branch) if partition_values(task.file.partition) in replaced]
    return RowChange(branch=branch, dropped=dropped, added=list(files))


def _tasks(located: LocatedTable, branch: str) -> list[EncryptedFileScanTask]:
    return cast("list[EncryptedFileScanTask]", list(located.scan(ALWAYS_TRUE, branch).plan_files()))
