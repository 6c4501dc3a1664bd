"""How a key service is asked: for which keys (`AllowedKeys`), as little as may be and as often as must be
(`ResilientKeyManagementClient`), and with its answers checked before a table or file keeps them (`wrap_key` and what follows it).

Which master keys a client may name is decided here and nowhere else:

    encryption.allowed-key-ids = alias/orders, arn:aws:kms:eu-central-1:111122223333:key/*

Metadata of a table, key material of a Parquet file and the tail of an ORC file name master keys, and none of them is authenticated before a
key is there. An attacker who writes them may name another key, which this client's credentials happen to be good for: then what the
attacker forged opens, and the attacker reads what is written next. With a list, such a key is refused before the key service is asked.

Globs are compared with the whole id as it is written, upper and lower case apart: `*` is any text, slashes and colons too, `?` one
character, `[ab]` one of these. An alias and the ARN behind it are two ids. Without a list every id is allowed, and the key service alone
decides.

A key that may be named is asked for once:

    unwrap_key ─► remembered? ─yes─► the key
                      │no
                      ▼
                another thread is asking for the same key? ─yes─► wait for its answer
                      │no
                      ▼
                the service, asked again while it is unavailable and the budget lasts ─► remember the key

`wrap_key` and `generate_key` always ask, and nothing of their answers is remembered: the first unwrap of a blob is asked of the service,
which tells whether the blob is what it should be.
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

Here alone a key is wrapped that a table or a file keeps, and the service's answer is checked:

    wrap        key ──► blob ──► unwrap, asked of the service ──► the same key? ─yes─► the blob may be stored
    generate    key and blob ──► unwrap, asked of the service ──► the same key? ─yes─► both may be used
    rewrap      old blob ──► unwrap ──► key;  new blob ──► unwrap ──► the same key? ─yes─► the new blob may be stored

A service that is faulty or lies could otherwise have a commit store a blob that nothing opens, or that opens to another key: that is found
out when the table cannot be read any more. The comparison takes constant time. The unwrap is asked of the service, never of a cache:
the clients of this package remember what an unwrap returned and nothing else.

A user who stores a new blob therefore needs the right to unwrap as well as the right to wrap. A user who may only wrap is refused before
anything is committed, since no check could show that the commit can be read. Two do without: keys/write_only_keys.py, for writers of
protected columns who are not to read them, and who shares rows under the master key of somebody else.

Raises what the client raises; KmsError for an answer that is wrong; KmsAccessDeniedError, saying which permission is missing, where the
service wraps and does not unwrap.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, NoReturn, Self, TypeVar

from tablecrypt._per_process import PerProcess
from tablecrypt.arguments import names_of
from tablecrypt.crypto.aes_gcm import KEY_LENGTHS
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import (
    AuthenticationError,
    ConfigurationError,
    FormatError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    KmsError,
    KmsUnavailableError,
    MasterKeyMismatchError,
    MasterKeyRefusedError,
)
from tablecrypt.kms.client import GeneratedKey, KeyManagementClient, RewrappingClient, check_key_length, rewrap_unchecked
from tablecrypt.kms.redaction import without_locals
from tablecrypt.properties import ALLOWED_KEY_IDS, KMS_CACHE_MAX_KEYS, KMS_CACHE_TTL_MS, KMS_RETRY_BUDGET_MS

T = TypeVar("T")

CacheName = tuple[str, bytes]
logger = logging.getLogger(__name__)
_WILDCARDS: Final = frozenset("*?[")
FIRST_WAIT_SECONDS: Final = 0.1
LONGEST_WAIT_SECONDS: Final = 5.0
_listeners: Final[list[RetryListener]] = []


@dataclass(frozen=True)
class AllowedKeys:
    """The master keys that may be named. None for `globs` stands for every key.

    Raises:
        ConfigurationError: a list without a glob, which would allow nothing, or with an empty one.
    """

    globs: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        # A list that was left empty by mistake is an error at once, not a refusal of every table later.
        if self.globs is not None and (not self.globs or not all(self.globs)):
            raise ConfigurationError(f"{ALLOWED_KEY_IDS.name} has an empty entry: name master keys, or leave it out to allow every key")

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Self:
        """Return what the properties of a catalog say."""
        if ALLOWED_KEY_IDS.name not in properties:
            return cls()
        return cls(tuple(glob.strip() for glob in str(properties[ALLOWED_KEY_IDS.name]).split(",")))

    @classmethod
    def listed(cls, globs: str | Iterable[str] | None) -> Self:
        """Return what an argument says: globs, a single one, or None for every key."""
        return cls(None if globs is None else names_of("allowed_key_ids", globs))

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The entries that are ids of keys: those without a wildcard."""
        return tuple(glob for glob in self.globs or () if not _WILDCARDS.intersection(glob))

    def allows(self, key_id: str) -> bool:
        """Whether the id is that of a key which may be named."""
        # fnmatchcase, because fnmatch ignores case on some systems and ids of keys differ by case.
        return self.globs is None or any(fnmatchcase(key_id, glob) for glob in self.globs)

    def check(self, key_ids: Iterable[str | None], where: str) -> None:
        """Refuse master keys that are not allowed.

        Args:
            key_ids: the ids; None, for an entry that names none, is passed over.
            where: what names them, for the message.

        Raises:
            MasterKeyRefusedError: one of them is not allowed.
        """
        for key_id in key_ids:
            if key_id is not None and not self.allows(key_id):
                raise MasterKeyRefusedError(key_id, where)


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


