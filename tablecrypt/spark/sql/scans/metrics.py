"""What Spark's UI shows of a scan's planning: Iceberg's metrics, under Iceberg's names (java/ScanMetrics.java describes them).

Numbers of files and manifests and sizes of files, never a value of a row. Iceberg counts deletion vectors apart and does not show them;
here they are position deletes, which they are by the specification.
"""

from __future__ import annotations

from collections.abc import Sequence

from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table.planning import EncryptedFileScanTask, PlanCounts


def planning_metrics(tasks: Sequence[EncryptedFileScanTask], counts: PlanCounts | None) -> dict[str, int]:
    """Return the metrics of a plan by name.

    Args:
        tasks: the files that are read.
        counts: what planning looked at; None where rows of a range of snapshots are read, each of which was planned by itself.
    """
    deletes = [EncryptedDataFile.of(file) for task in tasks for file in task.delete_files]
    metrics = {
        "resultDataFiles": len(tasks),
        "totalDataFileSize": sum(task.file.file_size_in_bytes for task in tasks),
        "resultDeleteFiles": len(deletes),
        "totalDeleteFileSize": sum(_size(file) for file in deletes),
    }
    return metrics if counts is None else metrics | _counted(tasks, counts)


def _counted(tasks: Sequence[EncryptedFileScanTask], counts: PlanCounts) -> dict[str, int]:
    return {
        # Iceberg's name lacks the last letter.
        "totalDataManifest": counts.data_manifests,
        "scannedDataManifests": counts.read_data_manifests,
        "skippedDataManifests": counts.data_manifests - counts.read_data_manifests,
        "skippedDataFiles": counts.listed_data_files - len(tasks),
        "totalDeleteManifests": counts.delete_manifests,
        "scannedDeleteManifests": counts.read_delete_manifests,
        "skippedDeleteManifests": counts.delete_manifests - counts.read_delete_manifests,
        "equalityDeleteFiles": counts.equality_delete_files,
        "positionalDeleteFiles": counts.position_delete_files,
        "indexedDeleteFiles": counts.equality_delete_files + counts.position_delete_files,
        "skippedDeleteFiles": 0,
    }


def _size(file: EncryptedDataFile) -> int:
    """Return a delete file's stored bytes; those of a deletion vector alone, not of the file that holds it among others."""
    return int(file.file_size_in_bytes if file.content_size_in_bytes is None else file.content_size_in_bytes)
