"""The search for keys in what a job leaves behind: raw, in hexadecimal and in base64."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.table.table import EncryptedTable


def forms(key: bytes) -> Iterator[bytes]:
    """The key as it is, in hexadecimal, and the part of its base64 that does not depend on what stands before and after it."""
    yield from (key, key.hex().encode(), key.hex().upper().encode())
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + key)
        yield encoded[(0, 2, 3)[before] : len(encoded) - 4]
        yield base64.urlsafe_b64encode(bytes(before) + key)[(0, 2, 3)[before] : len(encoded) - 4]


def found(keys: list[bytes], haystacks: dict[str, bytes]) -> list[str]:
    return [name for name, content in haystacks.items() if any(form in content for key in keys for form in forms(key))]


def file_keys(table: EncryptedTable) -> list[bytes]:
    """The DEK of every data file and manifest of the table."""
    keys = []
    for snapshot in table.snapshots():
        for manifest in snapshot.manifests(table.io):
            keys.append(manifest.open_key_metadata().encryption_key.reveal())  # type: ignore[attr-defined]
            entries = manifest.fetch_manifest_entry(table.io)
            keys.extend(key_metadata_of(entry.data_file).encryption_key.reveal() for entry in entries)
    return keys
