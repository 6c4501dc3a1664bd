"""How a file begins and ends, and what that says about whether it is encrypted. Only its ends are read, of many files at once.

    AGS1                    an AES-GCM stream
    PARE                    Parquet Modular Encryption with encrypted footer
    PAR1, Obj 01, PFA1, ORC plaintext Parquet, Avro, Puffin, ORC
    crc 00                  Hadoop's checksums of another file
    anything else           unknown

Parquet Modular Encryption with a plaintext footer begins with PAR1 too. It counts as plaintext: its statistics are.

This says nothing about whether the rest of a file authenticates: that is what verifying is for.

The end of an encrypted Parquet file holds its plaintext file crypto metadata, which claims an algorithm and an AAD prefix.
Nothing authenticates that claim, and a file that says AES_GCM_CTR_V1 asks its readers to take pages without authentication. The check is
the readers' own (parquet/footer.py); of each file the last 64 KiB are read, of many files at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import pyarrow as pa
from pyiceberg.io import FileIO

from tablecrypt import _magics as magics
from tablecrypt._store_errors import reraise_naming
from tablecrypt.crypto import ags1
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError, PlaintextRefusedError, TamperedFileError
from tablecrypt.files.deletion import DeletionScope
from tablecrypt.files.encrypting_file_io import refusing_made_up
from tablecrypt.maintenance.operation import Counted
from tablecrypt.parquet.uniform import check_end

THREADS: Final = 32
"""Reading the first bytes of files is waiting for the store, almost all the time."""

_LENGTH: Final = 4
_CHECKSUMS: Final = b"crc\x00"
_PLAINTEXT: Final = {**ags1.PLAINTEXT_MAGICS, magics.ORC: "ORC"}


class Signature(StrEnum):
    """How a file is encrypted, by its first bytes."""

    AGS1 = "AGS1"
    PARQUET = "PARE"
    PLAINTEXT = "plaintext"
    CHECKSUMS = "checksums"
    UNKNOWN = "unknown"
    EMPTY = "empty"
    UNREADABLE = "unreadable"
    MISSING = "missing"

    @property
    def is_ciphertext(self) -> bool:
        """Whether it is one of the two encrypted formats."""
        return self in (Signature.AGS1, Signature.PARQUET)


@dataclass(frozen=True)
class FileStart:
    """How a file begins; `shown` says it in words."""

    signature: Signature
    shown: str


def file_start(data: bytes) -> FileStart:
    """Return what the first bytes of a file say; none at all for an empty file."""
    if not data:
        return FileStart(Signature.EMPTY, "is empty")
    if data.startswith(magics.AGS1):
        return FileStart(Signature.AGS1, "begins like an AGS1 stream")
    if data.startswith(magics.ENCRYPTED_PARQUET):
        return FileStart(Signature.PARQUET, "begins like an encrypted Parquet file")
    if data.startswith(_CHECKSUMS):
        return FileStart(Signature.CHECKSUMS, "begins like a file of checksums")

    for magic, name in _PLAINTEXT.items():
        if data.startswith(magic):
            return FileStart(Signature.PLAINTEXT, f"begins like plaintext {name}")
    # Four bytes of what may be rows do not belong into a report.
    return FileStart(Signature.UNKNOWN, "begins like no known format")


def read_file_starts(
    io: FileIO, locations: Iterable[str], own_folders: DeletionScope, counted: Counted | None = None
) -> dict[str, FileStart]:
    """Read how files begin.

    Args:
        io: the store's own FileIO.
        locations: of the files. One that is not there is MISSING, one that may not be read or has a made-up name UNREADABLE; other
            errors are raised.
        own_folders: of the table that the files are, or pretend to be, files of.
        counted: reports the files.
    """
    wanted = list(dict.fromkeys(locations))

    def read(location: str) -> FileStart:
        try:
            with refusing_made_up(location, own_folders), io.new_input(location).open(seekable=False) as stream:
                return file_start(stream.read(_LENGTH))
        except FileNotFoundError:
            return FileStart(Signature.MISSING, "is missing")
        except PermissionError as error:
            # Told apart from a missing file: one that may not be read may still be plaintext.
            return FileStart(Signature.UNREADABLE, f"may not be read: {error}")
        except FormatError as error:
            # Metadata may name any place: the error of a made-up name is a finding, and not the end of the audit.
            return FileStart(Signature.UNREADABLE, str(error))
        except OSError as error:
            reraise_naming(error, location)

    with ThreadPoolExecutor(THREADS, thread_name_prefix="tablecrypt-heads") as pool:
        return dict(zip(wanted if counted is None else counted.track(wanted), pool.map(read, wanted), strict=True))


def wrong_ends(io: FileIO, files: Iterable[tuple[str, StandardKeyMetadata]]) -> dict[str, str]:
    """Return what is wrong with the ends of files, by location; files that end as they should are left out.

    Args:
        io: the store's own FileIO.
        files: locations of encrypted Parquet files, each with its key metadata. Those that are missing or may not be read are passed over.
    """

    def look(file: tuple[str, StandardKeyMetadata]) -> tuple[str, str | None]:
        location, key_metadata = file
        try:
            with io.new_input(location).open() as stream:
                check_end(stream if isinstance(stream, pa.NativeFile) else pa.PythonFile(stream, mode="r"), key_metadata, location)
        except (TamperedFileError, PlaintextRefusedError) as refused:
            return location, refused.what
        except (FileNotFoundError, PermissionError):
            # The look at the beginnings of files reports these already.
            return location, None

        return location, None

    with ThreadPoolExecutor(THREADS, thread_name_prefix="tablecrypt-ends") as pool:
        return {location: what for location, what in pool.map(look, files) if what is not None}
