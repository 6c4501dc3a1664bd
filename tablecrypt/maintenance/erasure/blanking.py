"""Erasing rows from files that hold protected columns of which the caller may not use every key.

Values of such a column cannot be taken out of a page without its key. So the file is written again with everything else of the rows
blanked, and a deletion vector hides what is left of them:

    customer_id   email (protected)        customer_id   email (protected)
    7             ciphertext          ─▶   null          ciphertext          hidden by a deletion vector
    8             ciphertext               8             ciphertext

The new file's name ends in "-blanked.parquet". Its manifest entry, which is authenticated, says so to the next erasure of somebody who may
use the keys: that applies the deletion vector, and the ciphertext goes with the file.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Final

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.table.snapshots import Operation

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.files.raw_output import RawContent
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.maintenance._tables import encrypted_metadata_of, table_io
from tablecrypt.maintenance.erasure.plan import RefWork
from tablecrypt.maintenance.erasure.row_filter import ErasureFilter
from tablecrypt.maintenance.erasure.search import BLANKED
from tablecrypt.manifests.records import DATA_FILE_POSITIONS, FORMAT_VERSION, EncryptedDataFile
from tablecrypt.parquet.kept_twins import blank_rows_beside_twins
from tablecrypt.table.file_entries import STATISTICS
from tablecrypt.table.lineage import LINEAGE_FIELD_IDS
from tablecrypt.table.parquet_options import data_file_statistics
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.protection.policy import column_keys, policy_of, unreadable
from tablecrypt.table.replace_files import EncryptedFileSwap
from tablecrypt.table.row_changes import row_mode
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import FreshKeys, delete_written, deleting_on_error, key_metadata_of, with_key

_MERGE_ON_READ: Final = "merge-on-read"


def has_hidden_columns(table: EncryptedTable) -> bool:
    """Whether a table has protected columns that the caller may not read, so that rows are blanked and not removed.

    Raises:
        ColumnKeyDeniedError: it has, and its deletes write files again, which takes the keys.
    """
    metadata = encrypted_metadata_of(table)
    policy = policy_of(metadata)
    keys = column_keys(metadata, table_io(table))
    if not unreadable(keys, policy.columns):
        return False
    if row_mode(metadata.properties, "write.delete.mode") != _MERGE_ON_READ:
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
    tasks = [task for task in work.rewrite if task.file.file_path in held]
    if not tasks:
        return
    swaps = {task.file.file_path: _blanked(table, work.name, task, row_filter) for task in tasks}
    transaction = table.transaction()
    try:
        with transaction:
            transaction.update_snapshot({}, work.name).producer(EncryptedFileSwap, Operation.REPLACE, swaps=swaps).commit()
    except (CommitFailedException, ValidationException):
        # Of any other error it is not certain that nothing was committed.
        delete_written(table_io(table), [new.file_path for new in swaps.values()])
        raise


def _blanked(table: EncryptedTable, branch: str, task: EncryptedFileScanTask, row_filter: ErasureFilter) -> EncryptedDataFile:
    io, old = table_io(table), key_metadata_of(task.file)
    stored = EncryptedFileScanTask(task.file, set(), data_sequence_number=task.data_sequence_number)
    positions = table.scan(row_filter=row_filter.expression).use_ref(branch).matching_positions(stored)
    dek = FreshKeys(len(old.encryption_key)).new_key_metadata().encryption_key
    new = StandardKeyMetadata(dek, old.aad_prefix)
    location = f"{task.file.file_path.rpartition('/')[0]}/{uuid.uuid4()}{BLANKED}"
    output = io.raw_output(location, RawContent.SELF_ENCRYPTED)
    with deleting_on_error(io, [location]), io.raw_input(task.file.file_path).open() as source, output.create() as sink:
        footer, length = blank_rows_beside_twins(source, sink, old, new, positions.to_pylist(), task.file.file_path)
    metadata = encrypted_metadata_of(table)
    schema = pyarrow_to_schema(footer.schema.to_arrow_schema(), metadata.name_mapping(), format_version=FORMAT_VERSION)
    entry = with_key(task.file, new.with_file_length(length))
    entry[DATA_FILE_POSITIONS["file_path"]] = location
    entry[DATA_FILE_POSITIONS["file_size_in_bytes"]] = length
    protected = ColumnPolicy.from_properties(metadata.properties).columns
    found = data_file_statistics(footer, schema, metadata.properties)
    entry[DATA_FILE_POSITIONS["split_offsets"]] = found["split_offsets"]
    for name in STATISTICS:
        entry[DATA_FILE_POSITIONS[name]] = _of_others(found.get(name), protected)
    return entry


def _of_others(statistics: object, protected: Mapping[int, object]) -> object:
    if not isinstance(statistics, Mapping):
        return statistics
    return {each: value for each, value in statistics.items() if each not in protected and each not in LINEAGE_FIELD_IDS}
