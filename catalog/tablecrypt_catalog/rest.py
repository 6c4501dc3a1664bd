"""Encrypted tables on an Iceberg REST catalog server.

    load     GET  table        answer parsed with encryption-keys and key-id     PyIceberg's own models drop both
    commit   GET  table        the same, where the commit adds data files or declares columns: its rules are held against what is there now
             POST table        {"identifier", "requirements", "updates": [add-encryption-key …, add-snapshot with key-id, …]}

A commit is staged and checked here before it is sent, and the server's answer is checked before it is used. The server writes
metadata.json; it never sees a key. Authentication, table configuration, vended credentials, prefix and headers are RestCatalog's own, and
so are tables without encryption.key-id.

Iceberg REST catalog specification: loadTable, updateTable, createTable (stage-create), TableUpdate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Final, TypeVar

from pydantic import Field, SerializeAsAny, ValidationError
from pyiceberg.catalog.rest import SCAN_PLANNING_MODE, SNAPSHOT_LOADING_MODE, RestCatalog, ScanPlanningMode, TableResponse
from pyiceberg.catalog.rest.scan_planning import PlanTableScanRequest
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import CommitTableResponse, FileScanTask, StagedTable, Table, TableIdentifier
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, TableMetadataV2
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertCreate, SetPropertiesUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import IcebergBaseModel, Identifier, Properties

from tablecrypt import properties as names
from tablecrypt._parsed_json import ParsedJson, problem_of
from tablecrypt.arguments import check_switches, checked_arguments, interruptible
from tablecrypt.errors import (
    ConfigurationError,
    FormatError,
    KeyIdChangedError,
    MetadataRollbackError,
    PlaintextRefusedError,
    ReadRestrictionError,
    TablecryptError,
    TamperedFileError,
    with_sentence,
)
from tablecrypt.files.encrypting_file_io import ReadRestrictions
from tablecrypt.keys.manager import KeySettings
from tablecrypt.table.metadata import UNREADABLE, EncryptedTableMetadata, check_keys, encrypted_metadata, is_encrypted_tables
from tablecrypt.table.protection.declaring import first_declarations
from tablecrypt.table.protection.writing import AssertProtectionUnchanged
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import name_of
from tablecrypt.table.updates import (
    AddEncryptionKeyUpdate,
    EncryptTableUpdate,
    applied,
    check_commit,
    check_migration,
    check_properties_keep_key_id,
    depends_on_others,
    with_copies,
)
from tablecrypt_catalog._pyiceberg.rest import RestrictedCreationError, TableAnswer
from tablecrypt_catalog.encrypting_catalog import EncryptingCatalog
from tablecrypt_catalog.new_table import NewTable
from tablecrypt_catalog.pins.client import PinCheck
from tablecrypt_catalog.pins.record import TableVersion, creation, moves_of, table_version
from tablecrypt_catalog.rest_answers import applicable_restrictions, check_answer, check_same_table
from tablecrypt_catalog.rest_views import RestViews
from tablecrypt_catalog.table_encryption import (
    check_metadata,
    check_new_keys,
    check_registration,
    check_updates,
    encrypted_table,
    is_encrypted,
    proof_of_heads,
    table_file_io,
)
from tablecrypt_catalog.vended_kms import kms_properties

AnsweredMetadata = Annotated[TableMetadataV1 | TableMetadataV2 | EncryptedTableMetadata, Field(discriminator="format_version")]
"""Table metadata in which version 3 keeps what encryption needs."""

A = TypeVar("A", "LoadAnswer", "CommitAnswer")
_ALL: Final = "all"
"""Of the snapshots a load brings, those that SNAPSHOT_LOADING_MODE has where it is not set."""
_TAKE_A_SENTENCE: Final = (
    ConfigurationError,
    FormatError,
    KeyIdChangedError,
    MetadataRollbackError,
    PlaintextRefusedError,
    ReadRestrictionError,
    TamperedFileError,
)
"""Errors whose last argument is text for people, so that `with_sentence` suits them."""


class LoadAnswer(TableAnswer):
    """A server's answer to loadTable."""

    metadata: AnsweredMetadata


