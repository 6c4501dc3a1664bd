"""Statistics files, whose blobs are of any type: PyIceberg knows two, and the specification lets an engine write others.

Iceberg table spec, "Table Statistics".
"""

from __future__ import annotations

from pydantic import Field
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile


class AnyBlob(BlobMetadata):
    """What a blob of a statistics file is about."""

    type: str  # type: ignore[assignment]


class AnyStatisticsFile(StatisticsFile):
    """A statistics file of a table."""

    blob_metadata: list[AnyBlob] = Field(alias="blob-metadata")  # type: ignore[assignment]


def statistics_locations(metadata: TableMetadata) -> list[str]:
    """Return where the statistics files of a table and of its partitions are, as its metadata say."""
    return [each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics)]
