"""Copy-on-write: data files written again without the rows that a filter matches, each remaining row keeping its identity.

Iceberg table spec, "Row Lineage": a row that only moves keeps its `_row_id` and `_last_updated_sequence_number`.
"""

from __future__ import annotations

import itertools
import uuid
from typing import cast

from pyiceberg.manifest import DataFile

from tablecrypt.table.filters import DeleteFilter
from tablecrypt.table.scan import EncryptedDataScan
from tablecrypt.table.table_file_io import TableFileIO
from tablecrypt.table.write import write_data_files

Replaced = tuple[DataFile, list[DataFile]]
"""A data file and the files that take its place; none where every row of it goes."""


def rewrite_without(scan: EncryptedDataScan, write_uuid: uuid.UUID) -> list[Replaced]:
    """Write anew every data file that holds rows matching the scan's filter, without those rows.

    Args:
        scan: the table, the branch and the filter of the rows to leave out. One data file at a time is in memory.
        write_uuid: part of the new files' names.

    Returns:
        The replaced files. Files that may match by their statistics but hold no matching row are not among them.
    """
    metadata = scan.table_metadata
    io = cast("TableFileIO", scan.io)
    delete = DeleteFilter(metadata.schema(), scan.row_filter, scan.case_sensitive)
    counter = itertools.count(0)
    replaced: list[Replaced] = []
    for task in scan.plan_files():
        rows = scan.rows_with_lineage(task)
        kept = delete.remaining(rows)
        if kept.num_rows == rows.num_rows:
            continue
        new = list(write_data_files(metadata, kept, io, io.manager, write_uuid, counter)) if kept.num_rows else []
        replaced.append((task.file, new))
    return replaced
