"""Verifying a table: every byte of every file that any of its snapshots leads to is authenticated, and every bad part is named.

    metadata ─▶ manifest lists ─▶ manifests ─▶ all files ──Runner──▶ look at each: every block, every module, lengths
                   │ what cannot be opened                              │
                   └────────────────── bad files ◀──────────────────────┘

A bad file does not end the report: it says everything that is wrong. Below a manifest list or manifest that does not open, nothing can be
found, so its report is not the whole truth until that file is restored: it names the file, and is not complete.

Of protected columns the values are authenticated where this user may use the column's key (columns/verification.py). Without it they are
passed over, and the result counts the files.

What manifest entries say of rows and bytes is held against each file, as readers do it.

What verifying cannot see: metadata.json, which nothing authenticates (pins compare it), and whether the rows make sense.

What an interrupted verification had found good is in a state file, whose lines only the holder of the files' keys can have written:

    {"tablecrypt": "verify", "version": 1, "table-uuid": "…"}
    {"location": "…", "length": …, "modified": "…", "parts": …, "full": true, "mac": "<hexadecimal>"}       one for each good file

    mac     = HMAC-SHA256(MAC key, JSON of [table uuid, location, length, modified, parts, full, what manifests say of the file])
    MAC key = HKDF-SHA256(the file's DEK, salt = its AAD prefix, info = "tablecrypt verify state 1"), 32 bytes

A line is believed when its MAC is right under the key that the file has *now*, manifests say of it what they said then, and the store gives
it the same length and time of last writing. So an attacker who can write the state file cannot have a bad file passed over, and a file is
verified again under a new key, or if a new manifest entry says something else of it. It is for going on soon after an interruption: an
attacker who can rewrite a file in the store and set its time back hides the change from a run that resumes. A run that reaches its end
removes the file.

A line that was cut when the process was killed, or is not one of these, is passed over. Raises ConfigurationError for a file that is not of
this kind, or of another table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table

from tablecrypt._atomic_file import check_folder_of
from tablecrypt._parsed_json import ParsedJson
from tablecrypt._store_errors import reraise_naming
from tablecrypt.arguments import checked_arguments, file_path
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError, TamperedFileError
from tablecrypt.files.deletion import place_of
from tablecrypt.files.encrypting_file_io import refusing_made_up
from tablecrypt.files.stores import StoredFile, stored_files
from tablecrypt.maintenance._verify.files import FileFindings, FileToInspect, Problem, inspect_file
from tablecrypt.maintenance.columns.verification import HiddenColumnKeys, hidden_columns_to_verify, unchecked_columns
from tablecrypt.maintenance.operation import ProgressListener, no_progress, require_encrypted
from tablecrypt.maintenance.reachable import THREADS, FileKind, Reachable, ReachableFile, Unopened, reachable_files
from tablecrypt.maintenance.runner import FileWork, Runner, run_counted, runner_or_threads
from tablecrypt.printable import AsJson, counted
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import name_of

_STATE_VERSION: Final = 1
_STATE_INFO: Final = b"tablecrypt verify state 1"
_STATE_MODE: Final = 0o600


@dataclass(frozen=True)
class BadFile:
    """A file that differs from what its writer left, with every part that failed."""

    location: str
    kind: FileKind
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Verified(AsJson):
    """What was verified.

    Attributes:
        table: the table's name.
        full: whether every byte was, or heads, lengths and footers alone.
        snapshots: how many snapshots the metadata has.
        files: how many files they lead to.
        resumed: how many of these the interrupted run had verified.
        bytes: length of all files that were looked at now.
        parts: blocks and modules that authenticated, including those of the interrupted run.
        bad: every file that failed.
        unchecked_columns: by protected column, in how many of the files that were looked at its values were not authenticated, because
            this user may not use the column's key, or it was shredded.
        unchecked_files: how many files have such a column.
    """

    also_says: ClassVar = {"good": "is_good", "complete": "is_complete", "empty": "is_empty", "verdict": "verdict"}
    table: str
    full: bool
    snapshots: int
    files: int
    resumed: int
    bytes: int
    parts: int
    bad: tuple[BadFile, ...]
    unchecked_columns: dict[str, int] = field(default_factory=dict)
    unchecked_files: int = 0

    @property
    def verdict(self) -> str:
        """The result in one sentence, which claims no more than was checked."""
        if self.is_empty:
            return "nothing was verified: the table has no files"

        unchecked = ""
        if self.unchecked_columns:
            columns = counted(len(self.unchecked_columns), "column", "columns")
            verb = "was" if len(self.unchecked_columns) == 1 else "were"
            unchecked = f"{columns} in {counted(self.unchecked_files, 'file', 'files')} {verb} not authenticated"

        if self.bad:
            return "; ".join(filter(None, (counted(len(self.bad), "file is bad", "files are bad"), unchecked)))

        what = "every file" if self.full else "every head, length and footer"

        return f"{unchecked}; all else is intact" if unchecked else f"{what} is intact"

    @property
    def is_good(self) -> bool:
        """Whether everything that was checked authenticated; `is_complete` says whether that was all."""
        return not self.bad

    @property
    def is_complete(self) -> bool:
        """Whether every byte of every file was checked.

        Not after a quick run, nor where there are `unchecked_columns`, or a bad manifest list or manifest.
        """
        # What a bad one of these names was not found, or cannot be believed to be all.
        hides_files = any(file.kind.is_metadata for file in self.bad)
        return self.full and not self.unchecked_columns and not hides_files

    @property
    def is_empty(self) -> bool:
        """Whether there was no file to verify."""
        return self.files == 0


@checked_arguments()
def verify(
    table: Table,
    *,
    quick: bool = False,
    progress: ProgressListener = no_progress,
    runner: Runner | None = None,
    workers: int | None = None,
    resume_from: str | Path | None = None,
) -> Verified:
    """Authenticate every byte of every file that an encrypted table's snapshots lead to.

    Args:
        table: as it was loaded; what is committed meanwhile is not looked at.
        quick: only heads, lengths and Parquet footers, without reading whole data files; else every block and module.
        progress: listener for reports of how many bytes are done.
        runner: runs the work on files, such as `tablecrypt.spark.SparkRunner(spark)`; by default threads here do.
        workers: how many files at once, without `runner`; by default one for each core. Memory grows with it.
        resume_from: a file in which good files are noted; if it exists, the run continues from it. It is removed at the end.
            A continued run skips only files below the table's location.

    Raises:
        ConfigurationError: the table is not encrypted, `resume_from` is not a state file of this table, or the key service cannot be asked.
        KmsError, KeyNotFoundError: the key service refused every KEK, or failed.
        MasterKeyMismatchError: no KEK of the table, or of a protected column, opens: another master key wrapped them.
        OSError: the store failed. With `resume_from`, the next run continues from there.
    """
    table = require_encrypted(table, "there is nothing to authenticate")
    state_path = None if resume_from is None else file_path("resume_from", str(resume_from))
    found = reachable_files(table.metadata, table.io)
    state = None if state_path is None else VerifyState(state_path, str(table.metadata.table_uuid))
    run = _Run(table, found, not quick, state, progress)
    if state is not None:
        # Before any file is read: one that changes meanwhile has another time afterwards, so the noted line does not count.
        run.stamp(stored_files(table.io.inner, table.location().rstrip("/")))
    run.look(runner_or_threads(runner, workers))
    if state is not None:
        # Not before: until the run has ended, another one may go on from the file.
        state.remove()
    return run.result()


class _Run:
    """One run over what was found."""

    def __init__(self, table: EncryptedTable, found: Reachable, full: bool, state: VerifyState | None, progress: ProgressListener) -> None:
        self._table = table
        self._found = found
        self._full = full
        self._state = state
        self._progress = progress
        self._stamps: dict[tuple[str, str, str], StoredFile] = {}
        self._problems: dict[str, list[Problem]] = {}
        self._hidden_columns: dict[str, HiddenColumnKeys] = {}
        self._resumed = self._bytes = self._parts = 0

    def stamp(self, listed: Iterable[StoredFile]) -> None:
        """Take the lengths and times of files as they are before any is read."""
        self._stamps = {place_of(file.location): file for file in listed}

    def look(self, runner: Runner) -> None:
        """Look at every file that has a key; those without one are bad."""
        files = [file for file in self._found.files.values() if not self._is_known_good(file)]
        unopened = {each.location for each in self._found.unopened}
        for file in files:
            # A file whose key metadata does not decode is among the unopened: only one without any key is called plaintext.
            if file.key is None and file.location not in unopened:
                self._note(file.location, Problem("key", "the file that names it has no key for it: it is plaintext"))

        self._note_made_up(files)
        keyed = [(file, file.key) for file in files if file.key is not None and file.location not in self._problems]

        if self._full:
            # A quick look reads no pages, so it needs no column's key.
            content = {
                file.location: key for file, key in keyed if file.file_format == FileFormat.PARQUET.value and not file.kind.is_metadata
            }
            numbers = {file.location: file.sequence_number for file in files}
            self._hidden_columns = hidden_columns_to_verify(self._table, content, numbers, runner)

        works = [self._work(file, key) for file, key in keyed]
        for index, looked in run_counted(runner, self._table, inspect_file, works, "verify", self._progress):
            file, key = keyed[index]
            self._take(file, key, looked.result)

    def _note_made_up(self, files: Iterable[ReachableFile]) -> None:
        """Note files under names that no file has: who may commit chooses the store, and with it an error that would end the run."""
        io = self._table.io

        def problem(location: str) -> str | None:
            try:
                with refusing_made_up(location, io.own_folders), io.raw_input(location).open():
                    return None
            except FormatError as made_up:
                return str(made_up).removeprefix(f"{location}: ")
            except (FileNotFoundError, PermissionError):
                return None  # said where it is looked at

        elsewhere = [file.location for file in files if io.own_folders.reason_against(file.location) is not None]
        with ThreadPoolExecutor(THREADS, thread_name_prefix="tablecrypt-names") as pool:
            for location, what in zip(elsewhere, pool.map(problem, elsewhere), strict=True):
                if what is not None:
                    self._note(location, Problem("file", what))

    def result(self) -> Verified:
        """Combine the results of all files with what could not be opened."""
        for unopened in self._found.problems:
            self._note_unopened(unopened)
        return Verified(
            table=name_of(self._table),
            full=self._full,
            snapshots=len(self._table.metadata.snapshots),
            files=len(self._found.files),
            resumed=self._resumed,
            bytes=self._bytes,
            parts=self._parts,
            bad=tuple(self._bad_files()),
            unchecked_columns=unchecked_columns(self._table, self._hidden_columns.values()),
            unchecked_files=sum(bool(keys.denied) for keys in self._hidden_columns.values()),
        )

    def _work(self, file: ReachableFile, key: StandardKeyMetadata) -> FileWork[FileToInspect]:
        is_content = not file.kind.is_metadata
        hidden_columns = self._hidden_columns[file.location].opened if file.location in self._hidden_columns else {}
        work = FileToInspect(
            file.location, file.file_format, is_content, self._full, tuple(hidden_columns), file.entries, self._rows_of_targets(file)
        )
        return FileWork(work, (key, *(StandardKeyMetadata(dek, b"") for dek in hidden_columns.values())), file.length or 0)

    def _rows_of_targets(self, file: ReachableFile) -> dict[str, int]:
        """How many rows the data files have, by their entries, that a file's deletion vectors are about."""
        targets = {entry.target for entry in file.entries if entry.target is not None}
        data = [self._found.files[target] for target in targets if target in self._found.files]
        return {each.location: max(entry.records for entry in each.entries) for each in data if each.entries}

    def _said_of(self, file: ReachableFile) -> list[Any]:
        """What manifests say of a file, against which its bytes are held, as JSON's types."""
        entries, rows = map(astuple, file.entries), self._rows_of_targets(file)
        return [file.kind, file.file_format, file.sequence_number, sorted(entries, key=repr), sorted(rows.items())]

    def _is_known_good(self, file: ReachableFile) -> bool:
        stamp = self._stamps.get(place_of(file.location))
        if self._state is None or stamp is None or file.key is None:
            return False

        parts = self._state.parts_of(stamp, file.key, self._full, self._said_of(file))
        if parts is None:
            return False

        self._resumed += 1
        self._parts += parts

        return True

    def _take(self, file: ReachableFile, key: StandardKeyMetadata, look: FileFindings) -> None:
        self._bytes += look.length
        self._parts += look.parts
        for problem in look.problems:
            self._note(file.location, problem)
        if look.passed_over:
            # Also where edited metadata no longer knows of protected columns, so that nobody asked for their keys.
            self._hidden_columns.setdefault(file.location, HiddenColumnKeys({}, frozenset(look.passed_over)))
        hidden_columns = self._hidden_columns.get(file.location)
        # A file with bad modules is bad already, and its footer may be what was exchanged.
        if hidden_columns is not None and not look.problems:
            for each in hidden_columns.problems:
                self._note(file.location, Problem("protected columns", each))
        # The user who goes on with this run may have the right to the column.
        is_whole = hidden_columns is None or not (hidden_columns.denied or hidden_columns.problems)
        stamp = self._stamps.get(place_of(file.location))
        if self._state is not None and stamp is not None and not look.problems and is_whole:
            self._state.remember(stamp, key, self._full, self._said_of(file), look.parts)

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
        kinds = {unopened.location: unopened.kind for unopened in self._found.problems}
        for location, problems in self._problems.items():
            file = self._found.files.get(location)
            yield BadFile(location, kinds[location] if file is None else file.kind, tuple(problems))


