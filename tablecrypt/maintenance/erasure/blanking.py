"""Erasing rows from files that hold protected columns of which the caller may not use every key.

Values of such a column cannot be taken out of a page without its key. So the file is written again with everything else of the rows
blanked, and a deletion vector hides what is left of them:

    customer_id   email (protected)        customer_id   email (protected)
    7             ciphertext          ─▶   null          ciphertext          hidden by a deletion vector
    8             ciphertext               8             ciphertext

The new file's name ends in "-blanked.parquet". Its manifest entry, which is authenticated, says so to the next erasure whose caller may
use the keys: it applies the deletion vector, and the ciphertext goes with the file.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pyiceberg.exceptions import CommitFailedException, ValidationException

from tablecrypt.maintenance._file_rewrite import commit_replacement
from tablecrypt.maintenance.columns.blanking import blanked_file
from tablecrypt.maintenance.erasure.plan import RefWork
from tablecrypt.maintenance.erasure.row_filter import ErasureFilter
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.protection.policy import column_keys, policy_of, unreadable
from tablecrypt.table.replace_files import EncryptedFileSwap
from tablecrypt.table.row_changes import row_mode
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import delete_written, deleting_on_error

_MERGE_ON_READ: Final = "merge-on-read"


def has_hidden_columns(table: EncryptedTable) -> bool:
    """Whether a table has protected columns that the caller may not read, so that rows are blanked and not removed.

    Raises:
        ColumnKeyDeniedError: it has, and its deletes write files again, which takes the keys.
    """
    metadata = table.metadata
    policy = policy_of(metadata)
    keys = column_keys(metadata, table.io)
    if not unreadable(keys, policy.columns):
        return False

    if row_mode(metadata.properties, "write.delete.mode") != _MERGE_ON_READ:
        # Copy-on-write deletes decode whole rows to write them again, and without its key a column's values cannot be decoded.
        keys.check_readable(tuple(policy.columns))
    return True


def blank_rows(table: EncryptedTable, work: RefWork, row_filter: ErasureFilter, held: Collection[str]) -> None:
    """Put files in the place of those that a branch has, without anything that the caller can take out of the rows of a filter.

    Args:
        table: as the catalog has it now; the rows are deleted on the branch.
        work: what is to be done on the branch.
        row_filter: the filter.
        held: locations of the files that hold such rows.

    Raises:
        FormatError: a file cannot be written so.
        CommitFailedException: other writers committed first, several times in a row.
    """
    # Delete files that hold such values are not replaced here: the search at the end reports those that are left.
    tasks = [task for task in work.rewrite if task.file.file_path in held]
    if not tasks:
        return

    written: list[EncryptedDataFile] = []
    # A generator: by the time that something fails, it lists what was written until then.
    with deleting_on_error(table.io, (new.file_path for new in written)):
        for task in tasks:
            written.append(_blanked(table, work.name, task, row_filter))
    swaps = {task.file.file_path: new for task, new in zip(tasks, written, strict=True)}

    try:
        commit_replacement(table, work.name, EncryptedFileSwap, swaps=swaps)
    except (CommitFailedException, ValidationException):
        # Of any other error it is not certain that nothing was committed.
        delete_written(table.io, [new.file_path for new in written])
        raise


def _blanked(table: EncryptedTable, branch: str, task: EncryptedFileScanTask, row_filter: ErasureFilter) -> EncryptedDataFile:
    # Without its deletes: a row that a deletion vector hides is still stored, and has to be blanked too.
    stored = EncryptedFileScanTask(task.file, set(), data_sequence_number=task.data_sequence_number)
    positions = table.scan(row_filter=row_filter.expression).use_ref(branch).matching_positions(stored)
    return blanked_file(table, task.file, positions.to_pylist())
