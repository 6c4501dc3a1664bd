"""Encrypting catalog on AWS Glue.

A commit goes through when Glue's entry still has the version id that was read before, as in PyIceberg. The entry pins the table's key id,
key length and metadata by the parameters that Iceberg Java keeps in a Hive metastore (pins/hive.py), which every commit renews and every
load and every commit checks. Parameters of others stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import METADATA_LOCATION
from pyiceberg.table import StagedTable, Table
from pyiceberg.typedef import Identifier

from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError
from tablecrypt.table.metadata import write_metadata_file
from tablecrypt.table.table_files import folders_named
from tablecrypt_catalog._pyiceberg.glue import GlueCatalogAdapter
from tablecrypt_catalog._pyiceberg.metastore import Commit
from tablecrypt_catalog.new_table import NewTable
from tablecrypt_catalog.pinned_entries import PinnedEntries
from tablecrypt_catalog.pins.client import PinCheck
from tablecrypt_catalog.pins.hive import PinnedStagedTable, pinning_parameters, staged_parameters
from tablecrypt_catalog.pins.record import creation, moves_of, table_version
from tablecrypt_catalog.table_encryption import encrypted_table, new_metadata


class EncryptedGlueCatalog(PinnedEntries, GlueCatalogAdapter):
    """PyIceberg's GlueCatalog with encrypted tables."""

    OWN_PINS = ("parameters of the table's entry in Glue",)

    def table_of_entry(self, entry: Mapping[str, Any]) -> Table:
        """Return the table that an entry points to.

        Raises:
            KeyIdChangedError: encryption.key-id or encryption.data-key-length is not the same in the entry and in the metadata.
            TamperedFileError: the metadata is not what a hash in the entry was made of.
        """
        parameters = entry.get("Parameters", {})
        location = parameters.get(METADATA_LOCATION)
        if location is None or parameters.get("table_type", "").lower() != "iceberg":
            # An entry that is no Iceberg table has PyIceberg's own error.
            return self.entry_as_pyiceberg_opens_it(entry)

        return self.pinned_table((entry["DatabaseName"], entry["Name"]), location, parameters)

    def parameters_to_send(self, parameters: Mapping[str, str]) -> dict[str, str]:
        """Return the parameters without a data key length that a commit has removed from the table's properties."""
        absent = parameters.get(names.DATA_KEY_LENGTH.name) == ""
        return {name: value for name, value in parameters.items() if not (absent and name == names.DATA_KEY_LENGTH.name)}

    def created_table(self, new: NewTable, pin_check: PinCheck) -> Table:
        """Create a table; an encrypted one with the parameters that pin it."""
        if not new.is_encrypted:
            return super().created_table(new, pin_check)

        self.check_holds_encrypted(new.identifier)
        staged = self.stage_new_table(*new)
        staged.metadata = metadata = new_metadata(self.properties, staged.metadata)
        file = write_metadata_file(metadata, staged.io, staged.metadata_location)
        # The entry is made with its pins in one call: between two calls other clients would load the table unpinned.
        parameters = pinning_parameters(metadata, file, folders_named(metadata))
        self.create_entry(staged, {**metadata.properties, **parameters})
        seen = table_version(metadata, file.location, file.digest)
        pin_check.verify(seen, moved=creation(new.properties))

        return encrypted_table(self, staged, metadata, seen)

    def stage_commit(self, current: Table | None, commit: Commit) -> StagedTable:
        """Return the table as a commit will leave it, with the parameters that pin it."""
        staged = super().stage_commit(current, commit)
        if names.KEY_ID.name not in staged.metadata.properties:
            return staged

        if current is None:
            self.check_holds_encrypted(commit.identifier)
        pins = staged_parameters(staged, current, moves_of(commit.updates))

        # PyIceberg adds a commit's properties to the parameters that are there: one that was removed must be named to go.
        return PinnedStagedTable(staged, staged.name(), {names.DATA_KEY_LENGTH.name: "", **pins} if current is not None else pins)

    def has_begun_rename(self, old: str | Identifier, new: str | Identifier) -> bool:
        """As `EncryptingCatalog.has_begun_rename`. NoSuchTableError where there is no old entry."""
        return self.is_marked_as_renamed(old, new)

    def parameters_of(self, database: str, name: str) -> Mapping[str, str]:
        """Return the parameters of an entry."""
        return self.glue.get_table(DatabaseName=database, Name=name)["Table"].get("Parameters", {})

    def check_holds_encrypted(self, identifier: str | Identifier) -> None:
        """Raise ConfigurationError in a database of S3 Tables."""
        database, name = self.identifier_to_database_and_table(identifier)
        if self.is_managed_by_s3_tables(database):
            raise ConfigurationError(f"{database}.{name}: S3 Tables rewrites tables by itself and cannot read encrypted ones")
