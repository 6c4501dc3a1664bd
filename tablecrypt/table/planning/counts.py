"""What planning a scan looked at, and what it left out, as Iceberg counts it.

manifests    of the snapshot; those that were read; the others were skipped by their partition summaries or their age
data files   the live ones of the manifests that were read; a scan's tasks are some of them
deletes      delete files of the delete manifests that were read: position deletes, deletion vectors among them, and equality deletes
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestFile


@dataclass
class PlanCounts:
    """How many of each."""

    data_manifests: int = 0
    delete_manifests: int = 0
    read_data_manifests: int = 0
    read_delete_manifests: int = 0
    listed_data_files: int = 0
    position_delete_files: int = 0
    equality_delete_files: int = 0

    def add_manifests(self, listed: Iterable[ManifestFile], read: Iterable[ManifestFile]) -> None:
        """Take in a snapshot's manifests, and those of them that are read."""
        of_listed, of_read = [each.content for each in listed], [each.content for each in read]
        self.data_manifests += of_listed.count(ManifestContent.DATA)
        self.delete_manifests += of_listed.count(ManifestContent.DELETES)
        self.read_data_manifests += of_read.count(ManifestContent.DATA)
        self.read_delete_manifests += of_read.count(ManifestContent.DELETES)

    def add_delete_file(self, file: DataFile) -> None:
        """Take in a delete file."""
        if file.content == DataFileContent.EQUALITY_DELETES:
            self.equality_delete_files += 1
        else:
            self.position_delete_files += 1
