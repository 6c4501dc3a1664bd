"""What `inspect` says about a file: the blocks of an AGS1 stream, or the modules of a Parquet file."""

from __future__ import annotations

import os
from typing import Any

from tablecrypt.crypto import ags1
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError


def file_layers(raw: Any, location: str, key_metadata: StandardKeyMetadata | None) -> dict[str, Any]:
    """Return the layers of a file, as JSON's types.

    Args:
        raw: the stored bytes, seekable.
        location: names the file.
        key_metadata: its key, for what is said inside; None: only what can be seen without one.

    Raises:
        FormatError: it is of neither encrypted format.
        TamperedFileError, PlaintextRefusedError: it is not what it should be.
    """
    raw.seek(0, os.SEEK_END)
    length = raw.tell()
    raw.seek(0)
    head = raw.read(ags1.HEADER_LENGTH)
    described = {"file": location, "bytes": length, **_key(key_metadata)}
    if head.startswith(ags1.MAGIC):
        ags1.check_header(head, location)
        return {**described, **_ags1_layers(length, location)}
    raise FormatError(f"{location}: begins with {head[:4]!r}: neither an AGS1 stream nor an encrypted Parquet file")


def _key(key_metadata: StandardKeyMetadata | None) -> dict[str, Any]:
    if key_metadata is None:
        return {}
    return {
        "key_length": len(key_metadata.encryption_key),
        "aad_prefix_length": len(key_metadata.aad_prefix),
        "trusted_length": key_metadata.file_length,
    }


def _ags1_layers(length: int, location: str) -> dict[str, Any]:
    try:
        plaintext = ags1.plaintext_length(length)
    except FormatError as impossible:
        raise FormatError(f"{location}: {impossible}") from None
    blocks = ags1.block_count(plaintext)
    return {
        "format": "AGS1",
        "plaintext_bytes": plaintext,
        "blocks": blocks,
        "block_length": ags1.BLOCK_LENGTH,
        "last_block_offset": ags1.block_offset(blocks - 1),
        "last_block_length": ags1.block_plaintext_length(blocks - 1, plaintext),
    }
