"""Verifying a table: every byte of every file that any of its snapshots leads to is authenticated, and every bad part is named.

    metadata ─▶ manifest lists ─▶ manifests ─▶ all files ──Runner──▶ look at each: every block, every module, lengths
                   │ what cannot be opened                              │
                   └────────────────── bad files ◀──────────────────────┘

A file is Parquet, looked at module by module, or an AGS1 stream, looked at block by block (layout: tablecrypt.crypto.ags1). A reader stops
at the first block that does not authenticate. Here the bytes are thrown away, so a bad block is noted and the next one is tried: which
blocks are bad says what happened to the file. Memory: a few encrypted blocks and one of plaintext. A file that is missing or cannot be what
it should be is a finding, as a bad block is. Any other error of the store stops the run: it says nothing about the file.

A bad file does not end the report: it says everything that is wrong. Below a manifest list or manifest that does not open, nothing can be
found, so its report is not the whole truth until that file is restored: it says so by naming the file.

What verifying cannot see: metadata.json, which nothing authenticates (pins compare it), and whether the rows make sense.

What an interrupted run had verified already is in a state file, whose lines only the holder of the files' keys can have written:

    {"tablecrypt": "verify", "version": 1, "table-uuid": "…"}
    {"location": "…", "length": …, "modified": "…", "parts": …, "full": true, "mac": "<hexadecimal>"}       one for each good file

    mac     = HMAC-SHA256(MAC key, JSON of [table uuid, location, length, modified, parts, full])
    MAC key = HKDF-SHA256(the file's DEK, salt = its AAD prefix, info = "tablecrypt verify state 1"), 32 bytes

A line is believed when its MAC is right under the key that the file has *now*, and the store gives the file the same length and time of
last writing as then. So somebody who can write the state file cannot have a bad file passed over, and a file under a new key is verified
again. It is for going on soon after an interruption: somebody who can rewrite a file in the store and set its time back hides the change
from a run that resumes. A run that reaches its end removes the file.

A line that was cut when the process was killed, or is not one of these, is passed over. Raises ConfigurationError for a file that is not of
this kind, or of another table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pyiceberg.io import InputStream
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table

from tablecrypt import parquet
from tablecrypt.arguments import checked_arguments
from tablecrypt.crypto import ags1
from tablecrypt.crypto.aes_gcm import OVERHEAD, AesGcm
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError, PlaintextRefusedError, TamperedFileError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.maintenance._storage import StoredFile, canonical, stored_files
from tablecrypt.maintenance._tables import require_encrypted, table_io
from tablecrypt.maintenance.progress import Progress, ProgressListener, no_progress
from tablecrypt.maintenance.reachable import FileKind, Reachable, ReachableFile, Unopened, reachable_files
from tablecrypt.maintenance.runner import FileDone, FileWork, Runner, runner_or_threads
from tablecrypt.parquet.verification import verify_footer
from tablecrypt.printable import json_fields
from tablecrypt.table.table import EncryptedTable

_STATE_VERSION: Final = 1
_STATE_INFO: Final = b"tablecrypt verify state 1"
_STATE_MODE: Final = 0o600
FETCHED_BLOCKS: Final = 4
"""Blocks that are read from the store at once."""


@dataclass(frozen=True)
class BadFile:
    """A file that differs from what its writer left, with every part that failed."""

    location: str
    kind: FileKind
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Verification:
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
    """

    table: str
    full: bool
    snapshots: int
    files: int
    resumed: int
    bytes: int
    parts: int
    bad: tuple[BadFile, ...]

    @property
    def is_good(self) -> bool:
        """Whether everything authenticated. Of a table without files nothing did: see `is_empty`."""
        return not self.bad

    @property
    def is_empty(self) -> bool:
        """Whether there was no file to verify."""
        return self.files == 0

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON's types."""
        return {**json_fields(self), "good": self.is_good, "empty": self.is_empty}


