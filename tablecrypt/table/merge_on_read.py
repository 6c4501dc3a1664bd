"""Merge-on-read: rows that a filter matches are marked in deletion vectors, and their data files stay as they are.

A data file has at most one deletion vector, so a new one holds what earlier deletes of that file said too, and takes their place. A file
whose every row goes is dropped instead. Iceberg table spec, "Deletion Vectors".
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import cast

from pyiceberg.manifest import DataFile
from pyroaring import BitMap64

from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table.content_files import is_deletion_vector
from tablecrypt.table.deletion_vectors import DeletionVector, write_deletion_vectors
from tablecrypt.table.foreign_engines import location_provider
from tablecrypt.table.scan import EncryptedDataScan
from tablecrypt.table.table_file_io import TableFileIO


@dataclass
class MarkedRows:
    """What a merge-on-read delete does to a snapshot."""

    dropped: list[DataFile] = field(default_factory=list)
    """Data files whose every row goes."""
    replaced: list[DataFile] = field(default_factory=list)
    """Deletion vectors whose place a new one takes."""
    added: list[EncryptedDataFile] = field(default_factory=list)
    """New deletion vectors."""

    def __bool__(self) -> bool:
        return bool(self.dropped or self.added)


def mark_deleted(scan: EncryptedDataScan, write_uuid: uuid.UUID) -> MarkedRows:
    """Write deletion vectors for the rows that match a scan's filter.

    Args:
        scan: the table, the branch and the filter of the rows to delete. Only the columns of the filter are read.
        write_uuid: part of the Puffin file's name.
    """
    marked = MarkedRows()
    vectors: list[DeletionVector] = []
    for task in scan.plan_files():
        found = scan.matching_positions(task)
        if not len(found.matching):
            continue
        positions = BitMap64(found.deleted or ())
        positions |= BitMap64(position for chunk in found.matching.chunks for position in chunk.to_pylist())
        if len(positions) == task.file.record_count:
            marked.dropped.append(task.file)
            continue
        vectors.append(DeletionVector(task.file, positions))
        marked.replaced.extend(file for file in task.delete_files if is_deletion_vector(file))
    if vectors:
        metadata = scan.table_metadata
        location = location_provider(metadata).new_data_location(f"00000-{write_uuid}-deletes.puffin")
        marked.added = write_deletion_vectors(cast("TableFileIO", scan.io), location, vectors)
    return marked
