"""Column keys of writers who may wrap under a column's master key and not unwrap: they append to a protected column and never read it.

Such a writer can open no column key that the table has. He makes a column KEK and column keys of his own, has the KMS wrap the KEK, and
keeps both in the memory of his process, since nobody opens them for him again:

    column KEK     as every one, and marked: properties = {…, "tablecrypt.write-only": "1"}
    column key     as every one, and marked alike; the mark stays when a rotation puts it under another KEK

Rules:
    1. A marked key wraps DEKs only in the process and for the user that made it, and in the Spark tasks of this user to which the process
       gives the column key. Whoever else wrote under it would show its maker what he writes.
    2. A process makes one KEK for each master key, and one column key for each column, of a table; it uses them for all its commits until
       the KEK is too old, or somebody rotates or shreds them.
    3. Nothing is read with what is kept here: the maker's own rows are masked for him like all others.

Nobody has checked that the KMS opens the KEK. Somebody with the right finds that out by reading or rotating: a warning in the log says so.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final
from weakref import WeakKeyDictionary

from tablecrypt._per_process import PerProcess
from tablecrypt.crypto.secret import Secret
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.resilient import wrap_unopened

logger = logging.getLogger(__name__)

KEPT_KEYS: Final = 4096
"""How many keys a process keeps; those that it used longest ago go first."""


class OwnKeys:
    """The write-only keys that this process has made, by the entries that hold them. Never stored, never pickled."""

    def __init__(self) -> None:
        self._keys: OrderedDict[tuple[str, str], Secret] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._keys)

    def key(self, entry: EncryptedKey) -> Secret | None:
        """Return the key that an entry holds; None where another process has made it, or its KEK was exchanged."""
        with self._lock:
            name = _name(entry)
            if entry.is_write_only and name in self._keys:
                self._keys.move_to_end(name)
                return self._keys[name]
            return None

    def keep(self, entry: EncryptedKey, key: Secret) -> None:
        """Remember the key of an entry that was made here."""
        with self._lock:
            self._keys[_name(entry)] = key
            while len(self._keys) > KEPT_KEYS:
                self._keys.popitem(last=False)

    def among(self, entries: Iterable[EncryptedKey]) -> tuple[EncryptedKey, Secret] | None:
        """Return the first of these entries that was made here, and its key."""
        return next(((entry, key) for entry in entries if (key := self.key(entry)) is not None), None)


class OwnKeysByClient:
    """The write-only keys of a process, apart for each client of a KMS: another client may be another user's."""

    def __init__(self) -> None:
        self._own: WeakKeyDictionary[KeyManagementClient, OwnKeys] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, kms: KeyManagementClient) -> OwnKeys:
        """Return the keys that were made with a client."""
        with self._lock:
            return self._own.setdefault(kms, OwnKeys())


_OWN: Final = PerProcess(OwnKeysByClient)


def own_keys(kms: KeyManagementClient) -> OwnKeys:
    """The write-only keys that this process has made with a client; a forked child starts with none."""
    return _OWN.get().of(kms)


def wrap_write_only(kms: KeyManagementClient, kek: Secret, master_key_id: str) -> bytes:
    """Have the KMS wrap a column KEK that this user cannot have it open again.

    Raises:
        KmsError: the KMS refused, or answered with what is no wrapped key.
    """
    wrapped = wrap_unopened(kms, kek, master_key_id)
    logger.warning(
        "a column KEK was wrapped under master key %s and could not be checked, since this user may not unwrap: have somebody with the "
        "right read what is written under it",
        master_key_id,
    )
    return wrapped


def _name(entry: EncryptedKey) -> tuple[str, str]:
    # With the wrapped bytes: an entry that was exchanged under the same id is not the one that was made here.
    return entry.key_id, entry.encrypted_key_metadata
