"""Encrypted tables on an Iceberg REST catalog server.

    load     GET  table        answer parsed with encryption-keys and key-id     PyIceberg's own models drop both
    commit   POST table        {"identifier", "requirements", "updates": [add-encryption-key …, add-snapshot with key-id, …]}

A commit is staged and checked here before it is sent, and the server's answer is checked before it is used. The server writes
metadata.json; it never sees a key. Authentication, table configuration, vended credentials, prefix and headers are RestCatalog's own, and
so are tables without encryption.key-id.

Iceberg REST catalog specification: loadTable, updateTable, createTable (stage-create), TableUpdate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field, SerializeAsAny, ValidationError
from pyiceberg.catalog.rest import SCAN_PLANNING_MODE, SNAPSHOT_LOADING_MODE, RestCatalog, ScanPlanningMode, TableResponse
from pyiceberg.catalog.rest.scan_planning import PlanTableScanRequest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.exceptions import ValidationError as InvalidMetadataError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, CreateTableTransaction, FileScanTask, Table, TableIdentifier
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, TableMetadataV2
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import SetPropertiesUpdate, TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, IcebergBaseModel, Identifier, Properties

from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError, FormatError, KeyIdChangedError, PlaintextRefusedError, TamperedFileError
from tablecrypt.files.encrypting_file_io import ReadRestrictions
from tablecrypt.table.metadata import EncryptedTableMetadata, encrypted_metadata
from tablecrypt.table.metadata_file import ParsedJson, check_keys, is_encrypted_tables
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.transaction import EncryptedCreateTransaction
from tablecrypt.table.updates import AddEncryptionKeyUpdate, EncryptTableUpdate, check_commit, check_migration
from tablecrypt_catalog._pyiceberg.rest import RestCatalogAdapter
from tablecrypt_catalog.pins.client import ClientPins
from tablecrypt_catalog.pins.record import TableVersion, moves_of, table_version
from tablecrypt_catalog.purge import Purged, purge
from tablecrypt_catalog.rest_answers import applicable_restrictions, check_answer
from tablecrypt_catalog.table_encryption import (
    ExistingTables,
    as_encrypted,
    check_catalog_properties,
    check_metadata,
    check_updates,
    creation_properties,
    is_encrypted,
    pinned_folders,
    refuse_plain_table,
    table_file_io,
    warn_if_unpinned,
)

if TYPE_CHECKING:
    import pyarrow as pa

AnsweredMetadata = Annotated[TableMetadataV1 | TableMetadataV2 | EncryptedTableMetadata, Field(discriminator="format_version")]
"""Table metadata in which version 3 keeps what encryption needs."""

A = TypeVar("A", "LoadAnswer", "CommitAnswer")


class LoadAnswer(TableResponse):
    """A server's answer to loadTable."""

    metadata: AnsweredMetadata
    read_restrictions: Any = Field(alias="read-restrictions", default=None)


class CommitAnswer(CommitTableResponse):
    """A server's answer to updateTable."""

    metadata: AnsweredMetadata


class CommitRequest(IcebergBaseModel):
    """A commit whose updates are written as what they are: PyIceberg's own request knows no key updates and drops key-id."""

    identifier: TableIdentifier
    requirements: tuple[SerializeAsAny[IcebergBaseModel], ...]
    updates: tuple[SerializeAsAny[IcebergBaseModel], ...]


