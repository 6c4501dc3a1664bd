"""The first snapshot of a table that was plain until now: the rows of its last plain one, in encrypted files.

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
from pyiceberg.manifest import DataFile, FileFormat

from tablecrypt.table._pyiceberg.arrow import read_plain_deletes
from tablecrypt.table.content_files import is_deletion_vector
from tablecrypt.table.file_swap import BaseManifest, EncryptedFileSwap
from tablecrypt.table.metadata import EncryptedSnapshot


class MigrationSnapshot(EncryptedFileSwap):
    """A file swap whose base is a plain snapshot, which `of_plain` gives."""

    records_dropped: ClassVar[bool] = False

    def of_plain(self, manifests: Iterable[BaseManifest], io: FileIO) -> MigrationSnapshot:
        """Take over the plain snapshot's manifests, with their live entries, and the plain table's FileIO."""
        self._plain_manifests = list(manifests)
        self._plain_io = io
        self._read_deletes: dict[str, dict[str, list[int]]] = {}
        return self

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


def plain_snapshot_ids(snapshots: Iterable[EncryptedSnapshot]) -> list[int]:
    """Return the ids of the plain snapshots, which go in the commit that brings the encrypted one."""
    return [snapshot.snapshot_id for snapshot in snapshots if snapshot.key_id is None]
