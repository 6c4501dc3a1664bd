"""Tables that Iceberg Java wrote, kept as files under tests/vectors: `golden` and `java`, both laid out alike.

s3/<bucket>/...                     the buckets: every path inside the tables begins with s3://
<set>.json                          per table: newest metadata file, snapshots from oldest to newest, branches and tags
expected/<table>/<name>.parquet     rows in plaintext, as Java read them; <name> is current, snapshot-<number>, branch-<name>, tag-<name>,
                                    or current-lineage, which has each row's _row_id and _last_updated_sequence_number as well
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

VECTORS: Final = Path(__file__).parents[1] / "vectors"
GOLDEN: Final = VECTORS / "golden"
JAVA: Final = VECTORS / "java"


@dataclass(frozen=True)
class VectorTable:
    """One table of a set. `snapshot_ids` are in the order of the history, so that snapshot_ids[n] has the rows of snapshot-<n>."""

    name: str
    metadata_location: str
    snapshot_ids: tuple[int, ...]
    branches: tuple[str, ...]
    tags: tuple[str, ...]
    folder: Path

    def expected(self, name: str = "current") -> pa.Table:
        """The rows that Java read, with Iceberg's types."""
        rows = pq.read_table(self.folder / "expected" / self.name / f"{name}.parquet")
        return _with_iceberg_timestamps(rows) if self.folder == GOLDEN else rows


def load(folder: Path) -> dict[str, VectorTable]:
    """The tables of GOLDEN or JAVA by their names."""
    return {table.name: table for table in _tables(folder)}


def _tables(folder: Path) -> Iterator[VectorTable]:
    entries: dict[str, Any] = json.loads((folder / f"{folder.name}.json").read_text())
    for name, entry in entries.items():
        yield VectorTable(
            name=name,
            metadata_location=entry["metadata"],
            snapshot_ids=tuple(snapshot["snapshot_id"] for snapshot in entry["snapshots"]),
            branches=tuple(entry.get("branches", ())),
            tags=tuple(entry.get("tags", ())),
            folder=folder,
        )


def _with_iceberg_timestamps(rows: pa.Table) -> pa.Table:
    """The golden rows were kept by way of pandas, which turned timestamps with a zone into nanoseconds in UTC without one."""
    for index, field in enumerate(rows.schema):
        if field.type == pa.timestamp("ns"):
            instants = rows.column(index).cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))
            rows = rows.set_column(index, field.name, instants)
    return rows


def every_vector() -> pytest.MarkDecorator:
    """Run a test on each table that Iceberg Java wrote, as `vector`."""
    vectors = [*load(GOLDEN).values(), *load(JAVA).values()]
    return pytest.mark.parametrize("vector", vectors, ids=[f"{vector.folder.name}-{vector.name}" for vector in vectors])
