"""What plaintext looks like in storage, and how to look for it.

A file is plaintext when it begins with the magic of a format that tablecrypt never leaves bare, or when the canary, a string that every
test puts into its rows, is found anywhere in it. The magic is the stronger half: compression hides a canary, and never a magic.

    PAR1  Parquet      (encrypted: PARE)
    Obj 01  Avro         (encrypted: AGS1)
    PFA1  Puffin       (encrypted: AGS1)
    ORC   ORC

The canary is looked for by its first characters only, since Iceberg cuts the bounds in a manifest to 16 characters and counts the last one
up; and as UTF-8, as UTF-16, in hex and in base64, where it may begin at any of three places in a group.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CANARY: Final = "c4nary-plaintext-must-not-appear"
MAGICS: Final = {b"PAR1": "Parquet", b"Obj\x01": "Avro", b"PFA1": "Puffin", b"ORC": "ORC"}
METADATA_SUFFIXES: Final = (".metadata.json", ".metadata.json.gz")
_PROBE: Final = CANARY[:12].encode()


def _in_base64(probe: bytes, shift: int) -> bytes:
    """The characters that `probe` alone decides when it begins `shift` bytes into a group of three."""
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
class Finding:
    """Plaintext at `location`."""

    location: str
    what: str

    def __str__(self) -> str:
        return f"{self.location}: {self.what}"


class Store(Protocol):
    """Where files lie: a folder or an S3 service. Locations are whole paths or s3:// addresses."""

    def locations(self) -> Iterator[str]:
        """Every file there is."""

    def read(self, location: str) -> bytes:
        """The whole file."""


class FolderStore:
    """Every file under some folders of this machine."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders

    def locations(self) -> Iterator[str]:
        for folder in self._folders:
            for parent, _, names in os.walk(folder):
                yield from (str(Path(parent) / name) for name in names)

    def read(self, location: str) -> bytes:
        return Path(location).read_bytes()


class S3Store:
    """Every object in every bucket that a client sees."""

    def __init__(self, client: S3Client) -> None:
        self._client = client

    def locations(self) -> Iterator[str]:
        for bucket in self._client.list_buckets()["Buckets"]:
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket["Name"]):
                yield from (f"s3://{bucket['Name']}/{entry['Key']}" for entry in page.get("Contents", []))

    def read(self, location: str) -> bytes:
        bucket, _, key = location.removeprefix("s3://").partition("/")
        return self._client.get_object(Bucket=bucket, Key=key)["Body"].read()


def unzipped(content: bytes) -> bytes:
    """The content as Iceberg means it: metadata JSON may be gzipped, whatever its name says."""
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def findings(location: str, content: bytes) -> Iterator[Finding]:
    """Every reason to call this file plaintext."""
    for magic, format_name in MAGICS.items():
        if content.startswith(magic):
            yield Finding(location, f"begins as plaintext {format_name}")
    text = unzipped(content) if location.endswith(METADATA_SUFFIXES) else content
    for what, needle in _NEEDLES.items():
        if needle in text:
            yield Finding(location, f"holds {what}")


def encrypted_table_root(location: str, content: bytes) -> str | None:
    """The folder of the table whose metadata this is, if the table promises encryption; else None."""
    try:
        metadata = json.loads(unzipped(content))
        promised = "encryption.key-id" in metadata.get("properties", {})
    except (ValueError, OSError, EOFError, zlib.error, AttributeError, TypeError):
        return None  # A test of bad input left it: no reader would take it for a table.
    folder, separator, _ = location.rpartition("/metadata/")
    return folder if promised and separator else None
