"""Keys of a table replaced without reading or writing a data file: a new KEK, KEKs wrapped again, unneeded entries removed. Each is one
metadata commit.

rotate_kek makes a new KEK and puts every snapshot's manifest-list key under it:

    before    master key ─▶ KEK A ─▶ key of snapshot 1, key of snapshot 2       (KEK B, keys of snapshots that are gone)
    after     master key ─▶ KEK C ─▶ key of snapshot 1, key of snapshot 2       under the same key-ids, so snapshots stay as they are

No data file, manifest or manifest list is read or written. What it costs is one unwrap for each old KEK, one wrap, and one commit.

rewrap wraps the KEKs again under the master key's newest version:

    before    master key, version 1 ─▶ KEK A ─▶ …          or: the key that the alias meant then
    after     master key, version 2 ─▶ KEK A ─▶ …          or: the key that it means now

The KEKs, their ids and ages stay, and so does everything below them. AWS (ReEncrypt) and Vault (rewrap) do it inside the service, the
others unwrap and wrap. Either way each KEK is unwrapped twice in this process: before, to see that it opens the key of a snapshot of this
table, and after, to see that the new blob holds it (tablecrypt/kms/resilient.py).

Which KEKs are this table's: metadata.json is not authenticated, so an entry may be the KEK of another table, put there to have it wrapped
for this one's readers.

    under the table's own master key         opens the key of a snapshot; a KEK that no snapshot needs stays as it is
    under another one, with from_key_id      opens the key of a snapshot that is the current one or an ancestor of it, as their
                                             authenticated manifest lists name each other, and the manifests in its list are this table's

An attacker may have put all snapshots and keys of another table into the metadata, and they are each other's ancestors. A list that Iceberg
Java wrote does not say of which table it is. It says where its manifests lie, and only that table's keys make another list. So a list shows
that its KEK is this table's if all its manifests lie in the table's folders, as a pin, the place of the metadata file in the catalog, or
the caller says (`manifests_below`). What the metadata says of its own location shows nothing, nor does a list without manifests.

The KEKs of the records of shares, which properties hold, are rewrapped with them. With from_key_id, one that opens a record of this table:
the record says so, and only who has its KEK could have written it.

prune_keys removes the entries of `encryption-keys` that nothing needs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate, TableUpdate

from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import AuthenticationError, KeyNotFoundError, KmsAccessDeniedError
from tablecrypt.keys.key_ring import EncryptedKey, KeyChain
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.kms.client import GeneratedKey, KeyManagementClient
from tablecrypt.kms.resilient import unwrap_key
from tablecrypt.maintenance._key_commit import commit_keys
from tablecrypt.maintenance.operation import (
    Counted,
    OperationResult,
    Progress,
    ProgressListener,
    check_manifests_below_count,
    check_own_manifests,
    no_progress,
    reload,
)
from tablecrypt.printable import counted, shown
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.shares import NamedRecord, named_records, read_record
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO, name_of
from tablecrypt.table.updates import added_keys, check_snapshots_have_keys, removed_keys, replaced_keys

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RotatedKek(OperationResult):
    """What `rotate_kek` did.

    Attributes:
        new_kek: key-id of the new KEK; None in a dry run, and for a table without snapshots, whose next commit makes one.
        old_keks: key-ids of the KEKs that are gone from the metadata.
        manifest_list_keys: how many manifest-list keys were wrapped again.
        pruned: how many manifest-list keys went because no snapshot needs them.
    """

    new_kek: str | None = field(metadata=shown("new KEK"))
    old_keks: tuple[str, ...] = field(metadata=shown("KEKs that it replaces"))
    manifest_list_keys: int
    pruned: int = field(metadata=shown("manifest-list keys removed, since no snapshot needs them", "count"))

    def summary(self) -> str:
        """Return what was done in one sentence."""
        if not self.old_keks and self.new_kek is None:
            return f"{self.table} has no KEK yet: its next commit makes one."
        replaced = f"{counted(len(self.old_keks), 'KEK', 'KEKs')} of {self.table}"
        keys = counted(self.manifest_list_keys, "manifest-list key", "manifest-list keys")
        return f"{self._did('Replaced', 'Would replace')} {replaced} by a new one, and {self._did('wrapped', 'wrap')} {keys} under it."


@dataclass(frozen=True)
class Rotation:
    """The plan of a rotation."""

    old_keks: tuple[str, ...] = ()
    pruned: tuple[str, ...] = ()
    rewrapped: tuple[EncryptedKey, ...] = ()
    new_kek: EncryptedKey | None = None
    updates: tuple[TableUpdate, ...] = field(default=(), repr=False)


def plan_rotation(
    table: EncryptedTable, new_kek: Callable[[], EncryptedKey], counted: Counted, kept: Iterable[EncryptedSnapshot] | None = None
) -> Rotation:
    """Plan the rotation of a table's newest state.

    Args:
        table: as the catalog has it now.
        new_kek: makes the new KEK when it is first asked, and returns the same one however often others commit in between.
        counted: listener for reports of the manifest-list keys that are wrapped again.
        kept: the snapshots whose keys stay; by default all.

    Raises:
        KeyNotFoundError, PlaintextRefusedError: a snapshot's key is missing.
        AuthenticationError, KmsError: a key cannot be opened, or the KMS refused.
    """
    metadata, manager = table.metadata, table.io.manager
    if not metadata.encryption_keys:
        # A table without keys has no snapshots: its first commit makes a KEK.
        return Rotation()

    snapshots = list(metadata.snapshots if kept is None else kept)
    # Only those that stay: a snapshot that is being shredded may lack its key.
    check_snapshots_have_keys(metadata.model_copy(update={"snapshots": snapshots}))
    ring = metadata.key_ring
    needed = _key_ids(snapshots)
    # Column keys are not pruned here: no snapshot names them, and files of every snapshot may need them.
    pruned = tuple(key.key_id for key in metadata.encryption_keys if key.is_manifest_list_key and key.key_id not in needed)
    if not needed:
        retired = tuple(kek.key_id for kek in ring.keks)
        # Nothing is left to wrap: the next commit makes its KEK.
        return Rotation(retired, pruned, updates=removed_keys((*pruned, *retired)))

    new = new_kek()
    # `shred` plans several rounds with one new KEK, which the table has from the first of them on.
    retired = tuple(kek.key_id for kek in ring.keks if kek != new)
    rewrapped = tuple(manager.reencrypt_manifest_list_key_metadata(ring.chain(key_id), new) for key_id in counted.track(needed))
    updates = (*added_keys([new]), *replaced_keys(rewrapped), *removed_keys((*pruned, *retired)))

    return Rotation(retired, pruned, rewrapped, new, updates)


@checked_arguments()
def rotate_kek(table: Table, dry_run: bool = False, progress: ProgressListener = no_progress) -> RotatedKek:
    """Replace the KEK of an encrypted table.

    For when a KEK may have become known, when a policy wants KEKs younger than 730 days, or when its length is to follow a changed
    `encryption.data-key-length`. It does NOT change a DEK: a user who has opened a manifest with an old KEK keeps the keys of the files
    that it lists (`reencrypt` changes those). It does NOT take the old KEK out of older metadata files, where it still opens what it
    wrapped (`shred` does), and it does NOT touch the master key (rotate that in the KMS, then `rewrap`).

    Others may commit in the meantime: a snapshot that they add is part of the rotation. Killed at any moment, either all of it is done or
    nothing. Calling it again rotates again.

    Args:
        table: an encrypted table. Its state in memory is brought up to date.
        dry_run: only say what would be wrapped again and what would go; the KMS is not asked.
        progress: listener for reports of the manifest-list keys that are wrapped again.

    Raises:
        ConfigurationError: the table is not encrypted.
        KeyNotFoundError: a snapshot's key is missing: `rescue` may find it.
        PlaintextRefusedError: a snapshot has no key-id.
        AuthenticationError, KmsError: a key cannot be opened, or the KMS refused; nothing has changed.
        CommitFailedException: others committed too often in the meantime; nothing has changed.
    """
    if dry_run:
        metadata = reload(table).metadata
        check_snapshots_have_keys(metadata)
        needed = _key_ids(metadata.snapshots)
        keks = tuple(kek.key_id for kek in metadata.key_ring.keks)
        pruned = sum(key.is_manifest_list_key for key in metadata.encryption_keys) - len(needed)
        return RotatedKek(name_of(table), True, None, keks, len(needed), pruned)

    # One KEK however often others commit first: each new one would cost requests to the KMS.
    new_kek, counted = cache(reload(table).io.manager.new_kek), Counted("rotate_kek", "keys", progress)
    plan = commit_keys(table, lambda base: plan_rotation(base, new_kek, counted)).plan
    new = None if plan.new_kek is None else plan.new_kek.key_id

    return RotatedKek(name_of(table), False, new, plan.old_keks, len(plan.rewrapped), len(plan.pruned))


def _key_ids(snapshots: Iterable[EncryptedSnapshot]) -> list[str]:
    """Return each manifest-list key's id once, in the order of the snapshots."""
    return list(dict.fromkeys(snapshot.key_id for snapshot in snapshots if snapshot.key_id is not None))


