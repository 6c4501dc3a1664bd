"""Authenticating an AGS1 file block by block (layout: tablecrypt.crypto.ags1), naming every bad block and not only the first.

A reader stops at the first block that does not authenticate and stays stopped. Here the bytes are thrown away, so a bad block is noted and
the next one is tried: which blocks are bad says what happened to the file. Memory: a few sealed blocks and one of plaintext.

What the store raises passes through.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from pyiceberg.io import InputStream

from tablecrypt.crypto import ags1
from tablecrypt.crypto.aes_gcm import OVERHEAD, AesGcm
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import AuthenticationError, FormatError, PlaintextRefusedError, TamperedFileError
from tablecrypt.maintenance.verify.problems import FileLook, Problem

FETCHED_BLOCKS: Final = 4
"""Blocks that are read from the store at once."""


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
    full, rest = divmod(max(0, stored - ags1.HEADER_LENGTH), ags1.SEALED_BLOCK_LENGTH)
    return [ags1.SEALED_BLOCK_LENGTH] * full + ([rest] if rest else [])


def _bad_blocks(raw: InputStream, key_metadata: StandardKeyMetadata, blocks: list[int]) -> Iterator[Problem]:
    cipher = AesGcm(key_metadata.encryption_key)
    scratch = memoryview(bytearray(max(blocks, default=0)))
    for first in range(0, len(blocks), FETCHED_BLOCKS):
        lengths = blocks[first : first + FETCHED_BLOCKS]
        window = memoryview(_read(raw, ags1.block_offset(first), sum(lengths)))
        for block, length in enumerate(lengths, start=first):
            sealed, window = window[:length], window[length:]
            problem = _block_problem(cipher, sealed, ags1.block_aad(key_metadata.aad_prefix, block), scratch)
            if problem is not None:
                yield Problem(f"block {block}", problem)


def _block_problem(cipher: AesGcm, sealed: memoryview, aad: bytes, scratch: memoryview) -> str | None:
    if len(sealed) < OVERHEAD:
        return f"{len(sealed)} bytes are too few for a block"
    try:
        cipher.decrypt_into(sealed, aad, scratch[: len(sealed) - OVERHEAD])
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
