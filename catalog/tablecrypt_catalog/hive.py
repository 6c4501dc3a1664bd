"""Encrypting catalog on a Hive metastore: the one kind of catalog on which Iceberg Java encrypts too, and both may share.

A commit takes the Hive lock as PyIceberg does, and swaps the metadata location by comparison as Iceberg Java does. The entry in the
metastore pins the table's key id, key length and metadata by Java's parameters (pins/hive.py), which every commit renews and every load and
every commit checks. Parameters of others stay as they are.

The client of the metastore replaces a table's entry only if it is still the one that was read:

    get_table      remembers the entry's metadata_location
    alter_table    expects it: the environment context gets
                     expected_parameter_key   = metadata_location
                     expected_parameter_value = the location that was read
                   and the server, in one transaction of its database, refuses where the entry has another

The Hive lock alone does not protect a commit: Iceberg Java may be configured to swap without locking, and a lock times out under a slow
writer. The swap alone does not either: a writer that only locks does not expect anything. So commits do both. Metastores before HIVE-26882
(2.3.10, 4.0 and patched releases between have it) ignore the expectation: the first commit finds out by an alteration that must fail.

Hive metastore Thrift API, "alter_table_with_environment_context".
"""

from __future__ import annotations

import copy
import logging
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, cast

from tablecrypt_catalog._pyiceberg.hive import HiveCatalogAdapter  # first: it says which extra brings the client of the metastore
from tablecrypt_catalog._pyiceberg.metastore import Commit

# isort: split
from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import (
    CheckLockRequest,
    EnvironmentContext,
    LockRequest,
    LockResponse,
    LockState,
    MetaException,
    ShowLocksRequest,
    UnlockRequest,
)
from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.catalog import ICEBERG, METADATA_LOCATION, TABLE_TYPE
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, WaitingForLockException
from pyiceberg.table import StagedTable, Table
from thrift.Thrift import TException
from thrift.transport.TTransport import TTransportException

from tablecrypt import properties as names
from tablecrypt.errors import KeyIdChangedError, TamperedFileError
from tablecrypt.table.metadata import MetadataFile
from tablecrypt.table.table_files import folders_named
from tablecrypt_catalog.pinned_entries import PinnedEntries
from tablecrypt_catalog.pins.hive import PinnedStagedTable, pinning_parameters, staged_parameters
from tablecrypt_catalog.pins.record import moves_of

EXPECTED_KEY: Final = "expected_parameter_key"
EXPECTED_VALUE: Final = "expected_parameter_value"
_MODIFIED: Final = "The table has been modified"
_NEVER_A_LOCATION: Final = "tablecrypt asks whether this server compares before it swaps"
logger = logging.getLogger(__name__)
_READS_OF_A_MOVING_ENTRY: Final = 4
_PAUSES_FOR_A_LOST_LOCK: Final = (0.0, 0.1, 0.2, 0.4)
"""Seconds before each look for a lock whose answer was not read."""


class EncryptedHiveCatalog(PinnedEntries, HiveCatalogAdapter):
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

    def end_use(self, client: Client, connect: Callable[[], AbstractContextManager[Client]]) -> None:
        """Give back a lock that the use of a connection left, as where it was interrupted."""
        lock = cast("SwappingClient", client).lock_asked_for
        if lock is None:
            return

        try:
            with connect() as another:
                give_back(another, lock)
        # It must not hide how the commit ended.
        except (TException, OSError) as error:
            logger.warning("a Hive lock could not be released and will time out: %s", error)

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

        return self.pinned_table((entry.dbName, entry.tableName), location, parameters)

    def parameters_of_new_entry(self, table: Table) -> Mapping[str, str]:
        """Return the parameters that pin a new table."""
        metadata = self.metadata_to_write(table.metadata)
        file = MetadataFile(table.metadata_location, metadata.model_dump_json().encode())
        return pinning_parameters(metadata, file, folders_named(metadata))

    def stage_commit(self, current: Table | None, commit: Commit) -> StagedTable:
        """Return the table as a commit will leave it, with the parameters that pin it."""
        staged = super().stage_commit(current, commit)
        if names.KEY_ID.name not in staged.metadata.properties:
            return staged
        return PinnedStagedTable(staged, commit.identifier, staged_parameters(staged, current, moves_of(commit.updates)))

    def parameters_of(self, database: str, name: str) -> Mapping[str, str]:
        """Return the parameters of an entry."""
        return self.read_entry(database, name).parameters or {}


