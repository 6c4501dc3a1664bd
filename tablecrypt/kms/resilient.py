"""A key management client that asks as little as it may and as often as it must.

    unwrap_key ─► remembered? ─yes─► the key
                      │no
                      ▼
                another thread is asking for the same key? ─yes─► wait for its answer
                      │no
                      ▼
                the service, asked again while it is unavailable and the budget lasts ─► remember the key

`wrap_key` and `generate_key` always ask, and nothing of their answers is remembered: the first unwrap of a blob is asked of the service,
which tells whether the blob is what it should be (tablecrypt/kms/new_blobs.py).
A master key that `encryption.allowed-key-ids` does not allow is refused before anything else (tablecrypt/kms/allowed_keys.py).
`rewrap_key` always asks too, in one call where the service can rewrap, else in two, and nothing of it is remembered.
A refusal is never remembered: the next caller asks again. What an unwrap returns must be 16, 24 or 32 bytes; else FormatError.

Thread safety: one lock guards what is remembered, the calls under way and the counters, and is never held during a call of the
service. A forked child starts with none of the three (tablecrypt/kms/per_process.py).
A key that was revoked in the service stays usable in this process until it is forgotten: at most `encryption.kms.cache-ttl-ms`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NoReturn, Self, TypeVar

from tablecrypt.crypto.aes_gcm import KEY_LENGTHS
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, FormatError, KmsUnavailableError
from tablecrypt.kms.allowed_keys import AllowedKeys
from tablecrypt.kms.client import GeneratedKey, KeyManagementClient, RewrappingClient, check_key_length
from tablecrypt.kms.frames import without_locals
from tablecrypt.kms.key_cache import CacheName, KeyCache, cache_name
from tablecrypt.kms.per_process import PerProcess
from tablecrypt.kms.retry import RetryPolicy
from tablecrypt.properties import KMS_CACHE_MAX_KEYS, KMS_CACHE_TTL_MS, KMS_RETRY_BUDGET_MS, Property

T = TypeVar("T")


@dataclass
class _State:
    """What this process remembers. `lock` guards the rest."""

    cache: KeyCache
    in_flight: dict[CacheName, Future[Secret]] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)


class ResilientKeyManagementClient:
    """Wraps any client with retries, a cache of unwrapped keys, and counters of the calls that reached it."""

    def __init__(
        self,
        inner: KeyManagementClient,
        *,
        cache_ttl_seconds: float = KMS_CACHE_TTL_MS.default_number / 1000,
        cache_max_keys: int = KMS_CACHE_MAX_KEYS.default_number,
        retry: RetryPolicy | None = None,
        allowed: AllowedKeys | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._allowed = allowed if allowed is not None else AllowedKeys()
        self._retry = retry if retry is not None else RetryPolicy(budget_seconds=KMS_RETRY_BUDGET_MS.default_number / 1000)
        self._state = PerProcess(lambda: _State(KeyCache(cache_ttl_seconds, cache_max_keys, clock)))

    @classmethod
    def from_properties(cls, inner: KeyManagementClient, properties: Mapping[str, str]) -> Self:
        """Reads `encryption.allowed-key-ids` and the properties `encryption.kms.`: cache-ttl-ms, cache-max-keys, retry-budget-ms."""
        return cls(
            inner,
            cache_ttl_seconds=_whole_number(properties, KMS_CACHE_TTL_MS) / 1000,
            cache_max_keys=_whole_number(properties, KMS_CACHE_MAX_KEYS),
            retry=RetryPolicy(budget_seconds=_whole_number(properties, KMS_RETRY_BUDGET_MS) / 1000),
            allowed=AllowedKeys.of(properties),
        )

    @property
    def calls(self) -> Counter[str]:
        """A copy of the counters: how often this process has called the service, by method name. A retry counts again."""
        state = self._state.get()
        with state.lock:
            return state.calls.copy()

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        secret = Secret(key)
        del key  # an error would show the local variables of this function
        check_key_length(len(secret))
        self._check(wrapping_key_id)
        return self._ask("wrap_key", lambda: self._inner.wrap_key(secret.reveal(), wrapping_key_id))

    def generate_key(self, wrapping_key_id: str, length: int = 16) -> GeneratedKey:
        check_key_length(length)
        self._check(wrapping_key_id)
        return self._ask("generate_key", lambda: self._inner.generate_key(wrapping_key_id, length))

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        self._check(wrapping_key_id)
        state = self._state.get()
        name = cache_name(wrapped_key, wrapping_key_id)
        with state.lock:
            remembered = state.cache.get(name)
            if remembered is not None:
                return remembered.reveal()
            flight = state.in_flight.get(name)
            others_answer = flight
            if flight is None:
                flight = state.in_flight[name] = Future()
        if others_answer is not None:
            return others_answer.result().reveal()
        return self._unwrap_for_all(state, name, flight, wrapped_key, wrapping_key_id)

    def rewrap_key(self, wrapped_key: bytes, wrapping_key_id: str, from_key_id: str) -> bytes:
        self._check(wrapping_key_id, from_key_id)
        inner = self._inner
        if isinstance(inner, RewrappingClient):
            return self._ask("rewrap_key", lambda: inner.rewrap_key(wrapped_key, wrapping_key_id, from_key_id))
        key = _key_in(self._ask("unwrap_key", lambda: inner.unwrap_key(wrapped_key, from_key_id)), from_key_id)
        return self._ask("wrap_key", lambda: inner.wrap_key(key.reveal(), wrapping_key_id))

    def close(self) -> None:
        """Forget every key and close the inner client. The counters start again with the next call."""
        self._state.drop()
        self._inner.close()

    def _unwrap_for_all(self, state: _State, name: CacheName, flight: Future[Secret], wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        """Ask the service, and give every thread that waits on `flight` the same key or the same error."""
        try:
            key = _key_in(self._ask("unwrap_key", lambda: self._inner.unwrap_key(wrapped_key, wrapping_key_id)), wrapping_key_id)
        except BaseException as error:
            with state.lock:
                del state.in_flight[name]
            # An interrupt is meant for this thread alone: the others are told to try again.
            interrupted = KmsUnavailableError(f"the thread that asked for a key under {wrapping_key_id!r} was interrupted")
            flight.set_exception(error if isinstance(error, Exception) else interrupted)
            raise
        with state.lock:
            del state.in_flight[name]
            state.cache.put(name, key)
        flight.set_result(key)
        return key.reveal()

    def _check(self, *key_ids: str) -> None:
        self._allowed.check(key_ids, "what is to be wrapped or unwrapped")

    def _ask(self, verb: str, call: Callable[[], T]) -> T:
        def counted() -> T:
            state = self._state.get()
            with state.lock:
                state.calls[verb] += 1
            try:
                return call()
            except BaseException as error:
                without_locals(error)
                raise

        return self._retry.call(counted)

    def __repr__(self) -> str:
        return f"ResilientKeyManagementClient({self._inner!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a KMS client belongs to its process: send the properties and call load_kms there")


def _key_in(answer: object, wrapping_key_id: str) -> Secret:
    # Anybody may write a client, and `bytes` makes a key of zeros of a number.
    if not isinstance(answer, bytes | bytearray):
        raise FormatError(
            f"master key {wrapping_key_id!r} unwrapped no bytes but {type(answer).__name__}: the key service's client is wrong"
        )
    key = Secret(bytes(answer))
    if len(key) not in KEY_LENGTHS:
        raise FormatError(f"master key {wrapping_key_id!r} unwrapped {len(key)} bytes, which is no AES key: this blob is not a wrapped KEK")
    return key


def _whole_number(properties: Mapping[str, str], read: Property) -> int:
    text = read.read(properties)
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise ConfigurationError(f"{read.name} must be a whole number of at least 0, not {text!r}")
    return number
