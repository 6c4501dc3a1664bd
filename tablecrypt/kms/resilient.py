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
service. A forked child starts with none of the three.
A key that was revoked in the service stays usable in this process until it is forgotten: at most `encryption.kms.cache-ttl-ms`.

Retries have exponential backoff with full jitter, inside a budget of time:

    attempt 0 ─ fails, retryable ─ wait random × min(5 s, 0.1 s) ─ attempt 1 ─ wait random × min(5 s, 0.2 s) ─ attempt 2 …

The last error is raised as it is when it is not retryable, or when the next wait would end outside the budget. The budget bounds the
waiting: an attempt that has begun is not cut off, each client gives its own requests a timeout. Pure but for the clock, the sleep and
the randomness that it is given.

Before each wait the policy reports it to its `listener`: by default to the log and to every listener of `retries_heard`. Clients are made
deep inside of catalogs and asked from many threads, so that listeners are the process's, as handlers of the log are.

The cache of keys is bounded in age and size. An entry is named by the wrapping key's id and the SHA-256 of the wrapped key, holds the key
as a Secret, and is forgotten once it is `ttl_seconds` old (reading it does not make it younger) or when `max_keys` newer or more recently
read ones are there. Not thread-safe: its owner holds a lock.

A PerProcess value is made on first use, once, and again in a forked child. Connections and locks do not survive a fork: a child that
inherits a socket answers its parent's requests, and a lock that another thread held at the moment of the fork is never released. So in a
child every value here starts empty, with a new lock.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import threading
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NoReturn, Self, TypeVar

from tablecrypt.crypto.aes_gcm import KEY_LENGTHS
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import FormatError, KmsError, KmsUnavailableError
from tablecrypt.kms.allowed_keys import AllowedKeys
from tablecrypt.kms.client import GeneratedKey, KeyManagementClient, RewrappingClient, check_key_length
from tablecrypt.kms.redaction import without_locals
from tablecrypt.properties import KMS_CACHE_MAX_KEYS, KMS_CACHE_TTL_MS, KMS_RETRY_BUDGET_MS

T = TypeVar("T")

_instances: weakref.WeakSet[PerProcess[Any]] = weakref.WeakSet()
CacheName = tuple[str, bytes]
logger = logging.getLogger(__name__)
FIRST_WAIT_SECONDS: Final = 0.1
LONGEST_WAIT_SECONDS: Final = 5.0
_listeners: Final[list[RetryListener]] = []


class PerProcess(Generic[T]):
    """Holds what `make()` returns. Threads that ask at the same time get the same value, and `make` runs once."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.forget()
        _instances.add(self)

    def get(self) -> T:
        """Return the value, making it if this process has none."""
        with self._lock:
            if not self._held:
                self._held.append(self._make())
            return self._held[0]

    def drop(self) -> T | None:
        """Let the value go and return it, for the caller to close; None if there was none. A later `get` makes another."""
        with self._lock:
            return self._held.pop() if self._held else None

    def forget(self) -> None:
        """Start empty with a new lock. For construction and for the first moment of a forked child, when no other thread runs."""
        self._lock = threading.Lock()
        self._held: list[T] = []


def _forget_all_in_child() -> None:
    for instance in list(_instances):
        instance.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all_in_child)


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

        # The order decides what goes when the cache is full. The age does not change: a revoked key is forgotten in time.
        self._entries.move_to_end(name)

        return key

    def put(self, name: CacheName, key: Secret) -> None:
        """Remember `key` from now on; the oldest go where there are too many."""
        now = self._clock()
        # A key that is never read again would otherwise stay in memory for the life of the process.
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


@dataclass(frozen=True)
class Retry:
    """A key service that failed is about to be asked again.

    Attributes:
        problem: what it failed with.
        seconds_left: how much of the budget is left.
    """

    problem: KmsError
    seconds_left: float


RetryListener = Callable[[Retry], None]
"""Is called before each wait, from the thread that asks, so from several at once. What it raises ends the asking."""


@contextmanager
def retries_heard(listener: RetryListener) -> Iterator[None]:
    """Report every retry in this process to a listener while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def announce(retry: Retry) -> None:
    """Log a retry and call every listener."""
    logger.info("calling the key service again, for up to %.0f s more: %s", retry.seconds_left, retry.problem)
    for listener in tuple(_listeners):
        listener(retry)