class ServerTraits:
    """What one catalog has found out about its metastore."""

    def __init__(self) -> None:
        self.compares: bool | None = None
        """Whether the server honours an expected parameter; None before the first commit."""


class WholeAnswers:
    """One connection that knows whether the last answer was read to its end: what is left of it would pass for the answer to the next call.

    Attributes:
        is_between_calls: False during a call, and for ever after one that was interrupted.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.is_between_calls = True

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def ask(*arguments: Any, **named: Any) -> Any:
            self.is_between_calls = False
            try:
                answer = call(*arguments, **named)
            except TException:
                # An answer too, or the end of the connection, which the next call tells.
                self.is_between_calls = True
                raise
            self.is_between_calls = True
            return answer

        return ask


class SwappingClient:
    """One connection. Every call but those below goes through as it is."""

    def __init__(self, client: Client, traits: ServerTraits) -> None:
        self._client = WholeAnswers(client)
        self._traits = traits
        self._read: dict[tuple[str, str], HiveTable] = {}
        self.lock_asked_for: LockRequest | None = None
        """The request for a lock that was not given back: whether the metastore granted it may not be known."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_table(self, dbname: str, tbl_name: str) -> HiveTable:
        """Return a table's entry, and remember what it was: the caller may change the one it gets."""
        entry: HiveTable = self._client.get_table(dbname=dbname, tbl_name=tbl_name)
        self._read[dbname, tbl_name] = copy.deepcopy(entry)
        return entry

    def alter_table_with_environment_context(
        self, dbname: str, tbl_name: str, new_tbl: HiveTable, environment_context: EnvironmentContext
    ) -> None:
        """Replace a table's entry by another if it is still the one that this connection read.

        Raises:
            CommitFailedException: it is not; nothing was changed.
            CommitStateUnknownException: the connection broke before the answer came.
        """
        read = self._read.get((dbname, tbl_name))
        # Of the entry as this connection read it: the caller may have changed the object that it got.
        base = (read.parameters or {}).get(METADATA_LOCATION) if read is not None else None
        if read is None or base is None:
            self._client.alter_table_with_environment_context(dbname, tbl_name, new_tbl, environment_context)
            return

        if self._traits.compares is None:
            self._traits.compares = self._find_out_whether_it_compares(dbname, tbl_name, read)

        try:
            self._client.alter_table_with_environment_context(dbname, tbl_name, new_tbl, _expecting(base, environment_context))
        except MetaException as error:
            self._explain(error, new_tbl, base)
        # The server may have swapped before the connection broke, and metadata may name the files of this commit.
        except (TTransportException, OSError) as error:
            raise CommitStateUnknownException(
                f"{dbname}.{tbl_name}: the metastore was asked to swap in {new_tbl.parameters.get(METADATA_LOCATION)}, "
                f"and the connection broke before it answered: {error}"
            ) from error

    def lock(self, request: LockRequest) -> LockResponse:
        """Ask for a lock, under a name by which it is found if the answer is lost."""
        request.agentInfo = f"tablecrypt-{uuid.uuid4()}"
        self.lock_asked_for = request
        return cast("LockResponse", self._client.lock(request))

    def unlock(self, request: UnlockRequest) -> None:
        """Give a lock back. A lock that cannot be given back times out by itself, and must not hide how the commit ended.

        After a call that was interrupted it is left to `end_use`: here one would wait, perhaps for ever, for the rest of another answer.
        """
        if not self._client.is_between_calls:
            return

        try:
            self._client.unlock(request)
        except (TException, OSError) as error:
            logger.warning("Hive lock %s could not be released and will time out: %s", request.lockid, error)
        # Not after Ctrl-C: then nobody knows whether the metastore was told.
        self.lock_asked_for = None

    def _find_out_whether_it_compares(self, dbname: str, tbl_name: str, read: HiveTable) -> bool:
        # A server that ignores the expectation writes back what is there already.
        try:
            self._client.alter_table_with_environment_context(
                dbname, tbl_name, read, _expecting(_NEVER_A_LOCATION, EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true"}))
            )
        except MetaException as error:
            if _MODIFIED in (error.message or ""):
                return True
            raise

        warnings.warn(
            "this Hive metastore does not compare before it swaps a table's metadata (HIVE-26882): only Hive locks protect commits. "
            "Leave the lock on in every other writer (iceberg.engine.hive.lock-enabled=true), or upgrade the metastore",
            stacklevel=2,
        )
        return False

    def _explain(self, error: MetaException, new_tbl: HiveTable, base: str) -> None:
        """Return if the alteration is in force although the server reported a failure; else raise its failure."""
        modified = CommitFailedException(
            f"{new_tbl.dbName}.{new_tbl.tableName}: another writer replaced {base} meanwhile ({error.message})"
        )
        is_modified = _MODIFIED in (error.message or "")
        wanted = new_tbl.parameters.get(METADATA_LOCATION)
        # An alteration that swaps nothing: the entry does not show whether it is in force.
        if wanted == base:
            if is_modified:
                raise modified from error
            raise error

        try:
            found = self._client.get_table(dbname=new_tbl.dbName, tbl_name=new_tbl.tableName).parameters.get(METADATA_LOCATION)
        except (TException, OSError):
            # What cannot be looked up is not known: neither success nor failure may be reported.
            found = None

        # A metastore repeats a swap after a fault of its database, and finds then that the table is not what it was.
        if found == wanted:
            return
        if is_modified and found is not None:
            raise modified from error
        if found == base:
            raise CommitFailedException(f"{new_tbl.dbName}.{new_tbl.tableName}: the metastore failed to swap: {error.message}") from error

        raise CommitStateUnknownException(
            f"{new_tbl.dbName}.{new_tbl.tableName}: the metastore failed on the way to {wanted}: {error.message}"
        ) from error


def give_back(client: Client, request: LockRequest) -> None:
    """Give back what a request for a lock left in the metastore, which may be about to grant it."""
    (component,) = request.component
    for pause in _PAUSES_FOR_A_LOST_LOCK:
        time.sleep(pause)
        found = client.show_locks(ShowLocksRequest(dbname=component.dbname, tablename=component.tablename)).locks
        if left := [each.lockid for each in found or () if each.agentInfo == request.agentInfo]:
            client.unlock(UnlockRequest(lockid=left[0]))
            return


def wait_for_lock(client: Client, lock_id: int, table: str, pauses: Iterator[float]) -> LockResponse:
    """Check a lock that waits for others until it is ours, with the given pauses between two checks.

    Raises:
        WaitingForLockException: it still waits after the last pause.
        CommitFailedException: the server gave it up.
    """
    for pause in pauses:
        time.sleep(pause)
        response = client.check_lock(CheckLockRequest(lockid=lock_id))
        if response.state == LockState.ACQUIRED:
            return response
        # Aborted, or not acquired: to wait on would end in a time-out that hides the reason.
        if response.state != LockState.WAITING:
            raise CommitFailedException(f"{table}: Hive lock {lock_id} came to the state {response.state}")

    raise WaitingForLockException(f"{table}: other writers held the Hive lock for too long")


def _expecting(location: str, context: EnvironmentContext) -> EnvironmentContext:
    expectation = {EXPECTED_KEY: METADATA_LOCATION, EXPECTED_VALUE: location}
    return EnvironmentContext(properties={**(context.properties or {}), **expectation})
