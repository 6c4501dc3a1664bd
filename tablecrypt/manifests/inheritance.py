"""What an entry inherits from its manifest, as Iceberg Java's ManifestReader does it.

* snapshot id: the manifest's, where the entry has none.
* sequence number and file sequence number: the manifest's, where an ADDED entry has none (any entry, if the manifest's is 0).
* partition spec id: the manifest's, always.
* first_row_id, in a manifest that has one: an entry that is not DELETED and has none gets the manifest's first_row_id plus the record
  counts of the entries before it that got theirs here. Entries that have one keep it and move nothing.
* first_row_id, in a committed manifest that has none: null for all. A manifest that this commit has just written keeps what it says.

Raises PlaintextRefusedError for an entry that is not DELETED and whose file has no key metadata.

Specification: "Sequence Number Inheritance" and "First Row ID Inheritance" of the Iceberg table specification.
"""

from __future__ import annotations

from pyiceberg.manifest import UNASSIGNED_SEQ, ManifestEntry, ManifestEntryStatus, ManifestFile

from tablecrypt.errors import PlaintextRefusedError
from tablecrypt.manifests.records import FIRST_ROW_ID

_ADDED = ManifestEntryStatus.ADDED
_DELETED = ManifestEntryStatus.DELETED


def inherit(entries: list[ManifestEntry], manifest: ManifestFile, first_row_id: int | None, encrypted: bool = True) -> None:
    """Complete `entries`, all of one manifest and in its order, in place.

    Args:
        encrypted: whether live files must have key metadata; not those of a plain table.
    """
    sequence_number = manifest.sequence_number
    keeps_row_ids = first_row_id is None and sequence_number == UNASSIGNED_SEQ
    next_row_id = first_row_id
    for entry in entries:
        status, data_file = entry.status, entry.data_file
        if entry.snapshot_id is None and manifest.added_snapshot_id is not None:
            entry.snapshot_id = manifest.added_snapshot_id
        if status == _ADDED or sequence_number == 0:
            _inherit_sequence_numbers(entry, sequence_number)
        data_file.spec_id = manifest.partition_spec_id
        if encrypted and status != _DELETED and not data_file.key_metadata:
            raise PlaintextRefusedError(data_file.file_path, f"the entry in {manifest.manifest_path} has no key metadata")
        if next_row_id is None:
            if not keeps_row_ids:
                data_file[FIRST_ROW_ID] = None
        elif status != _DELETED and data_file[FIRST_ROW_ID] is None:
            data_file[FIRST_ROW_ID] = next_row_id
            next_row_id += data_file.record_count


def _inherit_sequence_numbers(entry: ManifestEntry, sequence_number: int) -> None:
    if entry.sequence_number is None:
        entry.sequence_number = sequence_number
    if entry.file_sequence_number is None:
        entry.file_sequence_number = sequence_number
