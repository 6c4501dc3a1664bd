"""Any PyIceberg catalog class → the same catalog with encrypted tables.

A table is encrypted when its property encryption.key-id names a master key. Such a table is read and committed with our metadata models,
through a FileIO that refuses plaintext; every other table passes through to PyIceberg untouched. The catalog's own compare-and-swap stays
in force: what is exchanged is only the metadata that it swaps in.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, SupportsIndex, cast

from pyiceberg.catalog import Catalog, MetastoreCatalog, PropertiesUpdateSummary
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io import FileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, CreateTableTransaction, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import SetPropertiesUpdate, TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from tablecrypt import properties as names
from tablecrypt.arguments import check_text, checked_arguments
from tablecrypt.errors import ConfigurationError, TablecryptError
from tablecrypt.files.stores import file_io_for
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.keys.manager import KeySettings
from tablecrypt.kms.resilient import AllowedKeys
from tablecrypt.table.foreign_engines import location_provider
from tablecrypt.table.metadata import EncryptedTableMetadata, MetadataFile, encrypted_metadata, read_metadata_file
from tablecrypt.table.protection.declaration import declared_at_creation, declares, of_encrypted_tables_alone
from tablecrypt.table.protection.policy import check_layout
from tablecrypt.table.protection.tags import tagged_columns, tags_of, written_tags
from tablecrypt.table.table import EncryptedTable, plain_tables_opened
from tablecrypt.table.table_files import check_garbage_is_collected
from tablecrypt.table.transaction import EncryptedCreateTransaction
from tablecrypt.table.updates import (
    EncryptTableUpdate,
    NextShareStateUpdate,
    UpgradeToVersion3Update,
    applied,
    check_columns,
    check_commit,
    check_migration,
    check_partition_fields,
    with_copies,
)
from tablecrypt_catalog._pyiceberg.metastore import Commit, MetastoreCatalogAdapter, iceberg_schema
from tablecrypt_catalog.new_table import NewTable, checked_existing
from tablecrypt_catalog.pins.client import ClientPins, PinCheck
from tablecrypt_catalog.pins.record import TrustedTable, creation, moves_of, table_version
from tablecrypt_catalog.purge import Purged, purge
from tablecrypt_catalog.table_encryption import (
    check_catalog_properties,
    check_metadata,
    check_new_keys,
    check_new_name,
    check_registration,
    check_updates,
    creation_properties,
    opened_table,
    refuse_plain_table,
    refusing_unreadable,
    table_file_io,
    with_metadata,
)

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

_WITH_PINS: Final = {
    "pyiceberg.catalog.glue": "EncryptedGlueCatalog",
    "pyiceberg.catalog.hive": "EncryptedHiveCatalog",
    "pyiceberg.catalog.rest": "EncryptedRestCatalog",
}
"""The encrypting class for the catalog class of each of these modules of PyIceberg, which have more to check than others."""


class EncryptingCatalog(Catalog):
    """What every encrypting catalog offers, however it loads and commits tables.

    It comes before a PyIceberg catalog in the method resolution order: `super()` is that catalog.
    """

    OWN_PINS: ClassVar[tuple[str, ...]] = ()
    """Where the catalog keeps pins by itself, for people to read."""

    METADATA_GONE: ClassVar[type[Exception]] = FileNotFoundError
    """What loading a table raises whose current metadata file was deleted."""

    if TYPE_CHECKING:

        @property
        def client_properties(self) -> Properties:
            """What this client configured of the catalog, without what a server answered."""

    def __init__(self, name: str, **properties: str) -> None:
        properties = names.as_text(properties)
        # Before PyIceberg's __init__, which connects: a misspelt property must not lead to a catalog that encrypts nothing.
        check_catalog_properties(properties)
        super().__init__(name, **properties)

    @abstractmethod
    def staged_table(self, new: NewTable) -> StagedTable:
        """Return a new encrypted table with its metadata and its FileIO, not committed."""

    @abstractmethod
    def created_table(self, new: NewTable, pin_check: PinCheck) -> Table:
        """Create a table, encrypted or not, and pin it."""

    @checked_arguments()
    def create_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Create a table; with encryption.key-id among its properties, an encrypted one of format version 3.

        Raises:
            ConfigurationError: format-version 1 or 2 was asked for, the encryption properties cannot be used, or the table would lie in an
                S3 table bucket, whose service rewrites tables by itself and cannot read encrypted ones.
            KeyIdChangedError: an encrypted table is pinned there, and this one would not be encrypted, or not with its key.
            KeyIdChangedError, TamperedFileError: a catalog's server did not make the table that was asked for.
            KeyNotFoundError, KmsError: the KMS does not use the master key of the table, or does not wrap under that of a column.
        """
        return self.created_table(*self._creation(NewTable(identifier, schema, location, partition_spec, sort_order, properties)))

    @checked_arguments()
    def create_table_transaction(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> CreateTableTransaction:
        """Return a transaction that creates a table together with its first data. Raises what `create_table` raises."""
        new, _ = self._creation(NewTable(identifier, schema, location, partition_spec, sort_order, properties))
        if not new.is_encrypted:
            return super().create_table_transaction(*new)  # type: ignore[safe-super]
        return EncryptedCreateTransaction(self.staged_table(new))

    @checked_arguments()
    def create_table_if_not_exists(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Return the table that is there, or create it.

        Raises:
            ConfigurationError: a table is there, and is not encrypted with the key that `properties` name, or does not protect the columns
                that they do; or as `create_table`.
        """
        try:
            return checked_existing(self.load_table(identifier), properties)
        except NoSuchTableError:
            try:
                return self.create_table(identifier, schema, location, partition_spec, sort_order, properties)
            # Another client created it in between, perhaps without encryption: it gets the same check as one that was there.
            except TableAlreadyExistsError:
                return checked_existing(self.load_table(identifier), properties)

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        """Create a namespace. Raises ConfigurationError for a property of ours that namespaces do not have."""
        check_text("the name of a namespace", namespace)
        names.check_own_properties(properties, "namespace")
        super().create_namespace(namespace, properties)  # type: ignore[safe-super]

    def create_namespace_if_not_exists(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        """Create a namespace unless there is one.

        Raises:
            ConfigurationError: there is one, and it does not have the encryption.default-key-id that `properties` name; or as
                `create_namespace`.
        """
        super().create_namespace_if_not_exists(namespace, properties)
        if not (wanted := names.DEFAULT_KEY_ID.read(properties)):
            return

        found = names.DEFAULT_KEY_ID.read(self.load_namespace_properties(namespace))
        # The caller's tables in it would be under another key, or not be encrypted.
        if found != wanted:
            raise ConfigurationError(
                f"the namespace {'.'.join(Catalog.identifier_to_tuple(namespace))} is there already, with {names.DEFAULT_KEY_ID.name} "
                f"{found or 'missing'} and not {wanted}: set it with update_namespace_properties, or name another namespace"
            )

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        """Set and remove properties of a namespace. Raises ConfigurationError for one of ours that namespaces do not have."""
        names.check_own_properties(updates, "namespace")
        return super().update_namespace_properties(namespace, removals, updates)  # type: ignore[safe-super]

    @checked_arguments()
    def load_unencrypted(self, identifier: str | Identifier) -> Table:
        """Load a table for audit or migration: as `load_table`, but also one that has encryption.key-id and is not encrypted."""
        with plain_tables_opened():
            return self.load_table(identifier)

    def purge_table(self, identifier: str | Identifier) -> None:
        """Drop a table and delete its files, of an encrypted table also those of expired snapshots: see `purge_files`.

        Raises:
            ConfigurationError: the table has gc.enabled=false; or it is encrypted, and no pin says where it lies.
            SharedFilesError, ShareRecordError: live shares name the table's files, or their records cannot be read.
            PurgeIncompleteError: files could not be deleted; purging again continues.
            CommitFailedException: someone committed to the table meanwhile; purging again deletes those files too.
        """
        self.purge_files(identifier)

    @checked_arguments()
    def purge_files(
        self,
        identifier: str | Identifier,
        delete_below: Sequence[str] = (),
        skip_unreadable: bool = False,
        break_shares: bool = False,
    ) -> Purged:
        """Drop a table and delete its files, as `purge_table`, and report what stays.

        Args:
            identifier: the table.
            delete_below: folders in which an encrypted table's files may be deleted, beside those that pinned metadata names.
            skip_unreadable: whether to leave older metadata that cannot be read, or is another table's, with all that it alone names.
            break_shares: whether an encrypted table goes although live shares name its files: with them goes what the shares read.

        Returns:
            What became of the files. For a plain table the catalog deletes them and the result is empty.

        Raises:
            ConfigurationError, SharedFilesError, PurgeIncompleteError, CommitFailedException: as `purge_table`, `delete_below` and
                `break_shares` considered; ConfigurationError also for a switch that is neither True nor False.
        """
        name = ".".join(Catalog.identifier_to_tuple(identifier))
        try:
            table = self.load_table(identifier)
        except self.METADATA_GONE as error:
            # A purge deletes the current metadata last: the one before this ended there.
            self.drop_table(identifier)
            logger.warning("%s no longer had any metadata and was only dropped: %s", identifier, error)
            return Purged(name)

        if isinstance(table, EncryptedTable):
            return purge(table, lambda: self.drop_table(identifier), delete_below, skip_unreadable, break_shares)

        check_garbage_is_collected(table)
        self.purge_plain_table(identifier)

        return Purged(name)

    def purge_plain_table(self, identifier: str | Identifier) -> None:
        """Drop a table that is not encrypted, and delete its files."""
        super().purge_table(identifier)  # type: ignore[safe-super]

    def as_encrypted(self, table: Table, properties: Properties) -> EncryptedTable:
        """Return a plain table as a migration sees it: with metadata and a FileIO that encrypt, while the catalog still holds it plain.

        Raises:
            ConfigurationError: the table is encrypted already, a property cannot be used or is none of a plain table, or a column has a
                tag of this catalog's.
        """
        # Nothing authenticates a plain table's metadata. What somebody planted there would say how the encrypted one protects its columns:
        # all files that were migrated would be refused, and the plain ones be gone.
        if planted := of_encrypted_tables_alone(table.metadata.properties):
            raise ConfigurationError(
                f"{'.'.join(table.name())}: the plain table has the property {planted[0]}, which only encrypted tables have: somebody has "
                "put it there, or copied it from another table. Nothing was changed. Remove it, and migrate again"
            )
        if declares(properties) or any(name.startswith(names.COLUMN.name) for name in properties):
            raise ConfigurationError("columns are protected once a table is encrypted: migrate it, then set encryption.column-keys")
        self._refuse_tagged(table)

        names.check_own_properties(properties, "table")
        update = EncryptTableUpdate(), SetPropertiesUpdate(updates=dict(properties))
        metadata = cast("EncryptedTableMetadata", update_table_metadata(table.metadata, update))
        KeySettings.of(metadata.properties)

        return with_metadata(table, self, metadata, table_file_io(self.client_properties, table.io, metadata))

    def _refuse_tagged(self, table: Table) -> None:
        # The catalog's tags count where a table or a schema is made: the column would be under the table's key, and nobody would notice.
        schema = table.schema()
        for field_id in tagged_columns(schema, tags_of(self.client_properties)):
            raise ConfigurationError(
                f"{'.'.join(table.name())}: column {schema.find_column_name(field_id)!r} has a tag of this catalog's "
                f"{names.COLUMN_TAGS.name}, and a migration protects no column. Migrate with a catalog that does not set it, then set "
                f"{names.COLUMN_TAGS.name} for the table, and reencrypt"
            )

    @property
    def client_pins(self) -> ClientPins:
        """The pins of this catalog in the file that this client's property encryption.pins names."""
        return ClientPins(self.name, self.client_properties)

    @property
    def pin_places(self) -> tuple[str, ...]:
        """Where this client's tables are pinned, for people to read; none at all where nothing remembers them."""
        return (*self.OWN_PINS, *self.client_pins.places)

    @checked_arguments()
    def forget_pin(self, identifier: str | Identifier) -> None:
        """Forget what is pinned of an identifier: the next table there is trusted on first use, be it plaintext or encrypted."""
        self.client_pins.forget(identifier)

    def check_rename(self, old: str | Identifier, new: str | Identifier) -> None:
        """Refuse a new name of a table before it has it.

        Raises:
            ConfigurationError: see `check_new_name`.
            KeyIdChangedError, MetadataRollbackError, TamperedFileError: a pin of the new name speaks against the table.
        """
        check_new_name(new)
        pin_check = self.client_pins.begin_check(new)
        if pin_check.has_pin and not self.has_begun_rename(old, new):
            table = self.load_table(old)
            pin_check.check_new_name(table_version(table.metadata, table.metadata_location, None))

    def has_begun_rename(self, old: str | Identifier, new: str | Identifier) -> bool:
        """Whether an earlier rename, which did not finish, has given the table its new name already."""
        return False

    def created_by_pyiceberg(self, new: NewTable) -> Table:
        """Create a table the way PyIceberg's own catalog does."""
        return super().create_table(*new)  # type: ignore[safe-super]

    def default_key_id(self, namespace: str | Identifier) -> str | None:
        """Return the master key of new tables in a namespace that name none: what the namespace's properties say, else this client's.

        Whoever can write to the catalog can set a namespace's properties, and must not choose this client's keys. So a namespace's key
        counts only where encryption.allowed-key-ids allows it.

        Raises:
            ConfigurationError: the namespace names a key, and the client has no encryption.allowed-key-ids; or it has a property of ours
                that namespaces do not have.
            MasterKeyRefusedError: the namespace names a key that is not allowed.
        """
        client = self.client_properties
        try:
            stored = self.load_namespace_properties(namespace) if namespace else {}
        except NoSuchNamespaceError:
            stored = {}

        # Another client may have misspelt it, and the table would not be encrypted.
        names.check_own_properties(stored, "namespace")
        of_namespace = names.DEFAULT_KEY_ID.read(stored)
        if not of_namespace:
            return names.DEFAULT_KEY_ID.read(client) or None

        where = f"namespace {'.'.join(Catalog.identifier_to_tuple(namespace))} by its property {names.DEFAULT_KEY_ID.name}"
        if names.ALLOWED_KEY_IDS.name not in client:
            raise ConfigurationError(
                f"{where} names the master key {of_namespace!r} for new tables, and this client lists no keys that it allows: set "
                f"{names.ALLOWED_KEY_IDS.name} for the catalog, or give the table {names.KEY_ID.name}"
            )

        AllowedKeys.of(client).check((of_namespace,), where)

        return of_namespace

    def _with_columns(self, new: NewTable) -> NewTable:
        """Return a new table whose declaration of protected columns is by field id, and fits its layout."""
        tags, schema = tags_of(self.client_properties, new.properties), new.fresh_schema
        if not new.is_encrypted:
            if declares(new.properties) or tagged_columns(schema, tags):
                raise ConfigurationError(
                    f"{names.COLUMN_KEYS.name} and {names.COLUMN_TAGS.name} protect columns of encrypted tables: give the table "
                    f"{names.KEY_ID.name}"
                )
            return new

        check_columns(schema)
        check_partition_fields(new.partition_spec)
        tagging = {names.COLUMN_TAGS.name: written_tags(tags)} if tags else {}
        properties = declared_at_creation({**new.properties, **tagging}, schema)
        if policy := ColumnPolicy.from_properties(properties):
            # A copy: PyIceberg takes the format version out of the properties, and the table would be made as one of version 2.
            of_layout = dict(properties)
            layout = new_table_metadata(iceberg_schema(new.schema), new.partition_spec, new.sort_order, new.location or "", of_layout)
            check_layout(policy, layout)

        return new._replace(properties=properties)

    def _creation(self, asked: NewTable) -> tuple[NewTable, PinCheck]:
        """Complete a new table's properties, and refuse a plaintext one where an encrypted one is pinned.

        Raises:
            TableAlreadyExistsError: a table would be refused, and there is one of that name.
            ConfigurationError: its name, or something else of it, is text that UTF-8 cannot hold.
        """
        check_text("the new table's name, schema, location or properties", *asked)
        try:
            return self._checked_creation(asked)
        except TablecryptError:
            # What a new table lacks is no advice to somebody who has the table already.
            with plain_tables_opened():
                if not self.table_exists(asked.identifier):
                    raise
            raise TableAlreadyExistsError(f"Table {'.'.join(Catalog.identifier_to_tuple(asked.identifier))} already exists") from None

    def _checked_creation(self, asked: NewTable) -> tuple[NewTable, PinCheck]:
        properties = dict(asked.properties)
        if names.KEY_ID.name not in properties and (default := self.default_key_id(Catalog.namespace_from(asked.identifier))):
            properties[names.KEY_ID.name] = default
        new = self._with_columns(asked._replace(properties=creation_properties(self.client_properties, properties)))
        pin_check = self.client_pins.begin_check(new.identifier)
        # A new plain table where an encrypted one is pinned is what an attacker who dropped that would want.
        if not new.is_encrypted:
            pin_check.refuse_plaintext()
        else:
            pin_check.check_new_key(str(new.properties[names.KEY_ID.name]))
            self.check_keys_of(new)
        return new, pin_check

    def check_keys_of(self, new: NewTable) -> None:
        """Have the key service use each master key of a new encrypted table, before there is one. Raises as `check_new_keys`."""
        check_new_keys(self.client_properties, new.properties, new.fresh_schema)


class EncryptionMixin(EncryptingCatalog, MetastoreCatalogAdapter):
    """What an encrypting catalog does differently from the PyIceberg catalog that follows it in the method resolution order."""

    @property
    def client_properties(self) -> Properties:
        """What this client says of the catalog. No catalog of this kind has properties that come from elsewhere."""
        return self.properties

    def load_file_io(self, properties: Properties, location: str) -> FileIO:
        """Return the FileIO for a location, made of the client's properties alone.

        Args:
            properties: those of a table. They say nothing about its FileIO.
            location: of a file.

        Raises:
            ConfigurationError: the table's properties name code to import, or no FileIO reads the location.
        """
        names.check_table_properties(location, properties, self.properties)
        return file_io_for(self.properties, location)

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table. If it has encryption.key-id, it is an EncryptedTable.

        Raises:
            KeyIdChangedError: the metadata holds keys, but encryption.key-id is gone.
            FormatError: what the catalog's entry leads to is not table metadata.
            ConfigurationError: the table is encrypted and the catalog has no usable KMS properties.
        """
        pin_check = self.client_pins.begin_check(identifier)
        with refusing_unreadable(identifier):
            table = super().load_table(identifier)  # type: ignore[safe-super]
        return opened_table(self, table, pin_check.verify)

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        """Register a table that exists already, encrypted or not, by its metadata file. One that would be refused is not registered.

        Raises:
            PlaintextRefusedError: it has encryption.key-id and is not encrypted, or the catalog requires encryption.
            KeyIdChangedError, MetadataRollbackError, TamperedFileError: the identifier has a pin that speaks against it.
        """
        check_registration(identifier, metadata_location)
        pin_check = self.client_pins.begin_check(identifier)
        with refusing_unreadable(identifier):
            self.check_registered(identifier, self.metadata_file(metadata_location), pin_check)

        return opened_table(self, super().register_table(identifier, metadata_location, overwrite), pin_check.verify)  # type: ignore[safe-super]

    def metadata_file(self, location: str) -> MetadataFile:
        """Read metadata that the catalog has not as a table's, or whose table is not known yet."""
        # With the client's own properties: those in the metadata may name a FileIO or an endpoint.
        return read_metadata_file(self.load_file_io({}, location).new_input(location))

    def check_registered(self, identifier: str | Identifier, file: MetadataFile, pin_check: PinCheck) -> None:
        """Refuse to register metadata that a load would refuse, before there is an entry: under one that no load takes, the name is lost.

        Raises:
            TablecryptError: as `check_metadata` and `PinCheck.check_before`.
        """
        metadata = file.parse()
        check_metadata(self.client_properties, Catalog.identifier_to_tuple(identifier), metadata, file.location)
        pin_check.check_before(table_version(metadata, file.location, file.digest))

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        """Rename a table; its pin goes with it. Raises as `check_rename` for a name that it cannot get."""
        self.check_rename(from_identifier, to_identifier)
        pin_check = self.client_pins.begin_check(from_identifier)
        renamed = super().rename_table(from_identifier, to_identifier)  # type: ignore[safe-super]
        table = opened_table(self, renamed, pin_check.verify)
        self.client_pins.rename(from_identifier, to_identifier)
        return table

    def created_table(self, new: NewTable, pin_check: PinCheck) -> Table:
        """Create a table, encrypted or not, and pin it. One with protected columns is made with their declarations."""
        if new.is_encrypted and ColumnPolicy.from_properties(new.properties):
            EncryptedCreateTransaction(self.staged_table(new)).commit_transaction()
            made = super().load_table(new.identifier)  # type: ignore[safe-super]
        else:
            made = self.created_by_pyiceberg(new)
        return opened_table(self, made, partial(pin_check.verify, moved=creation(new.properties)))

    def staged_table(self, new: NewTable) -> StagedTable:
        """Return a new encrypted table, not committed. NoSuchNamespaceError where its namespace is not there."""
        self.check_namespace(new.identifier)
        staged = self.stage_new_table(*new)
        staged.metadata = encrypted_metadata(staged.metadata)
        staged.io = table_file_io(self.client_properties, staged.io, staged.metadata)
        return staged

    def drop_table(self, identifier: str | Identifier) -> None:
        """Drop a table, and forget its pin."""
        super().drop_table(identifier)  # type: ignore[safe-super]
        self.client_pins.forget(identifier)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates to a table, and move its pin."""
        pin_check = self.client_pins.begin_check(table.name())
        response = super().commit_table(table, requirements, updates)
        pin_check.record_commit(response.metadata, response.metadata_location, moved=moves_of(updates))
        return response

    @checked_arguments()
    def accept_rollback(self, identifier: str | Identifier) -> Table:
        """Load a table that somebody you trust rolled back, and move the pin to it: older metadata is accepted this once.

        That is: older metadata, as after a backup was restored; branches or tags that point to older snapshots; or a table that is newer
        under another catalog's name. The other rules of the pins hold.

        Raises:
            KeyIdChangedError, TamperedFileError: the table has another key id or shorter keys, is another table, or was edited in place.
        """
        pin_check = self.client_pins.begin_check(identifier)
        loaded = super().load_table(identifier)  # type: ignore[safe-super]
        return opened_table(self, loaded, lambda seen, _: pin_check.accept_rollback(seen))

    def stage_commit(self, current: Table | None, commit: Commit) -> StagedTable:
        """Return the table as a commit will leave it, on the base that PyIceberg's catalog has loaded."""
        if current is not None:
            # The base of a commit is checked like a load: a commit on edited metadata would make the edit authentic.
            current = opened_table(self, current, self.client_pins.begin_check(commit.identifier).verify_base)
        return self.stage_on(current, commit)

    def stage_on(self, current: Table | None, commit: Commit) -> StagedTable:
        """Return the table as a commit will leave it, after checking what must hold for every commit to an encrypted table.

        Args:
            current: what the commit is based on, checked like a load; None for a new table.
            commit: what is asked.
        """
        check_updates(self.client_properties, commit.identifier, commit.updates)
        if current is None and any(isinstance(update, UpgradeToVersion3Update) for update in commit.updates):
            return self._stage_creation(commit)
        if current is not None and isinstance(current.metadata, EncryptedTableMetadata):
            return self._stage_change(current, commit)

        copied = with_copies(current.metadata if current else None, commit.updates)
        staged = self.stage_as_pyiceberg(current, commit._replace(updates=copied))
        if isinstance(staged.metadata, EncryptedTableMetadata):
            check_migration(staged.metadata)
        else:
            refuse_plain_table(self.client_properties, commit.identifier, staged.metadata)

        return staged

    def _stage_change(self, base: Table, commit: Commit) -> StagedTable:
        for requirement in commit.requirements:
            requirement.validate(base.metadata)
        updates = with_copies(base.metadata, commit.updates)
        metadata = applied(base.metadata, updates, base.metadata_location)
        if any(isinstance(update, NextShareStateUpdate) for update in updates):
            # Somebody else wrote this metadata, as he did what is loaded: nothing else says that every client will load it.
            check_metadata(self.client_properties, commit.identifier, metadata, base.metadata_location)
        check_commit(base.metadata, metadata)

        before = table_version(base.metadata, base.metadata_location, None)
        staged = self._staged(commit.identifier, metadata, 0 if before.version is None else before.version + 1)
        after = table_version(metadata, staged.metadata_location, None)
        TrustedTable(".".join(commit.identifier), before).verify_update(after, moved=moves_of(commit.updates))

        return staged

    def _staged(self, identifier: Identifier, metadata: TableMetadata, number: int) -> StagedTable:
        # Before the first object of a class that properties name is made, whatever kind of update has set them.
        names.check_table_properties(".".join(identifier), metadata.properties, self.properties)
        location = location_provider(metadata).new_table_metadata_file_location(number)
        io = self.load_file_io(metadata.properties, location)
        return StagedTable(identifier, metadata, location, io, cast("Catalog", self))

    @staticmethod
    def metadata_to_write(metadata: TableMetadata) -> TableMetadata:
        """Return a new encrypted table's metadata in our class; anything else as it is."""
        if isinstance(metadata, EncryptedTableMetadata) or names.KEY_ID.name not in metadata.properties:
            return metadata
        return encrypted_metadata(metadata)

    def _stage_creation(self, commit: Commit) -> StagedTable:
        for requirement in commit.requirements:
            requirement.validate(None)
        nothing: dict[str, Any] = {
            **self.empty_metadata_fields(),
            "format_version": 3,
            "last_sequence_number": 0,
            "next_row_id": 0,
            "schemas": [],
            "partition_specs": [],
            "sort_orders": [],
            "encryption_keys": [],
        }
        built = update_table_metadata(EncryptedTableMetadata.model_construct(**nothing), with_copies(None, commit.updates))
        # model_construct above validates nothing: this reads the metadata as every other client will.
        metadata = EncryptedTableMetadata.model_validate_json(built.model_dump_json())
        check_commit(metadata, metadata)
        return self._staged(commit.identifier, metadata, 0)


@cache
def encrypted(catalog_class: type[MetastoreCatalog]) -> type[MetastoreCatalog]:
    """Return the encrypting version of a PyIceberg catalog class that commits through MetastoreCatalog's own staging.

    Its instances can be pickled if those of `catalog_class` can. Two calls with one class return the same result.

    Raises:
        ConfigurationError: the class does not commit that way, or not at all, or there is an encrypting one.
    """
    if not isinstance(catalog_class, type):
        raise ConfigurationError(f"encrypted() takes a catalog class, such as pyiceberg.catalog.sql.SqlCatalog, and not {catalog_class!r}")
    if issubclass(catalog_class, EncryptingCatalog):
        raise ConfigurationError(f"{catalog_class.__qualname__} has encrypted tables already: use it as it is")
    # Their entries have pins, which every commit has to renew: after one that does not, other clients refuse the table as tampered with.
    own = next((_WITH_PINS[each.__module__] for each in catalog_class.__mro__ if each.__module__ in _WITH_PINS), None)
    if own is not None:
        raise ConfigurationError(f"{catalog_class.__qualname__}: use tablecrypt_catalog.{own}, or derive a class from it")
    if not issubclass(catalog_class, MetastoreCatalog):
        raise ConfigurationError(
            f"{catalog_class.__qualname__} does not derive from pyiceberg.catalog.MetastoreCatalog: it needs its own adapter"
        )
    # As of DynamoDB and BigQuery in PyIceberg 0.12: a table would be made there, into which nothing can be written.
    code = getattr(catalog_class.commit_table, "__code__", None)
    if code is not None and code.co_names == (NotImplementedError.__name__,):
        raise ConfigurationError(
            f"{catalog_class.__qualname__} makes tables and commits nothing to them in this version of PyIceberg: take another catalog"
        )

    name = f"Encrypted{catalog_class.__name__}"
    described = {"__doc__": f"{catalog_class.__name__} with encrypted tables."}
    return cast("type[MetastoreCatalog]", type(name, (_MadeOf, EncryptionMixin, catalog_class), {**described, "made_of": catalog_class}))


class _MadeOf:
    """A class made by `encrypted` has no module in which pickle would find it, but the one that it was made of has."""

    made_of: ClassVar[type[MetastoreCatalog]]

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        own_class: type = type(self)
        if own_class is not encrypted(self.made_of):
            return super().__reduce_ex__(protocol)
        return _unfilled, (self.made_of,), self.__getstate__()


def _unfilled(catalog_class: type[MetastoreCatalog]) -> MetastoreCatalog:
    made = encrypted(catalog_class)
    return made.__new__(made)