@dataclass(frozen=True)
class Rewrapped(OperationResult):
    """What `rewrap` did.

    Attributes:
        table_key_id: the table's encryption.key-id, whose newest version wraps the KEKs now.
        keks: key-ids of the KEKs, those of the records of shares among them.
        unneeded: key-ids of the KEKs that no snapshot needs, so that nothing says that they are this table's. They stay as they are.
    """

    table_key_id: str
    keks: tuple[str, ...] = field(metadata=shown("KEKs"))
    unneeded: tuple[str, ...] = field(metadata=shown("KEKs that no snapshot needs, left as they are"))

    def summary(self) -> str:
        """Return what was done in one sentence."""
        if not self.keks:
            return f"{self.table} has no KEK that a snapshot needs: nothing {self._did('was', 'would be')} wrapped."
        keks = f"{counted(len(self.keks), 'KEK', 'KEKs')} of {self.table}"
        return f"{self._did('Wrapped', 'Would wrap')} {keks} again under the newest version of master key {self.table_key_id}."


@dataclass(frozen=True)
class _RewrapPlan:
    keks: tuple[str, ...]
    unneeded: tuple[str, ...]
    updates: tuple[TableUpdate, ...] = field(repr=False)


@checked_arguments()
def rewrap(
    table: Table,
    from_key_id: str | None = None,
    dry_run: bool = False,
    progress: ProgressListener = no_progress,
    manifests_below: Sequence[str] = (),
) -> Rewrapped:
    """Rewrap the KEKs of an encrypted table under the newest version of its master key.

    For before an old version of the master key is disabled or destroyed, and after an alias was moved to another key. It does NOT make new
    KEKs (`rotate_kek` does) and it does NOT change what `encryption.key-id` says, which never changes (`relocate` copies a table under
    another one). Older metadata files, and copies of them elsewhere, keep the KEKs as the old version wrapped them: destroying that version
    is what ends those.

    With `from_key_id` the service is asked to open each KEK with that key and, where it refuses, with the table's own. Without, with the
    table's own alone. A KEK that an attacker put into the metadata is never wrapped for this table: see the module. It needs the permission
    to unwrap with the old key and with the new.

    Killed at any moment, either every KEK is rewrapped or none. Calling it again rewraps again, which does no harm.

    Args:
        table: an encrypted table. Its state in memory is brought up to date.
        from_key_id: the master key that wraps the KEKs now, where an alias was moved: its key id or ARN. Azure: name/version.
        dry_run: only say which KEKs there are; the KMS is not asked.
        progress: listener for reports of the KEKs that are rewrapped.
        manifests_below: with `from_key_id`, folders of this table and of no other in which manifests lie, where neither a pin nor the place
            of its metadata file says that the table lies there.

    Raises:
        ConfigurationError: the table is not encrypted; a manifest lies outside the folders that this client knows as the table's; or there
            is `manifests_below` and no `from_key_id`.
        AuthenticationError: a KEK does not open the snapshots that name it, or comes from `from_key_id` and is not proven to be this
            table's: a branch or tag that the current snapshot does not descend from needs it.
        TamperedFileError: a manifest list, which is read with `from_key_id`, is not what was written.
        ShareRecordError: the property of a share cannot be read; or with `from_key_id`, its record does not open.
        AuthenticationError, KeyNotFoundError, KmsError: the KMS cannot or may not open or wrap a KEK; nothing has changed.
        CommitFailedException: others committed too often in the meantime; nothing has changed.
    """
    check_manifests_below_count(manifests_below, "from_key_id", from_key_id)
    if dry_run:
        loaded = reload(table)
        chains, unneeded = _chains(loaded.metadata)
        of_shares = (named.key.chain.kek.key_id for named in named_records(loaded.metadata))
        return Rewrapped(name_of(table), True, loaded.io.manager.table_key_id, tuple(dict.fromkeys((*chains, *of_shares))), unneeded)

    rewrapper = _Rewrapper(from_key_id, Counted("rewrap", "keys", progress), manifests_below)
    outcome = commit_keys(table, rewrapper.plan)
    if from_key_id is not None and outcome.plan.keks and not rewrapper.has_moved:
        logger.warning("no KEK of %s was wrapped by %r: all were under its own master key already", name_of(table), from_key_id)
    return Rewrapped(name_of(table), False, outcome.base.io.manager.table_key_id, outcome.plan.keks, outcome.plan.unneeded)