@checked_arguments(formerly={"full": "not quick"})
def verify(
    table: Table,
    *,
    quick: bool = False,
    progress: ProgressListener = no_progress,
    runner: Runner | None = None,
    workers: int | None = None,
    resume_from: str | Path | None = None,
) -> Verification:
    """Authenticate every byte of every file that an encrypted table's snapshots lead to.

    Args:
        table: as it was loaded; what is committed meanwhile is not looked at.
        quick: only heads, lengths and Parquet footers, without reading whole data files; else every block and module.
        progress: told how many bytes are done.
        runner: runs the work on files, such as `tablecrypt.spark.SparkRunner(spark)`; by default threads here do.
        workers: how many files at once, without `runner`; by default one for each core. Memory grows with it.
        resume_from: a file in which good files are noted; if it exists, the run continues from it. It is removed at the end.
            A continued run skips only files below the table's location.

    Raises:
        ConfigurationError: the table is not encrypted, `resume_from` is not a state file of this table, or the key service cannot be asked.
        KmsError, KeyNotFoundError: the key service refused every KEK, or failed.
        OSError: the store failed. With `resume_from`, the next run continues from there.
    """
    table = require_encrypted(table, "there is nothing to authenticate")
    found = reachable_files(table.metadata, table.io)
    state = None if resume_from is None else VerifyState(Path(resume_from), str(table.metadata.table_uuid))
    run = _Run(table, found, not quick, state, progress)
    if state is not None:
        run.stamp(stored_files(table_io(table).inner, table.location().rstrip("/")))
    run.look(runner_or_threads(runner, workers))
    if state is not None:
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
        self._resumed = self._bytes = self._parts = 0

    def stamp(self, listed: Iterable[StoredFile]) -> None:
        """Take the lengths and times of files as they are before any is read."""
        self._stamps = {canonical(file.location): file for file in listed}

    def look(self, runner: Runner) -> None:
        """Look at every file that has a key; those without one are bad."""
        files = [file for file in self._found.files.values() if not self._is_known_good(file)]
        unopened = {each.location for each in self._found.unopened}
        for file in files:
            if file.key is None and file.location not in unopened:
                self._note(file.location, Problem("key", "the file that names it has no key for it: it is plaintext"))
        keyed = [(file, file.key) for file in files if file.key is not None]
        total, done = sum(file.length or 0 for file, _ in keyed), 0
        for index, looked in runner.run(self._table, look_at_file, [self._work(file, key) for file, key in keyed]):
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
        is_content = not file.kind.is_metadata
        return FileWork(LookAt(file.location, file.file_format, is_content, self._full), (key,), file.length or 0)

    def _is_known_good(self, file: ReachableFile) -> bool:
        stamp = self._stamps.get(canonical(file.location))
        if self._state is None or stamp is None or file.key is None:
            return False
        parts = self._state.parts_of(stamp, file.key, self._full)
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
        if self._state is not None and stamp is not None and not look.problems:
            self._state.remember(stamp, key, self._full, look.parts)

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


@dataclass(frozen=True)
class _Line:
    location: str
    length: int
    modified: str
    parts: int
    full: bool

    def mac(self, table_uuid: str, key: StandardKeyMetadata) -> HMAC:
        mac_key = HKDF(SHA256(), 32, salt=key.aad_prefix, info=_STATE_INFO).derive(key.encryption_key.reveal())
        mac = HMAC(mac_key, SHA256())
        mac.update(json.dumps([table_uuid, self.location, self.length, self.modified, self.parts, self.full]).encode())
        return mac


