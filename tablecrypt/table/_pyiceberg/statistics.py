"""Statistics files whose blobs are of any type: PyIceberg knows two, and the specification lets an engine write others.

Iceberg table spec, "Table Statistics".
"""

from __future__ import annotations

from pydantic import Field
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile


class AnyBlob(BlobMetadata):
    """What a blob of a statistics file is about."""

    type: str  # type: ignore[assignment]


class AnyStatisticsFile(StatisticsFile):
    """A statistics file of a table."""

    blob_metadata: list[AnyBlob] = Field(alias="blob-metadata")  # type: ignore[assignment]
