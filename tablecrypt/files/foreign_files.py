"""What a file that is not of the expected format looks like, by its first bytes: for messages to somebody who named the wrong file.

Nothing is decided by it. The bytes are anybody's, so they are shown as Python writes them.
"""

from __future__ import annotations

from typing import Final

from tablecrypt import _magics as magics

HEAD_LENGTH: Final = 8
"""So many bytes are enough to tell."""

_FORMATS: Final = (
    (magics.ENCRYPTED_PARQUET, "an encrypted Parquet file"),
    (magics.PARQUET, "a Parquet file"),
    (magics.AGS1, "an AGS1 file"),
    (magics.ORC, "an ORC file"),
    (magics.AVRO, "an Avro file"),
    (magics.PUFFIN, "a Puffin file"),
    (b"ARROW1", "an Arrow file"),
    (b"PK\x03\x04", "a ZIP file"),
    (magics.GZIP, "a gzip file"),
    (b"{", "a JSON file"),
)


def looks_like(head: bytes) -> str:
    """Return how a file may be described that begins with `head`, which is all of it where it has fewer than HEAD_LENGTH bytes.

    The phrase follows the file's location and a colon.
    """
    if not head:
        return "is empty"
    for magic, name in _FORMATS:
        if head.startswith(magic):
            return f"begins as {name} does"
    return f"begins with {head[:HEAD_LENGTH]!r}"
