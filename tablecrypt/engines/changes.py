"""The commit of what a job found and wrote: does it still fit the table, and what becomes of its files where it does not.

Tasks name a file by its number in the job. `table/row_changes.py` says what a change of rows is made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyroaring import BitMap64

from tablecrypt.engines.job_messages import FileNumber
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.protection.writing import WrittenUnder
from tablecrypt.table.table_files import NOT_COMMITTED, delete_files
from tablecrypt.table.transaction import EncryptedTransaction

K = TypeVar("K")


def numbered_files(partitions: Sequence[Sequence[EncryptedFileScanTask]]) -> dict[FileNumber, EncryptedFileScanTask]:
    """Return the files of a job by the numbers that its tasks give them."""
    return {(number, index): task for number, tasks in enumerate(partitions) for index, task in enumerate(tasks)}


def marked_files(files: Mapping[K, EncryptedFileScanTask], marks: Mapping[K, BitMap64]) -> list[tuple[EncryptedFileScanTask, BitMap64]]:
    """Return the files in which tasks marked rows, with the positions of these.

    Args:
        files: those that the job reads, by what its tasks name them by.
        marks: what tasks marked.

    Raises:
        FormatError: a task names a file that the job is not about, or a row that the file does not have.
    """
    marked = []
    for name, bitmap in marks.items():
        # A worker that was taken over could delete rows of a file that the job did not read; or give one file two numbers, and have what
        # is left of it written twice.
        if name not in files:
            raise FormatError(f"a task marks rows of file {name}, which the job does not have")
        file = files[name].file
        if bitmap and bitmap.max() >= file.record_count:
            raise FormatError(f"{file.file_path}: a task marks row {bitmap.max()} of it, and it has {file.record_count}")
        if bitmap:
            marked.append((files[name], bitmap))

    return marked


def check_unchanged(name: str, planned: TableMetadata, current: TableMetadata, branch: str | None = None) -> None:
    """Check that files written for `planned` still fit the table.

    Args:
        name: of the table, for messages.
        planned: the table as it was.
        current: the table as it is.
        branch: the one to commit to, if the commit names one.

    Raises:
        ConfigurationError: the table, its columns or its partitioning were changed meanwhile, or the branch was dropped.
        StaleWriteError: the protection of its columns was.
    """
    for what, now, then in (
        # The name may lead to another table by now: these rows were written for the readers of the first.
        ("table", current.table_uuid, planned.table_uuid),
        ("schema", current.current_schema_id, planned.current_schema_id),
        ("partitioning", current.default_spec_id, planned.default_spec_id),
    ):
        if now != then:
            raise ConfigurationError(f"{name}: its {what} was changed while the rows were written; nothing was committed")

    # The commit would make the branch anew, with these rows and without those that it had.
    found = None if branch is None else current.refs.get(branch)
    if branch in planned.refs and (found is None or found.snapshot_ref_type != SnapshotRefType.BRANCH):
        raise ConfigurationError(f"{name}: its branch {branch!r} was dropped while the rows were written; nothing was committed")

    # A column that was declared meanwhile would lie here in the clear; under a key that was shredded, no reader could open it.
    WrittenUnder.of(planned).check(current, None)


def check_replacing(io: EncryptingFileIO, files: Sequence[DataFile]) -> None:
    """Check that files are what their workers say of them, before they take the place of rows. AuthenticationError: one is not."""
    # Imported here: Spark's planner and jobs start without what maintenance needs.
    from tablecrypt.maintenance._file_rewrite import check_open

    check_open(io, files)


@contextmanager
def committing(transaction: EncryptedTransaction, io: EncryptingFileIO, files: Sequence[DataFile], *, replaces: bool) -> Iterator[None]:
    """Commit what the block stages.

    The files are deleted only where it is certain that nothing was committed: after a lost connection they may be the table's.

    Args:
        transaction: it is committed at the end of the block.
        io: the table's.
        files: what workers wrote for it.
        replaces: whether rows that the table has go out of it, so that only these files have what is to be there instead.

    Raises:
        AuthenticationError: with `replaces`, a file is not what its worker says of it.
    """
    is_staged = False
    try:
        if replaces:
            check_replacing(io, files)
        with transaction:
            yield
            is_staged = True
    except BaseException as error:
        # Any other error of the commit, such as a lost answer, leaves open whether metadata names these files by now.
        if not is_staged or isinstance(error, NOT_COMMITTED):
            delete_files(io, files)
        raise
