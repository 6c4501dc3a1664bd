"""Functions over files for tests of runners: in a module of their own, where executors find them by name."""

from __future__ import annotations

import os
import secrets
import uuid
from dataclasses import dataclass

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError, KmsUnavailableError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.maintenance.runner import FileDone
from tablecrypt.parquet.uniform import UniformParquetFile

Keys = tuple[StandardKeyMetadata, ...]


@dataclass(frozen=True)
class Copied:
    """Where a copy lies, and which process made it."""

    location: str
    process: int


@dataclass(frozen=True)
class Copying:
    """A location to copy, under a folder."""

    location: str
    folder: str


def count_rows(io: EncryptingFileIO, location: str, keys: Keys) -> FileDone[int]:
    """How many rows an encrypted Parquet file has."""
    with io.raw_input(location).open() as source:
        return FileDone(UniformParquetFile(source, keys[0], location).footer().num_rows)


def copy_encrypted(io: EncryptingFileIO, work: Copying, keys: Keys) -> FileDone[Copied]:
    """Write the bytes of a file, as they are stored, into a new encrypted file under a key of its own."""
    with io.raw_input(work.location).open() as source:
        content = source.read()
    output = io.encrypting_output(f"{work.folder}/{uuid.uuid4()}", StandardKeyMetadata.generate(16, secrets.token_bytes))
    with output.create() as sink:
        sink.write(content)
    return FileDone(Copied(output.location, os.getpid()), (output.key_metadata,))


def refuse_seven(io: EncryptingFileIO, number: int, keys: Keys) -> FileDone[int]:
    """Fail as a file does that cannot be read."""
    if number == 7:
        raise FormatError("seven is not read")
    return FileDone(number)


def add(addend: int, io: EncryptingFileIO, number: int, keys: Keys) -> FileDone[int]:
    """Add, to see that a partial travels."""
    return FileDone(number + addend)


def raise_lookup_error(io: EncryptingFileIO, number: int, keys: Keys) -> FileDone[int]:
    """Fail as nobody expected."""
    raise LookupError(f"work {number} fails on purpose")


def copy_failing_once(io: EncryptingFileIO, work: Copying, keys: Keys) -> FileDone[Copied]:
    """Copy, then fail where the Spark task is tried for the first time: the copy of that attempt is there, and must not count."""
    from pyspark import TaskContext

    done = copy_encrypted(io, work, keys)
    context = TaskContext.get()
    if context is not None and context.attemptNumber() == 0:
        raise KmsUnavailableError("the first attempt fails on purpose")
    return done


def note_and_wait(folder: str, io: EncryptingFileIO, number: int, keys: Keys) -> FileDone[int]:
    """Leave a file that says which work was begun."""
    with open(f"{folder}/{number}", "x", encoding="utf-8"):
        return FileDone(number)
