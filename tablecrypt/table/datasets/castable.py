"""Filtered rows that every Arrow we support can cast.

Arrow before 26 ends the process when it casts a map whose keys have a validity bitmap ("Map array keys array should have no nulls"), even
one that marks no nulls. Its filters make such bitmaps. Arrow's IPC format leaves a bitmap without nulls out, so rows that pass through it
can be cast. That copies the batch, so only batches with maps take this way, and only on an Arrow that needs it.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tablecrypt._arrow_types import cast_rows, holds

_CASTS_EVERY_MAP: Final = int(pa.__version__.partition(".")[0]) >= 26


def cast_batch(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows in the types of a schema whose columns are theirs, in that order."""
    return cast_rows(_castable(rows), schema)


def _castable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows, as a batch that can be cast to another schema."""
    if _CASTS_EVERY_MAP or not any(holds(kind, pa.types.is_map) for kind in batch.schema.types):
        return batch
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()
