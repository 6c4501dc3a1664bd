"""The keys of a table's protected columns: made, opened and kept in `encryption-keys`, and never under the table's own master key.

    column KEK     encrypted-by-id = the column's master key in the KMS; encrypted-key-metadata = what the KMS returned for wrap;
                   properties = {"KEY_TIMESTAMP": "<milliseconds>", "tablecrypt.column-kek": "1"}
    column key     encrypted-by-id = the column KEK's key-id; encrypted-key-metadata = nonce (12) | column key encrypted (16, 24 or 32) |
                   tag (16); properties = {"tablecrypt.column-key": "<field id>", "tablecrypt.of-table": "<table-uuid>"}
                   key: the column KEK; AAD, all as UTF-8:
                   "tablecrypt column key" | " of " | table-uuid | 0 | KEY_TIMESTAMP | 0 | field id | 0 | key-id
    mask key       as a column key, and marked: properties = {…, "tablecrypt.mask-key": "1"}; AAD: "tablecrypt mask key" | … as above
    given DEKs     likewise: properties = {…, "tablecrypt.given-deks": "1"}; AAD: "tablecrypt given DEKs" | … as above (given_deks.py)

Entries of early builds name no table: their AAD lacks " of ", table-uuid and the 0 behind it. They count in any table. Rotating the column
KEKs ends that.

One column KEK serves all columns under one master key, so that the KMS is asked once per master key, process and hour, however many files
are written or read: its client remembers what it unwrapped, and refusals.py remembers what the KMS refused.

Rules:
    1. A column key opens a column's DEK only if both name the same field, and the KEK above it is under the master key that the table's
       properties name for the column, now or formerly.
    2. It wraps a DEK only if the column's master key is still that, and its KEK is under its lifespan; else a new one is made. One that a
       writer made who may not unwrap wraps DEKs of his process alone: write_only_keys.py.
    3. The `hash` mask of a column has one key under each master key, made once and used whatever the age of its KEK, so that equal values
       have equal hashes in all files. Of two writers who make it at the same time, the one who commits first wins; the other's commit is
       refused. Shredding the column destroys it.
    4. Beside keys of this table, one that was made for another table opens nothing and nothing is written under it. Else whoever may commit
       could bring in a file of that table with its keys, and have its values shown by the mask of this one. A copy of a table, made by
       somebody who may not open its column keys, has those of the other table alone. New ones are made for that table as well, until
       somebody who may open them declares the column: column_declarations.py.

No operation here writes. What was made is returned by `new_entries` for the commit of the files that were written under it. An entry that
was once in metadata, or was offered to a commit, is never brought again for other files: a column key that is gone was shredded.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pyiceberg.exceptions import CommitFailedException

from tablecrypt._per_process import PerProcess
from tablecrypt.crypto.aes_gcm import NONCE_LENGTH, AesGcm
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import (
    AuthenticationError,
    ColumnKeyDeniedError,
    ConfigurationError,
    FormatError,
    KeyIdChangedError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    MasterKeyRefusedError,
)
from tablecrypt.keys.column_keys import ProtectedColumn
from tablecrypt.keys.column_lookup import KeyedColumn, column_key_entry, kek_of
from tablecrypt.keys.given_deks import GivenDeks
from tablecrypt.keys.key_ring import (
    COLUMN_KEK,
    COLUMN_KEK_VERSION,
    COLUMN_KEY,
    GIVEN_DEKS,
    KEY_TIMESTAMP,
    MASK_KEY,
    OF_TABLE,
    WRITE_ONLY,
    EncryptedKey,
    KeyRing,
    may_wrap,
)
from tablecrypt.keys.refusals import refusals
from tablecrypt.keys.write_only_keys import own_keys, wrap_write_only
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.resilient import rewrap_key, unwrap_kek, wrap_for_another, wrap_key

_AAD: Final = b"tablecrypt column key"
_AAD_OF_MASK_KEY: Final = b"tablecrypt mask key"
_AAD_OF_GIVEN_DEKS: Final = b"tablecrypt given DEKs"
_KEY_ID_LENGTH: Final = 16
_NO_MARK: Final[Mapping[str, str]] = {}
_MASK_MARK: Final[Mapping[str, str]] = {MASK_KEY: "1"}


@dataclass
class PendingKeys:
    """The entries that were made here and may still have to be committed, and which files' commits bring them.

    Attributes:
        made: entries by id.
        offered: ids of those that were offered to a commit.
        used: by AAD prefix of a file, the ids of the entries that its commit has to bring.
        lock: held by who reads or changes them, also while the KMS is asked. A forked child has one of its own, which nobody holds.
    """

    made: dict[str, EncryptedKey] = field(default_factory=dict)
    offered: set[str] = field(default_factory=set)
    used: dict[bytes, set[str]] = field(default_factory=dict)
    lock: PerProcess[threading.RLock] = field(default_factory=partial(PerProcess, threading.RLock))

    def __reduce__(self) -> tuple[type[PendingKeys], tuple[()]]:
        # A copy in another process would bring entries that this one brings as well.
        return PendingKeys, ()

    def keep(self, entry: EncryptedKey) -> None:
        """Keep an entry that was made here."""
        with self.lock.get():
            self.made[entry.key_id] = entry

    def bring_with(self, aad_prefix: bytes, key_id: str) -> None:
        """Have the commit of the file with this AAD prefix bring a key that was made here, if metadata lacks it then."""
        with self.lock.get():
            self.used[aad_prefix] = {*self.used.get(aad_prefix, ()), key_id}

    def bring_nothing_with(self, aad_prefix: bytes) -> None:
        """Forget what the commit of the file with this AAD prefix has to bring: it was committed, and its columns are carried over."""
        with self.lock.get():
            self.used.pop(aad_prefix, None)

    def with_ring(self, ring: KeyRing) -> KeyRing:
        """Return the keys of metadata, and those made here that no commit was offered. The caller holds the lock."""
        self.forget(ring)
        return ring.with_others(entry for key_id, entry in self.made.items() if key_id not in self.offered)

    def new_entries(self, ring: KeyRing, aad_prefixes: Iterable[bytes]) -> tuple[EncryptedKey, ...]:
        """Return the entries that files written here need and metadata lacks, KEKs first.

        Args:
            ring: the keys of the metadata that a commit is based on.
            aad_prefixes: of the files that the commit adds.

        Raises:
            KeyNotFoundError: a column was shredded while a file was written under its key; writing it again makes a new key.
            CommitFailedException: another writer made the key of a `hash` mask first; writing the files again uses that.
        """
        with self.lock.get():
            used = {key_id for prefix in aad_prefixes for key_id in self.used.get(prefix, ()) if key_id not in ring}
            # `forget` dropped them when metadata had them. That metadata lacks them now means a shred.
            if gone := sorted(used - self.made.keys()):
                raise KeyNotFoundError(f"column key {gone[0]}, under which files were written, is gone from the table: write them again")
            self._check_first(ring, used)
            return self.offer(ring, used)

    def _check_first(self, ring: KeyRing, key_ids: Iterable[str]) -> None:
        """Refuse mask keys that were made here where the table has got others meanwhile (rule 3)."""
        for entry in (self.made[key_id] for key_id in key_ids if self.made[key_id].is_mask_key):
            kek = self.made.get(entry.encrypted_by_id or "") or ring.entry(entry.encrypted_by_id or "")
            if (first := KeyedColumn(ring, entry.field_id, kek.encrypted_by_id or "").mask_key()) is not None:
                raise CommitFailedException(
                    f"another writer has made the key of the hash mask of {ring.column(entry.field_id)} ({first.key_id}) since this "
                    "write began: equal values would have different hashes. Load the table and write the rows again"
                )

    def offer(self, ring: KeyRing, key_ids: set[str]) -> tuple[EncryptedKey, ...]:
        """Return column keys that were made here and the KEKs that the ring lacks of them, KEKs first; neither is offered again."""
        entries = [self.made[key_id] for key_id in sorted(key_ids)]
        keks = sorted({str(entry.encrypted_by_id) for entry in entries if entry.encrypted_by_id not in ring})
        if gone := [kek for kek in keks if kek not in self.made]:
            raise CommitFailedException(f"column KEK {gone[0]}, under which the commit's column keys are, is gone from the table")
        # A commit whose answer is lost may have been made: an entry that is gone later was perhaps shredded, and stays gone.
        self.offered |= {*key_ids, *keks}
        return (*(self.made[kek] for kek in keks), *entries)

    def forget(self, ring: KeyRing) -> None:
        """Forget what metadata holds. It is no longer ours to bring: were it gone the next time, it was shredded."""
        self.made = {key_id: entry for key_id, entry in self.made.items() if key_id not in ring}


class ColumnKeyMaker:
    """Makes and opens the column KEKs and column keys of one table. Holds no key in the clear.

    Args:
        kms: the client that wraps and unwraps KEKs, and remembers what it unwrapped.
        table_key_id: the table's own master key, under which no column key is accepted.
        data_key_length: bytes of every key made here.
        kek_lifespan_ms: age at which a column KEK wraps nothing new.
        now_ms, random, clock: wall clock in milliseconds, source of randomness, and a clock in seconds that refusals are told by.
        pending: what other makers of this table's keys have made in this process; None where there is no other.
    """

    def __init__(
        self,
        kms: KeyManagementClient,
        table_key_id: str,
        data_key_length: int,
        kek_lifespan_ms: int,
        now_ms: Callable[[], int],
        random: Callable[[int], bytes],
        clock: Callable[[], float] = time.monotonic,
        pending: PendingKeys | None = None,
    ) -> None:
        self.kms = kms
        self.table_key_id = table_key_id
        self.data_key_length = data_key_length
        self.kek_lifespan_ms = kek_lifespan_ms
        self.now_ms = now_ms
        self.random = random
        self.clock = clock
        self.pending = PendingKeys() if pending is None else pending

    def current_column_key(self, column: KeyedColumn, aad_prefix: bytes | None = None) -> tuple[str, Secret]:
        """Return the id of the key that a column's DEKs are wrapped under now, and that key; make one where there is none (rule 2).

        Args:
            column: among the keys of the metadata that is written to, under its master key now.
            aad_prefix: of the file that is written under it, so that the file's commit brings the key; who may wrap and not unwrap gets a
                key for a file, and none without.

        Raises:
            ColumnKeyDeniedError, KmsError: the KMS refuses the master key, or failed.
            AuthenticationError: an entry was changed.
        """
        with self.pending.lock.get():
            both = column.among(self.pending.with_ring(column.ring))
            if aad_prefix is None:
                return self._shared(both)
            key_id, key = self._for_file(both)
            self.pending.bring_with(aad_prefix, key_id)
            return key_id, key

    def own_key(self, column: KeyedColumn) -> tuple[str, Secret] | None:
        """Return the id and the value of the key under which this process writes a column that it may not read; None where it has none.

        Asks no KMS.
        """
        own = own_keys(self.kms).among(self._usable(column, write_only=True))
        return None if own is None else (own[0].key_id, own[1])

    def mask_key(self, column: KeyedColumn) -> tuple[str, Secret]:
        """Return the id and the value of the key of a column's `hash` mask; make one where there is none (rule 3).

        Raises as `current_column_key`.
        """
        with self.pending.lock.get():
            both = column.among(self.pending.with_ring(column.ring))
            # Metadata's first: against it one that was made here has come too late (rule 3).
            found = column.mask_key() or both.mask_key()
            return self._make(both, _MASK_MARK) if found is None else (found.key_id, self.open(both.ring, found))

    def _for_file(self, column: KeyedColumn) -> tuple[str, Secret]:
        # First, as it asks no KMS, which would refuse a user who may only wrap again and again.
        if (own := self.own_key(column)) is not None:
            return own

        try:
            return self._shared(column)
        except ColumnKeyDeniedError as denied:
            try:
                return self._make_write_only(column)
            # This user may not wrap either, so the first refusal says which permission is missing.
            except (KmsAccessDeniedError, KeyNotFoundError, MasterKeyRefusedError) as refused:
                raise denied from refused

    def _shared(self, column: KeyedColumn) -> tuple[str, Secret]:
        found = next(self._usable(column), None)
        return self._make(column) if found is None else (found.key_id, self.open(column.ring, found))

    def column_key(self, ring: KeyRing, key_id: str, field_id: int, master_key_ids: Sequence[str]) -> Secret:
        """Return the column key of this id (rule 1).

        Raises:
            KeyNotFoundError, KeyIdChangedError, AuthenticationError: as `column_key_entry`.
            AuthenticationError, FormatError: it was changed.
            ColumnKeyDeniedError, KmsError: the KMS refuses, or failed.
        """
        return self.open(ring, column_key_entry(ring, key_id, field_id, master_key_ids))

    def lacks(self, ring: KeyRing, columns: Iterable[ProtectedColumn]) -> bool:
        """Whether metadata has no key that new values of one of these columns may go under, or none for its hash mask. Asks no KMS."""
        return any(self._lacks(KeyedColumn.of(column, ring), column.mask.needs_key) for column in columns)

    def _lacks(self, column: KeyedColumn, has_mask_key: bool) -> bool:
        return (has_mask_key and column.mask_key() is None) or next(self._usable(column), None) is None

    def entries_for(self, ring: KeyRing, columns: Iterable[ProtectedColumn], *, write_only: bool = False) -> tuple[EncryptedKey, ...]:
        """Return the entries that metadata lacks for new values of these columns, KEKs first: for a commit before worker processes write.

        Args:
            ring: the keys of that metadata.
            columns: the columns.
            write_only: make keys of this process's own where this user may wrap and not unwrap.

        Raises as `current_column_key`.
        """
        with self.pending.lock.get():
            current, take = set[str](), self._for_file if write_only else self._shared
            for column in columns:
                current.add(take(KeyedColumn.of(column, self.pending.with_ring(ring)))[0])
                if column.mask.needs_key:
                    current.add(self.mask_key(KeyedColumn.of(column, ring))[0])
            return self.pending.offer(ring, {key_id for key_id in current if key_id not in ring})

    def open(self, ring: KeyRing, entry: EncryptedKey) -> Secret:
        """Return the key in a column key's entry. Raises as `column_key`."""
        kek = kek_of(ring, entry)
        opened = AesGcm(self.open_kek(ring, kek, entry.field_id))
        try:
            return Secret(opened.decrypt(entry.wrapped_bytes(), _aad_of(kek, entry)))
        except AuthenticationError as error:
            raise AuthenticationError(
                f"{entry.kind} {entry.key_id} does not open under column KEK {kek.key_id}: one of the two entries was changed"
            ) from error

    def open_kek(self, ring: KeyRing, kek: EncryptedKey, field_id: int) -> Secret:
        """Return a column KEK, asking the KMS where its client does not remember it.

        Args:
            ring: names the column for the message.
            kek: its entry.
            field_id: the column that it is opened for, for the message.

        Raises:
            ColumnKeyDeniedError: the KMS refuses, or has refused within REFUSAL_SECONDS.
            KeyIdChangedError: the entry says that the table's own master key wraps it.
            MasterKeyMismatchError: another master key of that id wrapped it, or the entry was changed.
        """
        master_key_id = self.check_column_kek(kek)
        column = KeyedColumn(ring, field_id, master_key_id)
        known, now = refusals(), self.clock()
        blob = kek.wrapped_bytes()
        if (reason := known.known(self.kms, blob, master_key_id, now)) is not None:
            raise column.denied(reason)

        try:
            return unwrap_kek(self.kms, blob, master_key_id, f"column KEK {kek.key_id} of {ring.column(field_id)}")
        except (KmsAccessDeniedError, KeyNotFoundError, MasterKeyRefusedError) as error:
            known.add(self.kms, blob, master_key_id, now, str(error))
            raise column.denied(str(error)) from error

    def check_column_kek(self, kek: EncryptedKey) -> str:
        """Return the master key of a column KEK.

        Raises:
            KeyIdChangedError: it is the table's own.
            FormatError: the entry is no column KEK of a version that this release knows.
        """
        version = (kek.properties or {}).get(COLUMN_KEK)
        if version != COLUMN_KEK_VERSION or not kek.encrypted_by_id:
            raise FormatError(f"encryption key {kek.key_id} is no column KEK: its {COLUMN_KEK} is {str(version)[:24]!r}")
        if kek.encrypted_by_id == self.table_key_id:
            raise KeyIdChangedError(
                f"column KEK {kek.key_id} is wrapped by {self.table_key_id!r}, the table's own master key, and protects no column from the "
                "table's readers: somebody changed the entry"
            )

        return kek.encrypted_by_id

    def new_kek(self, master_key_id: str) -> EncryptedKey:
        """Make a column KEK and have the KMS wrap it.

        Raises:
            ConfigurationError: the master key is the table's own.
            KmsError: the KMS refused to wrap or unwrap it, or answered wrongly.
        """
        self._check_apart(master_key_id)
        return self._kek_entry(wrap_key(self.kms, Secret(self.random(self.data_key_length)), master_key_id), master_key_id)

    def given(self, master_key_id: str, deks: Mapping[tuple[int, str], GivenDeks], table_uuid: str) -> tuple[EncryptedKey, ...]:
        """Return entries by which whoever may use another's master key opens columns in some files: a new column KEK, and lists of DEKs.

        The right to unwrap under that master key is not needed. The KEK is marked as one that its maker alone would write under: what is
        written there later is none of his business, and he has seen the KEK.

        Args:
            master_key_id: the other's.
            deks: by field id and by the id of the column key that the files name.
            table_uuid: of the other's table.

        Raises:
            ConfigurationError: the master key is the table's own.
            KmsError: the KMS refused to wrap the KEK, or answered wrongly.
        """
        self._check_apart(master_key_id)
        secret = Secret(self.random(self.data_key_length))
        kek = self._kek_entry(wrap_for_another(self.kms, secret, master_key_id), master_key_id, {WRITE_ONLY: "1"})
        given = {GIVEN_DEKS: "1", OF_TABLE: table_uuid}
        return (kek, *(self._entry(key_id, field_id, kek, secret, found.encode(), given) for (field_id, key_id), found in deks.items()))

    def under(self, ring: KeyRing, entry: EncryptedKey, kek: EncryptedKey) -> EncryptedKey:
        """Return a column key's entry under another column KEK. Its id stays, since files name it. Raises as `column_key`."""
        # A key of an early build is of this table from now on.
        return self._again(ring, entry, kek, {**_of(ring.table_uuid), **_mark(entry)})

    def for_table(self, ring: KeyRing, entry: EncryptedKey, table_uuid: str) -> EncryptedKey:
        """Return a column key's entry as one that was made for a table: this one, or a copy of it. Raises as `column_key`."""
        return self._again(ring, entry, kek_of(ring, entry), {**_mark(entry), **_of(table_uuid)})

    def rewrapped(self, ring: KeyRing, kek: EncryptedKey) -> EncryptedKey:
        """Return a column KEK's entry, wrapped by the newest version of its master key, after it has opened the column keys below it.

        Args:
            ring: with the column keys.
            kek: the entry.

        Raises:
            AuthenticationError: it is not wrapped by that master key, or does not open a column key.
            KmsError: the KMS refused one of the two keys, or answered wrongly.
        """
        master_key_id = self.check_column_kek(kek)
        old = kek.wrapped_bytes()
        key = unwrap_kek(self.kms, old, master_key_id, f"column KEK {kek.key_id}")
        # Proof that this KEK is that of these keys, before its old wrapping is replaced.
        for entry in (entry for entry in ring.column_keys if entry.encrypted_by_id == kek.key_id):
            AesGcm(key).decrypt(entry.wrapped_bytes(), _aad_of(kek, entry))
        wrapped = rewrap_key(self.kms, old, master_key_id, master_key_id, key)

        return kek.model_copy(update={"encrypted_key_metadata": _base64(wrapped)})

    def _again(self, ring: KeyRing, entry: EncryptedKey, kek: EncryptedKey, mark: Mapping[str, str]) -> EncryptedKey:
        key = self.open(ring, entry)
        return self._entry(entry.key_id, entry.field_id, kek, self.open_kek(ring, kek, entry.field_id), key, mark)

    def _usable(self, column: KeyedColumn, write_only: bool = False) -> Iterator[EncryptedKey]:
        return (entry for entry, kek in column.column_keys(write_only=write_only) if self._may_wrap(kek, column.master_key_id))

    def _may_wrap(self, kek: EncryptedKey, master_key_id: str) -> bool:
        return kek.encrypted_by_id == master_key_id and may_wrap(kek, self.now_ms(), self.kek_lifespan_ms)

    def _make(self, column: KeyedColumn, mark: Mapping[str, str] = _NO_MARK) -> tuple[str, Secret]:
        keks = column.ring.column_keks
        # A write-only KEK is out of the question as well: its maker would open every key below it.
        kek = next((kek for kek in keks if not kek.is_write_only and self._may_wrap(kek, column.master_key_id)), None)
        if kek is None:
            try:
                kek = self.new_kek(column.master_key_id)
            except (KmsAccessDeniedError, KeyNotFoundError, MasterKeyRefusedError) as error:
                raise column.denied(str(error)) from error
            self.pending.keep(kek)

        entry, key = self._new_entry(column, kek, self.open_kek(column.ring, kek, column.field_id), mark)
        return entry.key_id, key

    def _make_write_only(self, column: KeyedColumn) -> tuple[str, Secret]:
        self._check_apart(column.master_key_id)
        own = own_keys(self.kms)
        found = own.among(kek for kek in column.ring.column_keks if self._may_wrap(kek, column.master_key_id))
        kek, secret = self._new_write_only_kek(column.master_key_id) if found is None else found
        entry, key = self._new_entry(column, kek, secret, {WRITE_ONLY: "1"})
        own.keep(entry, key)
        return entry.key_id, key

    def _new_write_only_kek(self, master_key_id: str) -> tuple[EncryptedKey, Secret]:
        secret = Secret(self.random(self.data_key_length))
        kek = self._kek_entry(wrap_write_only(self.kms, secret, master_key_id), master_key_id, {WRITE_ONLY: "1"})
        own_keys(self.kms).keep(kek, secret)
        self.pending.keep(kek)
        return kek, secret

    def _new_entry(self, column: KeyedColumn, kek: EncryptedKey, secret: Secret, mark: Mapping[str, str]) -> tuple[EncryptedKey, Secret]:
        key, mark = Secret(self.random(self.data_key_length)), {**mark, **_of(column.made_for)}
        entry = self._entry(_base64(self.random(_KEY_ID_LENGTH)), column.field_id, kek, secret, key, mark)
        self.pending.keep(entry)
        return entry, key

    def _kek_entry(self, wrapped: bytes, master_key_id: str, mark: Mapping[str, str] = _NO_MARK) -> EncryptedKey:
        return EncryptedKey(
            key_id=_base64(self.random(_KEY_ID_LENGTH)),
            encrypted_key_metadata=_base64(wrapped),
            encrypted_by_id=master_key_id,
            properties={KEY_TIMESTAMP: str(self.now_ms()), COLUMN_KEK: COLUMN_KEK_VERSION, **mark},
        )

    def _entry(self, key_id: str, field_id: int, kek: EncryptedKey, secret: Secret, key: Secret, mark: Mapping[str, str]) -> EncryptedKey:
        aad = _aad(kek, field_id, key_id, mark)
        return EncryptedKey(
            key_id=key_id,
            encrypted_key_metadata=_base64(AesGcm(secret).encrypt(self.random(NONCE_LENGTH), key.reveal(), aad)),
            encrypted_by_id=kek.key_id,
            properties={COLUMN_KEY: str(field_id), **mark},
        )

    def _check_apart(self, master_key_id: str) -> None:
        if master_key_id == self.table_key_id:
            raise ConfigurationError(f"{master_key_id!r} is the table's own master key, and cannot be a column's")


