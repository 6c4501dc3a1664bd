"""The rows of one file that a snapshot inserted or deleted, as prod.db.t.changes shows them, where a task reads them.

    _change_type           string    INSERT or DELETE
    _change_ordinal        int       which of the snapshots that are read, from 0
    _commit_snapshot_id    long      the snapshot

Field ids are those that Iceberg reserves. A row that copy-on-write only moved to another file keeps its `_row_id` and its
`_last_updated_sequence_number`, and was neither inserted nor deleted.

Iceberg table spec, "Reserved Field IDs", "Row Lineage".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from pyroaring import BitMap64

from tablecrypt.table.lineage import LAST_UPDATED, ROW_ID

INSERT: Final = "INSERT"
DELETE: Final = "DELETE"
CHANGE_TYPE: Final = NestedField(2147483543, "_change_type", StringType(), required=True)
CHANGE_ORDINAL: Final = NestedField(2147483542, "_change_ordinal", IntegerType(), required=True)
COMMIT_SNAPSHOT_ID: Final = NestedField(2147483541, "_commit_snapshot_id", LongType(), required=True)
CHANGE_FIELDS: Final = (CHANGE_TYPE, CHANGE_ORDINAL, COMMIT_SNAPSHOT_ID)


@dataclass(frozen=True)
class ChangedRows:
    """Which of a file's rows changed, and how.

    Attributes:
        kind: INSERT or DELETE.
        ordinal: of the snapshot among those that are read.
        snapshot_id: of the snapshot.
        positions: of the rows, serialized; None for all of the file.
        sequence_number: rows that were last updated by another snapshot only moved; None where none did.
        moved: `_row_id`s of rows that only moved, serialized; None where none did.
    """

    kind: str
    ordinal: int
    snapshot_id: int
    positions: bytes | None = None
    sequence_number: int | None = None
    moved: bytes | None = None

    def of(self, rows: pa.RecordBatch, at: pa.Array) -> pa.RecordBatch:
        """Return those of a file's rows, which have their lineage, that changed, with the columns that say how.

        Args:
            rows: the rows.
            at: their positions.
        """
        chosen = pa.array([True] * rows.num_rows, pa.bool_())
        if self.positions is not None:
            chosen = pc.and_(chosen, _are_in(at, self.positions))
        if self.sequence_number is not None:
            updated = rows.column(LAST_UPDATED.name)
            chosen = pc.and_(chosen, pc.or_(pc.is_null(updated), pc.fill_null(pc.equal(updated, self.sequence_number), False)))
        if self.moved is not None:
            chosen = pc.and_(chosen, pc.invert(_are_in(rows.column(ROW_ID.name), self.moved)))
        changed = rows.filter(chosen)
        for field, kind, value in zip(
            CHANGE_FIELDS, (pa.string(), pa.int32(), pa.int64()), (self.kind, self.ordinal, self.snapshot_id), strict=True
        ):
            changed = changed.append_column(pa.field(field.name, kind, nullable=False), pa.repeat(pa.scalar(value, kind), changed.num_rows))

        return changed


def stored_part(schema: Schema) -> Schema:
    """Return the columns of a schema that files have."""
    added = {field.field_id for field in CHANGE_FIELDS}
    return Schema(*(field for field in schema.fields if field.field_id not in added), schema_id=schema.schema_id)


def _are_in(values: pa.Array, numbers: bytes) -> pa.Array:
    known = BitMap64.deserialize(numbers)
    return pa.array([value in known for value in values.to_pylist()], pa.bool_())
