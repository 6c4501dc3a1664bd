"""Scan planning: from a snapshot's manifests to one task per data file, with the delete files that apply to it."""

from __future__ import annotations

from tablecrypt.table.planning.file_filter import FileCondition, telling
from tablecrypt.table.planning.planner import (
    FILE_PATH_FIELD_ID,
    DeleteIndex,
    EncryptedFileScanTask,
    FilePart,
    PlanCounts,
    ScanPlanner,
    listed_manifests,
    only_path,
    parts_of,
    sequence_number_of,
)

__all__ = [
    "FILE_PATH_FIELD_ID",
    "DeleteIndex",
    "EncryptedFileScanTask",
    "FileCondition",
    "FilePart",
    "PlanCounts",
    "ScanPlanner",
    "listed_manifests",
    "only_path",
    "parts_of",
    "sequence_number_of",
    "telling",
]