class CommitAnswer(CommitTableResponse):
    """A server's answer to updateTable."""

    metadata: AnsweredMetadata


class CommitRequest(IcebergBaseModel):
    """A commit whose updates are written as what they are: PyIceberg's own request does not support key updates and drops key-id."""

    identifier: TableIdentifier
    requirements: tuple[SerializeAsAny[IcebergBaseModel], ...]
    updates: tuple[SerializeAsAny[IcebergBaseModel], ...]


class EncryptedRestCatalog(EncryptingCatalog, RestViews):
    """PyIceberg's RestCatalog with encrypted tables.

    The KMS is reached with the properties given to this client, and with none that the server sends: the keys of a table are to be out of
    reach of whoever runs its catalog. With `encryption.kms.vended` a server may send credentials for it (see vended_kms.py).
    """

    # A server says so too of a table whose current metadata file is gone.
    METADATA_GONE = NoSuchTableError

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table. If it has encryption.key-id, it is an EncryptedTable.

        Raises:
            KeyIdChangedError: the metadata holds keys, but encryption.key-id is gone; or it is not the one in this client's pins.
            MetadataRollbackError, TamperedFileError: this client's pins know newer metadata, or other metadata of the same name.
            PlaintextRefusedError: encryption.key-id stands on a table of a format version that cannot be encrypted.
            ConfigurationError: the table is encrypted and the catalog has no usable KMS properties, or the server
                wants to plan its scans.
            FormatError: the answer is not table metadata.
            ReadRestrictionError: the server restricts what may be read of a table that is not encrypted, or so that it cannot be applied.
        """
        pin_check = self.client_pins.begin_check(identifier)
        answer, text, seen = self._requested(identifier)
        proof = proof_of_heads(
            answer.metadata, lambda: self.table_of(identifier, answer).io, lambda: self._kms_properties(identifier, answer)
        )
        return self._opened(identifier, answer, text, pin_check.verify(seen, proof))

    @checked_arguments()
    def accept_rollback(self, identifier: str | Identifier) -> Table:
        """Load a table that somebody you trust rolled back, and move this client's pin to it. As `EncryptionMixin.accept_rollback`."""
        pin_check = self.client_pins.begin_check(identifier)
        answer, text, seen = self._requested(identifier)
        # Opened first: an answer that cannot be opened must not move the pin.
        table = self._opened(identifier, answer, text, seen)
        pin_check.accept_rollback(seen)
        return table

    def created_table(self, new: NewTable, pin_check: PinCheck) -> Table:
        """Create a table, after whose answer the server is held to what was asked for. A table that is refused is dropped again."""
        try:
            answer = self._made(new) if names.KEY_ID.name in new.properties else self.request_new_table(*new)
        except RestrictedCreationError as restricted:
            with self._dropping_again(new.identifier, restricted.answer.metadata, (), ReadRestrictionError):
                raise ReadRestrictionError(str(restricted)) from None

        with self._dropping_again(new.identifier, answer.metadata, (), TablecryptError):
            table = self.table_of(new.identifier, answer)
            seen = table_version(table.metadata, table.metadata_location, None)
            if names.KEY_ID.name in {**new.properties, **table.metadata.properties}:
                metadata = _new_metadata(table, new)
                seen = table_version(metadata, table.metadata_location, None)
                table = self._encrypted_table(table, metadata, pin=seen, kms=self._kms_properties(new.identifier, answer))

            pin_check.verify(seen, moved=creation(new.properties))
            if isinstance(table, EncryptedTable):
                _declare_columns(table)

        return table

    def check_keys_of(self, new: NewTable) -> None:
        """As `EncryptingCatalog.check_keys_of`; later, where the server may send credentials: they come with the staged table."""
        if not names.KMS_VENDED.is_true(self.client_properties):
            super().check_keys_of(new)

    def _made(self, new: NewTable) -> TableAnswer:
        """Have the server make an encrypted table, and return its answer.

        It is staged first: a server that makes tables of version 2 says so then, and is left with no file of one. One that knows nothing of
        staging has made the table by then.
        """
        staged = self.staged_table(new)
        try:
            return self.request_new_table(*new)
        except TableAlreadyExistsError:
            found, _ = self._loaded(new.identifier)
            # With another uuid it is the table of somebody who was there first.
            if found.metadata.table_uuid != staged.metadata.table_uuid:
                raise
            return found

    def staged_table(self, new: NewTable) -> StagedTable:
        """Return a new encrypted table as the server stages it. One that is refused is dropped, if the server made it all the same."""
        answer = self.request_new_table(*new, is_staged=True)
        with self._dropping_again(new.identifier, answer.metadata, (), TablecryptError):
            staged = self.staged_table_of(new.identifier, answer)
            staged.metadata = _new_metadata(staged, new)
            kms = self._kms_properties(new.identifier, answer)
            if names.KMS_VENDED.is_true(self.client_properties):
                check_new_keys(kms, new.properties, new.fresh_schema)
            staged.io = table_file_io(kms, staged.io, staged.metadata)

        return staged

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        """Register a table that exists already, encrypted or not, by its metadata file.

        The server reads the file, which this client may not be able to, so that the registration of a table that promises encryption and
        is not encrypted is undone. A table that was there before is not brought back.
        """
        check_registration(identifier, metadata_location)
        registered = super().register_table(identifier, metadata_location, overwrite)
        with self._dropping_again(identifier, registered.metadata, registered.metadata.snapshots, PlaintextRefusedError, KeyIdChangedError):
            return self.load_table(identifier)

    @contextmanager
    def _dropping_again(
        self, identifier: str | Identifier, made: TableMetadata, own: Iterable[Snapshot], *refusals: type[TablecryptError]
    ) -> Iterator[None]:
        """Drop a table that this client has just made when the block refuses it: other clients would take it for what was asked for.

        Args:
            identifier: the table.
            made: its metadata, as the server answered.
            own: the snapshots with which the call made it. With any other the table holds rows of another writer, and stays.
            refusals: what the block raises for it. The error is raised with a sentence on what became of the table.
        """
        try:
            yield
        except refusals as refusal:
            outcome = self._drop_again(identifier, made, own)
            if not isinstance(refusal, _TAKE_A_SENTENCE):
                refusal.add_note(outcome)
                raise
            raise with_sentence(refusal, outcome) from refusal

    def _drop_again(self, identifier: str | Identifier, made: TableMetadata, own: Iterable[Snapshot]) -> str:
        """Drop a table if it is still as this client made it; return what became of it."""
        name = ".".join(self.identifier_to_tuple(identifier))
        own_ids = {each.snapshot_id for each in own}
        try:
            found = self._loaded(identifier)[0].metadata
            # A name may lead to another table by now, and somebody may have written to this one.
            if found.table_uuid != made.table_uuid or not own_ids.issuperset(each.snapshot_id for each in found.snapshots):
                return f"{name} is not, or no longer, the table that this call made, and was left as it is"
            super().drop_table(identifier)
        except NoSuchTableError:
            return f"The catalog has no table {name}"
        except Exception as error:  # noqa: BLE001  what went wrong first is the error to raise
            return (
                f"{name} could not be dropped again ({type(error).__name__}), and other clients would write plaintext to it: drop it by "
                f"catalog.drop_table({name!r})"
            )

        return f"{name} was dropped again"

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        """Rename a table; its pin goes with it. Raises as `check_rename` for a name that it cannot get."""
        self.check_rename(from_identifier, to_identifier)
        super().rename_table(from_identifier, to_identifier)
        self.client_pins.rename(from_identifier, to_identifier)
        return self.load_table(to_identifier)

    def drop_table(self, identifier: str | Identifier, purge_requested: bool = False) -> None:
        """Drop a table. A purge of an encrypted table is done here, since the server cannot read which files it has.

        Raises:
            ConfigurationError: purge_requested is neither True nor False; or as `purge_table`.
        """
        check_switches(purge_requested=purge_requested)
        # Else the server would drop the table and delete what it can name, and the data files would stay.
        if purge_requested:
            self.purge_table(identifier)
            return
        super().drop_table(identifier)
        self.client_pins.forget(identifier)

    def purge_plain_table(self, identifier: str | Identifier) -> None:
        """Drop a table that is not encrypted, whose files the server deletes."""
        super().drop_table(identifier, purge_requested=True)
        self.client_pins.forget(identifier)

    def plan_scan(self, identifier: str | Identifier, request: PlanTableScanRequest) -> list[FileScanTask]:
        """Let the server plan a scan of a table that is not encrypted.

        Raises:
            ConfigurationError: the table is encrypted. The server cannot read its manifests, and would be shown the filter.
        """
        # Asked before the request is sent, whose filter may hold values of protected columns.
        if isinstance(self.load_table(identifier), EncryptedTable):
            raise _server_planning_refused(self.identifier_to_tuple(identifier))
        return super().plan_scan(identifier, request)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates to a table.

        Raises:
            CommitFailedException: a requirement is not met, or another writer was first; nothing has changed.
            StaleWriteError: columns are protected otherwise now than when the files of the commit were written; nothing has changed.
            CommitStateUnknownException: the server failed or did not answer; the commit may have landed.
            TamperedFileError, KeyIdChangedError, KeyNotFoundError, MetadataRollbackError: the server accepted the commit, but its answer
                lacks what a reader of the table needs (see `check_answer`), is of another table, or is what this client's pins refuse.
        """
        check_updates(self.client_properties, table.name(), updates)
        is_migration = any(isinstance(update, EncryptTableUpdate) for update in updates)
        # A plain table's commit is RestCatalog's own, but it must not make the table promise encryption.
        if not isinstance(table.metadata, EncryptedTableMetadata) and not is_migration:
            _refuse_key_id(table, updates)
            plain: CommitTableResponse = super().commit_table(table, requirements, updates)
            check_metadata(self.client_properties, table.name(), plain.metadata, plain.metadata_location)
            return plain

        # Without copies of keys, which are made anew for the metadata that the server has now.
        asked, creates = updates, any(isinstance(each, AssertCreate) for each in requirements)
        updates = with_copies(None if creates else table.metadata, updates)
        staged = applied(table.metadata, updates)
        if is_migration:
            check_migration(staged)
        else:
            check_commit(table.metadata, staged)

        assert isinstance(staged, EncryptedTableMetadata)
        # A table that this commit makes has no protection that others could have changed.
        known = tuple(filter(_is_servers, requirements))
        if (depends_on_others(updates) or known != requirements) and not (is_migration or creates):
            self._check_on_current(table, requirements, asked)
        # Begun before the commit is sent, so that what others commit meanwhile is no rollback.
        pin_check = self.client_pins.begin_check(table.name())
        request = _request(table, known, _with_keks(updates, staged))
        answer = _parsed(CommitAnswer, self.request_commit(table, request), table.name())
        if creates:
            with self._dropping_again(table.name(), answer.metadata, staged.snapshots, PlaintextRefusedError):
                _check_version(table.name(), answer.metadata)
        check_metadata(self.client_properties, table.name(), answer.metadata, answer.metadata_location)
        # Before the pin moves: what a lying server answers must not become what is trusted.
        check_answer(staged, updates, answer.metadata, answer.metadata_location)
        pin_check.record_commit(answer.metadata, answer.metadata_location, self._digest(answer.metadata), moves_of(updates))

        return answer

    def _check_on_current(self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]) -> None:
        """Hold a commit against the table as the server has it now: the server applies it, and compares nothing of protected columns, nor
        of new branches and tags.

        Whoever changes the protection after this and before the commit is found by the answer to the commit alone.

        Raises:
            CommitFailedException: a requirement is not met, or columns are protected otherwise now.
            TamperedFileError: the server has another table.
            ConfigurationError, KeyIdChangedError, KeyNotFoundError, PlaintextRefusedError: a rule of commits does not hold.
        """
        answer, _ = self._loaded(table.name())
        current = answer.metadata
        check_same_table(table.metadata, current, answer.metadata_location or "")
        check_properties_keep_key_id(table.metadata.properties, current.properties)
        for requirement in requirements:
            requirement.validate(current)
        check_commit(current, applied(current, with_copies(current, updates)))

    def _requested(self, identifier: str | Identifier) -> tuple[LoadAnswer, str, TableVersion]:
        """The server's answer to loadTable, checked but not held against the pins: as a model, as text, and as what pins compare."""
        answer, text = self._loaded(identifier)
        location = answer.metadata_location or ""
        name = self.identifier_to_tuple(identifier)
        check_metadata(self.client_properties, name, answer.metadata, location)
        return answer, text, table_version(answer.metadata, location, self._digest(answer.metadata))

    def _loaded(self, identifier: str | Identifier) -> tuple[LoadAnswer, str]:
        """The server's answer to loadTable, as a model and as text: with all snapshots, where the table is encrypted."""
        text = self.request_table(identifier)
        answer = _parsed(LoadAnswer, text, identifier)
        if self._has_all_snapshots() or not is_encrypted_tables(answer.metadata):
            return answer, text

        # Keys and files that only a missing snapshot needs look like nobody's: expiry, erasures and the search for orphans would take them
        # away. Asked for only now, so that the property goes on sparing plain tables their long lists.
        text = self.request_table(identifier, _ALL)
        return _parsed(LoadAnswer, text, identifier), text

    def _opened(self, identifier: str | Identifier, answer: LoadAnswer, text: str, pin: TableVersion | None = None) -> Table:
        name, metadata = self.identifier_to_tuple(identifier), answer.metadata
        # First of all: no table is handed out before each restriction is known to be applicable.
        restrictions = applicable_restrictions(name, metadata, answer.read_restrictions)
        if not isinstance(metadata, EncryptedTableMetadata):
            return self.table_of(identifier, answer)
        if not is_encrypted(name, metadata):
            return self.table_of(identifier, TableResponse.model_validate_json(text))

        kms = self._kms_properties(identifier, answer)
        return self._encrypted_table(self.table_of(identifier, answer), metadata, restrictions, pin, kms)

    def _kms_properties(self, identifier: str | Identifier, answer: TableAnswer) -> Mapping[str, str]:
        name = ".".join(self.identifier_to_tuple(identifier))
        return kms_properties(name, self.client_properties, answer.metadata, answer.kms_credentials)

    def as_encrypted(self, table: Table, properties: Properties) -> EncryptedTable:
        """As `EncryptingCatalog.as_encrypted`. ConfigurationError, too, where snapshots are left out: they would stay, in plaintext."""
        if not self._has_all_snapshots():
            raise ConfigurationError(
                f"{'.'.join(table.name())}: {SNAPSHOT_LOADING_MODE}={self.properties[SNAPSHOT_LOADING_MODE]} leaves snapshots out, whose "
                "plaintext would stay: open it with a catalog without that property"
            )
        return super().as_encrypted(table, properties)

    def _has_all_snapshots(self) -> bool:
        """Whether a load brings all snapshots of a plain table too."""
        return bool(self.properties.get(SNAPSHOT_LOADING_MODE, _ALL) == _ALL)

    def _digest(self, metadata: TableMetadata) -> str | None:
        """What pins compare: all that an answer says of a table, in whatever order it gives the keys. None if it may lack snapshots."""
        # A hash over an answer without all snapshots would differ from that of the whole metadata.
        if names.PINS.name not in self.client_properties or not (self._has_all_snapshots() or is_encrypted_tables(metadata)):
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
        kms: Mapping[str, str] | None = None,
    ) -> EncryptedTable:
        # PyIceberg's scan would send its filter to the server.
        if table.config.get(SCAN_PLANNING_MODE) == ScanPlanningMode.SERVER.value:
            raise _server_planning_refused(table.name())
        return encrypted_table(self, table, metadata, pin, restrictions, kms)


