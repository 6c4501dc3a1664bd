"""Files that take the place of others and hold the same: made one by one on a runner, journalled, and told as progress on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from pyiceberg.manifest import DataFile

from tablecrypt.maintenance.journal import Journal
from tablecrypt.maintenance.progress import Progress, ProgressListener
from tablecrypt.maintenance.runner import FileDone, FileFunction, FileWork, Runner
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.manifests.schemas import DATA_FILE_POSITIONS
from tablecrypt.table.content_files import with_key

W = TypeVar("W")
R = TypeVar("R")


def make_new_files(
    files: Mapping[str, DataFile],
    done: dict[str, EncryptedDataFile],
    runner: Runner,
    function: FileFunction[W, R],
    work_of: Callable[[DataFile], FileWork[W]],
    entry_of: Callable[[DataFile, FileDone[R]], EncryptedDataFile],
    journal: Journal,
    verb: str,
    progress: ProgressListener,
) -> None:
    """Make what is missing in `done`.

    Args:
        files: the old files, by location.
        done: for each old location the file that takes its place; filled as the journal is.
        runner: runs the function.
        function: writes one new file.
        work_of: the function's work on one old file.
        entry_of: the new file, from the old one and what came of the work.
        journal: keeps what is done.
        verb, progress: who is told of how many bytes of old files are done.
    """
    if not files:
        return
    total = sum(file.file_size_in_bytes for file in files.values())
    size_done = sum(file.file_size_in_bytes for location, file in files.items() if location in done)
    remaining = [file for location, file in files.items() if location not in done]
    progress(Progress(verb, size_done, total, "bytes"))
    with journal.keeping(done) as keep:
        for index, each in runner.run(function, [work_of(file) for file in remaining]):
            old = remaining[index]
            keep(old.file_path, entry_of(old, each))
            size_done += old.file_size_in_bytes
            progress(Progress(verb, size_done, total, "bytes"))


def in_place_of(file: DataFile, done: FileDone[str]) -> EncryptedDataFile:
    """Return the entry of a file that holds what another one holds, at another location and under another key, which knows its length."""
    (key_metadata,) = done.keys
    new = with_key(file, key_metadata)
    new[DATA_FILE_POSITIONS["file_path"]] = done.result
    new[DATA_FILE_POSITIONS["file_size_in_bytes"]] = key_metadata.file_length
    return new
