"""What Spark's UI shows of a write: Iceberg's metrics, under Iceberg's names (java/WriteMetrics.java describes them).

Numbers of files, rows and bytes from the summary of the write's snapshot, never a value of a row. Iceberg counts deletion vectors apart and
does not show them; here they are position deletes, which they are by the specification.
"""

from __future__ import annotations

from typing import Final

from pyiceberg.table.snapshots import Snapshot

_SUMMARY_FIELDS: Final = {
    "addedDataFiles": ("added-data-files",),
    "addedDeleteFiles": ("added-delete-files",),
    "addedEqualityDeleteFiles": ("added-equality-delete-files",),
    "addedEqualityDeletes": ("added-equality-deletes",),
    "addedFileSizeInBytes": ("added-files-size",),
    "addedPositionalDeleteFiles": ("added-position-delete-files", "added-dvs"),
    "addedPositionalDeletes": ("added-position-deletes",),
    "addedRecords": ("added-records",),
    "removedDataFiles": ("deleted-data-files",),
    "removedDeleteFiles": ("removed-delete-files",),
    "removedEqualityDeleteFiles": ("removed-equality-delete-files",),
    "removedEqualityDeletes": ("removed-equality-deletes",),
    "removedFileSizeInBytes": ("removed-files-size",),
    "removedPositionalDeleteFiles": ("removed-position-delete-files", "removed-dvs"),
    "removedPositionalDeletes": ("removed-position-deletes",),
    "removedRecords": ("deleted-records",),
    "totalDataFiles": ("total-data-files",),
    "totalDeleteFiles": ("total-delete-files",),
    "totalEqualityDeletes": ("total-equality-deletes",),
    "totalFileSizeInBytes": ("total-files-size",),
    "totalPositionalDeletes": ("total-position-deletes",),
    "totalRecords": ("total-records",),
}


def write_metrics(snapshot: Snapshot | None) -> dict[str, int]:
    """Return the metrics of a write by name; those of no snapshot are all 0, as Spark shows a metric without a value."""
    if snapshot is None or snapshot.summary is None:
        return {}
    summary = snapshot.summary.additional_properties
    return {name: sum(_number(summary.get(field)) for field in fields) for name, fields in _SUMMARY_FIELDS.items()}


def _number(text: str | None) -> int:
    # The rows are committed, so what a server made of the summary is no error any more.
    return int(text) if text is not None and text.isascii() and text.isdecimal() else 0