_Proof: TypeAlias = Callable[[EncryptedTable, KeyChain, str], bool]
"""Whether a KEK that another master key wraps, which is named, is shown to be the table's."""


class _Rewrapper:
    """Rewraps each KEK once, however often others commit in between."""

    def __init__(self, from_key_id: str | None, counted: Counted, manifests_below: Sequence[str]) -> None:
        self._from_key_id = from_key_id
        self._counted = counted
        self._manifests_below = manifests_below
        self._done: dict[tuple[str, str], EncryptedKey] = {}
        self.has_moved = False
        """Whether the other master key has opened a KEK."""

    def plan(self, table: EncryptedTable) -> _RewrapPlan:
        """Return the exchange of every KEK of the table, and of the records of its shares."""
        chains, unneeded = _chains(table.metadata)
        keks = [self._rewrapped(table, chain, self._is_of_table) for chain in self._counted.track(list(chains.values()))]
        shares = [each.with_kek(self._of_share(table, each)) for each in named_records(table.metadata)]
        renamed = (SetPropertiesUpdate(updates={each.name: each.value for each in shares}),) if shares else ()
        key_ids = dict.fromkeys((*(kek.key_id for kek in keks), *(each.key.chain.kek.key_id for each in shares)))
        return _RewrapPlan(tuple(key_ids), unneeded, (*replaced_keys(keks), *renamed))

    def _of_share(self, table: EncryptedTable, named: NamedRecord) -> EncryptedKey:
        def is_of_share(table: EncryptedTable, chain: KeyChain, from_key_id: str) -> bool:
            # The record says of which table it is, and only who has its KEK could have written it.
            return read_record(table, named, _either(table, from_key_id)).share_uuid == named.share_uuid

        return self._rewrapped(table, named.key.chain, is_of_share)

    def _rewrapped(self, table: EncryptedTable, chain: KeyChain, is_proven: _Proof) -> EncryptedKey:
        # By the wrapped bytes too: another commit may have put another blob under the same id.
        wrapped = (chain.kek.key_id, chain.kek.encrypted_key_metadata)
        if wrapped not in self._done:
            self._done[wrapped] = self._rewrap(table, chain, is_proven)
        return self._done[wrapped]

    def _rewrap(self, table: EncryptedTable, chain: KeyChain, is_proven: _Proof) -> EncryptedKey:
        manager = table.io.manager
        if self._from_key_id is None or not _opens(manager.kms, self._from_key_id, chain.kek):
            # Made after the alias was moved, or rewrapped by an earlier run: the old key may be gone by now.
            return manager.rewrap_kek(chain)

        if not is_proven(table, chain, self._from_key_id):
            # Wrapping the KEK of another table for this one would give its rows to this table's readers.
            raise AuthenticationError(
                f"KEK {chain.kek.key_id} is wrapped by {self._from_key_id}, and neither the current snapshot of {name_of(table)} nor one "
                "that it descends from shows by its manifests that the KEK is this table's: it is not rewrapped. If a branch or tag apart "
                "from main needs it, expire its snapshots first"
            )

        self.has_moved = True
        return manager.rewrap_kek(chain, self._from_key_id)

    def _is_of_table(self, table: EncryptedTable, chain: KeyChain, from_key_id: str) -> bool:
        return chain.kek.key_id in self._proven_keks(table, from_key_id)

    def _proven_keks(self, table: EncryptedTable, from_key_id: str) -> set[str]:
        """Return the KEKs of the current snapshot and its ancestors, as their authenticated manifest lists name each other.

        Raises:
            AuthenticationError, TamperedFileError, KeyNotFoundError, KmsError: the current snapshot cannot be read.
        """
        # Some lists may be under the old master key and some under the table's own: reading them takes either.
        metadata, ring, io = table.metadata, table.metadata.key_ring, table.io
        opening = TableFileIO(io.inner, EncryptionManager(_either(table, from_key_id), io.manager.table_key_id))
        proven: set[str] = set()
        snapshot = metadata.current_snapshot()
        wanted = {kek.key_id for kek in ring.keks}

        # Parents are those of the authenticated headers: metadata.json could name any snapshot as one.
        while isinstance(snapshot, EncryptedSnapshot) and snapshot.key_id is not None and not wanted <= proven:
            chain = ring.chain(snapshot.key_id)
            manifests = snapshot.manifests(opening)
            # A list without manifests lies in no folder, and so shows nothing.
            if manifests:
                check_own_manifests(table, (manifest.manifest_path for manifest in manifests), self._manifests_below)
                proven.add(chain.kek.key_id)
            parent_snapshot_id = snapshot.known_header(opening).parent_snapshot_id
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
            # Which of the two wrapped a KEK, only the service can tell.
            return self._inner.unwrap_key(wrapped_key, wrapping_key_id)

    def close(self) -> None:
        """Leave the inner client open: it is the table's."""


