"""Wrapping a table's KEKs anew under the master key's newest version, in one metadata commit.

    before    master key, version 1 ─▶ KEK A ─▶ …          or: the key that the alias meant then
    after     master key, version 2 ─▶ KEK A ─▶ …          or: the key that it means now

The KEKs, their ids and ages stay, and so does everything below them. AWS (ReEncrypt) and Vault (rewrap) do it inside the service, the
others unwrap and wrap. Either way each KEK is unwrapped twice in this process: before, to see that it opens the key of a snapshot of this
table, and after, to see that the new blob holds it (tablecrypt/kms/new_blobs.py).

Which KEKs are this table's: metadata.json is not authenticated, so an entry may be the KEK of another table, put there to have it wrapped
for this one's readers.

    under the table's own master key         opens the key of a snapshot; a KEK that no snapshot needs stays as it is
    under another one, with from_key_id      opens the key of a snapshot whose authenticated manifest list is an ancestor of the current one
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.update import TableUpdate

from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import AuthenticationError, KeyNotFoundError, KmsAccessDeniedError
from tablecrypt.keys.encrypted_key import EncryptedKey
from tablecrypt.keys.key_ring import KeyChain
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.kms.client import GeneratedKey, KeyManagementClient
from tablecrypt.kms.new_blobs import unwrap_key
from tablecrypt.maintenance.encrypted import encrypted_metadata_of, name_of, newest, table_io
from tablecrypt.maintenance.key_commit import commit_keys, replaced_key
from tablecrypt.maintenance.progress import Counted, ProgressListener, unheard
from tablecrypt.maintenance.results import VerbResult
from tablecrypt.table.encrypted_table import EncryptedTable
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.table_file_io import TableFileIO

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rewrapped(VerbResult):
    """What `rewrap` did.

    Attributes:
        master_key: the table's encryption.key-id, whose newest version wraps the KEKs now.
        keks: key-ids of the KEKs.
        unneeded: key-ids of the KEKs that no snapshot needs, so that nothing says that they are this table's. They stay as they are.
    """

    master_key: str
    keks: tuple[str, ...]
    unneeded: tuple[str, ...]


@dataclass(frozen=True)
class _Plan:
    keks: tuple[str, ...]
    unneeded: tuple[str, ...]
    updates: tuple[TableUpdate, ...] = field(repr=False)


@checked_arguments()
def rewrap(table: Table, from_key_id: str | None = None, dry_run: bool = False, progress: ProgressListener = unheard) -> Rewrapped:
    """Wrap every KEK of an encrypted table anew under the newest version of its master key.

    For before an old version of the master key is disabled or destroyed, and after an alias was moved to another key. It does NOT make new
    KEKs (`rotate_kek` does) and it does NOT change what `encryption.key-id` says, which never changes (`relocate` copies a table under
    another one). Older metadata files, and copies of them elsewhere, keep the KEKs as the old version wrapped them: destroying that version
    is what ends those.

    With `from_key_id` the service is asked to open each KEK with that key and, where it refuses, with the table's own. Without, with the
    table's own alone. A KEK that somebody put into the metadata is never wrapped for this table: see the module. It needs the permission to
    unwrap with the old key and with the new.

    Killed at any moment, either every KEK is rewrapped or none. Calling it again rewraps again, which does no harm.

    Args:
        table: an encrypted table. Its state in memory is brought up to date.
        from_key_id: the master key that wraps the KEKs now, where an alias was moved: its key id or ARN. Azure: name/version.
        dry_run: only say which KEKs there are; the KMS is not asked.
        progress: hears of the KEKs that are rewrapped.

    Raises:
        ConfigurationError: the table is not encrypted.
        AuthenticationError: a KEK does not open the snapshots that name it, or comes from `from_key_id` and is not proven to be this
            table's: a branch or tag that the current snapshot does not descend from needs it.
        TamperedFileError: a manifest list, which is read with `from_key_id`, is not what was written.
        AuthenticationError, KeyNotFoundError, KmsError: the KMS cannot or may not open or wrap a KEK; nothing has changed.
        CommitFailedException: others committed too often meanwhile; nothing has changed.
    """
    if dry_run:
        loaded = newest(table)
        chains, unneeded = _chains(encrypted_metadata_of(loaded))
        return Rewrapped(name_of(table), True, table_io(loaded).manager.table_key_id, tuple(chains), unneeded)
    rewrapper = _Rewrapper(from_key_id, Counted("rewrap", "keys", progress))
    landed = commit_keys(table, rewrapper.plan)
    return Rewrapped(name_of(table), False, table_io(landed.base).manager.table_key_id, landed.plan.keks, landed.plan.unneeded)


class _Rewrapper:
    """Rewraps each KEK once, however often others commit in between."""

    def __init__(self, from_key_id: str | None, counted: Counted) -> None:
        self._from_key_id = from_key_id
        self._counted = counted
        self._done: dict[tuple[str, str], EncryptedKey] = {}

    def plan(self, table: EncryptedTable) -> _Plan:
        """Return the exchange of every KEK of the table."""
        chains, unneeded = _chains(encrypted_metadata_of(table))
        keks = [self._rewrapped(table, chain) for chain in self._counted.over(list(chains.values()))]
        updates = tuple(update for kek in keks for update in replaced_key(kek))
        return _Plan(tuple(kek.key_id for kek in keks), unneeded, updates)

    def _rewrapped(self, table: EncryptedTable, chain: KeyChain) -> EncryptedKey:
        wrapped = (chain.kek.key_id, chain.kek.encrypted_key_metadata)
        if wrapped not in self._done:
            self._done[wrapped] = self._rewrap(table, chain)
        return self._done[wrapped]

    def _rewrap(self, table: EncryptedTable, chain: KeyChain) -> EncryptedKey:
        manager = table_io(table).manager
        if self._from_key_id is None or not _opens(manager.kms, self._from_key_id, chain.kek):
            # Made after the alias was moved, or rewrapped by an earlier run: the old key may be gone by now.
            return manager.rewrap_kek(chain)
        if chain.kek.key_id not in self._proven_keks(table, self._from_key_id):
            raise AuthenticationError(
                f"KEK {chain.kek.key_id} is wrapped by {self._from_key_id}, and neither the current snapshot of {name_of(table)} nor one "
                "that it descends from shows that the KEK is this table's: it is not rewrapped. If a branch or tag apart from main needs "
                "it, expire its snapshots first"
            )
        return manager.rewrap_kek(chain, self._from_key_id)

    def _proven_keks(self, table: EncryptedTable, from_key_id: str) -> set[str]:
        """Return the KEKs of the current snapshot and its ancestors, as their authenticated manifest lists name each other.

        Raises:
            AuthenticationError, TamperedFileError, KeyNotFoundError, KmsError: the current snapshot cannot be read.
        """
        metadata, io = encrypted_metadata_of(table), table_io(table)
        either = EitherMasterKey(io.manager.kms, from_key_id)
        opener = EncryptionManager(either, io.manager.table_key_id)
        proven: set[str] = set()
        snapshot = metadata.current_snapshot()
        wanted = {kek.key_id for kek in metadata.key_ring.keks}
        while isinstance(snapshot, EncryptedSnapshot) and snapshot.key_id is not None and not wanted <= proven:
            chain = metadata.key_ring.chain(snapshot.key_id)
            parent_snapshot_id = snapshot.authenticated_header(TableFileIO(io.inner, opener)).parent_snapshot_id
            proven.add(chain.kek.key_id)
            snapshot = None if parent_snapshot_id is None else metadata.snapshot_by_id(parent_snapshot_id)
        return proven


class EitherMasterKey:
    """A client that unwraps with another master key what the one that it is asked for does not open."""

    def __init__(self, inner: KeyManagementClient, other_key_id: str) -> None:
        self._inner = inner
        self._other_key_id = other_key_id

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        """As the inner client."""
        return self._inner.wrap_key(key, wrapping_key_id)

    def generate_key(self, wrapping_key_id: str, length: int = 16) -> GeneratedKey:
        """As the inner client."""
        return self._inner.generate_key(wrapping_key_id, length)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        """Unwrap with the one or the other."""
        try:
            return self._inner.unwrap_key(wrapped_key, self._other_key_id)
        except (AuthenticationError, KeyNotFoundError, KmsAccessDeniedError):
            return self._inner.unwrap_key(wrapped_key, wrapping_key_id)

    def close(self) -> None:
        """Leave the inner client open: it is the table's."""


def _opens(kms: KeyManagementClient, from_key_id: str, kek: EncryptedKey) -> bool:
    try:
        unwrap_key(kms, kek.wrapped_bytes(), from_key_id)
    except (AuthenticationError, KeyNotFoundError, KmsAccessDeniedError) as error:
        logger.info("KEK %s is not wrapped by %s, the table's own key is asked: %s", kek.key_id, from_key_id, error)
        return False
    return True


def _chains(metadata: EncryptedTableMetadata) -> tuple[dict[str, KeyChain], tuple[str, ...]]:
    """Return for each KEK that a snapshot needs one manifest-list key under it, and the ids of the other KEKs."""
    ring = metadata.key_ring
    chains = [ring.chain(snapshot.key_id) for snapshot in metadata.snapshots if snapshot.key_id is not None and snapshot.key_id in ring]
    by_kek = {chain.kek.key_id: chain for chain in chains}
    return by_kek, tuple(kek.key_id for kek in ring.keks if kek.key_id not in by_kek)