class EncryptedRestCatalog(ExistingTables, RestCatalogAdapter):
    """PyIceberg's RestCatalog with encrypted tables.

    The KMS is reached with the properties given to this client, and with none that the server sends: the keys of a table are to be out of
    reach of whoever runs its catalog.
    """

    def __init__(self, name: str, **properties: str) -> None:
        check_catalog_properties(properties)
        super().__init__(name, **properties)

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table; an EncryptedTable where it has encryption.key-id.

        Raises:
            KeyIdChangedError: the metadata holds keys, but encryption.key-id is gone; or it is not the one in this client's pins.
            MetadataRollbackError, TamperedFileError: this client's pins know newer metadata, or other metadata of the same name.
            PlaintextRefusedError: encryption.key-id stands on a table of a format version that cannot be encrypted.
            ConfigurationError: the table is encrypted and the catalog has no usable KMS properties, or the server wants to plan its scans.
            FormatError: the answer is not table metadata.
            ReadRestrictionError: the server restricts what may be read of a table that is not encrypted, or so that it cannot be applied.
        """
        pin_check = self.client_pins.begin_check(identifier)
        answer, text, seen = self._requested(identifier)
        return self._opened(identifier, answer, text, pin_check.verify(seen))

    def accept_rollback(self, identifier: str | Identifier) -> Table:
        """Load a table that somebody you trust rolled back, and move this client's pin to it. As `EncryptionMixin.accept_rollback`."""
        pin_check = self.client_pins.begin_check(identifier)
        answer, text, seen = self._requested(identifier)
        table = self._opened(identifier, answer, text)
        pin_check.accept_rollback(seen)
        return table

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
            ConfigurationError: format-version 1 or 2 was asked for, or the encryption properties cannot be used.
            KeyIdChangedError, TamperedFileError: the server did not make the table that was asked for.
        """
        creation = creation_properties(self.client_properties, properties)
        pin_check = self.client_pins.begin_check(identifier)
        if names.KEY_ID.name not in creation:
            pin_check.refuse_plaintext()
        table: Table = super().create_table(identifier, schema, location, partition_spec, sort_order, creation)
        if names.KEY_ID.name in {**creation, **table.metadata.properties}:
            table = self._encrypted_table(table, _new_metadata(table, creation))
        pin_check.verify(table_version(table.metadata, table.metadata_location, None))
        return table

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
        creation = creation_properties(self.client_properties, properties)
        if names.KEY_ID.name not in creation:
            self.client_pins.begin_check(identifier).refuse_plaintext()
            plain: CreateTableTransaction = super().create_table_transaction(
                identifier, schema, location, partition_spec, sort_order, creation
            )
            return plain
        staged = self.request_staged_table(identifier, schema, location, partition_spec, sort_order, creation)
        staged.metadata = _new_metadata(staged, creation)
        staged.io = table_file_io(self.client_properties, staged.io, staged.metadata)
        return EncryptedCreateTransaction(staged)

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        """Register a table that exists already, encrypted or not, by its metadata file."""
        super().register_table(identifier, metadata_location, overwrite)
        return self.load_table(identifier)

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        """Rename a table; its pin goes with it."""
        super().rename_table(from_identifier, to_identifier)
        self.client_pins.rename(from_identifier, to_identifier)
        return self.load_table(to_identifier)

    def drop_table(self, identifier: str | Identifier, purge_requested: bool = False) -> None:
        """Drop a table. A purge of an encrypted table is done here, since the server cannot read which files it has."""
        if purge_requested:
            self.purge_table(identifier)
            return
        super().drop_table(identifier)
        self.client_pins.forget(identifier)

    def purge_table(self, identifier: str | Identifier) -> None:
        """Drop a table and delete its files, of an encrypted table also those of expired snapshots: see `purge_files`.

        Raises:
            ConfigurationError: the table is encrypted, and no pin says where it lies.
            PurgeIncompleteError: files could not be deleted; purging again continues.
            CommitFailedException: someone committed to the table meanwhile; purging again deletes those files too.
        """
        self.purge_files(identifier)

    def purge_files(self, identifier: str | Identifier, delete_below: Sequence[str] = (), skip_unreadable: bool = False) -> Purged:
        """Drop a table and delete its files, as `purge_table`, and tell what stays of an encrypted one's.

        Args:
            identifier: the table.
            delete_below: folders in which an encrypted table's files may be deleted, beside those that pinned metadata names.
            skip_unreadable: whether to leave older metadata that cannot be read, or is another table's, with all that it alone names.

        Raises:
            ConfigurationError, PurgeIncompleteError, CommitFailedException: as `purge_table`, `delete_below` considered.
        """
        name = ".".join(self.identifier_to_tuple(identifier))
        try:
            table = self.load_table(identifier)
        except NoSuchTableError:
            # A server says so too of a table whose current metadata file is gone, and a purge deletes that last.
            self.drop_table(identifier)
            return Purged(name)
        if isinstance(table, EncryptedTable):
            return purge(table, lambda: self.drop_table(identifier), delete_below, skip_unreadable)
        super().drop_table(identifier, purge_requested=True)
        self.client_pins.forget(identifier)
        return Purged(name)

    def as_encrypted(self, table: Table, properties: Properties) -> EncryptedTable:
        """Return a plain table as a migration sees it: with metadata and a FileIO that encrypt, while the server still holds it plain."""
        return as_encrypted(self, self.client_properties, table, properties)

    @property
    def client_pins(self) -> ClientPins:
        """The pins of this catalog in the file that this client's property encryption.pins names."""
        return ClientPins(self.name, self.client_properties)

    @property
    def pin_places(self) -> tuple[str, ...]:
        """Where this client's tables are pinned, for people to read; none at all where nothing remembers them."""
        return self.client_pins.places

    def forget_pin(self, identifier: str | Identifier) -> None:
        """Forget what is pinned of an identifier: the next table there is trusted on first use, be it plaintext or encrypted."""
        self.client_pins.forget(identifier)

    def plan_scan(self, identifier: str | Identifier, request: PlanTableScanRequest) -> list[FileScanTask]:
        """Let the server plan a scan of a table that is not encrypted.

        Raises:
            ConfigurationError: the table is encrypted. The server cannot read its manifests, and would be shown the filter.
        """
        if isinstance(self.load_table(identifier), EncryptedTable):
            raise _server_planning_refused(self.identifier_to_tuple(identifier))
        return super().plan_scan(identifier, request)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates to a table.

        Raises:
            CommitFailedException: a requirement is not met, or another writer was first; nothing has changed.
            CommitStateUnknownException: the server failed or did not answer; the commit may have landed.
            TamperedFileError, KeyIdChangedError, KeyNotFoundError, MetadataRollbackError: the server accepted the commit, but its answer
                lacks what a reader of the table needs (see `check_answer`), or is of another table.
        """
        check_updates(self.client_properties, table.name(), updates)
        is_migration = any(isinstance(update, EncryptTableUpdate) for update in updates)
        if not isinstance(table.metadata, EncryptedTableMetadata) and not is_migration:
            _refuse_key_id(table, updates)
            plain: CommitTableResponse = super().commit_table(table, requirements, updates)
            check_metadata(self.client_properties, table.name(), plain.metadata, plain.metadata_location)
            return plain
        staged = update_table_metadata(table.metadata, updates)
        if is_migration:
            check_migration(staged)
        else:
            check_commit(table.metadata, staged)
        assert isinstance(staged, EncryptedTableMetadata)
        pin_check = self.client_pins.begin_check(table.name())
        request = _request(table, requirements, _with_keks(updates, staged))
        answer = _parsed(CommitAnswer, self.request_commit(table, request), table.name())
        check_metadata(self.client_properties, table.name(), answer.metadata, answer.metadata_location)
        check_answer(staged, updates, answer.metadata, answer.metadata_location)
        pin_check.record_commit(answer.metadata, answer.metadata_location, self._digest(answer.metadata), moves_of(updates))
        return answer

    def _requested(self, identifier: str | Identifier) -> tuple[LoadAnswer, str, TableVersion]:
        """The server's answer to loadTable, checked but not held against the pins: as a model, as text, and as what pins compare."""
        text = self.request_table(identifier)
        answer = _parsed(LoadAnswer, text, identifier)
        location = answer.metadata_location or ""
        check_metadata(self.client_properties, self.identifier_to_tuple(identifier), answer.metadata, location)
        return answer, text, table_version(answer.metadata, location, self._digest(answer.metadata))

    def _opened(self, identifier: str | Identifier, answer: LoadAnswer, text: str, pin: TableVersion | None = None) -> Table:
        name, metadata = self.identifier_to_tuple(identifier), answer.metadata
        restrictions = applicable_restrictions(name, metadata, answer.read_restrictions)
        if not isinstance(metadata, EncryptedTableMetadata):
            return self.table_of(identifier, answer)
        if not is_encrypted(name, metadata):
            return self.table_of(identifier, TableResponse.model_validate_json(text))
        return self._encrypted_table(self.table_of(identifier, answer), metadata, restrictions, pin)

    def _digest(self, metadata: TableMetadata) -> str | None:
        """What pins compare: all that an answer says of a table, in whatever order it gives the keys. None if it may lack snapshots."""
        if names.PINS.name not in self.client_properties or SNAPSHOT_LOADING_MODE in self.client_properties:
            return None
        if isinstance(metadata, EncryptedTableMetadata):
            metadata = metadata.model_copy(update={"encryption_keys": sorted(metadata.encryption_keys, key=lambda key: key.key_id)})
        return hashlib.sha256(metadata.model_dump_json().encode()).hexdigest()

    def _encrypted_table(
        self,
        table: Table,
        metadata: EncryptedTableMetadata,
        restrictions: ReadRestrictions | None = None,
        pin: TableVersion | None = None,
    ) -> EncryptedTable:
        if table.config.get(SCAN_PLANNING_MODE) == ScanPlanningMode.SERVER.value:
            raise _server_planning_refused(table.name())
        warn_if_unpinned(self, table.name())
        return EncryptedTable(
            identifier=table.name(),
            metadata=metadata,
            metadata_location=table.metadata_location,
            io=table_file_io(self.client_properties, table.io, metadata, pinned_folders(self, metadata, pin), restrictions),
            catalog=self,
            config=table.config,
        )


