"""A Hive metastore in the memory of this process, for tests of one thread: entries, locks that are always free, and the swap by comparison.

What a real one does is measured with that (hive.py, which needs Java). Here is as much as `EncryptedHiveCatalog` asks for.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

from hive_metastore.ttypes import (
    AlreadyExistsException,
    Database,
    EnvironmentContext,
    LockRequest,
    LockResponse,
    LockState,
    MetaException,
    NoSuchObjectException,
    UnlockRequest,
)
from hive_metastore.ttypes import Table as HiveTable

from tablecrypt_catalog.hive import EXPECTED_KEY, EXPECTED_VALUE, EncryptedHiveCatalog


class MemoryMetastore:
    """What a connection to a metastore offers."""

    def __init__(self) -> None:
        self.before_swap: Callable[[], object] | None = None
        """Called once, before the next entry is replaced."""
        self._databases: dict[str, Database] = {}
        self._tables: dict[tuple[str, str], HiveTable] = {}

    def create_database(self, database: Database) -> None:
        if database.name in self._databases:
            raise AlreadyExistsException(f"database {database.name}")
        self._databases[database.name] = database

    def get_database(self, name: str) -> Database:
        return _found(self._databases, name)

    def create_table(self, table: HiveTable) -> None:
        if (table.dbName, table.tableName) in self._tables:
            raise AlreadyExistsException(f"table {table.tableName}")
        self._tables[table.dbName, table.tableName] = copy.deepcopy(table)

    def get_table(self, dbname: str, tbl_name: str) -> HiveTable:
        return copy.deepcopy(_found(self._tables, (dbname, tbl_name)))

    def alter_table_with_environment_context(
        self, dbname: str, tbl_name: str, new_tbl: HiveTable, environment_context: EnvironmentContext
    ) -> None:
        before, self.before_swap = self.before_swap, None
        if before is not None:
            before()
        expected, there = environment_context.properties or {}, self.get_table(dbname, tbl_name).parameters
        if EXPECTED_KEY in expected and there.get(expected[EXPECTED_KEY]) != expected[EXPECTED_VALUE]:
            raise MetaException("The table has been modified. The parameter value is another one")
        self._tables[dbname, tbl_name] = copy.deepcopy(new_tbl)

    def lock(self, _: LockRequest) -> LockResponse:
        return LockResponse(lockid=1, state=LockState.ACQUIRED)

    def unlock(self, request: UnlockRequest) -> None:
        assert request.lockid == 1


class MemoryHiveCatalog(EncryptedHiveCatalog):
    """A catalog on the metastore in memory that belongs to its warehouse."""

    metastores: ClassVar[dict[str, MemoryMetastore]] = defaultdict(MemoryMetastore)

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> Any:
        return _connected(MemoryHiveCatalog.metastores[properties["warehouse"]])


def _connected(metastore: MemoryMetastore) -> AbstractContextManager[MemoryMetastore]:
    @contextmanager
    def connection() -> Iterator[MemoryMetastore]:
        yield metastore

    return connection()


def _found(entries: Any, name: object) -> Any:
    if name not in entries:
        raise NoSuchObjectException(f"{name} is not there")
    return entries[name]
