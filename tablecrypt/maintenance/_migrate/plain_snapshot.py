"""The last snapshot of a plain table: its manifests as they are read, and the encrypted snapshot of the same rows.

Plain manifests are read with every field of version 3: those of versions 1 and 2 by PyIceberg's own readers, those of version 3 by ours
without the decryption, because PyIceberg's drop row ids and the offsets of deletion vectors. Raises FormatError for bytes that are no
manifest list or manifest.

Positional deletes of any kind become deletion vectors; equality deletes stay what they are, since sequence numbers do. Row ids of a
version 3 table stay; rows of earlier versions get theirs now. What was plain is named nowhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any, ClassVar, cast

import fastavro
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, FileFormat, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from tablecrypt.manifests.manifest_file import inherit, parse_manifest
from tablecrypt.manifests.manifest_list import parse_manifest_list
from tablecrypt.manifests.records import FORMAT_VERSION, is_deletion_vector
from tablecrypt.table._pyiceberg.arrow import read_plain_deletes
from tablecrypt.table.replace_files import BaseManifest, EncryptedFileSwap


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

    for row in parse_manifest_list(_stored(io, snapshot.manifest_list), snapshot.manifest_list).manifests:
        entries = parse_manifest(_stored(io, row.manifest_path), row.manifest_path, row.content).entries
        inherit(entries, row, row.first_row_id, encrypted=False)
        yield row, [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]


def _stored(io: FileIO, location: str) -> bytes:
    with io.new_input(location).open() as stream:
        return stream.read()


class MigrationSnapshot(EncryptedFileSwap):
    """A file swap whose base is a plain snapshot.

    Args:
        manifests: the plain snapshot's, with their live entries.
        plain_io: the plain table's FileIO.
    """

    records_dropped: ClassVar[bool] = False

    def __init__(self, *, manifests: Iterable[BaseManifest], plain_io: FileIO, **options: Any) -> None:
        super().__init__(**options)
        self._plain_manifests = list(manifests)
        self._plain_io = plain_io
        self._read_deletes: dict[str, dict[str, list[int]]] = {}

    def base_manifests(self) -> Iterable[BaseManifest]:
        """Return the plain snapshot's, without those that name only files which are gone."""
        return [manifest for manifest in self._plain_manifests if manifest.entries]

    def deleted_positions(self, data_file: DataFile, deletes: set[DataFile]) -> Iterable[int]:
        """Return the positions that plain delete files name. A deletion vector says all that there is to say."""
        vectors = {file for file in deletes if is_deletion_vector(file)}
        positions: set[int] = set()
        for file in vectors or deletes:
            if file.file_path not in self._read_deletes:
                self._read_deletes[file.file_path] = self._positions_by_path(file)
            positions.update(self._read_deletes[file.file_path].get(data_file.file_path, ()))

        return sorted(positions)

    def _positions_by_path(self, file: DataFile) -> dict[str, list[int]]:
        if file.file_format != FileFormat.AVRO:
            return {path: positions.to_pylist() for path, positions in read_plain_deletes(self._plain_io, file).items()}

        by_path: dict[str, list[int]] = defaultdict(list)
        with self._plain_io.new_input(file.file_path).open() as stored:
            records = cast("Iterator[dict[str, Any]]", fastavro.reader(BytesIO(stored.read())))
            for record in records:
                by_path[record["file_path"]].append(record["pos"])

        return by_path
