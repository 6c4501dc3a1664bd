"""Verifying a table: every byte of every file that any of its snapshots leads to is authenticated, and every bad part is named.

    metadata ─▶ manifest lists ─▶ manifests ─▶ all files ──Runner──▶ look at each: every block, every module, lengths
                   │ what cannot be opened                              │
                   └────────────────── bad files ◀──────────────────────┘

The report goes on after a bad file, and says everything that is wrong. Below a manifest list or manifest that does not open nothing can be
found, so its report is not the whole truth until that file is restored: it says so by naming the file.

What verifying cannot see: metadata.json, which nothing authenticates (pins compare it), and whether the rows make sense.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.table import Table

from tablecrypt.arguments import checked_arguments
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, TamperedFileError
from tablecrypt.maintenance._storage import StoredFile, canonical, stored_files
from tablecrypt.maintenance._tables import table_io
from tablecrypt.maintenance.progress import Progress, ProgressListener, unheard
from tablecrypt.maintenance.reachable import FileKind, Reachable, ReachableFile, Unopened, reachable_files
from tablecrypt.maintenance.runner import FileWork, runner_for
from tablecrypt.maintenance.verify.look import LookAt, look_at_file
from tablecrypt.maintenance.verify.problems import FileLook, Problem
from tablecrypt.maintenance.verify.result import BadFile, Verification
from tablecrypt.maintenance.verify.state import NothingRemembered, VerifiedFiles, VerifyState
from tablecrypt.table.encrypted_table import EncryptedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_METADATA_KINDS = (FileKind.MANIFEST_LIST, FileKind.MANIFEST)


@checked_arguments(formerly={"full": "not quick"})
def verify(
    table: Table,
    *,
    quick: bool = False,
    progress: ProgressListener = unheard,
    spark: SparkSession | None = None,
    workers: int | None = None,
    resume_from: str | Path | None = None,
) -> Verification:
    """Authenticate every byte of every file that an encrypted table's snapshots lead to.

    Args:
        table: as it was loaded; what is committed meanwhile is not looked at.
        quick: only heads, lengths and Parquet footers, without reading whole data files; else every block and module.
        progress: told how many bytes are done.
        spark: a Spark session, to look at the files on its executors.
        workers: how many files at once, without `spark`; by default one for each core. Memory grows with it.
        resume_from: a file in which good files are noted; where it is there already, an interrupted run goes on. It is removed at the end.
            Only files below the table's location can be passed over by a run that goes on.

    Raises:
        ConfigurationError: the table is not encrypted, `resume_from` is not a state file of this table, or the key service cannot be asked.
        KmsError, KeyNotFoundError: the key service refused every KEK, or failed.
        OSError: the store failed. With `resume_from`, the next run goes on from there.
    """
    if not isinstance(table, EncryptedTable):
        raise ConfigurationError(f"{'.'.join(table.name())} is not an encrypted table: there is nothing to authenticate")
    found = reachable_files(table.metadata, table.io)
    remembered: VerifiedFiles = (
        NothingRemembered() if resume_from is None else VerifyState(Path(resume_from), str(table.metadata.table_uuid))
    )
    run = _Run(table, found, not quick, remembered, progress)
    if resume_from is not None:
        run.stamp(stored_files(table_io(table).inner, table.location().rstrip("/")))
    run.look(spark, workers)
    remembered.finished()
    return run.result()


class _Run:
    """One run over what was found."""

    def __init__(self, table: EncryptedTable, found: Reachable, full: bool, remembered: VerifiedFiles, progress: ProgressListener) -> None:
        self._table = table
        self._found = found
        self._full = full
        self._remembered = remembered
        self._progress = progress
        self._stamps: dict[tuple[str, str, str], StoredFile] = {}
        self._problems: dict[str, list[Problem]] = {}
        self._resumed = self._bytes = self._parts = 0

    def stamp(self, listed: Iterable[StoredFile]) -> None:
        """Take the lengths and times of files as they are before any is read."""
        self._stamps = {canonical(file.location): file for file in listed}

    def look(self, spark: SparkSession | None, workers: int | None) -> None:
        """Look at every file that has a key; those without one are bad."""
        files = [file for file in self._found.files.values() if not self._is_known_good(file)]
        unopened = {each.location for each in self._found.unopened}
        for file in files:
            if file.key is None and file.location not in unopened:
                self._note(file.location, Problem("key", "the layer above names no key for it: it is plaintext"))
        keyed = [(file, file.key) for file in files if file.key is not None]
        total, done = sum(file.length or 0 for file, _ in keyed), 0
        runner = runner_for(self._table, spark, workers)
        for index, looked in runner.run(look_at_file, [self._work(file, key) for file, key in keyed]):
            file, key = keyed[index]
            self._take(file, key, looked.result)
            done += file.length or 0
            self._progress(Progress("verify", done, total, "bytes"))

    def result(self) -> Verification:
        """Put together what the looks came to, and what could not be opened on the way."""
        for unopened in self._found.unopened:
            self._note_unopened(unopened)
        return Verification(
            table=".".join(self._table.name()),
            full=self._full,
            snapshots=len(self._table.metadata.snapshots),
            files=len(self._found.files),
            resumed=self._resumed,
            bytes=self._bytes,
            parts=self._parts,
            bad=tuple(self._bad_files()),
        )

    def _work(self, file: ReachableFile, key: StandardKeyMetadata) -> FileWork[LookAt]:
        is_content = file.kind not in _METADATA_KINDS
        return FileWork(LookAt(file.location, file.file_format, is_content, self._full), (key,), file.length or 0)

    def _is_known_good(self, file: ReachableFile) -> bool:
        stamp = self._stamps.get(canonical(file.location))
        if stamp is None or file.key is None:
            return False
        parts = self._remembered.parts_of(stamp, file.key, self._full)
        if parts is None:
            return False
        self._resumed += 1
        self._parts += parts
        return True

    def _take(self, file: ReachableFile, key: StandardKeyMetadata, look: FileLook) -> None:
        self._bytes += look.length
        self._parts += look.parts
        for problem in look.problems:
            self._note(file.location, problem)
        stamp = self._stamps.get(canonical(file.location))
        if not look.problems and stamp is not None:
            self._remembered.remember(stamp, key, self._full, look.parts)

    def _note(self, location: str, problem: Problem) -> None:
        self._problems.setdefault(location, []).append(problem)

    def _note_unopened(self, unopened: Unopened) -> None:
        """What kept a file from being opened, unless the look at its bytes has said it already."""
        if unopened.location in self._problems:
            return
        error = unopened.error
        message = error.what if isinstance(error, TamperedFileError) else f"{type(error).__name__}: {error}"
        self._note(unopened.location, Problem("content", message))

    def _bad_files(self) -> Iterator[BadFile]:
        kinds = {unopened.location: unopened.kind for unopened in self._found.unopened}
        for location, problems in self._problems.items():
            file = self._found.files.get(location)
            yield BadFile(location, kinds[location] if file is None else file.kind, tuple(problems))