def _either(table: EncryptedTable, from_key_id: str) -> EitherMasterKey:
    return EitherMasterKey(table.io.manager.kms, from_key_id)


def _opens(kms: KeyManagementClient, from_key_id: str, kek: EncryptedKey) -> bool:
    try:
        unwrap_key(kms, kek.wrapped_bytes(), from_key_id)
    except (AuthenticationError, KeyNotFoundError, KmsAccessDeniedError) as error:
        logger.info("KEK %s is not wrapped by %s, trying the table's own key: %s", kek.key_id, from_key_id, error)
        return False
    return True


def _chains(metadata: EncryptedTableMetadata) -> tuple[dict[str, KeyChain], tuple[str, ...]]:
    """Return for each KEK that a snapshot needs one manifest-list key under it, and the ids of the other KEKs."""
    ring = metadata.key_ring
    # A snapshot whose key is lost is left to `rescue`: it must not keep the other KEKs from being rewrapped.
    chains = [ring.chain(snapshot.key_id) for snapshot in metadata.snapshots if snapshot.key_id is not None and snapshot.key_id in ring]
    by_kek = {chain.kek.key_id: chain for chain in chains}
    return by_kek, tuple(kek.key_id for kek in ring.keks if kek.key_id not in by_kek)


@dataclass(frozen=True)
class PrunedKeys(OperationResult):
    """What `prune_keys` did.

    Attributes:
        keks: key-ids of the KEKs that went.
        manifest_list_keys: key-ids of the manifest-list keys that went.
        declarations: key-ids of the declarations of protected columns that went, whose column keys are gone.
        kept: how many entries are left.
    """

    keks: tuple[str, ...] = field(metadata=shown("KEKs"))
    manifest_list_keys: tuple[str, ...] = field(metadata=shown("manifest-list keys"))
    declarations: tuple[str, ...] = field(metadata=shown("declarations"))
    kept: int

    @property
    def removed(self) -> int:
        """How many entries went."""
        return len(self.keks) + len(self.manifest_list_keys) + len(self.declarations)

    def summary(self) -> str:
        """Return what was done in one sentence."""
        left = f"{counted(self.kept, 'entry', 'entries')} of encryption-keys {'stays' if self.kept == 1 else 'stay'}"
        if not self.removed:
            return f"Every key of {self.table} is needed: nothing {self._did('was', 'would be')} removed, and {left}."
        removed = counted(self.removed, "key", "keys")
        return f"{self._did('Removed', 'Would remove')} {removed} of {self.table} that no snapshot needs; {left}."


