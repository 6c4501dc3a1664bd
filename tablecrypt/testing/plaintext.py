"""What plaintext looks like in storage, and how to find it there.

A file is plaintext when it begins with the magic of a format that tablecrypt never leaves bare, or when CANARY, a string that tests put
into their rows, is found anywhere in it. The magic is the stronger half: compression hides a canary, and never a magic.

    PAR1     Parquet      (encrypted: PARE)
    Obj 01   Avro         (encrypted: AGS1)
    PFA1     Puffin       (encrypted: AGS1)
    ORC      ORC

The canary is looked for by its first characters only, since Iceberg cuts the bounds in a manifest to 16 characters and counts the last one
up; and as UTF-8, as UTF-16, in hex and in base64, where it may begin at any of three places in a group.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tablecrypt import _magics as magics
from tablecrypt.files.raw_output import TABLE_METADATA_SUFFIXES

CANARY: Final = "c4nary-plaintext-must-not-appear"
"""A string for the rows of tests: in the storage of an encrypted table it must not appear."""

MAGICS: Final = {magics.PARQUET: "Parquet", magics.AVRO: "Avro", magics.PUFFIN: "Puffin", magics.ORC: "ORC"}
_PROBE: Final = CANARY[:12].encode()


def _in_base64(probe: bytes, shift: int) -> bytes:
    """The characters that `probe` alone decides when it begins `shift` bytes into a group of three."""
    # Base64 spells a text in three ways, depending on where in a group of three it begins.
    encoded = base64.b64encode(b"\0" * shift + probe)
    first = -(-shift * 8 // 6)
    last = (shift + len(probe)) * 8 // 6
    return encoded[first:last]


_NEEDLES: Final = {
    "the canary": _PROBE,
    "the canary in UTF-16": _PROBE.decode().encode("utf-16-le"),
    "the canary in hex": _PROBE.hex().encode(),
    **{f"the canary in base64 ({shift})": _in_base64(_PROBE, shift) for shift in range(3)},
}


@dataclass(frozen=True)
class PlaintextFinding:
    """Plaintext at `location`."""

    location: str
    what: str

    def __str__(self) -> str:
        return f"{self.location}: {self.what}"


def findings(location: str, content: bytes) -> Iterator[PlaintextFinding]:
    """Yield every reason to call this file plaintext. Table metadata is JSON by specification, and may not hold the canary either."""
    for magic, format_name in MAGICS.items():
        if content.startswith(magic):
            yield PlaintextFinding(location, f"begins as plaintext {format_name}")
    # Compressed metadata would hide a canary from a search of its bytes.
    text = unzipped(content) if location.endswith(TABLE_METADATA_SUFFIXES) else content
    for what, needle in _NEEDLES.items():
        if needle in text:
            yield PlaintextFinding(location, f"holds {what}")


def unzipped(content: bytes) -> bytes:
    """Return the content as Iceberg means it: metadata JSON may be gzipped, whatever its name says."""
    return gzip.decompress(content) if content[:2] == magics.GZIP else content
