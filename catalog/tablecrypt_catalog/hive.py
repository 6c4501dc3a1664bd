"""Encrypting catalog on a Hive metastore: the one kind of catalog on which Iceberg Java encrypts too, and both may share.

A commit takes the Hive lock as PyIceberg does, and swaps the metadata location by comparison as Iceberg Java does (hive_client.py). The
entry in the metastore pins the table's key id, key length and metadata by Java's parameters (hive_pins.py), which every commit renews and
every load and every commit checks. Parameters of others stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, cast

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import LockResponse
from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.catalog import ICEBERG, METADATA_LOCATION, TABLE_TYPE
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier

from tablecrypt import properties as names
from tablecrypt.errors import KeyIdChangedError, TamperedFileError
from tablecrypt.table._pyiceberg.hive import HiveCatalogSeam
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.metadata_file import MetadataFile, read_metadata_file
from tablecrypt_catalog.encrypted import EncryptionMixin
from tablecrypt_catalog.hive_client import ServerTraits, SwappingClient, wait_for_lock
from tablecrypt_catalog.hive_pins import PinnedStagedTable, check_against_entry, pinning_parameters, staged_parameters, unpinned_metadata
from tablecrypt_catalog.table_encryption import LoadedTable, is_encrypted

_READS_OF_A_MOVING_ENTRY: Final = 4


class EncryptedHiveCatalog(EncryptionMixin, HiveCatalogSeam):
    """PyIceberg's HiveCatalog with encrypted tables. Threads may share one."""

    OWN_PINS = ("parameters of the table's entry in the metastore",)

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._traits = ServerTraits()

    def wait_for_lock(self, client: Client, lock_id: int, table: str, pauses: Iterator[float]) -> LockResponse:
        """Return once a lock is ours."""
        return wait_for_lock(client, lock_id, table, pauses)

    def guarded(self, client: Client) -> Client:
        """Return a connection that swaps by comparison."""
        return cast("Client", SwappingClient(client, self._traits))

    def table_of_entry(self, entry: HiveTable) -> Table:
        """Return the table that an entry points to.

        Raises:
            KeyIdChangedError: encryption.key-id or encryption.data-key-length is not the same in the entry and in the metadata.
            TamperedFileError: the metadata is not what a hash in the entry was made of.
        """
        # A metastore reads the parameters one by one, and may give some from before a commit with others from after it.
        for _ in range(_READS_OF_A_MOVING_ENTRY):
            try:
                return self._table_as_pinned(entry)
            except (KeyIdChangedError, TamperedFileError):
                again = self.read_entry(entry.dbName, entry.tableName)
                if again.parameters == entry.parameters:
                    raise
                entry = again
        return self._table_as_pinned(entry)

    def _table_as_pinned(self, entry: HiveTable) -> Table:
        parameters = entry.parameters or {}
        location = parameters.get(METADATA_LOCATION)
        if location is None or parameters.get(TABLE_TYPE, "").lower() != ICEBERG:
            return self.entry_as_pyiceberg_opens_it(entry)
        file = read_metadata_file(self.load_file_io({}, location).new_input(location))
        metadata = file.parse()
        check_against_entry(f"{entry.dbName}.{entry.tableName}", metadata, file, parameters)
        io = self.load_file_io(metadata.properties, location)
        return LoadedTable(self, (entry.dbName, entry.tableName), file, io)

    def parameters_of_new_entry(self, table: Table) -> Mapping[str, str]:
        """Return the parameters that pin a new table."""
        metadata = self.metadata_to_write(table.metadata)
        return pinning_parameters(metadata, MetadataFile(table.metadata_location, metadata.model_dump_json().encode()))

    def stage_commit(
        self,
        current: Table | None,
        identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        """Return the table as a commit will leave it, with the parameters that pin it."""
        staged = super().stage_commit(current, identifier, requirements, updates)
        if names.KEY_ID.name not in staged.metadata.properties:
            return staged
        return PinnedStagedTable(staged, identifier, staged_parameters(staged))

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        """Register a table that exists already, encrypted or not, by its metadata file, and pin it if it is encrypted."""
        io = self.load_file_io({}, metadata_location)
        file = read_metadata_file(io.new_input(metadata_location))
        metadata = file.parse()
        name = self.identifier_to_database_and_table(identifier)
        if overwrite or not isinstance(metadata, EncryptedTableMetadata) or not is_encrypted(name, metadata):
            return super().register_table(identifier, metadata_location, overwrite)
        staged = StagedTable(identifier=name, metadata=metadata, metadata_location=metadata_location, io=io, catalog=self)
        self.create_entry(staged, pinning_parameters(metadata, file))
        return self.load_table(identifier)

    def unpinned_metadata(self, identifier: str | Identifier) -> str | None:
        """Return why a table's current metadata has no pin, for people to read; None where it has one."""
        if self.client_pins.places:
            return None
        return unpinned_metadata(self.read_entry(*self.identifier_to_database_and_table(identifier)).parameters or {})
