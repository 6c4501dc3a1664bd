"""The end of a table's Parquet file, fetched once: what is checked here are the very bytes that Arrow reads the footer from.

    storage ── last 64 KiB, more for a long footer ──▶ end = FileCryptoMetaData | sealed footer | length | "PARE"
                                                        ├──▶ checked: magic, AES_GCM_V1, AAD fields
                                                        └──▶ EndThenFile ──▶ Arrow opens the footer from these bytes
            ◀── column chunks, at the places that the authenticated footer names ── Arrow's scan of the file itself

FileCryptoMetaData is plaintext and says by which algorithm pages are sealed. Arrow believes it, so it must not come from storage a second
time between the check and the reader: whoever writes storage could change it in between.

Raises TamperedFileError for an end that no file of a table has, PlaintextRefusedError for a plaintext Parquet file.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NoReturn

import pyarrow as pa
from pyarrow import fs

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError, PlaintextRefusedError, TamperedFileError
from tablecrypt.parquet.footer import ENCRYPTED_MAGIC, END_GUESS, MAGIC_LENGTH, PLAIN_MAGIC, TAIL_LENGTH, encrypted_footer
from tablecrypt.parquet.keys import FileKeys

_TAIL: Final = struct.Struct("<I4s")


def read_checked_end(file: pa.NativeFile, length: int, key_metadata: StandardKeyMetadata, location: str) -> bytes:
    """Return all that follows the last module of a table's file. One request, two where the footer is longer than 64 KiB.

    Args:
        file: the ciphertext.
        length: of the file in bytes, at least 8.
        key_metadata: of the file.
        location: names it in errors.
    """
    guess = min(length, END_GUESS)
    last = _read_at(file, length - guess, guess, location)
    footer_length, tail = _TAIL.unpack(last[-TAIL_LENGTH:])
    if tail != ENCRYPTED_MAGIC:
        raise foreign_end(_read_at(file, 0, MAGIC_LENGTH, location), tail, location)
    start = length - TAIL_LENGTH - footer_length
    if start < MAGIC_LENGTH:
        raise TamperedFileError(location, f"says its footer has {footer_length} bytes, of {length} in all")
    missing = footer_length + TAIL_LENGTH - guess
    end = last[-(footer_length + TAIL_LENGTH) :] if missing <= 0 else _read_at(file, start, missing, location) + last
    _check(end[:-TAIL_LENGTH], start, key_metadata, location)
    return end


def foreign_end(head: bytes, tail: bytes, location: str) -> TamperedFileError | PlaintextRefusedError:
    """Return the error for a file of which one of these, or both, is not the magic of an encrypted Parquet file."""
    if head == tail == PLAIN_MAGIC:
        return PlaintextRefusedError(location, "is a plaintext Parquet file, where the table holds only encrypted ones")
    name, magic = ("begins", head) if head != ENCRYPTED_MAGIC else ("ends", tail)
    return TamperedFileError(location, f"{name} with {magic!r}, not with {ENCRYPTED_MAGIC!r} as an encrypted Parquet file does")


class EndThenFile(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """A file system of one file, from which Arrow reads the footer out of checked bytes, and after `serve_file` everything else.

    Arrow keeps the footer that it has read with the fragment, and reads none again when it scans.

    Args:
        end: as `read_checked_end` returns it.
        file: the ciphertext.
    """

    PATH: Final = "file"

    def __init__(self, end: bytes, file: pa.NativeFile) -> None:
        self._end: bytes | None = end
        self._file = file

    def serve_file(self) -> None:
        """Give the file itself from now on."""
        self._end = None

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        return "tablecrypt"

    def normalize_path(self, path: str) -> str:
        return path

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self._file if self._end is None else pa.BufferReader(self._end)

    def _refuse(self, *arguments: Any, **more: Any) -> NoReturn:
        raise OSError("this file system has one file, which is opened and nothing else")

    get_file_info = get_file_info_selector = open_input_stream = open_output_stream = open_append_stream = _refuse
    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = move = copy_file = _refuse


def _check(stored: bytes, start: int, key_metadata: StandardKeyMetadata, location: str) -> None:
    try:
        footer = encrypted_footer(location, start, stored)
    except FormatError as error:
        raise TamperedFileError(location, f"no table holds such a file: {error}") from error
    assert footer.algorithm is not None, "an encrypted footer has an algorithm"
    footer.algorithm.admit(FileKeys.of_table_file(key_metadata), location)


def _read_at(file: pa.NativeFile, offset: int, length: int, location: str) -> bytes:
    data: bytes = file.read_at(length, offset)
    if len(data) != length:
        raise TamperedFileError(location, f"ends after {offset + len(data)} bytes, though it was longer when it was opened")
    return data
