"""The manifests of a table that is not encrypted (yet), with every field of version 3: what a migration reads.

    version 1, 2    PyIceberg's own readers
    version 3       ours, without the decryption: PyIceberg's drop row ids and the places of deletion vectors

Raises FormatError for bytes that are no manifest list or manifest.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from tablecrypt.manifests.manifest_file import inherit, parse_manifest
from tablecrypt.manifests.manifest_list import parse_manifest_list
from tablecrypt.manifests.records import FORMAT_VERSION


def plain_manifests(metadata: TableMetadata, snapshot: Snapshot, io: FileIO) -> Iterator[tuple[ManifestFile, list[ManifestEntry]]]:
    """Yield each manifest of a plain snapshot with its live entries, complete with all that they inherit.

    Args:
        metadata: of the plain table.
        snapshot: one of its snapshots.
        io: the plain table's.
    """
    if metadata.format_version < FORMAT_VERSION:
        for manifest in snapshot.manifests(io):
            yield manifest, manifest.fetch_manifest_entry(io, discard_deleted=True)
        return
    for row in parse_manifest_list(_read(io, snapshot.manifest_list), snapshot.manifest_list).manifests:
        entries = parse_manifest(_read(io, row.manifest_path), row.manifest_path, row.content).entries
        inherit(entries, row, row.first_row_id, encrypted=False)
        yield row, [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]


def _read(io: FileIO, location: str) -> bytes:
    with io.new_input(location).open() as stream:
        return stream.read()