def _parsed(model: type[A], text: str, identifier: str | Identifier) -> A:
    name = ".".join(RestCatalog.identifier_to_tuple(identifier))
    try:
        parsed = ParsedJson(text)
        answer = model.model_validate(parsed.document)
    except ValidationError as error:
        # Pydantic's own text, which a chained error would print, quotes the answer: it may hold vended credentials.
        raise FormatError(f"{name}: the catalog's answer cannot be read as table metadata: {problem_of(error)}") from None
    except UNREADABLE as error:
        raise FormatError(f"{name}: the catalog's answer is not JSON, or no table metadata: {problem_of(error)}") from None

    if is_encrypted_tables(answer.metadata):
        check_keys(f"{name}: the metadata in the catalog's answer", parsed, parsed.document["metadata"])
    return answer


def _is_servers(requirement: object) -> bool:
    """Whether a server knows a kind of requirement."""
    return not isinstance(requirement, AssertProtectionUnchanged)


def _request(table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[IcebergBaseModel, ...]) -> str:
    *namespace, name = table.name()
    fields = {"identifier": {"namespace": namespace, "name": name}, "requirements": requirements, "updates": updates}
    with interruptible():
        return CommitRequest.model_validate(fields).model_dump_json()


def _with_keks(updates: Iterable[IcebergBaseModel], staged: EncryptedTableMetadata) -> tuple[IcebergBaseModel, ...]:
    """Return the updates with the KEK of each key before it.

    The server applies them to metadata that may be newer than this client's: a KEK that was rotated away meanwhile comes back with the
    snapshot that needs it, and one that is there stays as it is.
    """
    keks = {key.key_id: key for key in staged.encryption_keys if key.is_wrapped_by_kms}
    sent: list[IcebergBaseModel] = []
    for update in updates:
        kek = keks.pop(update.key.encrypted_by_id or "", None) if isinstance(update, AddEncryptionKeyUpdate) else None
        if kek is not None:
            sent.append(AddEncryptionKeyUpdate(key=kek))
        sent.append(update)

    return tuple(sent)


