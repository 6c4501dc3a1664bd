"""Row lineage: the two columns by which a row keeps its identity through copy-on-write rewrites.

    _row_id                        field id 2147483540, optional long
    _last_updated_sequence_number  field id 2147483539, optional long

A freshly written file has neither column: its rows get first_row_id + position, and the data sequence number of the file. A rewrite stores
both as physical columns, so that rows which only moved keep theirs; a null in a stored column stands for the inherited value.

Iceberg table spec, "Row Lineage" and "Reserved Field IDs".
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from tablecrypt.errors import ConfigurationError
from tablecrypt.manifests.records import EncryptedDataFile

ROW_ID: Final = NestedField(2147483540, "_row_id", LongType(), required=False, doc="Implicit row ID that is automatically assigned")
LAST_UPDATED: Final = NestedField(
    2147483539, "_last_updated_sequence_number", LongType(), required=False, doc="Sequence number of the snapshot that last updated the row"
)
LINEAGE_FIELDS: Final = (ROW_ID, LAST_UPDATED)
LINEAGE_FIELD_IDS: Final = frozenset(field.field_id for field in LINEAGE_FIELDS)


def lineage_columns(arrow_schema: pa.Schema, table_schema: Schema) -> tuple[NestedField, ...]:
    """Return the lineage fields that Arrow data carries besides the table's own columns."""
    own = {field.name for field in table_schema.fields}
    return tuple(field for field in LINEAGE_FIELDS if field.name in arrow_schema.names and field.name not in own)


def without_lineage(arrow_schema: pa.Schema, fields: tuple[NestedField, ...]) -> pa.Schema:
    """Return the schema without these columns."""
    names = {field.name for field in fields}
    return pa.schema([field for field in arrow_schema if field.name not in names], metadata=arrow_schema.metadata)


def with_lineage(schema: Schema, fields: tuple[NestedField, ...] = LINEAGE_FIELDS) -> Schema:
    """Return the schema with lineage fields after its own.

    Raises:
        ConfigurationError: a column of the schema has the name of one of them.
    """
    for field in fields:
        if field.name in schema.column_names:
            raise ConfigurationError(
                f"the table has a column {field.name}, a name that row lineage takes: rename it with "
                f'table.update_schema().rename_column("{field.name}", …).commit()'
            )

    return Schema(*schema.fields, *fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def with_lineage_of(
    file: DataFile, sequence_number: int | None, columns: Schema, positions: pa.Array | None, rows: pa.RecordBatch
) -> pa.RecordBatch:
    """Return rows of a file with what they inherit in lineage columns; without a sequence number or a first row id, as they are stored.

    Args:
        sequence_number: the file's data sequence number.
        columns: of the rows.
        positions: where the rows lie in the file; None where that is not known.
    """
    for at, field in enumerate(columns.fields):
        if field.field_id == ROW_ID.field_id and positions is not None:
            column = inherit_row_ids(rows.column(at), positions, EncryptedDataFile.of(file).first_row_id)
        elif field.field_id == LAST_UPDATED.field_id:
            column = inherit_sequence_numbers(rows.column(at), sequence_number)
        else:
            continue

        rows = rows.set_column(at, rows.schema.field(at), column)

    return rows


def inherit_row_ids(stored: pa.Array, positions: pa.Array, first_row_id: int | None) -> pa.Array:
    """Return each row's _row_id: the stored one, else first_row_id + its position; null where the file has no first_row_id."""
    if first_row_id is None:
        return stored
    return pc.coalesce(stored, pc.add(positions, pa.scalar(first_row_id, pa.int64())))


def inherit_sequence_numbers(stored: pa.Array, data_sequence_number: int | None) -> pa.Array:
    """Return each row's _last_updated_sequence_number: the stored one, else the file's data sequence number."""
    if data_sequence_number is None:
        return stored
    return pc.coalesce(stored, pa.scalar(data_sequence_number, pa.int64()))


def without_lineage_ids(statistics: object) -> object:
    """Return statistics by field id without those of lineage: manifests hold those of the table's columns. Others stay as they are."""
    if not isinstance(statistics, dict):
        return statistics
    return {field_id: value for field_id, value in statistics.items() if field_id not in LINEAGE_FIELD_IDS}