def wrap_key(client: KeyManagementClient, key: Secret, wrapping_key_id: str) -> bytes:
    """Return `key` as the service wrapped it, after the service has unwrapped it again.

    Raises:
        KmsError: the service answers with a blob that is not this key wrapped, or refuses.
    """
    wrapped = wrap_unchecked(client, key, wrapping_key_id)
    check_blob(client, wrapped, wrapping_key_id, key)
    return wrapped


def wrap_unopened(client: KeyManagementClient, key: Secret, wrapping_key_id: str) -> bytes:
    """Return `key` as the service wrapped it, to be stored by a user who may not unwrap: only other users find out whether it opens.

    Raises:
        KmsError: the service answers with the key in the clear or with nothing, or refuses.
    """
    wrapped = wrap_unchecked(client, key, wrapping_key_id)
    # The only checks that need no right to unwrap. They find a client that returns the key as it is.
    if len(wrapped) <= len(key) or key.reveal() in wrapped:
        _refuse(wrapping_key_id, "is the key in the clear, or too short to be one that was encrypted", None)
    return wrapped


def wrap_for_another(client: KeyManagementClient, key: Secret, wrapping_key_id: str) -> bytes:
    """Return `key` as the service wrapped it for somebody else who may use this master key; checked where this user may unwrap as well.

    Raises:
        KmsError: the service refused to wrap it, or answered wrongly.
    """
    try:
        return wrap_key(client, key, wrapping_key_id)
    except KmsAccessDeniedError:
        # Where wrapping is what was refused, this is refused as well.
        return wrap_unopened(client, key, wrapping_key_id)


def wrap_unchecked(client: KeyManagementClient, key: Secret, wrapping_key_id: str) -> bytes:
    """Return `key` as the service wrapped it: for a blob that is used at once and stored nowhere."""
    try:
        return client.wrap_key(key.reveal(), wrapping_key_id)
    except BaseException as error:
        without_locals(error)
        raise


