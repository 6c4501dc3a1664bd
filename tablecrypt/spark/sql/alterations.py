"""ALTER TABLE: columns and properties. All changes of one statement land in one commit, or none does.

    changes = [{"change": "AddColumn", "column": ["shipped"], "type": JSON as of `iceberg_type`, "nullable": true, "comment": null,
                "default": null, "after": "id"},
               {"change": "SetProperty", "property": "write.delete.mode", "value": "merge-on-read"}, …]

The names of changes are those of Spark's classes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import IcebergType

from tablecrypt.errors import ConfigurationError
from tablecrypt.keys.column_keys import DECLARED_KEYS, DECLARED_MASK_PREFIX, ColumnPolicy
from tablecrypt.spark.sql.catalogs import catalog_of
from tablecrypt.spark.sql.definitions import check_settable
from tablecrypt.spark.sql.loading import find_table, is_branch, load_named
from tablecrypt.spark.sql.messages import NamedRequest, Response, operation
from tablecrypt.spark.sql.planner import Planner
from tablecrypt.spark.sql.spark_types import iceberg_type
from tablecrypt.spark.sql.writes.defaults import default_value
from tablecrypt.spark.tables import load_encrypted_table

Change = Mapping[str, Any]
Path = tuple[str, ...]


class AlterTable(NamedRequest):
    """Changes of a table, as drawn above."""

    changes: list[Mapping[str, Any]]


@operation
def alter_table(planner: Planner, request: AlterTable) -> Response:
    """Change a table's columns and properties.

    Raises:
        ConfigurationError: a change has no meaning here.
        KeyIdChangedError: encryption.key-id would change or go.
        CommitFailedException: another client changed the table meanwhile; nothing has changed.
        ValueError, ValidationError: PyIceberg refuses the change of the schema: its partitioning needs the column, say.
    """
    alter(_altered(planner, request), request.changes)
    return load_named(planner, request)


def _altered(planner: Planner, request: AlterTable) -> Table:
    """Return the table to change. A MERGE WITH SCHEMA EVOLUTION into a branch names that, and changes columns, which are the table's."""
    opened = catalog_of(planner, request)
    if {change["change"] for change in request.changes} <= _OF_EVOLUTION:
        located, selector = find_table(opened, request.identifier)
        # A tag or snapshot keeps its columns: such a name is loaded below as a table's own, and is refused.
        if selector is None or is_branch(located.table, selector):
            return located.table

    return load_encrypted_table(opened.catalog, ".".join(request.identifier))


def alter(table: Table, changes: Sequence[Change]) -> None:
    """Make all changes in one commit. Raises as `alter_table`."""
    columns = [change for change in changes if "column" in change]
    with table.transaction() as transaction:
        _alter_properties(transaction, [change for change in changes if "column" not in change])
        if not columns:
            return

        schema = transaction.table_metadata.schema()
        with transaction.update_schema() as update:
            for change in columns:
                _COLUMN_CHANGES[change["change"]](update, tuple(change["column"]), _with_default(change, schema))


def _with_default(change: Change, schema: Schema) -> Change:
    """The change with its default as a value for PyIceberg, if it has one. ConfigurationError where the column cannot hold it."""
    if change.get("default") is None:
        return change
    name = ".".join(change["column"])
    kind = iceberg_type(json.loads(change["type"]), tuple(change["column"])) if "type" in change else schema.find_type(name)
    return {**change, "default": default_value(change["default"], kind, name)}


def _alter_properties(transaction: Transaction, changes: Sequence[Change]) -> None:
    updates: dict[str, str] = {}
    removals: set[str] = set()
    for change in changes:
        name = change["property"]
        if change["change"] == "SetProperty":
            updates[name] = change["value"]
            removals.discard(name)
        else:
            removals.add(name)
            updates.pop(name, None)

    check_properties(transaction.table_metadata, updates)
    # Both are checked to be what they are, and no properties of an Iceberg table.
    for stated in ("format-version", "location"):
        updates.pop(stated, None)
    if updates:
        transaction.set_properties(updates)
    properties = transaction.table_metadata.properties
    # UNSET of a property that is not there changes nothing, with IF EXISTS or without.
    known = removals & properties.keys()
    if ColumnPolicy.from_properties(properties):
        # What declares protected columns is stored by field id: no property has the name that the statement takes away.
        known |= {name for name in removals if name == DECLARED_KEYS or name.startswith(DECLARED_MASK_PREFIX)}
    if known:
        transaction.remove_properties(*sorted(known))


def check_properties(metadata: TableMetadata, updates: Mapping[str, str]) -> None:
    """Raise ConfigurationError where a statement would set what a table has no other value for."""
    check_settable(updates)
    if updates.get("location", metadata.location) != metadata.location:
        raise ConfigurationError(
            f"an encrypted table stays where it is ({metadata.location}): its pins remember the place. To copy it elsewhere use "
            "tablecrypt.maintenance.relocate"
        )

    version = updates.get("format-version", str(metadata.format_version))
    if version != str(metadata.format_version):
        raise ConfigurationError(f"an encrypted table has format version {metadata.format_version}, which cannot become {version}")


def _add(update: UpdateSchema, path: Path, change: Change) -> None:
    update.add_column(path, _type_in(change, path), doc=change["comment"], required=not change["nullable"], default_value=change["default"])
    _move(update, path, change)


def _type_in(change: Change, path: Path) -> IcebergType:
    return iceberg_type(json.loads(change["type"]), path)


def _move(update: UpdateSchema, path: Path, change: Change) -> None:
    if change.get("first"):
        update.move_first(path)
    elif after := change.get("after"):
        update.move_after(path, (*path[:-1], after))


_COLUMN_CHANGES: Final[Mapping[str, Callable[[UpdateSchema, Path, Change], object]]] = {
    "AddColumn": _add,
    "DeleteColumn": lambda update, path, _: update.delete_column(path),
    "RenameColumn": lambda update, path, change: update.rename_column(path, change["to"]),
    "UpdateColumnComment": lambda update, path, change: update.update_column(path, doc=change["comment"]),
    "UpdateColumnDefaultValue": lambda update, path, change: update.set_default_value(path, change["default"]),
    "UpdateColumnNullability": lambda update, path, change: update.update_column(path, required=not change["nullable"]),
    "UpdateColumnPosition": _move,
    "UpdateColumnType": lambda update, path, change: update.update_column(path, _type_in(change, path)),
}
_OF_EVOLUTION: Final = {"AddColumn", "UpdateColumnType"}
