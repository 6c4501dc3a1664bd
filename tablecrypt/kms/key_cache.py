"""Unwrapped keys that this process remembers for a while, so that a table costs one KMS call and not one per file.

An entry is named by the wrapping key's id and the SHA-256 of the wrapped key, holds the key as a Secret, and is forgotten once it is
`ttl_seconds` old (reading it does not make it younger) or when `max_keys` newer or more recently read ones are there.
Not thread-safe: its owner holds a lock.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable

from tablecrypt.crypto.secret import Secret

CacheName = tuple[str, bytes]


def cache_name(wrapped_key: bytes, wrapping_key_id: str) -> CacheName:
    """The name under which the key inside `wrapped_key` is remembered."""
    return wrapping_key_id, hashlib.sha256(wrapped_key).digest()


class KeyCache:
    """At most `max_keys` keys, each for `ttl_seconds` of `clock()`. A ttl of 0 remembers nothing."""

    def __init__(self, ttl_seconds: float, max_keys: int, clock: Callable[[], float]) -> None:
        self._ttl_seconds = ttl_seconds
        self._max_keys = max_keys
        self._clock = clock
        self._entries: OrderedDict[CacheName, tuple[float, Secret]] = OrderedDict()

    def get(self, name: CacheName) -> Secret | None:
        """The key, or None when it is not remembered or too old; what is too old is forgotten."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        expires_at, key = entry
        if self._clock() >= expires_at:
            del self._entries[name]
            return None
        self._entries.move_to_end(name)
        return key

    def put(self, name: CacheName, key: Secret) -> None:
        """Remember `key` from now on, making room for it."""
        now = self._clock()
        for old in [each for each, (expires_at, _) in self._entries.items() if now >= expires_at]:
            del self._entries[old]
        self._entries.pop(name, None)
        if self._ttl_seconds <= 0 or self._max_keys <= 0:
            return
        if len(self._entries) >= self._max_keys:
            self._entries.popitem(last=False)
        self._entries[name] = (now + self._ttl_seconds, key)

    def __len__(self) -> int:
        return len(self._entries)