def generate_key(client: KeyManagementClient, wrapping_key_id: str, length: int) -> GeneratedKey:
    """Return a fresh key of `length` bytes (16, 24 or 32) with its wrapped form, after the service has unwrapped that.

    Raises:
        KmsError: the two forms are not of one key, or the key has another length; or the service refuses.
    """
    try:
        generated = client.generate_key(wrapping_key_id, length)
    except BaseException as error:
        without_locals(error)
        raise

    # A shorter key would encrypt the table with a weaker cipher than its properties promise.
    if len(generated.key) != length:
        raise KmsError(f"the key service answered with a key of {len(generated.key)} bytes under {wrapping_key_id!r}, not of {length}")

    check_blob(client, generated.wrapped_key, wrapping_key_id, Secret(generated.key))
    return generated


def rewrap_key(client: KeyManagementClient, wrapped_key: bytes, wrapping_key_id: str, from_key_id: str, key: Secret) -> bytes:
    """Return the blob that replaces `wrapped_key`, wrapped by the newest version of `wrapping_key_id`.

    Args:
        client: rewraps in the service where it can do that, else through this process.
        wrapped_key: the old blob.
        wrapping_key_id: the master key that wraps from now on.
        from_key_id: the master key that wrapped the old blob.
        key: what is in the old blob, for the comparison.

    Raises:
        KmsError: the new blob does not hold `key`, or the service refuses.
    """
    try:
        rewrapped = rewrap_unchecked(client, wrapped_key, wrapping_key_id, from_key_id)
    except BaseException as error:
        without_locals(error)
        raise

    check_blob(client, rewrapped, wrapping_key_id, key)
    return rewrapped


def unwrap_key(client: KeyManagementClient, wrapped_key: bytes, wrapping_key_id: str) -> Secret:
    """Return the key inside a stored blob."""
    try:
        return Secret(client.unwrap_key(wrapped_key, wrapping_key_id))
    except BaseException as error:
        without_locals(error)
        raise


def unwrap_kek(client: KeyManagementClient, wrapped_key: bytes, wrapping_key_id: str, what: str) -> Secret:
    """Return the KEK inside a blob of `encryption-keys`.

    Args:
        client: asked to unwrap it.
        wrapped_key: the blob.
        wrapping_key_id: the master key that should have wrapped it.
        what: names the KEK in the message.

    Raises:
        MasterKeyMismatchError: the service has a master key of that id, and it does not open the blob.
        KmsError, KeyNotFoundError: as the client raises them.
    """
    try:
        return unwrap_key(client, wrapped_key, wrapping_key_id)
    except (AuthenticationError, FormatError) as error:
        raise MasterKeyMismatchError(
            f"{wrapping_key_id!r} is not the master key that wrapped {what}, or the entry of the KEK was changed: {error}. "
            "Use the key service or the key file with which the table was written"
        ) from error


def check_blob(client: KeyManagementClient, wrapped_key: bytes, wrapping_key_id: str, key: Secret) -> None:
    """Ask the service to open a blob that it has just made, and compare what it holds.

    Raises:
        KmsError: it does not open, or holds another key.
        KmsAccessDeniedError: the service may not be asked to open it.
    """
    try:
        opened = unwrap_key(client, wrapped_key, wrapping_key_id)
    except KmsAccessDeniedError as error:
        raise KmsAccessDeniedError(
            f"a key that {wrapping_key_id!r} has just wrapped cannot be checked, since unwrapping is refused; nothing was committed: "
            f"writers need the permission to unwrap too: {error}"
        ) from error
    except (AuthenticationError, FormatError, KeyNotFoundError) as error:
        _refuse(wrapping_key_id, f"cannot be unwrapped again ({error})", error)

    # A blob of another key would be found out only when the table cannot be read any more.
    if opened != key:
        _refuse(wrapping_key_id, "contains another key than the one that was wrapped", None)


def _refuse(wrapping_key_id: str, what: str, cause: Exception | None) -> NoReturn:
    raise KmsError(
        f"the key service answered wrongly: what it wrapped under {wrapping_key_id!r} {what}; nothing was committed: "
        "find out whether the service, or something between it and this machine, is faulty before writing again"
    ) from cause
