"""Fresh DEKs for the data of a table: files encrypted again without decoding a value, and put in place of the old ones in one snapshot.

    plan      data files that the filter may match and that are old enough, with the delete files that apply to them
    files     each one written under a fresh DEK and AAD prefix, on threads or executors; the journal says which are done
    commit    one snapshot of operation "replace" (see table/replace_files.py), tried again on what others commit meanwhile

A run that was killed is continued by calling again: what its journal holds is not done again. Sequence numbers, row ids, statistics and the
order of rows stay; deletion vectors are written again, about the new files.

What it does not do: older snapshots still name the old files under the old DEKs until they are expired; KEKs and master keys are for
`rotate_kek` and `rewrap`.

Of each file:

    Parquet    module by module (see parquet/writing.py; columns/reencryption.py where columns are protected)
    Avro       AGS1 block by block

A file whose partition shows a protected column is not copied: its rows are written again under the current partition spec, in snapshots of
their own before the others (see columns/partitions.py). The journal does not hold these.

The new file is another object in the same folder, or in the table's own data folder where the old one lies elsewhere, as one that
`add_files` took in may. The old one stays as it was, for the snapshots that name it.

Raises TamperedFileError, naming the old file, where a module or block of it does not authenticate; nothing is left of the new file then.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import ALWAYS_TRUE, Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from tablecrypt.arguments import checked_arguments
from tablecrypt.crypto.aes_gcm import KEY_LENGTHS
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.deletion import DeletionScope
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.files.raw_output import RawContent
from tablecrypt.maintenance._journal import Journal, make_new_files, replacement_entry
from tablecrypt.maintenance._tables import (
    check_branch,
    checked_condition,
    checked_moment,
    encrypted_metadata_of,
    name_of,
    require_encrypted,
    table_io,
)
from tablecrypt.maintenance.columns.footers import look_at
from tablecrypt.maintenance.columns.former_protection import forget_former_protection
from tablecrypt.maintenance.columns.partitions import ShownFiles, not_among
from tablecrypt.maintenance.columns.reencryption import (
    NewFile,
    ProtectedFiles,
    ProtectedWork,
    ReencryptWork,
    may_have_hidden_columns,
    write_protected,
)
from tablecrypt.maintenance.progress import OperationResult, ProgressListener, no_progress
from tablecrypt.maintenance.runner import FileDone, FileWork, Runner, runner_or_threads
from tablecrypt.manifests.avro_columns import Mask
from tablecrypt.manifests.entries import Entries
from tablecrypt.manifests.entry_columns import Column
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.parquet.keys import FileKeys
from tablecrypt.parquet.writing import reencrypt as reencrypt_modules
from tablecrypt.printable import bytes_shown, counted, shown
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.planning import FileCondition, ScanPlanner
from tablecrypt.table.protection.written_under import WrittenUnder
from tablecrypt.table.replace_files import EncryptedFileSwap
from tablecrypt.table.restrictions.read_restrictions import refuse_restricted
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import FreshKeys, deleting_on_error, is_deletion_vector, key_metadata_of

_CHUNK_LENGTH: Final = 4 * 1024 * 1024

OPERATION: Final = "reencrypt"


@dataclass(frozen=True)
class Reencrypted(OperationResult):
    """What `reencrypt` did.

    Attributes:
        data_files: how many data files.
        delete_files: how many equality and position delete files. Deletion vectors are not counted.
        size: stored bytes of all of them.
        resumed: how many of them an earlier run had done.
        gone: how many of them others removed from the branch in the meantime.
        snapshot_id: the new snapshot; None where nothing had to be done, and for a dry run.
        unused: new files that are not part of the table. `remove_orphan_files` deletes them; they stay until then, since another run may
            be about to commit them.
        in_line: how many data files had protected columns that were not as the properties declare, and have them so now.
        twins_kept: how many data files carry hidden columns over as they are, since this user may not use a column's key, or the column was
            shredded. All else in them is under fresh DEKs.
    """

    data_files: int
    delete_files: int
    size: int
    resumed: int = field(default=0, metadata=shown("files of an earlier run that was interrupted", "count"))
    gone: int = field(default=0, metadata=shown("files left out, since others removed them in the meantime", "count"))
    snapshot_id: int | None = field(default=None, metadata=shown("new snapshot"))
    unused: tuple[str, ...] = field(default=(), metadata=shown("new files that are not part of the table; orphans deletes them"))
    in_line: int = field(default=0, metadata=shown("files whose protected columns are now as declared", "count"))
    twins_kept: int = field(default=0, metadata=shown("files with a protected column left as it is, for lack of its key", "count"))

    def summary(self) -> str:
        """Return what was done in one sentence."""
        if not self.data_files and not self.delete_files:
            return f"No file of {self.table} {self._did('had', 'has')} to be re-encrypted."
        deletes = f" and {counted(self.delete_files, 'delete file', 'delete files')}" if self.delete_files else ""
        files = f"{counted(self.data_files, 'data file', 'data files')}{deletes} of {self.table} ({bytes_shown(self.size)})"
        return f"{self._did('Re-encrypted', 'Would re-encrypt')} {files} under fresh keys."


@checked_arguments(but=("where", "older_than"))
def reencrypt(
    table: Table,
    where: str | BooleanExpression | FileCondition = ALWAYS_TRUE,
    older_than: dt.datetime | None = None,
    data_key_length: int | None = None,
    branch: str = MAIN_BRANCH,
    dry_run: bool = False,
    progress: ProgressListener = no_progress,
    runner: Runner | None = None,
    workers: int | None = None,
    out_of_line: bool = False,
    accept_masks: bool = False,
) -> Reencrypted:
    """Re-encrypt a table's data files under fresh DEKs.

    Args:
        table: an encrypted table. It is refreshed.
        where: only data files that may hold matching rows, as its partitions and statistics tell.
        older_than: only files whose DEK was made before this moment, which has a time zone; by default all.
        data_key_length: bytes of the new DEKs, 16, 24 or 32; by default what the table's properties say.
        branch: whose files.
        out_of_line: only data files whose protected columns are not as the table's properties declare.
        accept_masks: protect a column also where all its values in a file that another engine wrote look like its mask.
        dry_run: whether to say only what would be done.
        progress: called with the stored bytes that are done.
        runner: runs the work on files, such as `tablecrypt.spark.SparkRunner(spark)`; by default threads here do.
        workers: how many files at once, without `runner`.

    Raises:
        ConfigurationError: an argument that does not fit, or a table that is not encrypted; or a file in which another engine seems to have
            stored masks of a protected column as its values. Nothing is written then.
        ColumnKeyDeniedError: a file's protected columns are not as the properties declare, and this user may not use a key that changing
            them takes. Nothing is written then.
        TamperedFileError: a file differs from what was written. The next run keeps what is done so far; the table is unchanged.
        KmsError: the KMS refused the table's key.
        ValidationException: others removed a file whose partition shows a protected column, or rows of it, while it was written again.
        CommitFailedException: other writers committed first, several times in a row; the next run continues.
    """
    table = require_encrypted(table, "`migrate` makes it one")
    runner = runner_or_threads(runner, workers)
    _check_numbers(older_than, data_key_length)
    table.refresh()
    refuse_restricted(table.io, "reencrypt")
    check_branch(table, branch)
    condition = checked_condition(table, where)
    plan = _planned(table, condition, older_than, branch)
    protected = ProtectedFiles.among(table, plan.files.values(), runner)
    moved = ShownFiles.among(table, branch, plan.files)
    changed = () if protected is None else tuple(each for each in plan.files if each in moved.locations or not protected.conforms(each))
    if out_of_line:
        plan = plan.only(changed)
    if protected is not None:
        if not accept_masks:
            protected.refuse_masks(table, plan.files, plan.sequence_numbers, runner)
        protected.check_readable(sorted(moved.locations))
        protected.open_all(not_among(plan.files, moved.locations), plan.sequence_numbers)
    found = Reencrypted(
        name_of(table),
        dry_run,
        plan.data_files,
        len(plan.files) - plan.data_files,
        plan.size,
        in_line=len(changed),
        twins_kept=0 if protected is None else protected.kept,
    )
    if dry_run:
        return found
    if protected is not None and (head := moved.rewrite(data_key_length, runner, progress)) is not None:
        found = replace(found, snapshot_id=head)
        remaining = not_among(plan.files, moved.locations)
        # Others than those that were planned may have gone with them, for their deletion vectors.
        plan = _planned(table, condition, older_than, branch, remaining)
        if out_of_line:
            plan = plan.only([location for location in plan.files if location in remaining])
        # The commit loaded the table again, and with it what makes the column keys of the new files.
        protected = ProtectedFiles.among(table, plan.files.values(), runner)
        if protected is not None:
            protected.open_all(plan.files, plan.sequence_numbers)
    if plan.files:
        found = _carried_out(table, plan, protected, found, data_key_length, branch, runner, progress)
    if protected is not None and not changed:
        # Last, since it refreshes the table, and with it what makes the column keys of the new files.
        forget_former_protection(table, runner)
    return found


def _carried_out(
    table: EncryptedTable,
    plan: _Plan,
    protected: ProtectedFiles | None,
    found: Reencrypted,
    data_key_length: int | None,
    branch: str,
    runner: Runner,
    progress: ProgressListener,
) -> Reencrypted:
    """Write the new files and commit them."""
    io, metadata = table_io(table), encrypted_metadata_of(table)
    written_under = WrittenUnder.of(metadata)
    key_length = data_key_length or io.manager.data_key_length
    journal = Journal(io, metadata, metadata.encryption_keys, metadata.head_key_id(branch), OPERATION)
    earlier = _earlier(journal, plan, key_length, partial(_usable, table, protected, runner))
    swaps = dict(earlier.swaps)
    folder = table.location_provider().new_data_location("any").rpartition("/")[0]
    work_of = partial(reencrypt_work, data_key_length=key_length, own_folders=io.own_folders, data_folder=folder)
    if protected is None:
        make_new_files(table, plan.files, swaps, runner, reencrypt_file, work_of, replacement_entry, journal, OPERATION, progress)
    else:
        make_new_files(
            *(table, plan.files, swaps, runner, reencrypt_protected_file),
            *(lambda file: protected.work(work_of(file)), protected.entry, journal, OPERATION, progress),
        )
    swapped, snapshot_id = _commit(table, swaps, branch, written_under)
    journal.remove()
    gone = sorted(swaps.keys() - swapped)
    unused = (*earlier.unused, *(swaps[location].file_path for location in gone))
    return replace(found, resumed=len(earlier.swaps), gone=len(gone), snapshot_id=snapshot_id, unused=unused)


def _check_numbers(older_than: dt.datetime | None, data_key_length: int | None) -> None:
    if older_than is not None:
        checked_moment("older_than", older_than)
    if data_key_length is not None and data_key_length not in KEY_LENGTHS:
        raise ConfigurationError(f"data_key_length is {data_key_length}; it must be 16, 24 or 32 bytes")


@dataclass(frozen=True)
class _Plan:
    """Files to encrypt again, and the data sequence numbers of data files, by location."""

    files: dict[str, DataFile]
    data_files: int
    sequence_numbers: Mapping[str, int | None]

    @property
    def size(self) -> int:
        """Stored bytes of all of them."""
        return sum(file.file_size_in_bytes for file in self.files.values())

    def only(self, data: Collection[str]) -> _Plan:
        """Return the plan of these data files, by location, and no delete file."""
        return _Plan({location: self.files[location] for location in data}, len(data), self.sequence_numbers)


@dataclass(frozen=True)
class _Earlier:
    """What an earlier run did: new files by the old locations whose places they take, and new files that no commit took."""

    swaps: dict[str, EncryptedDataFile]
    unused: tuple[str, ...]


def _earlier(journal: Journal, plan: _Plan, key_length: int, usable: Callable[[Mapping[str, EncryptedDataFile]], set[str]]) -> _Earlier:
    """Read the journal of an earlier run. Files that are no longer planned, or whose DEKs have another length, are of no use."""
    found = journal.load()
    planned = {
        location: new
        for location, new in found.items()
        if location in plan.files and len(key_metadata_of(new).encryption_key) == key_length
    }
    chosen = usable(planned)
    swaps = {location: new for location, new in planned.items() if location in chosen}
    unused = (new.file_path for location, new in found.items() if location not in swaps and new.file_path not in plan.files)
    return _Earlier(swaps, tuple(unused))


def _usable(table: EncryptedTable, protected: ProtectedFiles | None, runner: Runner, swaps: Mapping[str, EncryptedDataFile]) -> set[str]:
    """Return of which old files the new one can be committed: the column keys of a run that was killed may be gone with it."""
    if protected is None or not swaps:
        return set(swaps)
    looks = look_at(table, (new for new in swaps.values() if may_have_hidden_columns(new)), runner)
    return {old for old, new in swaps.items() if new.file_path not in looks or protected.is_usable(looks[new.file_path])}


def _planned(
    table: EncryptedTable, where: FileCondition, older_than: dt.datetime | None, branch: str, among: Collection[str] | None = None
) -> _Plan:
    """Plan the files that a filter and a moment leave, of the data files at these locations where they are given."""
    metadata = encrypted_metadata_of(table)
    snapshot = metadata.snapshot_by_name(branch)
    if snapshot is None:
        return _Plan({}, 0, {})
    manifests = snapshot.manifests(table.io)
    is_old = _age_filter(metadata, older_than)
    options = {"include_empty_files": "true"}
    planner = ScanPlanner(metadata, table.io, where.row_filter, options=options, of_partitions=where.of_partitions)
    tasks = [task for task in planner.plan_files(manifests, is_old) if among is None or task.file.file_path in among]
    data = {task.file.file_path: task.file for task in tasks}
    total = sum(
        (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
        for manifest in manifests
        if manifest.content == ManifestContent.DATA
    )
    # Where no data file stays, no position delete file does.
    content = {DataFileContent.EQUALITY_DELETES, *({DataFileContent.POSITION_DELETES} if len(data) < total else ())}
    deletes = {
        file.file_path: file for task in tasks for file in task.delete_files if file.content in content and not is_deletion_vector(file)
    }
    return _Plan({**data, **deletes}, len(data), {task.file.file_path: task.data_sequence_number for task in tasks})


def _age_filter(metadata: EncryptedTableMetadata, older_than: dt.datetime | None) -> Callable[[Entries], Mask] | None:
    """A file's DEK is as old as the snapshot that added the file. Its sequence number tells, also when that snapshot is expired."""
    if older_than is None:
        return None
    limit_ms = older_than.timestamp() * 1000
    younger = [snapshot.sequence_number or 0 for snapshot in metadata.snapshots if snapshot.timestamp_ms >= limit_ms]
    first_young = min(younger, default=metadata.last_sequence_number + 1)
    # A file without sequence number, which lies below zero here, is as old as any.
    return lambda entries: entries.numbers[Column.FILE_SEQUENCE_NUMBER] < first_young