@dataclass(frozen=True)
class RetryPolicy:
    """How long to go on (`budget_seconds`; 0 asks once), what tells time, waits and draws from [0, 1), and where retries are reported."""

    budget_seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = secrets.SystemRandom().random
    listener: RetryListener = announce

    def call(self, ask: Callable[[], T]) -> T:
        """Return what `ask()` returns, asking again after each retryable KmsError until the budget is spent."""
        deadline = self.clock() + self.budget_seconds
        ceiling = FIRST_WAIT_SECONDS
        while True:
            try:
                return ask()
            except KmsError as error:
                # Full jitter: clients that failed together must not ask an overloaded service together again.
                wait = self.random() * ceiling
                left = deadline - self.clock()
                if not error.retryable or wait >= left:
                    raise
                self.listener(Retry(error, left))

            self.sleep(wait)
            ceiling = min(ceiling * 2, LONGEST_WAIT_SECONDS)


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
        cache_ttl_seconds: float = KMS_CACHE_TTL_MS.whole_number({}) / 1000,
        cache_max_keys: int = KMS_CACHE_MAX_KEYS.whole_number({}),
        retry: RetryPolicy | None = None,
        allowed: AllowedKeys | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._allowed = allowed if allowed is not None else AllowedKeys()
        self._retry = retry if retry is not None else RetryPolicy(budget_seconds=KMS_RETRY_BUDGET_MS.whole_number({}) / 1000)
        self._state = PerProcess(lambda: _State(KeyCache(cache_ttl_seconds, cache_max_keys, clock)))

    @classmethod
    def from_properties(cls, inner: KeyManagementClient, properties: Mapping[str, str]) -> Self:
        """Reads `encryption.allowed-key-ids` and the properties `encryption.kms.`: cache-ttl-ms, cache-max-keys, retry-budget-ms."""
        return cls(
            inner,
            cache_ttl_seconds=KMS_CACHE_TTL_MS.whole_number(properties) / 1000,
            cache_max_keys=KMS_CACHE_MAX_KEYS.whole_number(properties),
            retry=RetryPolicy(budget_seconds=KMS_RETRY_BUDGET_MS.whole_number(properties) / 1000),
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
            # One request for all threads that want this key: a job that opens a table in many threads costs one unwrap.
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
        # Asked of the service and not of the cache: the caller needs the right to the old key now, not an hour ago.
        key = _key_in(self._ask("unwrap_key", lambda: inner.unwrap_key(wrapped_key, from_key_id)), from_key_id)
        return self._ask("wrap_key", lambda: inner.wrap_key(key.reveal(), wrapping_key_id))

    def close(self) -> None:
        """Forget every key and close the inner client. The counters start again with the next call."""
        # Dropped before the client closes, so that no thread finds a key of a service that is gone.
        self._state.drop()
        self._inner.close()

    def _unwrap_for_all(self, state: _State, name: CacheName, flight: Future[Secret], wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        """Ask the service, and give every thread that waits on `flight` the same key or the same error."""
        try:
            key = _key_in(self._ask("unwrap_key", lambda: self._inner.unwrap_key(wrapped_key, wrapping_key_id)), wrapping_key_id)
        except BaseException as error:
            with state.lock:
                del state.in_flight[name]
            # An interrupt is meant for this thread alone: the others get an error that they may retry.
            interrupted = KmsUnavailableError(f"the thread that asked for a key under {wrapping_key_id!r} was interrupted")
            flight.set_exception(error if isinstance(error, Exception) else interrupted)
            raise

        with state.lock:
            del state.in_flight[name]
            # Under the same lock as the removal: no thread may find neither the key nor the call under way.
            state.cache.put(name, key)

        flight.set_result(key)
        return key.reveal()

    def _check(self, *key_ids: str) -> None:
        self._allowed.check(key_ids, "what is to be wrapped or unwrapped")

    def _ask(self, action: str, call: Callable[[], T]) -> T:
        def counted() -> T:
            state = self._state.get()
            with state.lock:
                state.calls[action] += 1
            try:
                return call()
            # The frames of the SDK and of its HTTP library hold the key: an error must not carry them into a log.
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
        raise FormatError(
            f"master key {wrapping_key_id!r} unwrapped {len(key)} bytes, which is not an AES key: this blob is not a wrapped KEK"
        )

    return key