def _aad_of(kek: EncryptedKey, entry: EncryptedKey) -> bytes:
    return _aad(kek, entry.field_id, entry.key_id, _mark(entry))


def _aad(kek: EncryptedKey, field_id: int, key_id: str, mark: Mapping[str, str]) -> bytes:
    # Each kind has its own, so that who edits an entry's marks does not have one key used in the place of another.
    label = _AAD_OF_GIVEN_DEKS if GIVEN_DEKS in mark else _AAD_OF_MASK_KEY if MASK_KEY in mark else _AAD
    # Whoever takes the table out of an entry, or writes another into it, has an entry that does not open.
    table = f" of {mark[OF_TABLE]}\0" if OF_TABLE in mark else ""
    # Timestamp and field id are digits and the id comes last, so that no two entries have one AAD.
    return b"\0".join((label + f"{table}{kek.timestamp}".encode(), str(field_id).encode(), key_id.encode()))


def _mark(entry: EncryptedKey) -> dict[str, str]:
    marked = {WRITE_ONLY: entry.is_write_only, MASK_KEY: entry.is_mask_key, GIVEN_DEKS: entry.has_given_deks}
    return {mark: "1" for mark, is_set in marked.items() if is_set} | _of(entry.made_for)


def _of(table_uuid: str | None) -> dict[str, str]:
    return {} if table_uuid is None else {OF_TABLE: table_uuid}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