class VerifyState:
    """The state file at `path` of one table's run; made with mode 0600 where there is none."""

    def __init__(self, path: Path, table_uuid: str) -> None:
        self._path = path
        self._uuid = table_uuid
        self._lines: dict[str, tuple[_Line, bytes]] = {}
        if path.exists():
            self._read()
        else:
            self._append({"tablecrypt": "verify", "version": _STATE_VERSION, "table-uuid": table_uuid})

    def parts_of(self, stored: StoredFile, key: StandardKeyMetadata, full: bool) -> int | None:
        """How many parts of a file authenticated in the run before; None where it has to be looked at."""
        remembered = self._lines.get(stored.location)
        if remembered is None or stored.modified is None:
            return None
        line, mac = remembered
        if line != _Line(stored.location, stored.size, stored.modified.isoformat(), line.parts, full):
            return None
        try:
            line.mac(self._uuid, key).verify(mac)
        except InvalidSignature:
            return None
        return line.parts

    def remember(self, stored: StoredFile, key: StandardKeyMetadata, full: bool, parts: int) -> None:
        """Note that a file was good. Nothing is noted where the store does not say when a file was written."""
        if stored.modified is None:
            return
        line = _Line(stored.location, stored.size, stored.modified.isoformat(), parts, full)
        self._append({**vars(line), "mac": line.mac(self._uuid, key).finalize().hex()})

    def remove(self) -> None:
        """Remove the file: the run came to its end."""
        self._path.unlink(missing_ok=True)

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
        if not content.endswith(b"\n"):
            with self._path.open("ab") as file:
                file.write(b"\n")

    def _take(self, fields: dict[str, Any]) -> None:
        try:
            mac = bytes.fromhex(fields.pop("mac"))
            line = _Line(**fields)
        except (KeyError, TypeError, ValueError):
            return
        self._lines[line.location] = line, mac

    def _append(self, fields: dict[str, Any]) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _STATE_MODE)
        with os.fdopen(descriptor, "ab") as file:
            file.write(json.dumps(fields).encode() + b"\n")


