"""Manifests that somebody who may commit has written by hand: whatever entries they like, before or behind those of the table."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, cast

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table

from tablecrypt.manifests import EncryptedDataFile
from tablecrypt.manifests.records import DATA_FILE_POSITIONS
from tablecrypt.table.snapshots import CommitOptions, EncryptedProducer
from tablecrypt.table.transaction import EncryptedTransaction

_PATH: Final = 0
"""Where a row of a manifest list has the location of its manifest."""


@dataclass(frozen=True)
class HandwrittenManifest:
    """A manifest of files as their entries are to name them; of the partition spec of the first, unless told otherwise.

    The manifest list names it where it is written, or at another location.
    """

    files: Sequence[DataFile]
    content: ManifestContent = ManifestContent.DATA
    spec_id: int | None = None
    sequence_number: int | None = None
    status: ManifestEntryStatus = ManifestEntryStatus.ADDED
    location: str | None = None

    def written_by(self, producer: EncryptedProducer) -> ManifestFile:
        """Write it as one of a snapshot."""
        spec_id = self.files[0].spec_id if self.spec_id is None else self.spec_id
        with producer._manifest_writer(producer.spec(spec_id), self.content) as writer:
            for file in self.files:
                numbers = (self.sequence_number, self.sequence_number)
                writer.add_entry(ManifestEntry(self.status, producer.snapshot_id, *numbers, EncryptedDataFile.of(file)))
        manifest = writer.to_manifest_file()
        if self.location is not None:
            manifest[_PATH] = self.location
        return manifest


def commit_by_hand(table: Table, *handwritten: HandwrittenManifest) -> None:
    """Commit a snapshot that lists these manifests before all others, which a walk through the table meets first."""
    with table.transaction() as transaction:
        producer = cast("EncryptedTransaction", transaction).append_producer(CommitOptions())

        def listed(manifests: list[ManifestFile]) -> list[ManifestFile]:
            return [*(each.written_by(producer) for each in handwritten), *manifests]

        producer.finish_manifests = listed  # type: ignore[method-assign]
        producer.commit_files([])


def named_otherwise(file: DataFile, **fields: Any) -> EncryptedDataFile:
    """Return the entry of a file with other values of some fields."""
    entry = copy(EncryptedDataFile.of(file))
    entry.spec_id = file.spec_id
    for name, value in fields.items():
        entry[DATA_FILE_POSITIONS[name]] = value
    return entry
