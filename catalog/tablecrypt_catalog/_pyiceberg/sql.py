"""PyIceberg's SqlCatalog: its tables, rows and locations stay as they are, and its instances pickle.

SqlCatalog: _create_table_row, _iceberg_type_filter                    a row as every client of the database expects it
MetastoreCatalog: _create_staged_table, _convert_schema_if_needed, _resolve_table_location, _load_file_io    namespaces of any depth
"""

from __future__ import annotations

from functools import cached_property, partial
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import URI, Catalog
from pyiceberg.catalog.sql import DEFAULT_ECHO_VALUE, DEFAULT_POOL_PRE_PING_VALUE, SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StagedTable, TableProperties
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.types import strtobool
from sqlalchemy import ClauseElement, ColumnElement, Engine, and_, create_engine, event, insert
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

from tablecrypt._per_process import HeldAtForks, InForkedChildren
from tablecrypt.files.locations import location_of_new_table
from tablecrypt.properties import KEY_ID
from tablecrypt_catalog.pins.sql import ROWS, end_transaction, has_key, row_names

if TYPE_CHECKING:
    import pyarrow as pa


def _connections_in_use(engine: Engine) -> int:
    return engine.pool.checkedout() if isinstance(engine.pool, QueuePool) else 0


class SqlCatalogAdapter(SqlCatalog):
    """A SqlCatalog that tells which rows are tables, and makes a row in a session of the caller's.

    It pickles, as PyIceberg's own does not: a copy has the properties, and connects to the database when it is first used. So does a forked
    child: over its parent's connections each would get answers to the other, and SQLite could damage its file.
    """

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._prepare_connections()

    def __getstate__(self) -> dict[str, Any]:
        if self._is_in_memory:
            # A copy would connect to another, empty database, in which no table and no pin is.
            raise PicklingError(f"catalog {self.name} cannot be pickled: its database is in the memory of this process")
        left = Engine, ClauseElement, InForkedChildren
        return {name: value for name, value in self.__dict__.items() if not isinstance(value, left)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        echo = str(self.properties.get("echo", DEFAULT_ECHO_VALUE)).lower()
        self.engine = create_engine(
            str(self.properties[URI]),
            echo=echo if echo == "debug" else strtobool(echo),
            pool_pre_ping=strtobool(str(self.properties.get("pool_pre_ping", DEFAULT_POOL_PRE_PING_VALUE))),
        )
        self._prepare_connections()

    @property
    def _is_in_memory(self) -> bool:
        url = self.engine.url
        return url.get_backend_name() == "sqlite" and (url.database or ":memory:") == ":memory:"

    def _prepare_connections(self) -> None:
        event.listen(self.engine, "reset", end_transaction)
        # What is in memory a fork copies, with all that is in it.
        if self._is_in_memory:
            return

        connect_anew = partial(self.engine.dispose, close=False)
        if self.engine.url.get_backend_name() != "sqlite":
            self._in_children = InForkedChildren(connect_anew)
            return

        # SQLite keeps in the process which locks of a file it has: a child would take those of its parent's threads for its own.
        at_forks = HeldAtForks(partial(_connections_in_use, self.engine), connect_anew)
        event.listen(self.engine, "checkout", at_forks.begin_use)
        self._in_children = at_forks

    @cached_property
    def is_row(self) -> ColumnElement[bool]:
        """The condition on iceberg_tables that finds a table, and no view, by the parameters of `key_of`.

        Statements with it are made once: to put one together takes SQLAlchemy longer than to run it.
        """
        type_filter = self._iceberg_type_filter()
        return has_key(ROWS) if type_filter is None else and_(has_key(ROWS), type_filter)

    def insert_row(self, session: Session, identifier: str | Identifier, metadata_location: str) -> None:
        """Insert a table's row.

        Raises:
            sqlalchemy.exc.IntegrityError: there is one already.
        """
        session.execute(insert(ROWS).values(**self._create_table_row(*row_names(identifier), metadata_location)))

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
        namespace, name = row_names(identifier)
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