def _commit(
    table: EncryptedTable, swaps: Mapping[str, EncryptedDataFile], branch: str, written_under: WrittenUnder
) -> tuple[set[str], int]:
    transaction = table.transaction()
    with transaction:
        producing = transaction.update_snapshot({}, branch)
        producer = producing.producer(EncryptedFileSwap, Operation.REPLACE, swaps=swaps, written_under=written_under)
        producer.commit()
    return producer.swapped, producer.snapshot_id


def reencrypt_work(file: DataFile, data_key_length: int, own_folders: DeletionScope, data_folder: str) -> FileWork[ReencryptWork]:
    """Return the work of re-encrypting one file of a table.

    Args:
        file: the old one.
        data_key_length: how many bytes the new DEK has.
        own_folders: of the table. Beside a file that lies elsewhere nothing is written: that place is somebody else's.
        data_folder: where the new file goes then.
    """
    is_own = own_folders.reason_against(file.file_path) is None
    folder = file.file_path.rpartition("/")[0] if is_own else data_folder
    work = ReencryptWork(file.file_path, file.file_format.value, data_key_length, folder)
    return FileWork(work, (key_metadata_of(file),), file.file_size_in_bytes)


def reencrypt_file(io: EncryptingFileIO, work: ReencryptWork, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[str]:
    """Write the new file and return its location and key metadata, which knows the file's length."""
    (old,) = keys
    new = FreshKeys(work.data_key_length).new_key_metadata()
    location = work.new_location()
    copy_one = {FileFormat.PARQUET.value: _copy_parquet, FileFormat.AVRO.value: _copy_avro}.get(work.file_format)
    if copy_one is None:
        raise FormatError(f"{work.location}: {work.file_format} files of encrypted tables are not known")
    with deleting_on_error(io, [location]):
        return FileDone(location, (new.with_file_length(copy_one(io, work.location, old, location, new)),))


def reencrypt_protected_file(io: EncryptingFileIO, work: ProtectedWork, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[NewFile]:
    """Do the same for a file of a table with protected columns."""
    if work.hidden_columns is not None:
        return write_protected(io, work.plain, work.hidden_columns, keys)
    done = reencrypt_file(io, work.plain, keys)
    return FileDone(NewFile(done.result), done.keys)


def _copy_parquet(io: EncryptingFileIO, source: str, old: StandardKeyMetadata, target: str, new: StandardKeyMetadata) -> int:
    with io.raw_input(source).open() as stored, io.raw_output(target, RawContent.SELF_ENCRYPTED).create() as sink:
        return reencrypt_modules(stored, sink, FileKeys.of_table_file(old), FileKeys.of_table_file(new), location=source)


def _copy_avro(io: EncryptingFileIO, source: str, old: StandardKeyMetadata, target: str, new: StandardKeyMetadata) -> int:
    output = io.encrypting_output(target, new)
    with io.decrypting_input(source, old).open() as plaintext, output.create() as sink:
        while chunk := plaintext.read(_CHUNK_LENGTH):
            sink.write(chunk)
    return len(output)
