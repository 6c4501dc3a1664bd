"""Catalogs whose entry of a table pins it by parameters: Hive's metastore and Glue. pins/hive.py says what the parameters hold."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyiceberg.catalog import METADATA_LOCATION, MetastoreCatalog
from pyiceberg.table import StagedTable, Table
from pyiceberg.typedef import Identifier

from tablecrypt.errors import TamperedFileError
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.table_files import folders_named
from tablecrypt_catalog.encrypting_catalog import EncryptionMixin
from tablecrypt_catalog.pins.hive import check_against_entry, pinned_columns, pinning_parameters, trusted_folders, unpinned_metadata
from tablecrypt_catalog.pins.record import folders_on_first_sight
from tablecrypt_catalog.table_encryption import UnverifiedTable, check_registration, is_encrypted


class PinnedEntries(EncryptionMixin):
    """What these catalogs have in common. It comes before their adapter in the method resolution order."""

    if TYPE_CHECKING:

        def create_entry(self, staged: StagedTable, parameters: Mapping[str, str]) -> None:
            """Make an entry for a table whose metadata file is there already."""

    @abstractmethod
    def parameters_of(self, database: str, name: str) -> Mapping[str, str]:
        """Return the parameters of an entry."""

    def check_holds_encrypted(self, identifier: str | Identifier) -> None:
        """Raise ConfigurationError where no encrypted table may have this name."""

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table, as `EncryptionMixin.load_table`; once more where the file that was read has gone out of date meanwhile.

        `shred` and `erase` write over metadata that is current no more: between the entry's answer and the reading of the file it may have
        become so.
        """
        try:
            return super().load_table(identifier)
        except TamperedFileError as error:
            if self.parameters_of(*MetastoreCatalog.identifier_to_database_and_table(identifier)).get(METADATA_LOCATION) == error.location:
                raise
            return super().load_table(identifier)

    def pinned_table(self, identifier: Identifier, location: str, parameters: Mapping[str, str]) -> UnverifiedTable:
        """Return the table whose metadata file an entry names.

        Raises:
            KeyIdChangedError: encryption.key-id or encryption.data-key-length is not the same in the entry and in the metadata.
            TamperedFileError: the metadata is not what a hash in the entry was made of.
        """
        file = self.metadata_file(location)
        metadata = file.parse()
        name = ".".join(identifier)
        # Before anything that the metadata names is opened: an attacker who writes the storage chooses what it says.
        check_against_entry(name, metadata, file, parameters)
        io = self.load_file_io(metadata.properties, location)
        folders, columns = trusted_folders(name, metadata, location, parameters), pinned_columns(name, parameters)

        return UnverifiedTable(self, identifier, file, io, trusted_folders=folders, pinned_columns=columns)

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        """Register a table that exists already, encrypted or not, by its metadata file, and pin it if it is encrypted."""
        check_registration(identifier, metadata_location)
        file = self.metadata_file(metadata_location)
        metadata = file.parse()
        name = MetastoreCatalog.identifier_to_database_and_table(identifier)
        if overwrite or not isinstance(metadata, EncryptedTableMetadata) or not is_encrypted(name, metadata):
            return super().register_table(identifier, metadata_location, overwrite)

        self.check_registered(identifier, file, self.client_pins.begin_check(identifier))
        self.check_holds_encrypted(identifier)
        io = self.load_file_io({}, metadata_location)
        staged = StagedTable(identifier=name, metadata=metadata, metadata_location=metadata_location, io=io, catalog=self)
        # Nobody has vouched for the file before: it may name any folder.
        folders = folders_on_first_sight(metadata_location, folders_named(metadata))
        self.create_entry(staged, pinning_parameters(metadata, file, folders))

        return self.load_table(identifier)

    def unpinned_metadata(self, identifier: str | Identifier) -> str | None:
        """Return why a table's current metadata has no pin, for people to read; None where it has one."""
        if self.client_pins.places:
            return None
        return unpinned_metadata(self.parameters_of(*MetastoreCatalog.identifier_to_database_and_table(identifier)))
