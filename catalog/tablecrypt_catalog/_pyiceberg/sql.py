"""PyIceberg's SqlCatalog: its tables, rows and locations stay as they are, while our statements can share a transaction with its own.

SqlCatalog: _create_table_row, _iceberg_type_filter                    a row as every client of the database expects it
MetastoreCatalog: _create_staged_table, _convert_schema_if_needed, _resolve_table_location, _load_file_io    namespaces of any depth
"""

from __future__ import annotations

from functools import cached_property
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, Final, cast

from pyiceberg.catalog import URI, Catalog
from pyiceberg.catalog.sql import DEFAULT_ECHO_VALUE, DEFAULT_POOL_PRE_PING_VALUE, IcebergTables, SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StagedTable, TableProperties
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.types import strtobool
from sqlalchemy import ClauseElement, ColumnElement, Delete, Engine, Update, and_, bindparam, create_engine, delete, insert, select, update
from sqlalchemy import Table as DatabaseTable
from sqlalchemy.orm import Session

from tablecrypt.files.locations import location_of_new_table
from tablecrypt.properties import KEY_ID

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ROWS", "SqlCatalogAdapter", "has_key", "key_of"]

ROWS: Final = cast("DatabaseTable", IcebergTables.__table__)
"""The table iceberg_tables, without what SQLAlchemy does for objects of its rows."""
_ROW_KEY: Final = {"catalog_name": "of_catalog", "table_namespace": "of_namespace", "table_name": "of_table"}
"""The primary key, and the parameters that stand for it. An update of the table takes its own columns' names for what is to be set."""


def has_key(table: DatabaseTable) -> ColumnElement[bool]:
    """Return the condition that finds a table's row in iceberg_tables, or in a table of the same key, by the parameters of `key_of`."""
    return and_(*(table.c[column] == bindparam(parameter) for column, parameter in _ROW_KEY.items()))


def key_of(catalog_name: str, names: tuple[str, str]) -> dict[str, str]:
    """Return the parameters that find the rows of a table, given as namespace and name."""
    return dict(zip(_ROW_KEY.values(), (catalog_name, *names), strict=True))


class SqlCatalogAdapter(SqlCatalog):
    """A SqlCatalog whose changes to a table's row can be made one by one, in a session of the caller's.

    It pickles, as PyIceberg's own does not: a copy has the properties, and connects to the database when it is first used.
    """

    def __getstate__(self) -> dict[str, Any]:
        url = self.engine.url
        if url.get_backend_name() == "sqlite" and (url.database or ":memory:") == ":memory:":
            # A copy would connect to another, empty database, in which no table and no pin is.
            raise PicklingError(f"catalog {self.name} cannot be pickled: its database is in the memory of this process")
        return {name: value for name, value in self.__dict__.items() if not isinstance(value, (Engine, ClauseElement))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        echo = str(self.properties.get("echo", DEFAULT_ECHO_VALUE)).lower()
        self.engine = create_engine(
            str(self.properties[URI]),
            echo=echo if echo == "debug" else strtobool(echo),
            pool_pre_ping=strtobool(str(self.properties.get("pool_pre_ping", DEFAULT_POOL_PRE_PING_VALUE))),
        )

    def names(self, identifier: str | Identifier) -> tuple[str, str]:
        """Return the namespace, as the database holds it, and the table's name."""
        return Catalog.namespace_to_string(Catalog.namespace_from(identifier)), Catalog.table_name_from(identifier)

    @cached_property
    def is_row(self) -> ColumnElement[bool]:
        """The condition on iceberg_tables that finds a table, and no view, by the parameters of `row_key`.

        Statements with it are made once: to put one together takes SQLAlchemy longer than to run it.
        """
        type_filter = self._iceberg_type_filter()
        return has_key(ROWS) if type_filter is None else and_(has_key(ROWS), type_filter)

    def row_key(self, identifier: str | Identifier) -> dict[str, str]:
        """Return the parameters of `is_row` that find a table."""
        return key_of(self.name, self.names(identifier))

    def insert_row(self, session: Session, identifier: str | Identifier, metadata_location: str) -> None:
        """Insert a table's row.

        Raises:
            sqlalchemy.exc.IntegrityError: there is one already.
        """
        session.execute(insert(ROWS).values(**self._create_table_row(*self.names(identifier), metadata_location)))

    def swap_location(self, session: Session, identifier: str | Identifier, expected: str, location: str) -> bool:
        """Compare and swap metadata_location; return whether the row held the expected one. The row stays locked until the session ends."""
        changed = {"metadata_location": location, "previous_metadata_location": expected}
        return self._change_row(session, self._swapping, {**self.row_key(identifier), **changed, "expected": expected})

    def rename_row(self, session: Session, old: str | Identifier, new: str | Identifier) -> bool:
        """Give a table's row another name; return whether there was one.

        Raises:
            sqlalchemy.exc.IntegrityError: the new name is taken.
        """
        namespace, name = self.names(new)
        renaming = update(ROWS).where(self.is_row).values(table_namespace=namespace, table_name=name)
        return self._change_row(session, renaming, self.row_key(old))

    def delete_row(self, session: Session, identifier: str | Identifier) -> bool:
        """Delete a table's row; return whether there was one."""
        return self._change_row(session, delete(ROWS).where(self.is_row), self.row_key(identifier))

    @cached_property
    def _swapping(self) -> Update:
        return update(ROWS).where(self.is_row, ROWS.c.metadata_location == bindparam("expected"))

    def _create_staged_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> StagedTable:
        # PyIceberg's own takes namespaces of one level only, which its create_table does not.
        version = int(properties.get(TableProperties.FORMAT_VERSION, TableProperties.DEFAULT_FORMAT_VERSION))
        namespace, name = self.names(identifier)
        location = self._resolve_table_location(location, namespace, name)
        if KEY_ID.name in properties:
            location = location_of_new_table(location)
        metadata_location = load_location_provider(location, properties).new_table_metadata_file_location()

        return StagedTable(
            identifier=Catalog.identifier_to_tuple(identifier),
            metadata=new_table_metadata(
                location=location,
                schema=self._convert_schema_if_needed(schema, version),  # type: ignore[arg-type]
                partition_spec=partition_spec,
                sort_order=sort_order,
                properties=properties,
            ),
            metadata_location=metadata_location,
            io=self._load_file_io(properties=properties, location=metadata_location),
            catalog=self,
        )

    def _change_row(self, session: Session, changing: Update | Delete, parameters: dict[str, Any]) -> bool:
        """Change the row that a statement finds; return whether there was one. It stays locked until the session ends."""
        if self.engine.dialect.supports_sane_rowcount:
            return bool(session.execute(changing, parameters).rowcount)  # type: ignore[attr-defined]
        # A database that does not count changed rows: the lock makes the look and the change one step.
        assert changing.whereclause is not None, "every statement here finds one row"
        if session.execute(select(ROWS.c.table_name).where(changing.whereclause).with_for_update(), parameters).first() is None:
            return False

        session.execute(changing, parameters)

        return True
