"""Reading the entries of manifests in columns, and keeping them: a manifest never changes, so a second plan need not read it again.

    manifests ──not kept──▶ fetched and decrypted in parallel, some MiB at a time ──decoded together──▶ kept ──▶ Entries
        └──────kept─────────────────────────────────────────────────────────────────────────────────────────▶

A manifest is kept under its location and its key metadata. So nobody gets one without the key that opens it, and one that was swapped for
another has another key. What is kept was authenticated when it was read. The cache belongs to the process, which all tables share, and the
longest unused goes first; `io.manifest.cache.max-total-bytes` says how much stays. It holds keys of data files in memory: a forked child
starts with an empty one.

Raises what EncryptedManifestFile.read raises.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Final, TypeAlias

from pyiceberg.io import FileIO
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.manifests.entries import Entries
from tablecrypt.manifests.entry_columns import ManifestColumns, ManifestContainer, decode_manifests
from tablecrypt.manifests.manifest_file import EncryptedManifestFile, encrypting, open_manifest
from tablecrypt.properties import MANIFEST_CACHE_BYTES

_Key: TypeAlias = tuple[str, bytes]
_BATCH_BYTES: Final = 4 * 1024 * 1024
"""How many stored bytes of manifests are decoded together, at least."""


class ManifestCache:
    """Decoded manifests by location and key metadata, the longest unused first. Used by many threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Key, ManifestColumns] = OrderedDict()
        self._lock = Lock()
        self.size = 0

    def get(self, key: _Key) -> ManifestColumns | None:
        """Return a manifest that is kept."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: _Key, columns: ManifestColumns, limit: int) -> None:
        """Keep a manifest, and of all no more than `limit` bytes."""
        if columns.size > limit:
            return
        with self._lock:
            self._drop(key)
            self._kept[key] = columns
            self.size += columns.size
            while self.size > limit:
                self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """Forget every manifest, and the keys in them."""
        with self._lock:
            self._kept.clear()
            self.size = 0

    def _drop(self, key: _Key) -> None:
        dropped = self._kept.pop(key, None)
        self.size -= 0 if dropped is None else dropped.size


def _of_new_process() -> None:
    # The parent's lock may be held by a thread that the child does not have.
    CACHE.__init__()  # type: ignore[misc]


CACHE: Final = ManifestCache()
os.register_at_fork(after_in_child=_of_new_process)


def read_in_columns(io: FileIO, manifests: Sequence[EncryptedManifestFile]) -> Iterator[Entries]:
    """Yield the live entries of manifests, of as many together as are read together.

    Raises:
        ConfigurationError: `io` is no EncryptingFileIO.
        PlaintextRefusedError, AuthenticationError, FormatError: as EncryptedManifestFile.fetch_manifest_entry.
    """
    for batch in _batches(manifests):
        yield Entries.of(list(zip(batch, _columns(encrypting(io, batch[0].manifest_path), batch), strict=True)))


def _batches(manifests: Sequence[EncryptedManifestFile]) -> Iterator[list[EncryptedManifestFile]]:
    batch: list[EncryptedManifestFile] = []
    size = 0
    for manifest in manifests:
        batch.append(manifest)
        size += manifest.manifest_length
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _columns(io: EncryptingFileIO, manifests: Sequence[EncryptedManifestFile]) -> list[ManifestColumns]:
    limit = MANIFEST_CACHE_BYTES.whole_number(io.inner.properties)
    columns = {number: kept for number, manifest in enumerate(manifests) if limit and (kept := CACHE.get(_key(manifest))) is not None}
    for number, kept in columns.items():
        manifests[number].check_layout(kept.header)

    def opened(number: int) -> ManifestContainer:
        manifest = manifests[number]
        container = open_manifest(io, manifest.manifest_path, manifest.open_key_metadata(), manifest.content)
        manifest.check_layout(container.metadata)
        return container

    missing = [number for number in range(len(manifests)) if number not in columns]
    read = decode_manifests(list(ExecutorFactory.get_or_create().map(opened, missing)))
    for number, decoded in zip(missing, read, strict=True):
        columns[number] = decoded
        CACHE.put(_key(manifests[number]), decoded, limit)
    return [columns[number] for number in range(len(manifests))]


def _key(manifest: EncryptedManifestFile) -> _Key:
    return manifest.manifest_path, bytes(manifest.key_metadata or b"")
