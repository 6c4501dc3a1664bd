"""PyIceberg's Hive catalog: its lock and its commit stay; what an entry of the metastore means, and who may replace it, is ours.

HiveCatalog: _client, _create_hive_client                  a connection for each use, so that threads can share a catalog
HiveCatalog: _convert_hive_into_iceberg                    the one place where an entry becomes a table, in load and in commit alike
HiveCatalog: _convert_iceberg_into_hive, _create_hive_table    the one place where a table becomes a new entry
HiveCatalog: _get_hive_table                               an entry, or the error of PyIceberg that there is none
HiveCatalog: _wait_for_lock, _lock_check_min_wait_time, _lock_check_max_wait_time, _lock_check_retries
                                                           its first look comes after 2 seconds, the second after 4: a commit takes less
_HiveClient                                                what opens one connection
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from pyiceberg.table import StagedTable, Table

from tablecrypt.errors import MissingExtraError

try:
    from hive_metastore.ThriftHiveMetastore import Client
    from hive_metastore.ttypes import LockResponse
    from hive_metastore.ttypes import Table as HiveTable
    from pyiceberg.catalog.hive import HiveCatalog, _HiveClient
except ModuleNotFoundError as error:
    raise MissingExtraError.named(f"EncryptedHiveCatalog needs the package {error.name}", "hive") from error

# Seconds.
_SHORTEST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.5


class HiveCatalogAdapter(HiveCatalog):
    """A Hive catalog whose private hooks have public names: the abstract ones are ours to fill in."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        # Every use in HiveCatalog is by `with`, so each gets its connection here.
        self._client = _Connections(self)  # type: ignore[assignment]

    @abstractmethod
    def table_of_entry(self, entry: HiveTable) -> Table:
        """Return the table that an entry of the metastore points to, after checking the one against the other."""

    @abstractmethod
    def parameters_of_new_entry(self, table: Table) -> Mapping[str, str]:
        """Return what a new entry has beside PyIceberg's own parameters."""

    @abstractmethod
    def wait_for_lock(self, client: Client, lock_id: int, table: str, pauses: Iterator[float]) -> LockResponse:
        """Return once a lock is ours, or raise when there is no pause left."""

    @abstractmethod
    def guarded(self, client: Client) -> Client:
        """Return the client through which one connection is used."""

    @abstractmethod
    def end_use(self, client: Client, connect: Callable[[], AbstractContextManager[Client]]) -> None:
        """Leave nothing behind in the metastore when a connection is closed, through another one where there is something."""

    def entry_as_pyiceberg_opens_it(self, entry: HiveTable) -> Table:
        """Return the table that PyIceberg makes of an entry, or raise what it raises."""
        return super()._convert_hive_into_iceberg(entry)

    def read_entry(self, database: str, table: str) -> HiveTable:
        """Return a table's entry as it is now.

        Raises:
            NoSuchTableError: it does not exist.
        """
        with self._client as client:
            return self._get_hive_table(client, database, table)

    def create_entry(self, staged: StagedTable, parameters: Mapping[str, str]) -> None:
        """Make an entry for a table whose metadata file is there already.

        Raises:
            TableAlreadyExistsError: there is one of that name.
        """
        entry = super()._convert_iceberg_into_hive(staged)
        entry.parameters.update(parameters)
        with self._client as client:
            self._create_hive_table(client, entry)

    def _wait_for_lock(self, database_name: str, table_name: str, lockid: int, open_client: Client) -> LockResponse:
        return self.wait_for_lock(open_client, lockid, f"{database_name}.{table_name}", self._pauses())

    def _pauses(self) -> Iterator[float]:
        """The pauses between two looks at a lock: as long as PyIceberg's in all, but many small ones."""
        shortest = max(self._lock_check_min_wait_time or 0, _SHORTEST_PAUSE)
        longest = max(self._lock_check_max_wait_time or 0, shortest)
        left = sum(min(max(2.0 * 2**look, shortest), longest) for look in range(int(self._lock_check_retries or 1) - 1))
        pause = shortest
        while left > 0:
            yield min(pause, left)
            left -= pause
            pause = min(2 * pause, max(shortest, _LONGEST_PAUSE))

    def _convert_hive_into_iceberg(self, table: HiveTable) -> Table:
        return self.table_of_entry(table)

    def _convert_iceberg_into_hive(self, table: Table) -> HiveTable:
        entry = super()._convert_iceberg_into_hive(table)
        entry.parameters.update(self.parameters_of_new_entry(table))
        return entry


class _Connections:
    """What a catalog opens by `with`. PyIceberg's own holds one connection, which two threads would close under each other's hands."""

    def __init__(self, catalog: HiveCatalogAdapter) -> None:
        self._catalog = catalog
        self._opened = threading.local()

    def __enter__(self) -> Client:
        connection = self._connection()
        client = self._catalog.guarded(connection.__enter__())
        # A stack, since a commit opens a connection while it has one.
        self._of_this_thread().append((connection, client))
        return client

    def __exit__(self, *raised: Any) -> None:
        connection, client = self._of_this_thread().pop()
        try:
            connection.__exit__(*raised)
        finally:
            self._catalog.end_use(client, self._connection)

    def _connection(self) -> _HiveClient:
        return self._catalog._create_hive_client(self._catalog.properties)

    def __reduce__(self) -> tuple[type[_Connections], tuple[Any, ...]]:
        return _Connections, (self._catalog,)

    def _of_this_thread(self) -> list[tuple[_HiveClient, Client]]:
        opened: list[tuple[_HiveClient, Client]] = self._opened.__dict__.setdefault("connections", [])
        return opened
