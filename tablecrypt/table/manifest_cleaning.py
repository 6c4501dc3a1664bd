"""A snapshot of the same files whose manifests name no deleted ones: what shredding commits before the snapshot that deleted them can go.

    manifest with live entries only         kept as it is
    manifest with live and deleted ones     written anew with the live ones, as existing
    manifest with deleted ones only         left out

A deleted entry keeps the DEK of the file that it names. Manifests are worked out anew on each base that the commit is tried on.

Iceberg table spec, "Manifests" (status); operation "replace" of "Snapshots".
"""

from __future__ import annotations

from pyiceberg.manifest import ManifestEntryStatus, ManifestFile

from tablecrypt.table._pyiceberg.producers import WholeSnapshotSeam
from tablecrypt.table.snapshots import EncryptedProducer


class EncryptedManifestCleaning(EncryptedProducer, WholeSnapshotSeam):
    """Leaves deleted entries out of a branch's manifests. Snapshots of operation REPLACE."""

    def collect_manifests(self) -> list[ManifestFile]:
        """Write the manifests that change, and return them with those that stay."""
        parent = self.table_metadata.snapshot_by_id(self.parent_snapshot_id) if self.parent_snapshot_id is not None else None
        cleaned = [self._cleaned(manifest) for manifest in (parent.manifests(self.io) if parent is not None else ())]
        return [manifest for manifest in cleaned if manifest is not None]

    def _cleaned(self, manifest: ManifestFile) -> ManifestFile | None:
        entries = manifest.fetch_manifest_entry(self.io, discard_deleted=False)
        live = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
        if len(live) == len(entries):
            return manifest
        if not live:
            return None
        with self._manifest_writer(self.spec(manifest.partition_spec_id), manifest.content) as writer:
            for entry in live:
                writer.existing(entry)
        return writer.to_manifest_file()
