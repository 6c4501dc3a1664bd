"""Fresh DEKs for the data of a table: files encrypted again without decoding a value, and put in place of the old ones in one snapshot.

    plan      data files that the filter may match and that are old enough, with the delete files that apply to them
    files     each one written under a fresh DEK and AAD prefix, on threads or executors; the journal says which are done (_file_rewrite.py,
              and columns/reencryption.py where columns are protected)
    commit    one snapshot of operation "replace" (see table/replace_files.py), tried again on what others commit meanwhile

A run that was killed is continued by calling again: what its journal holds is not done again. Sequence numbers, row ids, statistics and the
order of rows stay; deletion vectors are written again, about the new files.

What it does not do: older snapshots still name the old files under the old DEKs until they are expired; KEKs and master keys are for
`rotate_kek` and `rewrap`.

A file whose partition, format or deletes show a protected column is not copied: its rows are written again under the current partition
spec, in snapshots of their own before the others (see columns/shown_files.py). The journal does not hold these.

The new file is another object in the same folder, or in the table's own data folder where the old one lies elsewhere, as one that
`add_files` took in may. The old one stays as it was, for the snapshots that name it.

Raises TamperedFileError, naming the old file, where a module or block of it does not authenticate; nothing is left of the new file then.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import ALWAYS_TRUE, Table
from pyiceberg.table.refs import MAIN_BRANCH

from tablecrypt.arguments import checked_arguments, names_of
from tablecrypt.crypto.aes_gcm import KEY_LENGTHS
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, refuse_restricted
from tablecrypt.maintenance._file_rewrite import (
    FileRewrite,
    FilesToReencrypt,
    Journal,
    NewFile,
    NewFileWork,
    ReencryptWork,
    commit_replacement,
    write_again,
)
from tablecrypt.maintenance.columns.blanking import BLANKED
from tablecrypt.maintenance.columns.reencryption import protected_files, write_protected
from tablecrypt.maintenance.operation import (
    OperationResult,
    ProgressListener,
    checked_condition,
    checked_moment,
    no_progress,
    require_encrypted,
)
from tablecrypt.maintenance.reachable import reachable_files
from tablecrypt.maintenance.runner import FileDone, FileWork, Runner, runner_or_threads
from tablecrypt.manifests.avro_columns import Mask
from tablecrypt.manifests.entries import Column, Entries
from tablecrypt.manifests.records import EncryptedDataFile, is_deletion_vector, key_metadata_of, refuse_another_name
from tablecrypt.printable import bytes_shown, counted, shown
from tablecrypt.table.metadata import EncryptedTableMetadata, has_column_keys
from tablecrypt.table.planning import FileCondition, ScanPlanner
from tablecrypt.table.protection.writing import WrittenUnder
from tablecrypt.table.replace_files import EncryptedFileSwap
from tablecrypt.table.shares import live_shares
from tablecrypt.table.table import EncryptedTable, check_branch
from tablecrypt.table.table_files import RunNames, folders_written, name_of

_FORMATS: Final = (FileFormat.PARQUET.value, FileFormat.AVRO.value)

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
        twins_kept: how many data files keep the twins of protected columns as they are, since this user may not use a column's key, or the
            column was shredded. All else in them is under fresh DEKs.
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
    files: Sequence[str] | None = None,
    shared_with: str | None = None,
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
        files: only the data files at these locations; by default all. An empty list is none.
        shared_with: only files that a live share names, by its uuid; by default all. The share goes on with the old files, until it ends
            and they go.
        dry_run: whether to say only what would be done.
        progress: called with the stored bytes that are done.
        runner: runs the work on files, such as `tablecrypt.spark.SparkRunner(spark)`; by default threads here do.
        workers: how many files at once, without `runner`.

    Raises:
        ConfigurationError: an argument that does not fit, or one of `files` that is none of the table's; a table that is not encrypted;
            or a file in which another engine seems to have stored masks of a protected column as its values. Nothing is written then.
        ColumnKeyDeniedError: a file's protected columns are not as the properties declare, and this user may not use a key that changing
            them takes. Nothing is written then.
        ShareRecordError: what the table remembers of a share cannot be read, where one is named. Nothing is written then.
        FormatError: manifests name one file in two ways. Nothing is written then.
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

    named = None if files is None else frozenset(names_of("files", files))
    among = _among(table, named, shared_with)
    run = _Reencryption(table, branch, condition, older_than, among, named, data_key_length, out_of_line, runner, progress)
    return run.run(accept_masks, dry_run)


def _among(table: EncryptedTable, named: frozenset[str] | None, shared_with: str | None) -> frozenset[str] | None:
    """Return the locations of the files that are named, one by one or by a share; None where all are meant."""
    if shared_with is None:
        return named

    for record in live_shares(table):
        if record.share_uuid == shared_with:
            return frozenset(record.all_files).intersection(record.all_files if named is None else named)
    raise ConfigurationError(f"{name_of(table)} has no live share {shared_with!r}; `shares` lists them")


def _refuse_unknown(table: EncryptedTable, locations: Collection[str]) -> None:
    """Refuse locations where no file of the table is or was: nothing would be re-encrypted, without an error.

    Raises:
        ConfigurationError: there is one.
    """
    if not locations:
        return

    known = reachable_files(table.metadata, table.io).files
    for location in sorted(set(locations) - known.keys()):
        # As a share kept it, whose files its end lists: its snapshot may have expired.
        was_known = table.io.own_folders.reason_against(location) is None and table.io.inner.new_input(location).exists()
        if not was_known:
            raise ConfigurationError(
                f"files (--file) names {location!r}, and {name_of(table)} has no such file: write its whole location, as the manifests "
                "and audit --json have it"
            )


@dataclass(frozen=True)
class _Reencryption:
    """One run on one branch. Attributes are as the arguments of `reencrypt`; of `files`, `among` is what a share named leaves of them."""

    table: EncryptedTable
    branch: str
    condition: FileCondition
    older_than: dt.datetime | None
    among: frozenset[str] | None
    named: frozenset[str] | None
    data_key_length: int | None
    out_of_line: bool
    runner: Runner
    progress: ProgressListener

    def run(self, accept_masks: bool, dry_run: bool) -> Reencrypted:
        """Take the steps in their order: what refuses comes before what writes, and forgetting, which refreshes the table, last."""
        plan = _planned(self.table, self.condition, self.older_than, self.branch, self.among)
        _refuse_unknown(self.table, (self.named or frozenset()) - plan.files.keys())
        files = self._files(plan)
        changed = [location for location in plan.files if not files.conforms(location)]
        if self.out_of_line:
            plan = plan.only(changed)

        if not accept_masks:
            files.refuse_masks(plan.files, plan.sequence_numbers)
        files.check_readable(sorted(files.shown))
        copied = {location: file for location, file in plan.files.items() if location not in files.shown}
        files.open_all(copied, plan.sequence_numbers)

        found = _result(self.table, plan, dry_run, in_line=len(changed), twins_kept=files.kept)
        if dry_run:
            return found

        if (head := files.rewrite_shown(self.data_key_length, self.progress)) is not None:
            found = replace(found, snapshot_id=head)
            plan, files = self._planned_again(copied)
        if plan.files:
            found = self._copy(plan, files, found)
        if not changed:
            files.forget_former_protection()
        return found

    def _files(self, plan: _Plan) -> FilesToReencrypt:
        if not has_column_keys(self.table.metadata):
            return FilesToReencrypt()
        return protected_files(self.table, self.branch, plan.files, self.runner)

    def _planned_again(self, remaining: Collection[str]) -> tuple[_Plan, FilesToReencrypt]:
        """Plan what remains after a commit, which loaded the table again, and with it what makes the column keys of the new files."""
        # Others than those that were planned may have gone too, for their deletion vectors.
        plan = _planned(self.table, self.condition, self.older_than, self.branch, remaining)
        if self.out_of_line:
            plan = plan.only([location for location in plan.files if location in remaining])
        files = self._files(plan)
        files.open_all(plan.files, plan.sequence_numbers)
        return plan, files

    def _copy(self, plan: _Plan, files: FilesToReencrypt, found: Reencrypted) -> Reencrypted:
        """Write the new files and commit them."""
        io, metadata = self.table.io, self.table.metadata
        written_under = WrittenUnder.of(metadata)
        key_length = self.data_key_length or io.manager.data_key_length
        journal = Journal(io, metadata, metadata.encryption_keys, metadata.head_key_id(self.branch), OPERATION)
        earlier = _earlier(journal, plan, key_length, files)
        written = folders_written(metadata)
        rewrite = FileRewrite(self.table, journal, OPERATION, self.runner, self.progress, written, done=dict(earlier.swaps))
        locations = self.table.location_provider()

        def work_of(file: DataFile) -> FileWork[ReencryptWork]:
            # Where an append puts its files: the old one's folder may show its partition, or be somebody else's.
            folder = locations.new_data_location(file.file_path.rpartition("/")[2]).rpartition("/")[0]
            return files.work(reencrypt_work(file, key_length, folder, rewrite.names))

        rewrite.write(plan.files, reencrypt_file, work_of, files.entry)
        swaps = rewrite.done
        producer = commit_replacement(self.table, self.branch, EncryptedFileSwap, swaps=swaps, written_under=written_under)
        journal.remove()

        gone = sorted(swaps.keys() - producer.swapped)
        unused = (*earlier.unused, *(swaps[location].file_path for location in gone))

        return replace(found, resumed=len(earlier.swaps), gone=len(gone), snapshot_id=producer.snapshot_id, unused=unused)


def _result(table: EncryptedTable, plan: _Plan, dry_run: bool, in_line: int, twins_kept: int) -> Reencrypted:
    """Return what was found, before anything was done."""
    deletes = len(plan.files) - plan.data_files
    return Reencrypted(name_of(table), dry_run, plan.data_files, deletes, plan.size, in_line=in_line, twins_kept=twins_kept)


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


def _earlier(journal: Journal, plan: _Plan, key_length: int, files: FilesToReencrypt) -> _Earlier:
    """Read the journal of an earlier run. Files that are no longer planned, or whose DEKs have another length, are of no use."""
    found = journal.load()
    planned = {
        location: new
        for location, new in found.items()
        if location in plan.files and len(key_metadata_of(new).encryption_key) == key_length
    }
    usable = files.usable(planned)
    swaps = {location: new for location, new in planned.items() if location in usable}
    unused = (new.file_path for location, new in found.items() if location not in swaps and new.file_path not in plan.files)

    return _Earlier(swaps, tuple(unused))


def _planned(
    table: EncryptedTable, where: FileCondition, older_than: dt.datetime | None, branch: str, among: Collection[str] | None = None
) -> _Plan:
    """Plan the files that a filter and a moment leave, of the data files at these locations where they are given."""
    metadata = table.metadata
    snapshot = metadata.snapshot_by_name(branch)
    if snapshot is None:
        return _Plan({}, 0, {})

    manifests = snapshot.manifests(table.io)
    is_old = _age_filter(metadata, older_than)
    options = {"include_empty_files": "true"}
    planner = ScanPlanner(metadata, table.io, where.row_filter, options=options, of_partitions=where.of_partitions)
    tasks = [task for task in planner.plan_files(manifests, is_old) if among is None or task.file.file_path in among]
    data: dict[str, DataFile] = {}
    for task in tasks:
        refuse_another_name(data.setdefault(task.file.file_path, task.file), task.file)
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

    for location in data.keys() & deletes.keys():
        refuse_another_name(data[location], deletes[location])

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


def reencrypt_work(file: DataFile, data_key_length: int, folder: str, names: RunNames) -> FileWork[NewFileWork]:
    """Return the work of re-encrypting one file of a table, without its protected columns.

    Args:
        file: the old one.
        data_key_length: how many bytes the new DEK has.
        folder: where the new file goes.
        names: of the run's new files.
    """
    work = NewFileWork.of(file, folder, data_key_length, names)
    if file.file_path.endswith(BLANKED):
        # Rows that were blanked are blanked in the new file too.
        work = replace(work, suffix=BLANKED)
    return FileWork(work, (key_metadata_of(file),), file.file_size_in_bytes)


def reencrypt_file(io: EncryptingFileIO, work: ReencryptWork, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[NewFile]:
    """Write the new file and return where it is, and its key metadata, which knows the file's length."""
    if work.hidden_columns is not None:
        return write_protected(io, work.file, work.hidden_columns, keys)
    if work.file.file_format not in _FORMATS:
        raise FormatError(f"{work.file.location}: {work.file.file_format} files of encrypted tables are not known")

    # A work without a key is none of ours: `write_again` would take the file for plaintext.
    (old,) = keys
    done = write_again(io, work.file, old)

    return FileDone(NewFile(done.result), done.keys)
