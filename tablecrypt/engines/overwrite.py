"""Overwriting all that a branch holds, in one snapshot.

    the branch holds    new files    the snapshot's operation
    files               some         overwrite
    files               none         delete
    nothing             some         overwrite
    nothing             none         no snapshot

What a branch holds is decided when the commit is made: where others commit first, the next attempt replaces their files too, as in Iceberg
Java. A change that must not replace unseen rows is planned on a snapshot and checked against what came after it instead.

Every data file and every delete file is named as deleted in a manifest of its partition spec. New rows get new row ids.

Iceberg table spec, "Snapshots" (operation), "Row Lineage".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import UpdatesAndRequirements

from tablecrypt.manifests.manifest_file import lists_files
from tablecrypt.table._pyiceberg.transactions import WholeSnapshotAdapter
from tablecrypt.table.snapshots import CommitOptions, EncryptedProducer
from tablecrypt.table.table_files import ObsoleteDeletes

if TYPE_CHECKING:
    from tablecrypt.table.transaction import EncryptedTransaction


def stage_overwrite(transaction: EncryptedTransaction, files: Sequence[DataFile], options: CommitOptions) -> None:
    """Stage the replacement of all that a branch holds.

    Args:
        transaction: its commit makes the snapshot.
        files: what takes the place of all others.
        options: without a branch, the snapshot replaces what the main one holds.
    """
    operation = Operation.OVERWRITE if files else Operation.DELETE
    transaction.new_snapshot(options).producer(EncryptedOverwriteOfAll, operation).commit_files(files)


class EncryptedOverwriteOfAll(EncryptedProducer, WholeSnapshotAdapter):
    """Puts the added files in place of all data and delete files of the snapshot before."""

    def produce(self) -> UpdatesAndRequirements:
        """Write one attempt's manifests; return no updates where there is nothing to replace and nothing to add."""
        if not self.added_data_files and not self._manifests_with_files():
            return (), ()
        return super().produce()

    def collect_manifests(self) -> list[ManifestFile]:
        """Write a manifest of deleted entries for each one with files, and those of the added files."""
        # A retry replaces another parent: what only the attempt before found deleted must not be in this one's summary.
        self.deleted_data_files.clear()
        emptied = [new for manifest in self._manifests_with_files() for new in self._emptied(manifest)]
        return self.finish_manifests(emptied)

    def obsolete_deletes(self) -> ObsoleteDeletes:
        """Return none: `collect_manifests` leaves no delete file."""
        return ObsoleteDeletes(frozenset())

    def _manifests_with_files(self) -> list[ManifestFile]:
        return [manifest for manifest in self.parent_manifests if lists_files(manifest)]

    def _emptied(self, manifest: ManifestFile) -> list[ManifestFile]:
        entries = manifest.fetch_manifest_entry(self.io, discard_deleted=True)
        if not entries:
            return []

        files = [entry.data_file for entry in entries]
        if manifest.content == ManifestContent.DATA:
            self.deleted_data_files.update(files)
        else:
            self._dropped_delete_files.extend(files)

        with self._manifest_writer(self.spec(manifest.partition_spec_id), manifest.content) as writer:
            for entry in entries:
                writer.delete(entry)
        return [writer.to_manifest_file()]
