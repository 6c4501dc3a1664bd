"""The stores of tests, and which folders in them belong to encrypted tables.

What plaintext looks like is in tablecrypt.testing.plaintext, whose names tests take from here.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tablecrypt.testing.plaintext import CANARY, PlaintextFinding, findings, unzipped

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


__all__ = ["CANARY", "FolderStore", "PlaintextFinding", "S3Store", "Store", "encrypted_table_root", "findings"]


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
                paths = (Path(parent) / name for name in names)
                # A link to nothing, or to itself, holds no bytes. One that leads to a file is read as its reader would.
                yield from (str(path) for path in paths if path.exists() or not path.is_symlink())

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


def encrypted_table_root(location: str, content: bytes) -> str | None:
    """The folder of the table whose metadata this is, if the table promises encryption; else None."""
    try:
        metadata = json.loads(unzipped(content))
        promised = "encryption.key-id" in metadata.get("properties", {})
    except (ValueError, OSError, EOFError, zlib.error, AttributeError, TypeError):
        return None  # A test of bad input left it: no reader would take it for a table.
    folder, separator, _ = location.rpartition("/metadata/")
    return folder if promised and separator else None
