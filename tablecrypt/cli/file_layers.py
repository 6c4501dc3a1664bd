"""What `inspect` says about a file: the blocks of an AGS1 stream, or the modules of a Parquet file."""

from __future__ import annotations

import os
from typing import Any, Final

from tablecrypt import parquet
from tablecrypt.crypto import ags1
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError
from tablecrypt.files.foreign_files import looks_like
from tablecrypt.parquet.inspection import ModuleInspection

_PARQUET_MAGICS: Final = (b"PARE", b"PAR1")


def file_layers(raw: Any, location: str, key_metadata: StandardKeyMetadata | None, keys: parquet.FileKeys | None) -> dict[str, Any]:
    """Return the layers of a file, as JSON's types.

    Args:
        raw: the stored bytes, seekable.
        location: names the file.
        key_metadata: its key, to say how long it is and what goes with it; None: only what can be seen without one.
        keys: the same as keys of a Parquet file, to look inside.

    Raises:
        FormatError: it is neither an AGS1 stream nor Parquet.
        TamperedFileError, KeyMismatchError, PlaintextRefusedError: it is not what it should be.
    """
    raw.seek(0, os.SEEK_END)
    length = raw.tell()
    raw.seek(0)
    head = raw.read(ags1.HEADER_LENGTH)
    described = {"file": location, "bytes": length, **_key(key_metadata)}
    if head.startswith(ags1.MAGIC):
        ags1.check_header(head, location)
        return {**described, **_ags1_layers(length, location)}
    if head.startswith(_PARQUET_MAGICS):
        raw.seek(0)
        return {**described, "format": "Parquet", **_parquet_layers(raw, location, keys)}
    raise FormatError(f"{location}: {looks_like(head)}: it is neither an AGS1 stream nor a Parquet file")


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


def _parquet_layers(raw: Any, location: str, keys: parquet.FileKeys | None) -> dict[str, Any]:
    found = parquet.inspect(raw, keys, location=location)
    columns = [
        {"row_group": group.ordinal, "column": chunk.path, "key": chunk.key, "locked": chunk.locked, "modules": _modules(chunk.modules)}
        for group in found.row_groups or ()
        for chunk in group.chunks
    ]
    return {
        "footer": found.footer,
        "algorithm": found.algorithm,
        "needs_aad_prefix": found.needs_aad_prefix,
        "footer_modules": _modules(found.footer_modules),
        "columns": columns,
    }


def _modules(modules: tuple[ModuleInspection, ...]) -> list[dict[str, Any]]:
    return [
        {"type": each.type, "page": each.page, "offset": each.offset, "size": each.size, "cipher": each.cipher, "key": each.key}
        for each in modules
    ]
