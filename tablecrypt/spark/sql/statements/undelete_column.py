"""undelete_column: a dropped column comes back with its field id, and so with the values that files still hold.

It takes the column as the newest schema that had it: its type, its comment and its place among its siblings' parent. It comes back as
optional, since rows written meanwhile have no value. Expired snapshots do not matter, as long as the metadata has the schema.

Files that were written meanwhile lack a protected column. Readers believe them after a protection that begins anew, which takes the
column's key: declaration.py. They would believe files that hold the column in the clear too, which whoever may commit can add. So nothing
comes back beside such a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddSchemaUpdate, AssertCurrentSchemaId, SetCurrentSchemaUpdate
from pyiceberg.types import NestedField, StructType

from tablecrypt.errors import ConfigurationError, TamperedFileError
from tablecrypt.keys.column_keys import ColumnPolicy, ProtectedColumn, is_from_before
from tablecrypt.maintenance.columns.footers import inspect_footers, may_have_hidden_columns
from tablecrypt.maintenance.runner import LocalRunner
from tablecrypt.spark.sql.calls import Row, columns, name_parts
from tablecrypt.spark.sql.statements.operations import procedure
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import name_of


@procedure(columns(column=pa.string(), type=pa.string(), field_id=pa.int32()))
def undelete_column(table: EncryptedTable, column: str) -> Iterator[Row]:
    """Restore a dropped column, with the values that the files still have."""
    path = name_parts(column)
    current, name = table.schema(), ".".join(path)
    if _field(current.as_struct(), path) is not None:
        raise ConfigurationError(f"{name_of(table)} has a column {name}: rename it first")

    dropped = _newest(table.metadata.schemas, path)
    if dropped is None:
        raise ConfigurationError(f"no schema of {name_of(table)} ever had a column {name}")
    # A column that was renamed is there: a second one of its field id would read the same values.
    if current.find_column_name(dropped.field_id) is not None:
        raise ConfigurationError(f"{name} was not dropped: it is called {current.find_column_name(dropped.field_id)} now")

    restored = dropped.model_copy(update={"required": False})
    struct = _with_field(current.as_struct(), path[:-1], restored, name)
    number = max(schema.schema_id for schema in table.metadata.schemas) + 1
    schema = Schema(*struct.fields, schema_id=number, identifier_field_ids=current.identifier_field_ids)
    returned = ColumnPolicy.from_properties(table.metadata.properties, schema).columns
    _check_hidden(table, {field_id: column for field_id, column in returned.items() if current.find_column_name(field_id) is None})
    transaction = table.transaction()

    with transaction:
        transaction.apply(
            (AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=-1)),
            # The schema is made from this one: columns that others added meanwhile would be gone.
            (AssertCurrentSchemaId(current_schema_id=current.schema_id),),
        )

    yield {"column": name, "type": str(dropped.field_type), "field_id": dropped.field_id}


def _check_hidden(table: EncryptedTable, returned: Mapping[int, ProtectedColumn]) -> None:
    """Check that no file of a branch or tag holds one of these protected columns in the clear, unless it is from before its protection."""
    if not returned:
        return

    tasks = {task.file.file_path: task for ref in table.metadata.refs for task in table.scan().use_ref(ref).plan_files()}
    stored = inspect_footers(table, [task.file for task in tasks.values() if may_have_hidden_columns(task.file)], LocalRunner())
    for location, task in tasks.items():
        # Avro has no column under a key of its own, so that nothing tells a file with the column from one without.
        bare = stored[location].columns - stored[location].protected if location in stored else returned.keys()
        for field_id in sorted(bare & returned.keys()):
            if _holds_rows_since(task, returned[field_id]):
                raise TamperedFileError(
                    location,
                    f"may hold the protected column with field id {field_id} under the table's key, though it is not from before the "
                    "column was protected: by another engine, or by somebody who has the table's key. Delete its rows, or roll the "
                    "branch back to the snapshot before it, and bring the column back then",
                )


def _holds_rows_since(task: EncryptedFileScanTask, column: ProtectedColumn) -> bool:
    return task.file.record_count > 0 and not is_from_before(column.since, task.data_sequence_number)


def _newest(schemas: Sequence[Schema], path: Sequence[str]) -> NestedField | None:
    in_order = sorted(schemas, key=lambda schema: schema.schema_id, reverse=True)
    return next((field for schema in in_order if (field := _field(schema.as_struct(), path)) is not None), None)


def _field(struct: StructType, path: Sequence[str]) -> NestedField | None:
    found = next((field for field in struct.fields if field.name == path[0]), None)
    if found is None or len(path) == 1:
        return found
    return _field(found.field_type, path[1:]) if isinstance(found.field_type, StructType) else None


def _with_field(struct: StructType, parents: Sequence[str], field: NestedField, name: str) -> StructType:
    """Return a struct with a field at the end of one of those in it."""
    if not parents:
        return StructType(*struct.fields, field)

    parent = next((each for each in struct.fields if each.name == parents[0]), None)
    if parent is None or not isinstance(parent.field_type, StructType):
        raise ConfigurationError(f"{name} cannot come back: the struct that it was in is gone")

    inner = parent.model_copy(update={"field_type": _with_field(parent.field_type, parents[1:], field, name)})

    return StructType(*(inner if each is parent else each for each in struct.fields))


PROCEDURES: Final = (undelete_column,)