@dataclass(frozen=True)
class _PrunePlan:
    unneeded: tuple[EncryptedKey, ...]
    kept: int

    @property
    def updates(self) -> tuple[TableUpdate, ...]:
        """The updates; none when every entry is needed."""
        return removed_keys(key.key_id for key in self.unneeded)


@checked_arguments()
def prune_keys(table: Table, dry_run: bool = False, progress: ProgressListener = no_progress) -> PrunedKeys:
    """Remove the entries of an encrypted table's encryption-keys that no snapshot needs.

    For tables whose snapshots Iceberg Java expires; expiry through this package prunes by itself. It does NOT make what the keys opened
    unreadable: older metadata files still hold them (`shred` takes them out there too). The KMS gets no request.

    Others may commit in the meantime, and no commit loses its key: keys are removed only from the state that was inspected, and a commit
    that is still under way wraps its own key again. If the process is killed, either all keys are removed or none.

    Args:
        table: an encrypted table. Its state in memory is brought up to date.
        dry_run: only report what would be removed.
        progress: called once with all removed entries, since one commit removes them.

    Raises:
        ConfigurationError: the table is not encrypted.
        CommitFailedException: others committed too often in the meantime; nothing has changed.
    """
    plan = _prune_plan(reload(table)) if dry_run else commit_keys(table, _prune_plan).plan
    done = PrunedKeys(
        *(name_of(table), dry_run),
        keks=tuple(key.key_id for key in plan.unneeded if key.is_wrapped_by_kms),
        manifest_list_keys=tuple(key.key_id for key in plan.unneeded if key.is_manifest_list_key),
        declarations=tuple(key.key_id for key in plan.unneeded if key.is_column_declaration),
        kept=plan.kept,
    )
    if not dry_run:
        progress(Progress("prune_keys", done.removed, done.removed, "keys"))
    return done


def _prune_plan(table: EncryptedTable) -> _PrunePlan:
    metadata = table.metadata
    ring = metadata.key_ring
    # Column keys always count as needed: files name them, and no snapshot does.
    needed = ring.needed_by(snapshot.key_id for snapshot in metadata.snapshots if snapshot.key_id is not None)
    unneeded = tuple(key for key in metadata.encryption_keys if key.key_id not in needed)
    return _PrunePlan(unneeded, kept=len(metadata.encryption_keys) - len(unneeded))
