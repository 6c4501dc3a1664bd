"""What the Hadoop KMS answers: the part of the REST protocol that ORC uses, as a function from request to response without a socket.

    OPTIONS  anything                                          Hadoop's login; always 200, so that the client goes on to its request
    GET      /kms/v1/keys/names                                ["pii", ...]: those that the caller may use
    GET      /kms/v1/keys/metadata?key=pii&key=...             [metadata, ...]
    GET      /kms/v1/key/pii/_metadata                         {"name", "cipher", "length" (bits), "created", "versions", ...}
    GET      /kms/v1/key/pii/_currentversion                   {"name": "pii", "versionName": "pii@1"}, without the master key's bytes
    GET      /kms/v1/key/pii/_versions                         [{...}, ...] of the same kind
    GET      /kms/v1/keyversion/pii@1                          the same
    GET      /kms/v1/key/pii/_eek?eek_op=generate&num_keys=n   n encrypted local keys
    POST     /kms/v1/keyversion/pii@1/_eek?eek_op=decrypt      {"name", "iv", "material"} → {"name", "versionName": "EK", "material"}

requests.py says how requests are written and which are refused at once, access.py who may ask for what. No master key is created, changed
or given out here. Each user pays a token of a bucket for each request; the bucket refills at a fixed rate.

A refusal is Hadoop's {"RemoteException": {"javaClassName", ...}}, from which the client makes the exception of that class. ORC takes any
IOException raised while it decrypts a key for a missing right and goes on with masks, silently. So refusals are unchecked exceptions
(SecurityException, IllegalStateException, ...), which stop a read, except for keys that the allow list gives the caller as `masks`: these
are refused with Hadoop's AuthorizationException, an IOException.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Protocol

from tablecrypt.errors import FormatError, KeyNotFoundError, KmsUnavailableError, TablecryptError
from tablecrypt.hadoop_kms.access import AccessDecision, AllowList, Proofs
from tablecrypt.hadoop_kms.master_keys import KeyDescription
from tablecrypt.hadoop_kms.requests import (
    AUTHORIZATION,
    ILLEGAL_ARGUMENT,
    ILLEGAL_STATE,
    SECURITY,
    KmsCall,
    KmsRequest,
    Refusal,
    encrypted_local_key,
    sent_iv,
    split_target,
    understand,
)
from tablecrypt.orc.key_providers import KeyProvider, MasterKeyVersion

_MAX_NAMES: Final = 10_000

_USER_NAME: Final = r"[A-Za-z0-9._@/-]{1,128}"
_COOKIE: Final = re.compile(rf'hadoop\.auth="?u=({_USER_NAME})&')
_MAX_GENERATED: Final = 1000
_NO_EXPIRY: Final = 253402300799000


class RateLimit:
    """Safe to use from many threads. `clock` returns seconds that never run backwards."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def allows(self, name: str) -> bool:
        """Take a token from the name's bucket; False when there is none."""
        with self._lock:
            now = self._clock()
            # Taken out and put back at the end: the bucket that was unused longest goes when there are too many.
            tokens, filled_at = self._buckets.pop(name, (self._burst, now))
            tokens = min(self._burst, tokens + (now - filled_at) * self._per_second)
            allowed = tokens >= 1
            self._buckets[name] = (tokens - 1 if allowed else tokens, now)
            # Requests without a proof are counted by address, and an attacker may have any number of those.
            if len(self._buckets) > _MAX_NAMES:
                self._buckets.popitem(last=False)
            return allowed


class ServedKeys(KeyProvider, Protocol):
    """A key provider that also says which keys it has."""

    def names(self) -> list[str]:
        """Return the names of all keys."""
        ...

    def describe(self, name: str) -> KeyDescription:
        """Return what there is to know of the named key. Raises KeyNotFoundError."""
        ...


@dataclass(frozen=True)
class KmsResponse:
    """What to send back, and what to log: which user did what with which key. `content` may hold a local key and is never shown."""

    status: int
    content: bytes = field(default=b"", repr=False)
    cookie: str | None = None
    user: str = "-"
    operation: str = "-"
    key: str = "-"
    reason: str = ""


