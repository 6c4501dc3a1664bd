"""StandardKeyMetadata: arbitrary bytes decode or are refused, and what decodes encodes again to something of the same meaning."""

from __future__ import annotations

import atheris
from harness import fuzz

with atheris.instrument_imports(include=["tablecrypt"]):
    from tablecrypt.crypto.key_metadata import StandardKeyMetadata
    from tablecrypt.crypto.secret import Secret


def decode(data: bytes) -> None:
    """Decode, and encode again what can be."""
    decoded = StandardKeyMetadata.decode(data)
    assert StandardKeyMetadata.decode(decoded.encode()) == decoded


KINDS: tuple[tuple[int, bytes, int | None], ...] = ((16, bytes(16), 4096), (24, b"", None), (32, b"", 2**40))
SEEDS = [StandardKeyMetadata(Secret(bytes(length)), prefix, file_length).encode() for length, prefix, file_length in KINDS]

if __name__ == "__main__":
    fuzz(decode, SEEDS)