@dataclass(frozen=True)
class _Line:
    location: str
    length: int
    modified: str
    parts: int
    full: bool

    def mac(self, table_uuid: str, key: StandardKeyMetadata, said: list[Any]) -> HMAC:
        # Derived, so that the DEK is used as the key of one cipher alone.
        mac_key = HKDF(SHA256(), 32, salt=key.aad_prefix, info=_STATE_INFO).derive(key.encryption_key.reveal())
        mac = HMAC(mac_key, SHA256())
        # A list in JSON: no two sets of values make the same bytes.
        mac.update(json.dumps([table_uuid, self.location, self.length, self.modified, self.parts, self.full, said]).encode())
        return mac


class VerifyState:
    """The state file at `path` of one table's run; made with mode 0600 where there is none."""

    def __init__(self, path: Path, table_uuid: str) -> None:
        # What a link leads to: it is made and removed, and the link stays.
        self._path = Path(os.path.realpath(path))
        self._uuid = table_uuid
        self._lines: dict[str, tuple[_Line, bytes]] = {}
        if path.is_dir():
            raise ConfigurationError(f"{path} is a folder: name a file")
        check_folder_of(self._path)

        # A device has no end to read to, and is not to be removed.
        if path.exists() and not path.is_file():
            raise ConfigurationError(f"{path} is a device or a pipe, which cannot be continued from: name a file")
        if path.exists():
            self._read()
        else:
            self._begin()

    def parts_of(self, stored: StoredFile, key: StandardKeyMetadata, full: bool, said: list[Any]) -> int | None:
        """How many parts of a file authenticated in the run before; None where it has to be looked at.

        Args:
            stored: the file, as the store has it.
            key: its DEK and AAD prefix.
            full: whether every byte of it counts.
            said: what manifests say of it.
        """
        remembered = self._lines.get(stored.location)
        if remembered is None or stored.modified is None:
            # Without the time of writing, a file that was replaced by one of the same length would pass.
            return None

        line, mac = remembered
        # A line of a quick look does not count for a full one.
        if line != _Line(stored.location, stored.size, stored.modified.isoformat(), line.parts, full):
            return None

        try:
            line.mac(self._uuid, key, said).verify(mac)
        except InvalidSignature:
            # The line is forged, or the file has another key since, or another entry.
            return None

        return line.parts

    def remember(self, stored: StoredFile, key: StandardKeyMetadata, full: bool, said: list[Any], parts: int) -> None:
        """Note that a file was good. Nothing is noted where the store does not say when a file was written."""
        if stored.modified is None:
            return
        line = _Line(stored.location, stored.size, stored.modified.isoformat(), parts, full)
        self._append({**vars(line), "mac": line.mac(self._uuid, key, said).finalize().hex()})

    def remove(self) -> None:
        """Remove the file: the run has ended."""
        self._path.unlink(missing_ok=True)

    def _begin(self) -> None:
        try:
            self._append({"tablecrypt": "verify", "version": _STATE_VERSION, "table-uuid": self._uuid})
        except BaseException:
            # Without its first line it is nobody's state file, and the next run would refuse it.
            self._path.unlink(missing_ok=True)
            raise

    def _read(self) -> None:
        content = self._path.read_bytes()
        lines = list(_objects(content))
        header = lines[0] if lines else {}
        if header.get("tablecrypt") != "verify" or header.get("version") != _STATE_VERSION:
            raise ConfigurationError(f"{self._path} is not a state file of verify: name a file that does not exist yet")
        if header.get("table-uuid") != self._uuid:
            raise ConfigurationError(f"{self._path} is the state of verifying another table: name a file that does not exist yet")

        for fields in lines[1:]:
            self._take(fields)
        # A run that was killed may have left half a line: the next one must not be joined to it.
        if not content.endswith(b"\n"):
            with self._path.open("ab") as file:
                file.write(b"\n")

    def _take(self, fields: dict[str, Any]) -> None:
        try:
            mac = bytes.fromhex(fields.pop("mac"))
            line = _Line(**fields)
            self._lines[line.location] = line, mac
        except (KeyError, TypeError, ValueError):
            return

    def _append(self, fields: dict[str, Any]) -> None:
        # With its mode from the start: a chmod afterwards would leave a moment in which others read the locations.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _STATE_MODE)
        try:
            with os.fdopen(descriptor, "ab") as file:
                file.write(json.dumps(fields).encode() + b"\n")
        except OSError as error:
            reraise_naming(error, str(self._path))


def _objects(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.splitlines():
        try:
            value = ParsedJson(line).document
        except ValueError:
            value = None
        yield value if isinstance(value, dict) else {}
