"""Wrapping a table's KEKs anew under the master key's newest version, in one metadata commit.

    before    master key, version 1 ─▶ KEK A ─▶ …          or: the key that the alias meant then
    after     master key, version 2 ─▶ KEK A ─▶ …          or: the key that it means now

The KEKs, their ids and ages stay, and so does everything below them. AWS (ReEncrypt) and Vault (rewrap) do it inside the service: no KEK
comes into this process, and whoever runs it needs no permission to decrypt. The others unwrap and wrap.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from pyiceberg.table import Table
from pyiceberg.table.update import TableUpdate

from tablecrypt.errors import AuthenticationError, KeyNotFoundError, KmsAccessDeniedError
from tablecrypt.keys.encrypted_key import EncryptedKey
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.maintenance.encrypted import encrypted_metadata_of, name_of, newest, table_io
from tablecrypt.maintenance.key_commit import commit_keys, replaced_key
from tablecrypt.maintenance.progress import Counted, ProgressListener, unheard
from tablecrypt.maintenance.results import VerbResult
from tablecrypt.table.encrypted_table import EncryptedTable

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rewrapped(VerbResult):
    """What `rewrap` did.

    Attributes:
        master_key: the table's encryption.key-id, whose newest version wraps the KEKs now.
        keks: key-ids of the KEKs.
    """

    master_key: str
    keks: tuple[str, ...]


@dataclass(frozen=True)
class _Plan:
    keks: tuple[str, ...]
    updates: tuple[TableUpdate, ...] = field(repr=False)


def rewrap(table: Table, from_key_id: str | None = None, dry_run: bool = False, progress: ProgressListener = unheard) -> Rewrapped:
    """Wrap every KEK of an encrypted table anew under the newest version of its master key.

    For before an old version of the master key is disabled or destroyed, and after an alias was moved to another key. It does NOT make new
    KEKs (`rotate_kek` does) and it does NOT change what `encryption.key-id` says, which never changes (`relocate` copies a table under
    another one). Older metadata files, and copies of them elsewhere, keep the KEKs as the old version wrapped them: destroying that version
    is what ends those.

    With `from_key_id` the service is asked to open each KEK with that key and, where it refuses, with the table's own. Without, with the
    table's own alone: a blob that somebody put into the metadata and that another key of the account opens is never wrapped for this table.

    Killed at any moment, either every KEK is rewrapped or none. Calling it again rewraps again, which does no harm.

    Args:
        table: an encrypted table. Its state in memory is brought up to date.
        from_key_id: the master key that wraps the KEKs now, where an alias was moved: its key id or ARN. Azure: name/version.
        dry_run: only say which KEKs there are; the KMS is not asked.
        progress: hears of the KEKs that are rewrapped.

    Raises:
        ConfigurationError: the table is not encrypted.
        AuthenticationError, KeyNotFoundError, KmsError: the KMS cannot or may not open or wrap a KEK; nothing has changed.
        CommitFailedException: others committed too often meanwhile; nothing has changed.
    """
    if dry_run:
        loaded = newest(table)
        keks = tuple(kek.key_id for kek in encrypted_metadata_of(loaded).key_ring.keks)
        return Rewrapped(name_of(table), True, table_io(loaded).manager.table_key_id, keks)
    rewrapper = _Rewrapper(from_key_id, Counted("rewrap", "keys", progress))
    landed = commit_keys(table, rewrapper.plan)
    return Rewrapped(name_of(table), False, table_io(landed.base).manager.table_key_id, landed.plan.keks)


class _Rewrapper:
    """Rewraps each KEK once, however often others commit in between."""

    def __init__(self, from_key_id: str | None, counted: Counted) -> None:
        self._from_key_id = from_key_id
        self._counted = counted
        self._done: dict[tuple[str, str], EncryptedKey] = {}

    def plan(self, table: EncryptedTable) -> _Plan:
        """Return the exchange of every KEK of the table."""
        manager = table_io(table).manager
        keks = [self._rewrapped(manager, kek) for kek in self._counted.over(encrypted_metadata_of(table).key_ring.keks)]
        return _Plan(tuple(kek.key_id for kek in keks), tuple(update for kek in keks for update in replaced_key(kek)))

    def _rewrapped(self, manager: EncryptionManager, kek: EncryptedKey) -> EncryptedKey:
        wrapped = (kek.key_id, kek.encrypted_key_metadata)
        if wrapped not in self._done:
            self._done[wrapped] = self._rewrap(manager, kek)
        return self._done[wrapped]

    def _rewrap(self, manager: EncryptionManager, kek: EncryptedKey) -> EncryptedKey:
        if self._from_key_id is None:
            return manager.rewrap_kek(kek)
        try:
            return manager.rewrap_kek(kek, self._from_key_id)
        except (AuthenticationError, KeyNotFoundError, KmsAccessDeniedError) as error:
            # Made after the alias was moved, or rewrapped by an earlier run: the old key may be gone by now.
            logger.info("KEK %s is not wrapped by %s, the table's own key is asked: %s", kek.key_id, self._from_key_id, error)
            return manager.rewrap_kek(kek)