class HadoopKms:
    """Answers requests from `keys` to whom `allow_list()` allows it.

    Args:
        keys: the master keys.
        allow_list: returns the current list.
        rate: how often one user, or one address without a known user, may ask.
        believe_names: take `user.name`, which anyone can claim, for a proof, where a request was sent to localhost or a loopback address.
    """

    def __init__(self, keys: ServedKeys, allow_list: Callable[[], AllowList], rate: RateLimit, *, believe_names: bool = False) -> None:
        self._keys = keys
        self._allow_list = allow_list
        self._rate = rate
        self.believes_names = believe_names
        self._operations: Mapping[str, Callable[[KmsCall], Any]] = {
            "metadata": self._metadata,
            "current": self._current,
            "versions": self._versions,
            "version": self._version,
            "generate": self._generate,
            "decrypt": self._decrypt,
        }

    def respond(self, request: KmsRequest) -> KmsResponse:
        """Answer one request. Never raises for what a client or the KMS does: every failure is a response."""
        user, call = "-", KmsCall("-")
        try:
            token, path, query = split_target(request.target)
            # Hadoop's client logs in first and asks for nothing then, so no key is at stake before a proof is looked at.
            if request.method == "OPTIONS":
                return KmsResponse(200, cookie=self._login(request, query), operation="login")
            allowed, user = self._identify(request, token)
            call = understand(request, path, query)
            content = self._perform(allowed, user, call)
        except Refusal as refusal:
            return _refused(refusal, user, call)
        except TablecryptError as error:
            return _refused(_translated(error), user, call)

        return KmsResponse(200, json.dumps(content).encode(), user=user, operation=call.operation, key=call.shown_key)

    def _login(self, request: KmsRequest, query: Mapping[str, list[str]]) -> str | None:
        """The cookie with which Hadoop's client repeats its user name, if the server trusts names. It proves nothing and is not signed."""
        name = query.get("user.name", [""])[0]
        # The name becomes part of a header: only characters that cannot end it are repeated.
        if not self._believes(request) or not re.fullmatch(_USER_NAME, name):
            return None
        return f'hadoop.auth="u={name}&p={name}&t=simple&e={_NO_EXPIRY}"; Path=/; HttpOnly'

    def _identify(self, request: KmsRequest, token: str | None) -> tuple[AllowList, str]:
        """Return the list and the user. What brings no proof at all is counted and refused before the list is looked at."""
        claimed = None
        if self._believes(request):
            found = _COOKIE.search(request.cookie)
            claimed = found[1] if found else None
        proofs = Proofs(token, request.certificate, claimed)
        # Counted by address and refused before the list is read: a flood without proofs costs no file access.
        if not proofs:
            self._refuse_stranger(request)
        allowed = self._allow_list()
        user = allowed.user(proofs)
        if user is None:
            self._refuse_stranger(request)
        # Counted by user and not by address, so that many machines of one user share a limit.
        self._count(f"user {user}")

        return allowed, user

    def _believes(self, request: KmsRequest) -> bool:
        # A browser on this machine lets the pages of a website ask the website's own name, which may have come to mean 127.0.0.1.
        return self.believes_names and request.is_for_loopback

    def _refuse_stranger(self, request: KmsRequest) -> NoReturn:
        self._count(f"peer {request.peer}")
        raise Refusal(403, SECURITY, "the request does not prove that it comes from a user of the allow list")

    def _count(self, name: str) -> None:
        if not self._rate.allows(name):
            raise Refusal(429, ILLEGAL_STATE, "too many requests: ask again later")

    def _perform(self, allowed: AllowList, user: str, call: KmsCall) -> Any:
        if call.operation == "names":
            return allowed.allowed(user, self._keys.names())
        if call.operation == "metadata of many":
            # Names without the right are left out and not refused: the answer must not tell whether such a key exists.
            names = allowed.allowed(user, call.query.get("key", []))
            return [self._metadata(KmsCall("metadata", name)) for name in names]

        # Decided before the key is looked up: a user without the right cannot find out which keys there are.
        decision = allowed.decision(user, call.key)
        if decision is AccessDecision.ALLOWED:
            return self._operations[call.operation](call)

        message = f"user {user} is not allowed to use key {call.key}"
        # ORC reads on with masks after an IOException alone, so every other refusal is an unchecked exception.
        raise Refusal(403, AUTHORIZATION if decision is AccessDecision.MASKS else SECURITY, message)

    def _metadata(self, call: KmsCall) -> dict[str, Any]:
        known = self._keys.describe(call.key)
        return {
            "name": known.name,
            "cipher": "AES/CTR/NoPadding",
            "length": 8 * known.length,
            "description": None,
            "attributes": {},
            "created": known.created,
            "versions": known.versions,
        }

    def _current(self, call: KmsCall) -> dict[str, str]:
        return _version_json(call.key, self._keys.describe(call.key).versions - 1)

    def _versions(self, call: KmsCall) -> list[dict[str, str]]:
        return [_version_json(call.key, version) for version in range(self._keys.describe(call.key).versions)]

    def _version(self, call: KmsCall) -> dict[str, str]:
        self._master(call)
        return _version_json(call.key, call.version)

    def _generate(self, call: KmsCall) -> list[dict[str, Any]]:
        count = call.query.get("num_keys", ["1"])[0]
        if not re.fullmatch("[0-9]{1,4}", count) or not 1 <= int(count) <= _MAX_GENERATED:
            raise Refusal(400, ILLEGAL_ARGUMENT, f"num_keys must be a number from 1 to {_MAX_GENERATED}")

        master = self._keys.current_version(call.key)
        made = [self._keys.create_local_key(master).encrypted for _ in range(int(count))]

        return [
            {
                "versionName": str(master),
                "iv": _encode(sent_iv(encrypted)),
                "encryptedKeyVersion": {"versionName": "EEK", "material": _encode(encrypted)},
            }
            for encrypted in made
        ]

    def _decrypt(self, call: KmsCall) -> dict[str, str]:
        encrypted = encrypted_local_key(call)
        local_key = self._keys.decrypt_local_key(self._master(call, len(encrypted)), encrypted)
        return {"name": call.key, "versionName": "EK", "material": _encode(local_key.reveal())}

    def _master(self, call: KmsCall, length: int | None = None) -> MasterKeyVersion:
        known = self._keys.describe(call.key)
        if call.version >= known.versions:
            raise KeyNotFoundError(f"there is no version {call.version} of key {call.key!r}")
        return MasterKeyVersion(call.key, call.version, length or known.length)


