"""The Avro schemas of a version 3 manifest and manifest list, and where each data_file field sits in its record.

    manifest_entry: status | snapshot_id | sequence_number | file_sequence_number | data_file
    data_file:      content .. sort_order_id (positions 0-15, as in v2) | first_row_id | referenced_data_file
                    | content_offset | content_size_in_bytes (positions 16-19, new in v3)
    manifest_file:  manifest_path .. key_metadata (positions 0-14, as in v2) | first_row_id (position 15, new in v3)

PyIceberg's own constants are the base. What is written differs from them in two places, both as Iceberg Java does it: equality_ids
are int (PyIceberg says long), and every partition field is optional, whatever its source column is. What is read keeps long: it takes
both.

Specification: "Manifests" and "Manifest Lists" of the Iceberg table specification, version 3.
"""

from __future__ import annotations

from typing import Final

from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, NestedField, StructType, UnknownType

FORMAT_VERSION: Final = 3

FILE_FORMAT_FIELD_ID: Final = 101
FILE_CONTENT_FIELD_ID: Final = 134
EQUALITY_IDS_FIELD_ID: Final = 135
DATA_FILE_FIELD_ID: Final = 2
STATUS_FIELD_ID: Final = 0
MANIFEST_CONTENT_FIELD_ID: Final = 517
PARTITION_SUMMARY_ELEMENT_ID: Final = 508
ROOT_STRUCT: Final = -1

ENTRY_READ_SCHEMA: Final = MANIFEST_ENTRY_SCHEMAS[FORMAT_VERSION]
MANIFEST_LIST_SCHEMA: Final = MANIFEST_LIST_FILE_SCHEMAS[FORMAT_VERSION]

DATA_FILE_POSITIONS: Final = {field.name: position for position, field in enumerate(DATA_FILE_TYPE[FORMAT_VERSION].fields)}
MANIFEST_FILE_POSITIONS: Final = {field.name: position for position, field in enumerate(MANIFEST_LIST_SCHEMA.fields)}


def entry_write_schema(partition_type: StructType) -> Schema:
    """Return the schema of a manifest whose files are partitioned by `partition_type` (a struct of no fields: unpartitioned)."""
    data_file = data_file_with_partition(_as_written(partition_type), format_version=FORMAT_VERSION)
    fields = (_with_int_ids(field) if field.field_id == EQUALITY_IDS_FIELD_ID else field for field in data_file.fields)
    return manifest_entry_schema_with_data_file(FORMAT_VERSION, StructType(*fields))


def _as_written(partition_type: StructType) -> StructType:
    """Make every field optional. A field whose source column was dropped has Avro type null, which is optional by itself: a union
    of null and null is not valid Avro, and PyIceberg writes one unless the field is marked required."""
    return StructType(
        *(
            NestedField(field.field_id, field.name, field.field_type, required=isinstance(field.field_type, UnknownType))
            for field in partition_type.fields
        )
    )


def _with_int_ids(field: NestedField) -> NestedField:
    ids = ListType(element_id=EQUALITY_IDS_FIELD_ID + 1, element_type=IntegerType(), element_required=True)
    return NestedField(field.field_id, field.name, ids, required=False, doc=field.doc)
