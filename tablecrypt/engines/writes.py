"""A write by workers: what the driver checks before rows are written, and the commit of the files that workers wrote.

    driver    checks the table, makes the keys of protected columns, begins the job
    worker    rows ─▶ encrypted Parquet files under fresh DEKs ─▶ their entries, encrypted (RESULT, see tasks.py)
    driver    opens the entries that the engine collected, and adds exactly those in one commit

What failed attempts, killed workers or a driver that died leave is ciphertext that no manifest names, and `maintenance.remove_orphan_files`
finds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from pyiceberg.manifest import DataFile

from tablecrypt.engines.access import TableAccess
from tablecrypt.engines.changes import check_unchanged, committing
from tablecrypt.engines.jobs import WorkerJob
from tablecrypt.engines.overwrite import stage_overwrite
from tablecrypt.engines.protected_columns import ensure_column_keys
from tablecrypt.table.parquet_options import parquet_writer_options, target_file_size
from tablecrypt.table.snapshots import CommitOptions
from tablecrypt.table.table import EncryptedTable, check_branch
from tablecrypt.table.table_files import name_of, removing_on_error


def commit_to(table: EncryptedTable, branch: str, snapshot_properties: Mapping[str, str] | None) -> CommitOptions:
    """Return where a write goes. ConfigurationError for a branch that is not there, and for texts that cannot be stored."""
    options = CommitOptions(branch, snapshot_properties or {})
    check_branch(table, branch)
    return options


def begin_write(table: EncryptedTable, branch: str | None, engine: str) -> tuple[WorkerJob, TableAccess]:
    """Begin the job of a write, and return it with what its tasks need of the table.

    Raises:
        ColumnKeyDeniedError: the KMS refuses the key of a protected column.
        ConfigurationError: the table's properties cannot be used, or as `WorkerJob.on`.
        KmsError: the KMS refused the table's key.
    """
    # First, since it may commit: the job has to be planned on metadata that has these keys.
    ensure_column_keys(table)
    metadata, io = table.metadata, table.io
    # Asked now: a master key that may not be used would else stop the commit, after workers had written everything.
    io.manager.check_usable(metadata.key_ring, metadata.head_key_id(branch))
    # The next two calls are for their errors, which one driver reports better than every worker.
    parquet_writer_options(metadata.properties)
    target_file_size(metadata.properties)
    job = WorkerJob.on(metadata, io, engine)

    return job, job.access()


def current_table(table: EncryptedTable, job: WorkerJob, files: list[DataFile], branch: str | None) -> EncryptedTable:
    """Return the table as its catalog has it now.

    Raises:
        ConfigurationError: its schema or partitioning was changed since the job began, or the branch dropped. The files are deleted then.
    """
    with removing_on_error(job.io, files):
        # The job may have taken hours, and the table in memory is as old as that.
        current = table.catalog.load_table(table.name())
        check_unchanged(name_of(table), job.metadata, current.metadata, branch)
    return cast("EncryptedTable", current)


def commit_files(current: EncryptedTable, job: WorkerJob, files: list[DataFile], options: CommitOptions, *, overwrites: bool) -> None:
    """Commit the files of all tasks in one snapshot, if there are any or all other rows go.

    Raises:
        AuthenticationError: all other rows go, and a file is not what its worker says of it. The files are deleted then.
        StaleWriteError: the protection of columns was changed since the job began.
        CommitFailedException: others committed first, several times in a row.
    """
    if not files and not overwrites:
        return

    transaction = current.transaction()
    with committing(transaction, job.io, files, replaces=overwrites):
        if overwrites:
            stage_overwrite(transaction, files, options)
        else:
            transaction.append_producer(options).commit_files(files)