def _objects(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        yield value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Problem:
    """One part of a file that is not what its writer left.

    Attributes:
        part: "length", "header", "block 3", "footer", or a Parquet module by the name that the specification gives it.
        message: what failed.
    """

    part: str
    message: str


@dataclass(frozen=True)
class FileLook:
    """What a look at one file came to. Holds no key, and can be pickled.

    Attributes:
        length: bytes that were authenticated or, in a short look, bytes of the file.
        parts: how many blocks or modules authenticated.
        problems: empty for a good file.
    """

    length: int
    parts: int
    problems: tuple[Problem, ...] = ()


def verify_ags1(raw: InputStream, key_metadata: StandardKeyMetadata, location: str, full: bool = True) -> FileLook:
    """Authenticate a file.

    Args:
        raw: the stored bytes. The caller closes it.
        key_metadata: the file's DEK, AAD prefix and, where its writer recorded it, the length to hold the store's against.
        location: names the file in messages.
        full: every block; else the header and the length alone.
    """
    raw.seek(0, os.SEEK_END)
    stored = raw.tell()
    problems = [*_length_problems(stored, key_metadata), *_header_problems(_read(raw, 0, min(stored, ags1.HEADER_LENGTH)), location)]
    if not full:
        return FileLook(stored, 0, tuple(problems))
    blocks = _blocks(stored)
    bad = list(_bad_blocks(raw, key_metadata, blocks))
    return FileLook(stored, len(blocks) - len(bad), (*problems, *bad))


def _length_problems(stored: int, key_metadata: StandardKeyMetadata) -> Iterator[Problem]:
    trusted = key_metadata.file_length
    if trusted is not None and trusted != stored:
        yield Problem("length", f"has {stored} bytes in the store, but {trusted} according to its key metadata")
    try:
        ags1.plaintext_length(stored)
    except FormatError as impossible:
        yield Problem("length", str(impossible))


def _header_problems(header: bytes, location: str) -> Iterator[Problem]:
    try:
        ags1.check_header(header, location)
    except (TamperedFileError, PlaintextRefusedError) as refused:
        yield Problem("header", refused.what)
    except FormatError as refused:
        yield Problem("header", str(refused))


def _blocks(stored: int) -> list[int]:
    """Sealed lengths of the blocks that a file of so many bytes can hold: all full but the last, which may be too short to be one."""
    full, rest = divmod(max(0, stored - ags1.HEADER_LENGTH), ags1.ENCRYPTED_BLOCK_LENGTH)
    return [ags1.ENCRYPTED_BLOCK_LENGTH] * full + ([rest] if rest else [])


def _bad_blocks(raw: InputStream, key_metadata: StandardKeyMetadata, blocks: list[int]) -> Iterator[Problem]:
    cipher = AesGcm(key_metadata.encryption_key)
    scratch = memoryview(bytearray(max(blocks, default=0)))
    for first in range(0, len(blocks), FETCHED_BLOCKS):
        lengths = blocks[first : first + FETCHED_BLOCKS]
        window = memoryview(_read(raw, ags1.block_offset(first), sum(lengths)))
        for block, length in enumerate(lengths, start=first):
            encrypted, window = window[:length], window[length:]
            problem = _block_problem(cipher, encrypted, ags1.block_aad(key_metadata.aad_prefix, block), scratch)
            if problem is not None:
                yield Problem(f"block {block}", problem)


def _block_problem(cipher: AesGcm, encrypted: memoryview, aad: bytes, scratch: memoryview) -> str | None:
    if len(encrypted) < OVERHEAD:
        return f"{len(encrypted)} bytes are too few for a block"
    try:
        cipher.decrypt_into(encrypted, aad, scratch[: len(encrypted) - OVERHEAD])
    except AuthenticationError as refused:
        return str(refused)
    return None


def _read(raw: InputStream, offset: int, length: int) -> bytes:
    """Read from the store, which may give less at once than was asked for; fewer bytes only where the file ends."""
    raw.seek(offset)
    pieces: list[bytes] = []
    while length > 0 and (piece := raw.read(length)):
        pieces.append(piece)
        length -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def verify_parquet(raw: InputStream, key_metadata: StandardKeyMetadata, location: str, full: bool = True) -> FileLook:
    """Authenticate a file.

    Args:
        raw: the stored bytes. The caller closes it.
        key_metadata: the file's DEK, AAD prefix and length.
        location: names the file in messages.
        full: every module; else the length, the magics and the footer alone.
    """
    raw.seek(0, os.SEEK_END)
    stored = raw.tell()
    raw.seek(0)
    try:
        parts = _all_modules(raw, key_metadata, location) if full else verify_footer(raw, key_metadata, location)
    except (TamperedFileError, PlaintextRefusedError) as refused:
        return FileLook(stored, 0, (Problem("modules" if full else "footer", refused.what),))
    except FormatError as refused:
        return FileLook(stored, 0, (Problem("format", str(refused)),))
    return FileLook(stored, parts)


def _all_modules(raw: InputStream, key_metadata: StandardKeyMetadata, location: str) -> int:
    verified = parquet.verify(raw, parquet.FileKeys.of_table_file(key_metadata), location=location)
    if not verified.complete:
        clear = ", ".join(verified.columns_in_the_clear) or f"{verified.unauthenticated_pages} pages"
        raise TamperedFileError(location, f"is encrypted by {verified.algorithm} in parts only: {clear} cannot be authenticated")
    return sum(verified.modules.values())


@dataclass(frozen=True)
class LookAt:
    """Which file, what it holds, and whether to look at every byte. Its key travels apart."""

    location: str
    file_format: str
    is_content: bool
    full: bool


def look_at_file(io: EncryptingFileIO, work: LookAt, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[FileLook]:
    """Authenticate one file with its key, `keys[0]`, and tell everything that is wrong with it."""
    if work.is_content and work.file_format == FileFormat.ORC.value:
        problem = Problem(
            "format", "an ORC file: encrypted Iceberg tables hold Parquet and Avro data files, and tablecrypt does not read this one"
        )
        return FileDone(FileLook(0, 0, (problem,)))
    is_parquet = work.is_content and work.file_format == FileFormat.PARQUET.value
    check = verify_parquet if is_parquet else verify_ags1
    try:
        with io.raw_input(work.location).open() as raw:
            return FileDone(check(raw, keys[0], work.location, work.full))
    except FileNotFoundError:
        return FileDone(FileLook(0, 0, (Problem("file", "is missing"),)))
