"""What planning reads of manifest lists and manifests, and keeping it: they never change, so a second plan need not read them again.

    manifest list ──not kept──▶ fetched, decrypted, decoded ──▶ kept ──▶ rows
    manifests ──not kept──▶ fetched and decrypted in parallel, some MiB at a time ──decoded together──▶ kept ──▶ Entries
        └──────kept─────────────────────────────────────────────────────────────────────────────────────────▶

Each is kept under its location and its key metadata. So only a holder of the key gets it, and a file that was swapped for another has
another key. What is kept was authenticated when it was read; what it says is held against the metadata of each table that reads it, and
each reader gets copies. The cache belongs to the process, which all tables share, and the longest unused goes first;
`io.manifest.cache.max-total-bytes` says how much stays. It holds keys of manifests and of data files in memory: a forked child starts with
an empty one.

Raises what read_manifest_list and EncryptedManifestFile.read raise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar

from pyiceberg.io import FileIO
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt._size_bounded_cache import SizeBoundedCache
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, encrypting_io
from tablecrypt.manifests.entries import Entries
from tablecrypt.manifests.entry_columns import ManifestColumns, ManifestContainer, decode_manifests
from tablecrypt.manifests.manifest_file import EncryptedManifestFile, open_manifest
from tablecrypt.manifests.manifest_list import ManifestList, read_manifest_list
from tablecrypt.properties import MANIFEST_CACHE_BYTES

BATCH_BYTES: Final = 4 * 1024 * 1024


class Kept(Protocol):
    """Something decoded that the cache keeps."""

    @property
    def size(self) -> int:
        """How many bytes of memory it takes, about."""


K = TypeVar("K", bound=Kept)
_Key: TypeAlias = tuple[type[Kept], str, bytes]


class ManifestCache(SizeBoundedCache[_Key, Kept]):
    """Decoded manifest lists and manifests by location and key metadata, with the keys of files in them."""

    def get(self, kind: type[K], location: str, key_metadata: bytes) -> K | None:
        """Return what is kept of this kind from that location and under that key."""
        found = self.find((kind, location, key_metadata))
        return found if isinstance(found, kind) else None

    def put(self, location: str, key_metadata: bytes, decoded: Kept, limit: int) -> None:
        """Keep what was decoded, and of all no more than `limit` bytes."""
        self.keep((type(decoded), location, key_metadata), decoded, decoded.size, limit)


CACHE: Final = ManifestCache()
os.register_at_fork(after_in_child=CACHE.start_empty)


def known_manifest_list(io: EncryptingFileIO, location: str, key_metadata: StandardKeyMetadata) -> ManifestList:
    """Return what `read_manifest_list` does, without reading a list that is kept. The rows are the caller's own.

    Raises:
        As `read_manifest_list`, for a list that is not kept.
    """
    limit = MANIFEST_CACHE_BYTES.whole_number(io.inner.properties)
    # The encoded key metadata has the DEK in it. It is in no local: what reading raises keeps those of this frame.
    kept = CACHE.get(ManifestList, location, key_metadata.encode()) if limit else None
    if kept is None:
        kept = read_manifest_list(io, location, key_metadata)
        CACHE.put(location, key_metadata.encode(), kept, limit)
    return kept.copied()


def read_in_columns(io: FileIO, manifests: Sequence[EncryptedManifestFile], batch_bytes: int = BATCH_BYTES) -> Iterator[Entries]:
    """Yield the live entries of manifests, of as many together as are read together.

    Args:
        io: of the table.
        manifests: in the order of their entries.
        batch_bytes: how many stored bytes of them are decoded together, at least.

    Raises:
        ConfigurationError: `io` is no EncryptingFileIO.
        PlaintextRefusedError, AuthenticationError, FormatError: as EncryptedManifestFile.fetch_manifest_entry.
    """
    for batch in _batches(manifests, batch_bytes):
        columns = _columns(encrypting_io(io, f"{batch[0].manifest_path}: an encrypted manifest"), batch)
        yield Entries.of(list(zip(batch, columns, strict=True)))


def _batches(manifests: Sequence[EncryptedManifestFile], least_bytes: int) -> Iterator[list[EncryptedManifestFile]]:
    batch: list[EncryptedManifestFile] = []
    size = 0
    for manifest in manifests:
        batch.append(manifest)
        size += manifest.manifest_length
        if size >= least_bytes:
            yield batch
            batch, size = [], 0

    if batch:
        yield batch


def _columns(io: EncryptingFileIO, manifests: Sequence[EncryptedManifestFile]) -> list[ManifestColumns]:
    limit = MANIFEST_CACHE_BYTES.whole_number(io.inner.properties)
    columns = {number: kept for number, manifest in enumerate(manifests) if limit and (kept := _kept(manifest)) is not None}
    for number, kept in columns.items():
        # Other metadata may read the same manifest: an edited schema must not pass because an earlier version agreed.
        manifests[number].check_layout(kept.header)

    def opened(number: int) -> ManifestContainer:
        manifest = manifests[number]
        container = open_manifest(io, manifest.manifest_path, manifest.open_key_metadata(), manifest.content)
        # The header is held against metadata.json before any entry is decoded.
        manifest.check_layout(container.metadata)
        return container

    missing = [number for number in range(len(manifests)) if number not in columns]
    read = decode_manifests(list(ExecutorFactory.get_or_create().map(opened, missing)))
    for number, decoded in zip(missing, read, strict=True):
        columns[number] = decoded
        # Only a manifest that was decoded to its end is kept: the strict reader has refused the others by now.
        CACHE.put(manifests[number].manifest_path, _key_of(manifests[number]), decoded, limit)

    return [columns[number] for number in range(len(manifests))]


def _kept(manifest: EncryptedManifestFile) -> ManifestColumns | None:
    return CACHE.get(ManifestColumns, manifest.manifest_path, _key_of(manifest))


def _key_of(manifest: EncryptedManifestFile) -> bytes:
    return bytes(manifest.key_metadata or b"")
