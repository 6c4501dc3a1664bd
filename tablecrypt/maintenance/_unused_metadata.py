"""Schemas and partition specs that nothing of a table needs any more, which Iceberg calls expired metadata.

    specs      go where no manifest of a remaining snapshot is of them, and new files are not written in them
    schemas    go where no remaining snapshot names them, and schemas that stay have all of their columns, with id, name and type

The second rule is stricter than Iceberg's. Files that stay may have been written under a schema that no snapshot names any more. What tells
their columns apart, which of them were protected, masked or dropped, and what a dropped one can be restored from is in the older schemas.
So a column that was dropped, renamed or given another type keeps the schema that knows it so.

Nothing of encryption-keys goes by this: a key goes with the last snapshot that needs it.
"""

from __future__ import annotations

from typing import TypeAlias, cast

from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    RemovePartitionSpecsUpdate,
    RemoveSchemasUpdate,
    TableRequirement,
    TableUpdate,
)

_Column: TypeAlias = tuple[int, str, str]


def removal_of_unused(metadata: TableMetadata, io: FileIO) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return the updates that remove what is not needed, and what must hold when they are committed; nothing where all is needed.

    Args:
        metadata: the table's, without the snapshots that expire.
        io: opens the lists of the remaining ones.

    Raises:
        FormatError, TamperedFileError, KmsError: a manifest list does not open.
    """
    specs, schemas = _unused_specs(metadata, io), _unused_schemas(metadata)
    updates: list[TableUpdate] = []
    if specs:
        updates.append(cast("TableUpdate", RemovePartitionSpecsUpdate(spec_ids=specs)))
    if schemas:
        updates.append(cast("TableUpdate", RemoveSchemasUpdate(schema_ids=schemas)))
    if not updates:
        return (), ()

    # A commit that lands in between may be of a spec or schema that looks unused here.
    heads = [
        AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id)
        for name, ref in metadata.refs.items()
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH
    ]
    current = AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id)

    return tuple(updates), (*heads, current, AssertDefaultSpecId(default_spec_id=metadata.default_spec_id))


def _unused_specs(metadata: TableMetadata, io: FileIO) -> list[int]:
    # New files are written under the default spec, whether or not a manifest is of it yet.
    used = {metadata.default_spec_id}
    for snapshot in metadata.snapshots:
        # A list says of which spec each manifest is, so no manifest has to be opened.
        used |= {manifest.partition_spec_id for manifest in snapshot.manifests(io)}
    return sorted(spec.spec_id for spec in metadata.partition_specs if spec.spec_id not in used)


def _unused_schemas(metadata: TableMetadata) -> list[int]:
    named = {metadata.current_schema_id, *(snapshot.schema_id for snapshot in metadata.snapshots)}
    known = {column for schema in metadata.schemas if schema.schema_id in named for column in _columns(schema)}
    unused: list[int] = []

    # Newest first: of several schemas that know a column alike, the newest one stays.
    for schema in sorted(metadata.schemas, key=lambda each: each.schema_id, reverse=True):
        if schema.schema_id in named:
            continue
        if _columns(schema) <= known:
            unused.append(schema.schema_id)
        else:
            known |= _columns(schema)

    return sorted(unused)


def _columns(schema: Schema) -> set[_Column]:
    return {(field_id, str(schema.find_column_name(field_id)), _kind(schema, field_id)) for field_id in schema.field_ids}


def _kind(schema: Schema, field_id: int) -> str:
    """The type of a column; of a struct, list or map that it is one, since the columns inside are columns too."""
    found = schema.find_type(field_id)
    return str(found) if found.is_primitive else type(found).__name__
