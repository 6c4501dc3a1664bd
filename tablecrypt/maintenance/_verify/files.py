"""Verifying one file: every block or module of it authenticated, and every one named that does not.

A file is Parquet, looked at module by module, or an AGS1 stream, looked at block by block (layout: tablecrypt.crypto.ags1). A reader stops
at the first block that does not authenticate. Here the bytes are thrown away, so a bad block is noted and the next one is tried: which
blocks are bad says what happened to the file. Memory: a few encrypted blocks and one of plaintext. A file that is missing or cannot be what
it should be is a finding, as a bad block is. Any other error of the store stops the run: it says nothing about the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pyiceberg.io import InputStream
from pyiceberg.manifest import FileFormat

from tablecrypt import parquet
from tablecrypt._bytes import length_of, read_up_to
from tablecrypt.crypto import ags1
from tablecrypt.crypto.aes_gcm import OVERHEAD, AesGcm
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, FormatError, KeyNotFoundError, PlaintextRefusedError, TamperedFileError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.maintenance.reachable import EntryCounts
from tablecrypt.maintenance.runner import FileDone
from tablecrypt.parquet.protected.hidden_columns import hidden_field_id
from tablecrypt.parquet.verification import Verification, verify_footer
from tablecrypt.table.data_file_reader import AvroDataFile
from tablecrypt.table.deletes import DeletionVectorReader

FETCHED_BLOCKS: Final = 4
"""Blocks that are read from the store at once."""


_CHANGED_MEANWHILE: Final = (FormatError, TamperedFileError, PlaintextRefusedError)
"""What reading raises of a file whose every block has authenticated: that it is none, or another one by now."""


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
class FileFindings:
    """The result of checking one file. Holds no key, and can be pickled.

    Attributes:
        length: bytes that were authenticated or, in a short look, bytes of the file.
        parts: how many blocks or modules authenticated.
        problems: empty for a good file.
        rows: how many a Parquet file's row groups have; None where it does not tell.
        passed_over: field ids of hidden columns that were not authenticated, since their keys were not there.
    """

    length: int
    parts: int
    problems: tuple[Problem, ...] = ()
    rows: int | None = None
    passed_over: tuple[int, ...] = ()


def verify_ags1(raw: InputStream, key_metadata: StandardKeyMetadata, location: str, full: bool) -> FileFindings:
    """Authenticate a file.

    Args:
        raw: the stored bytes. The caller closes it.
        key_metadata: the file's DEK, AAD prefix and, where its writer recorded it, the length to hold the store's against.
        location: names the file in messages.
        full: every block; else the header and the length alone.
    """
    stored = length_of(raw)
    header = read_up_to(raw, 0, min(stored, ags1.HEADER_LENGTH), location)
    problems = [*_length_problems(stored, key_metadata), *_header_problems(header, location)]
    if not full:
        return FileFindings(stored, 0, tuple(problems))

    blocks = _blocks(stored)
    bad = list(_bad_blocks(raw, key_metadata, blocks, location))

    return FileFindings(stored, len(blocks) - len(bad), (*problems, *bad))


def _length_problems(stored: int, key_metadata: StandardKeyMetadata) -> Iterator[Problem]:
    trusted = key_metadata.file_length
    # The key metadata has the length, since AGS1 authenticates the order of blocks and not how many there are.
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


def _bad_blocks(raw: InputStream, key_metadata: StandardKeyMetadata, blocks: list[int], location: str) -> Iterator[Problem]:
    cipher = AesGcm(key_metadata.encryption_key)
    scratch = memoryview(bytearray(max(blocks, default=0)))
    for first in range(0, len(blocks), FETCHED_BLOCKS):
        lengths = blocks[first : first + FETCHED_BLOCKS]
        window = memoryview(read_up_to(raw, ags1.block_offset(first), sum(lengths), location))
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


def verify_parquet(
    raw: InputStream,
    key_metadata: StandardKeyMetadata,
    location: str,
    full: bool,
    hidden_columns: Mapping[tuple[int, bytes], Secret] | None,
) -> FileFindings:
    """Authenticate a file.

    Args:
        raw: the stored bytes. The caller closes it.
        key_metadata: the file's DEK, AAD prefix and length.
        location: names the file in messages.
        full: every module; else the length, the magics and the footer alone.
        hidden_columns: the DEKs of protected columns by field id and key metadata. Hidden columns under other keys are passed over.
    """
    stored = length_of(raw)
    raw.seek(0)

    try:
        if not full:
            return FileFindings(stored, 1, rows=verify_footer(raw, key_metadata, location))
        verified = _all_modules(raw, key_metadata, location, hidden_columns or {})
    except (TamperedFileError, PlaintextRefusedError) as refused:
        return FileFindings(stored, 0, (Problem("modules" if full else "footer", refused.what),))
    except FormatError as refused:
        return FileFindings(stored, 0, (Problem("format", str(refused)),))

    return FileFindings(
        stored, sum(verified.modules.values()), rows=verified.rows, passed_over=tuple(_field_ids_of(verified.hidden_columns))
    )


def _field_ids_of(hidden_columns: Iterable[str]) -> Iterator[int]:
    for path in hidden_columns:
        # The name of a hidden column has a dot itself: __protected__.7, and in it email.
        field_id = hidden_field_id(".".join(path.split(".")[:2]))
        assert field_id is not None, "it was found by its name"
        yield field_id


def _all_modules(
    raw: InputStream, key_metadata: StandardKeyMetadata, location: str, hidden_columns: Mapping[tuple[int, bytes], Secret]
) -> Verification:
    def hidden_key(path: tuple[str, ...], stored: bytes | None) -> Secret:
        field_id = hidden_field_id(path[0])
        if field_id is None:
            # In a table only hidden columns have keys beside the file's: a footer that says otherwise is not a writer's.
            raise TamperedFileError(location, f"column {'.'.join(path)} is encrypted with a key of its own, and is no protected column")
        if stored is None or (field_id, stored) not in hidden_columns:
            # `parquet.verify` passes over a hidden column whose key is not there.
            raise KeyNotFoundError(f"{location}: the key of the protected column with field id {field_id} is not there")

        return hidden_columns[field_id, stored]

    verified = parquet.verify(raw, parquet.FileKeys.of_table_file(key_metadata, hidden_key if hidden_columns else None), location=location)
    if not verified.complete:
        # Pages in AES-CTR decrypt without being authenticated: a file that has some is not called good.
        clear = ", ".join(verified.columns_in_the_clear) or f"{verified.unauthenticated_pages} pages"
        raise TamperedFileError(location, f"is encrypted by {verified.algorithm} in parts only: {clear} cannot be authenticated")

    return verified


@dataclass(frozen=True)
class FileToInspect:
    """Which file, what it holds, and whether to look at every byte. Its key travels apart.

    Attributes:
        hidden_columns: field id and key metadata of each hidden column whose DEK travels behind the file's key, in that order.
        entries: what manifest entries say of it, to be held against what it is.
        rows: by location, how many rows the data files have that its deletion vectors are about.
    """

    location: str
    file_format: str
    is_content: bool
    full: bool
    hidden_columns: tuple[tuple[int, bytes], ...] = ()
    entries: frozenset[EntryCounts] = frozenset()
    rows: Mapping[str, int] = field(default_factory=dict)


def inspect_file(io: EncryptingFileIO, work: FileToInspect, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[FileFindings]:
    """Authenticate one file with its key, `keys[0]`, and those of hidden columns behind it, and tell everything that is wrong with it."""
    if work.is_content and work.file_format == FileFormat.ORC.value:
        problem = Problem(
            "format", "an ORC file: encrypted Iceberg tables hold Parquet and Avro data files, and tablecrypt does not read this one"
        )
        return FileDone(FileFindings(0, 0, (problem,)))

    is_parquet = work.is_content and work.file_format == FileFormat.PARQUET.value
    hidden_columns = {hidden: key.encryption_key for hidden, key in zip(work.hidden_columns, keys[1:], strict=True)}

    try:
        with io.raw_input(work.location).open() as raw:
            if is_parquet:
                found = verify_parquet(raw, keys[0], work.location, work.full, hidden_columns)
            else:
                found = verify_ags1(raw, keys[0], work.location, work.full)
        # In a file that is not what its writer left there is nothing to count.
        return FileDone(found if found.problems else replace(found, problems=tuple(_entry_problems(io, work, keys[0], found))))
    except FileNotFoundError:
        return FileDone(FileFindings(0, 0, (Problem("file", "is missing"),)))


def _entry_problems(io: EncryptingFileIO, work: FileToInspect, key: StandardKeyMetadata, found: FileFindings) -> Iterator[Problem]:
    """What manifest entries say otherwise than the file: readers refuse it, and counts that open no file believe it."""
    for length in sorted({entry.length for entry in work.entries} - {found.length}):
        yield Problem("length", f"has {found.length} bytes, its manifest entry says {length}")

    if work.file_format == FileFormat.PARQUET.value:
        yield from _row_problems(work, found.rows)
    # A short look reads no blocks, and rows and vectors are inside.
    elif work.full and work.file_format == FileFormat.PUFFIN.value:
        yield from _vector_problems(io, work, key)
    elif work.full and work.is_content and work.file_format == FileFormat.AVRO.value:
        yield from _avro_problems(io, work, key)


def _row_problems(work: FileToInspect, rows: int | None) -> Iterator[Problem]:
    for records in sorted({entry.records for entry in work.entries} - {rows}):
        yield Problem("rows", f"has {rows} rows, its manifest entry says {records}")


def _avro_problems(io: EncryptingFileIO, work: FileToInspect, key: StandardKeyMetadata) -> Iterator[Problem]:
    try:
        with io.decrypting_input(work.location, key).open() as plaintext:
            rows = AvroDataFile(plaintext, work.location).counted_rows()
    except _CHANGED_MEANWHILE as refused:
        yield Problem("format", str(refused))
        return
    yield from _row_problems(work, rows)


def _vector_problems(io: EncryptingFileIO, work: FileToInspect, key: StandardKeyMetadata) -> Iterator[Problem]:
    reader = DeletionVectorReader(io)
    for entry in sorted(work.entries, key=lambda each: (each.offset or 0, each.target or "", each.records)):
        if entry.target is None:
            yield Problem("deletion vector", f"a manifest entry of the vector at {entry.offset} names no data file")
        try:
            reader.check(entry.as_vector(work.location, key), work.rows.get(entry.target or ""))
        except _CHANGED_MEANWHILE as refused:
            yield Problem("deletion vector", str(refused))