def refused(status: int, message: str, java_class: str = ILLEGAL_ARGUMENT) -> KmsResponse:
    """The response to anything that is not a request of the protocol."""
    return _refused(Refusal(status, java_class, message), "-", KmsCall("-"))


def _refused(refusal: Refusal, user: str, call: KmsCall) -> KmsResponse:
    body = {
        "RemoteException": {
            "message": refusal.message,
            "exception": refusal.java_class.rpartition(".")[2],
            "javaClassName": refusal.java_class,
        }
    }
    return KmsResponse(
        refusal.status, json.dumps(body).encode(), user=user, operation=call.operation, key=call.shown_key, reason=refusal.reason
    )


def _translated(error: TablecryptError) -> Refusal:
    """What the client gets to know of an error: its kind. The log gets its message, which never holds a key."""
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, KeyNotFoundError):
        return Refusal(404, ILLEGAL_ARGUMENT, "there is no such key or version", reason)
    if isinstance(error, FormatError):
        return Refusal(400, ILLEGAL_ARGUMENT, "the encrypted local key does not fit the master key", reason)
    if isinstance(error, KmsUnavailableError):
        return Refusal(503, ILLEGAL_STATE, "the KMS behind this server is unavailable: ask again later", reason)

    # The kind alone: a message about the KMS behind this server is for its log, not for its clients.
    return Refusal(500, ILLEGAL_STATE, "this server cannot decrypt the key: its log says why", reason)


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _version_json(name: str, version: int) -> dict[str, str]:
    return {"name": name, "versionName": f"{name}@{version}"}
