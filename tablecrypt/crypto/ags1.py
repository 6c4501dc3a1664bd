"""AGS1, the AES-GCM stream: where each byte of the plaintext lies in the encrypted file. Arithmetic only.

    file   = header | block 0 | block 1 | ... | block n-1
    header = "AGS1" (4) | 1048576 (4, little endian): how many plaintext bytes a full block holds
    block  = nonce (12) | ciphertext (1048576, or 1 to 1048576 in the last block) | tag (16)

    AAD of block i = AAD prefix | i (4, little endian)

An empty plaintext is one block of no ciphertext, so the shortest file has 8 + 28 bytes. Otherwise no block is empty: a file has 1 to
2^31 - 1 blocks, and its length alone says how many plaintext bytes it holds. Offsets and lengths are bytes, blocks count from 0.
Follows the Iceberg specification, appendix "AES GCM Stream". A file must authenticate by its length in trusted metadata too: blocks are
bound to their place, but nothing in the file says which block is the last.

Raises FormatError for a length or header that no writer makes, PlaintextRefusedError for the header of a plaintext format, and
TamperedFileError for any other magic.
"""

from __future__ import annotations

import struct
from typing import Final

from tablecrypt import _magics as magics
from tablecrypt.crypto.aes_gcm import OVERHEAD
from tablecrypt.errors import FormatError, PlaintextRefusedError, TamperedFileError

MAGIC: Final = magics.AGS1
BLOCK_LENGTH: Final = 1024 * 1024
ENCRYPTED_BLOCK_LENGTH: Final = BLOCK_LENGTH + OVERHEAD
HEADER_LENGTH: Final = 8
MAX_BLOCKS: Final = 2**31 - 1

MIN_FILE_LENGTH: Final = HEADER_LENGTH + OVERHEAD
MAX_FILE_LENGTH: Final = HEADER_LENGTH + MAX_BLOCKS * ENCRYPTED_BLOCK_LENGTH
MAX_PLAINTEXT_LENGTH: Final = MAX_BLOCKS * BLOCK_LENGTH

PLAINTEXT_MAGICS: Final = {magics.PARQUET: "Parquet", magics.AVRO: "Avro", magics.PUFFIN: "Puffin"}

_BLOCK_INDEX: Final = struct.Struct("<I")
_HEADER: Final = struct.Struct("<4sI")


def plaintext_length(file_length: int) -> int:
    """How many plaintext bytes a file of `file_length` bytes holds. FormatError when no AGS1 file has that length."""
    if not MIN_FILE_LENGTH <= file_length <= MAX_FILE_LENGTH:
        raise FormatError(f"an AGS1 file has {MIN_FILE_LENGTH} to {MAX_FILE_LENGTH} bytes, not {file_length}")
    # The one length whose only block is empty (AGS1: an empty plaintext is one block of no bytes).
    if file_length == MIN_FILE_LENGTH:
        return 0

    full_blocks, rest = divmod(file_length - HEADER_LENGTH, ENCRYPTED_BLOCK_LENGTH)
    if rest == 0:
        return full_blocks * BLOCK_LENGTH
    # A last block has at least one byte of ciphertext, so a file that was cut inside nonce or tag shows by its length.
    if rest <= OVERHEAD:
        raise FormatError(
            f"no AGS1 file has {file_length} bytes: {rest} are left after {full_blocks} full blocks, too few for another block"
        )

    return full_blocks * BLOCK_LENGTH + rest - OVERHEAD


def file_length(plaintext_length: int) -> int:
    """How long the file of `plaintext_length` bytes becomes. FormatError when that needs more than MAX_BLOCKS blocks, or is negative."""
    if not 0 <= plaintext_length <= MAX_PLAINTEXT_LENGTH:
        raise FormatError(f"an AGS1 file holds 0 to {MAX_PLAINTEXT_LENGTH} plaintext bytes, not {plaintext_length}")
    return HEADER_LENGTH + plaintext_length + block_count(plaintext_length) * OVERHEAD


def block_count(plaintext_length: int) -> int:
    """How many blocks hold `plaintext_length` bytes: one even for none."""
    return max(1, -(-plaintext_length // BLOCK_LENGTH))


def block_of(offset: int) -> int:
    """The block in which the plaintext byte at `offset` lies."""
    return offset // BLOCK_LENGTH


def block_offset(block: int) -> int:
    """Where in the file a block begins (its nonce)."""
    return HEADER_LENGTH + block * ENCRYPTED_BLOCK_LENGTH


def block_plaintext_length(block: int, plaintext_length: int) -> int:
    """How many plaintext bytes a block holds in a stream of `plaintext_length` bytes."""
    return min(BLOCK_LENGTH, plaintext_length - block * BLOCK_LENGTH)


def block_aad(prefix: bytes, block: int) -> bytes:
    """The AAD of a block: prefix | block (4, little endian). FormatError for a block that no file has."""
    if not 0 <= block < MAX_BLOCKS:
        raise FormatError(f"an AGS1 file has at most {MAX_BLOCKS} blocks: there is no block {block}")
    return prefix + _BLOCK_INDEX.pack(block)


def header() -> bytes:
    """The first HEADER_LENGTH bytes of every file."""
    return _HEADER.pack(MAGIC, BLOCK_LENGTH)


def refuse_plaintext(data: bytes, location: str) -> None:
    """PlaintextRefusedError when `data` begins like a plaintext Parquet, Avro or Puffin file."""
    magic = data[: len(MAGIC)]
    if magic in PLAINTEXT_MAGICS:
        what = f"begins with {magic!r}: a plaintext {PLAINTEXT_MAGICS[magic]} file, where an AGS1 file must be"
        raise PlaintextRefusedError(location, what)


def check_header(data: bytes, location: str = "AGS1 stream") -> None:
    """Accept only what `header()` returns; `location` names the file in the error.

    Raises PlaintextRefusedError for the magic of Parquet, Avro or Puffin, TamperedFileError for any other magic or a cut header, and
    FormatError for a block length other than 1048576, which no Iceberg writer makes.
    """
    refuse_plaintext(data, location)
    magic = data[: len(MAGIC)]
    if magic != MAGIC:
        raise TamperedFileError(location, f"begins with {magic!r}, not with the AGS1 magic {MAGIC!r}")
    if len(data) != HEADER_LENGTH:
        raise TamperedFileError(location, f"the AGS1 header has {len(data)} bytes, not {HEADER_LENGTH}")

    block_length = _HEADER.unpack(data)[1]
    # The header is not authenticated: a block length that it could choose would move every block to another place.
    if block_length != BLOCK_LENGTH:
        raise FormatError(f"{location}: the AGS1 header says blocks of {block_length} bytes; only {BLOCK_LENGTH} is supported")
