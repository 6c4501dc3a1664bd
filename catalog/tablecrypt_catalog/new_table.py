"""A table that is to be created: what the caller asked for, and whether the catalog made it so."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.typedef import Identifier, Properties

from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError, TamperedFileError
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.table.protection.declaration import declared_at_creation, declares
from tablecrypt.table.table_files import name_of
from tablecrypt_catalog._pyiceberg.metastore import iceberg_schema

if TYPE_CHECKING:
    import pyarrow as pa


class NewTable(NamedTuple):
    """A table to create, with the arguments of PyIceberg's `create_table` in their order."""

    identifier: str | Identifier
    schema: Schema | pa.Schema
    location: str | None
    partition_spec: PartitionSpec
    sort_order: SortOrder
    properties: Properties

    @property
    def is_encrypted(self) -> bool:
        """Whether its properties name a master key."""
        return names.KEY_ID.name in self.properties

    @property
    def fresh_schema(self) -> Schema:
        """Its schema with the field ids that PyIceberg's catalogs, and REST servers after them, give to the columns of a new table."""
        return assign_fresh_schema_ids(iceberg_schema(self.schema))

    def check_columns(self, made: TableMetadata) -> None:
        """Raise TamperedFileError where a catalog's server has not made a table whose protected columns are those that were asked for."""
        asked, found = (ColumnPolicy.from_properties(each) for each in (self.properties, made.properties))
        schema = self.fresh_schema
        names_of = {field_id: schema.find_column_name(field_id) for field_id in asked.columns}
        # By name as well as by field id: a server could give a protected column's id to another column.
        if found != asked or any(made.schema().find_column_name(field_id) != name for field_id, name in names_of.items()):
            raise TamperedFileError(made.location, "the catalog made the table without the protected columns that were asked for")


def checked_existing(table: Table, asked: Properties) -> Table:
    """Return a table that was there, if it is encrypted with the key that was asked for, or none was; and its columns likewise."""
    wanted, found = asked.get(names.KEY_ID.name), table.metadata.properties.get(names.KEY_ID.name)
    # A plain table of that name, or one under another key, would take the caller's rows.
    if wanted is not None and wanted != found:
        raise ConfigurationError(
            f"{name_of(table)} is there already, with {names.KEY_ID.name} {found or 'missing'} and not {wanted}: it is not "
            "returned in place of the table that was asked for"
        )

    _check_existing_columns(table, asked)

    return table


def _check_existing_columns(table: Table, asked: Properties) -> None:
    declared = {name: value for name, value in asked.items() if name == names.KEY_ID.name or declares((name,))}
    if not declares(declared):
        return

    wanted = ColumnPolicy.from_properties(declared_at_creation(declared, table.schema()))
    found = ColumnPolicy.from_properties(table.metadata.properties)
    for field_id, column in wanted.columns.items():
        now = found.columns.get(field_id)
        # Whoever may make tables could have made this one, for the caller to write values to it that were to be protected.
        if now is None or now.column_key_id != column.column_key_id or (now.mask.is_stored and now.mask != column.mask):
            how = "not protected" if now is None else f"under {now.column_key_id}, masked by {now.mask}"
            raise ConfigurationError(
                f"{name_of(table)} is there already, with column {table.schema().find_column_name(field_id)!r} {how}, and not under "
                f"{column.column_key_id}, masked by {column.mask}: it is not returned in place of the table that was asked for"
            )
