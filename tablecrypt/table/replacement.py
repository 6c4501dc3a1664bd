"""Replacing what a table is, with its history kept: REPLACE TABLE, and the second half of CREATE OR REPLACE.

                 before                            after
    schema       s0                                a new one; columns of the same name and type keep their field ids
    partitions   p0                                a new spec; the same fields keep their ids
    sort order   o0                                none
    properties   a=1, b=2                          b=3, c=4 given: a=1, b=3, c=4
    main         … ─▶ snapshot 7                   snapshot 8, which has no parent
    branches, tags, snapshots, encryption keys     as before

Files are written for the new schema before the commit. So the commit requires that no other one has given out a field id or changed schema,
partitioning or order meanwhile; rows that others have committed are replaced like those that were there.

Iceberg Java: TableMetadata.buildReplacement.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from tablecrypt.table.transaction import EncryptedTransaction


def stage_replacement(transaction: EncryptedTransaction, schema: Schema, spec: PartitionSpec, properties: Mapping[str, str]) -> None:
    """Stage a new schema, partitioning and properties. The rows are for `EncryptedUpdateSnapshot.replacement` in the same transaction.

    Args:
        transaction: of the table that is replaced.
        schema: the new one; its field ids are exchanged.
        spec: the new one, with the field ids of `schema` as its sources.
        properties: those to set beside the ones that there are.

    Raises:
        KeyIdChangedError: encryption.key-id is among the properties with another value.
        ConfigurationError: a property cannot be used.
    """
    metadata = transaction.table_metadata
    replaced = schema_with_ids_of(schema, metadata)
    updates = [*_schema_updates(replaced, metadata), *_spec_updates(_spec_for(spec, schema, replaced, metadata), metadata)]
    if metadata.sort_order_by_id(UNSORTED_SORT_ORDER.order_id) is None:
        updates.append(AddSortOrderUpdate(sort_order=UNSORTED_SORT_ORDER))
    updates.append(SetDefaultSortOrderUpdate(sort_order_id=UNSORTED_SORT_ORDER.order_id))
    # The new files are written for these ids: if others gave out one of them meanwhile, the files would mean another column.
    transaction.apply(tuple(updates), _requirements(metadata))
    mapping = {TableProperties.DEFAULT_NAME_MAPPING: replaced.name_mapping.model_dump_json()} if metadata.name_mapping() else {}
    if wanted := {**mapping, **properties}:
        transaction.set_properties(wanted)


def schema_with_ids_of(schema: Schema, metadata: TableMetadata) -> Schema:
    """Return a schema with the table's field ids where it has a column of the same name and type, and new ones elsewhere.

    The table's own schema is returned where it is the same.
    """
    known, fresh = metadata.schema(), itertools.count(metadata.last_column_id + 1)
    fields = _with_ids(schema.as_struct(), known.as_struct(), fresh).fields
    same = next((each for each in metadata.schemas if each.fields == fields and not each.identifier_field_ids), None)
    return same or Schema(*fields, schema_id=max(each.schema_id for each in metadata.schemas) + 1)


def _with_ids(wanted: StructType, known: IcebergType | None, fresh: Iterator[int]) -> StructType:
    by_name = {field.name: field for field in known.fields} if isinstance(known, StructType) else {}
    # Ids level by level, as for a new table.
    numbered = [(field, _same(field, by_name)) for field in wanted.fields]
    ids = [next(fresh) if same is None else same.field_id for field, same in numbered]
    return StructType(
        *(
            field.model_copy(
                update={
                    "field_id": field_id,
                    "field_type": _type_with_ids(field.field_type, same and same.field_type, fresh),
                    # Files of branches and older snapshots may lack the column.
                    "initial_default": same and same.initial_default,
                }
            )
            for (field, same), field_id in zip(numbered, ids, strict=True)
        )
    )


def _same(wanted: NestedField, known: Mapping[str, NestedField]) -> NestedField | None:
    field = known.get(wanted.name)
    if field is None or type(field.field_type) is not type(wanted.field_type):
        return None
    return field if not wanted.field_type.is_primitive or field.field_type == wanted.field_type else None


def _type_with_ids(wanted: IcebergType, known: IcebergType | None, fresh: Iterator[int]) -> IcebergType:
    if isinstance(wanted, StructType):
        return _with_ids(wanted, known, fresh)
    if isinstance(wanted, ListType):
        inner = _with_ids(StructType(wanted.element_field), _inner(known), fresh).fields[0]
        return ListType(inner.field_id, inner.field_type, element_required=wanted.element_required)
    if isinstance(wanted, MapType):
        key, value = _with_ids(StructType(wanted.key_field, wanted.value_field), _inner(known), fresh).fields
        return MapType(key.field_id, key.field_type, value.field_id, value.field_type, value_required=wanted.value_required)

    return wanted


def _inner(known: IcebergType | None) -> StructType | None:
    if isinstance(known, ListType):
        return StructType(known.element_field)
    return StructType(known.key_field, known.value_field) if isinstance(known, MapType) else None


def _schema_updates(schema: Schema, metadata: TableMetadata) -> list[TableUpdate]:
    if any(each.schema_id == schema.schema_id for each in metadata.schemas):
        return [SetCurrentSchemaUpdate(schema_id=schema.schema_id)]
    return [AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=-1)]


def _spec_for(spec: PartitionSpec, schema: Schema, replaced: Schema, metadata: TableMetadata) -> PartitionSpec:
    """Return the spec on the new schema's ids, under the id of one that the table has where that is the same."""
    earlier = [field for each in metadata.partition_specs for field in each.fields]
    fresh = itertools.count((metadata.last_partition_id or PARTITION_FIELD_ID_START - 1) + 1)
    fields = []

    for field in spec.fields:
        source = replaced.find_field(str(schema.find_column_name(field.source_id))).field_id
        same = (each for each in earlier if (each.source_id, each.transform, each.name) == (source, field.transform, field.name))
        known = next(same, None)
        fields.append(known or PartitionField(source, next(fresh), field.transform, field.name))

    specs = metadata.specs()
    wanted = PartitionSpec(*fields)
    spec_id = next((each.spec_id for each in specs.values() if each.fields == wanted.fields), max(specs) + 1)

    return PartitionSpec(*fields, spec_id=spec_id)


def _spec_updates(spec: PartitionSpec, metadata: TableMetadata) -> list[TableUpdate]:
    added: list[TableUpdate] = [] if spec.spec_id in metadata.specs() else [AddPartitionSpecUpdate(spec=spec)]
    return [*added, SetDefaultSpecUpdate(spec_id=spec.spec_id)]


def _requirements(metadata: TableMetadata) -> tuple[TableRequirement, ...]:
    return (
        AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),
        AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
        AssertLastAssignedPartitionId(last_assigned_partition_id=metadata.last_partition_id),
        AssertDefaultSortOrderId(default_sort_order_id=metadata.default_sort_order_id),
    )