def _parsed(model: type[A], text: str, identifier: str | Identifier) -> A:
    name = ".".join(RestCatalog.identifier_to_tuple(identifier))
    try:
        parsed = ParsedJson(text)
        answer = model.model_validate(parsed.document)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors(include_input=False))
        # Pydantic's own text, which a chained error would print, quotes the answer: it may hold vended credentials.
        raise FormatError(f"{name}: the catalog's answer cannot be read as table metadata: {problems}") from None
    except (ValueError, TypeError, AttributeError, LookupError, InvalidMetadataError) as error:
        raise FormatError(f"{name}: the catalog's answer is not JSON, or no table metadata: {error}") from None
    if is_encrypted_tables(answer.metadata):
        check_keys(f"{name}: the metadata in the catalog's answer", parsed, parsed.document["metadata"])
    return answer


def _request(table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[IcebergBaseModel, ...]) -> str:
    *namespace, name = table.name()
    fields = {"identifier": {"namespace": namespace, "name": name}, "requirements": requirements, "updates": updates}
    return CommitRequest.model_validate(fields).model_dump_json()


def _with_keks(updates: Iterable[IcebergBaseModel], staged: EncryptedTableMetadata) -> tuple[IcebergBaseModel, ...]:
    """Return the updates with the KEK of each key before it.

    The server applies them to metadata that may be newer than this client's: a KEK that was rotated away meanwhile comes back with the
    snapshot that needs it, and one that is there stays as it is.
    """
    keks = {kek.key_id: kek for kek in staged.key_ring.keks}
    sent: list[IcebergBaseModel] = []
    for update in updates:
        kek = keks.pop(update.key.encrypted_by_id or "", None) if isinstance(update, AddEncryptionKeyUpdate) else None
        if kek is not None:
            sent.append(AddEncryptionKeyUpdate(key=kek))
        sent.append(update)
    return tuple(sent)


