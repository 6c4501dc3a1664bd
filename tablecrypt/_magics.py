"""The bytes with which files of each format begin, those of Parquet and Puffin end with them too: written here and nowhere else.

Any file may begin with them, so what a file looks like by them is only for messages about a wrong file: nothing is decided by it, and
they are shown as Python writes them.
"""

from __future__ import annotations

from typing import Final

AGS1: Final = b"AGS1"
AVRO: Final = b"Obj\x01"
ENCRYPTED_PARQUET: Final = b"PARE"
GZIP: Final = b"\x1f\x8b"
ORC: Final = b"ORC"
PARQUET: Final = b"PAR1"
PUFFIN: Final = b"PFA1"

HEAD_LENGTH: Final = 8
"""So many bytes are enough to tell."""

_FORMATS: Final = (
    (ENCRYPTED_PARQUET, "an encrypted Parquet file"),
    (PARQUET, "a Parquet file"),
    (AGS1, "an AGS1 file"),
    (ORC, "an ORC file"),
    (AVRO, "an Avro file"),
    (PUFFIN, "a Puffin file"),
    (b"ARROW1", "an Arrow file"),
    (b"PK\x03\x04", "a ZIP file"),
    (GZIP, "a gzip file"),
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
            return f"begins like {name}"
    return f"begins with {head[:HEAD_LENGTH]!r}"