def _new_metadata(table: Table, new: NewTable) -> EncryptedTableMetadata:
    """The metadata of a table that the server has just made, after checking that it is what was asked for."""
    metadata: TableMetadata = table.metadata
    _check_version(table.name(), metadata)
    asked = new.properties
    found = metadata.properties.get(names.KEY_ID.name)
    if found != asked.get(names.KEY_ID.name, found):
        raise KeyIdChangedError(
            f"{name_of(table)}: the catalog made the table with {names.KEY_ID.name} {found}, not {asked[names.KEY_ID.name]}"
        )
    # Each later commit is held to this length.
    length, asked_length = (KeySettings.of(each).data_key_length for each in (metadata.properties, asked))
    if length < asked_length:
        raise KeyIdChangedError(
            f"{name_of(table)}: the catalog made the table with {names.DATA_KEY_LENGTH.name} {length}, not {asked_length}"
        )
    if metadata.snapshots:
        raise TamperedFileError(metadata.location, "the catalog answered that a table was created, but with a table that has snapshots")

    new.check_columns(metadata)

    return encrypted_metadata(metadata)


def _declare_columns(table: EncryptedTable) -> None:
    """Commit the declarations of a new table's protected columns: the server makes tables without keys."""
    io = table.io
    if updates := first_declarations(table.metadata, io.manager.columns):
        transaction = table.transaction()
        transaction.apply(updates)
        transaction.commit_transaction()


def _check_version(name: Identifier, metadata: TableMetadata) -> None:
    if metadata.format_version != 3:
        raise PlaintextRefusedError(
            metadata.location,
            f"the catalog's server was asked for table {'.'.join(name)} of format version 3, and makes tables of version "
            f"{metadata.format_version}, which cannot be encrypted: use a server that makes version 3",
        )


def _refuse_key_id(table: Table, updates: tuple[TableUpdate, ...]) -> None:
    if any(isinstance(update, SetPropertiesUpdate) and names.KEY_ID.name in update.updates for update in updates):
        raise PlaintextRefusedError(
            table.location(),
            f"table {name_of(table)} is not encrypted, and setting {names.KEY_ID.name} does not encrypt what is there: migrate it",
        )


def _server_planning_refused(identifier: Identifier) -> ConfigurationError:
    return ConfigurationError(
        f"{'.'.join(identifier)}: {SCAN_PLANNING_MODE}={ScanPlanningMode.SERVER.value} is not possible for an encrypted table: "
        "the server cannot read its manifests, so scans are planned by the client"
    )