def _new_metadata(table: Table, asked: Properties) -> EncryptedTableMetadata:
    """The metadata of a table that the server has just made, after checking that it is what was asked for."""
    metadata: TableMetadata = table.metadata
    found = metadata.properties.get(names.KEY_ID.name)
    if found != asked.get(names.KEY_ID.name, found):
        raise KeyIdChangedError(
            f"{'.'.join(table.name())}: the catalog made the table with {names.KEY_ID.name} {found}, not {asked[names.KEY_ID.name]}"
        )
    if metadata.format_version != 3:
        refuse_plain_table(EMPTY_DICT, table.name(), metadata)
    if metadata.snapshots:
        raise TamperedFileError(metadata.location, "the catalog answered that a table was created, but with a table that has snapshots")
    return encrypted_metadata(metadata)


def _refuse_key_id(table: Table, updates: tuple[TableUpdate, ...]) -> None:
    if any(isinstance(update, SetPropertiesUpdate) and names.KEY_ID.name in update.updates for update in updates):
        raise PlaintextRefusedError(
            table.location(),
            f"table {'.'.join(table.name())} is not encrypted, and setting {names.KEY_ID.name} does not encrypt what is there: migrate it",
        )


def _server_planning_refused(identifier: Identifier) -> ConfigurationError:
    return ConfigurationError(
        f"{'.'.join(identifier)}: {SCAN_PLANNING_MODE}={ScanPlanningMode.SERVER.value} is not possible for an encrypted table: "
        "the server cannot read its manifests, so scans are planned by the client"
    )
