"""Access to the ORC keys of the Hadoop KMS: the allow list, and how a request proves which user it comes from.

    [users.etl]
    keys = ["pii", "cards"]             may encrypt and decrypt under these
    token-sha256 = ["9f86d081884c..."]  proof: a token in the provider's path, .../token/<token>/kms
    certificates = ["etl.example.org"]  proof: a client certificate with this common name, issued by the server's client CA

    [users.analyst]
    keys = ["cards"]
    masks = ["pii"]                     denied, and a read continues with ORC's masks instead of failing
    token-sha256 = ["60303ae22b99..."]

What is not listed is denied. A user without a proof is known only by the name that the client gives, and only where the server is
configured to believe names. The file holds hashes of tokens, which are long and random, and no secret. It is read at each request, so a
removed line counts at once, and parsed only when its bytes have changed: a flood of requests causes no parsing, even of a file that is not
a valid list.

Raises: ConfigurationError when the file cannot be read or understood, or gives one proof to two users.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from tablecrypt._bytes import small_content
from tablecrypt._parsed_json import problem_of
from tablecrypt.errors import ConfigurationError

_MAX_BYTES: Final = 4 * 1024 * 1024
_TOKEN_BYTES: Final = 32
_USER_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@/-]{0,127}")

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class AccessDecision(Enum):
    """What the list says of a user and a key."""

    ALLOWED = "allowed"
    MASKS = "masks"
    DENIED = "denied"


class _User(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    keys: list[str] = []
    masks: list[str] = []
    token_sha256: list[Sha256] = Field(default=[], alias="token-sha256")
    certificates: list[str] = []


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    users: dict[str, _User] = {}


@dataclass(frozen=True)
class Proofs:
    """What came with a request. `certificate` was verified by TLS; `claimed` is only a name, and None unless the server trusts names."""

    token: str | None = None
    certificate: str | None = None
    claimed: str | None = None

    def __bool__(self) -> bool:
        return self.token is not None or self.certificate is not None or self.claimed is not None

    def __repr__(self) -> str:
        return f"Proofs(token={'given' if self.token else None}, certificate={self.certificate!r}, claimed={self.claimed!r})"


class AllowList:
    """The list at one moment."""

    def __init__(self, document: _Document) -> None:
        self._users = document.users
        self._by_token = _unique((hash_, name) for name, user in document.users.items() for hash_ in user.token_sha256)
        self._by_certificate = _unique((common, name) for name, user in document.users.items() for common in user.certificates)

    def user(self, proofs: Proofs) -> str | None:
        """Return the user that sent the request; None when no proof holds, or when two name different users."""
        found = set()
        if proofs.token is not None:
            found.add(self._by_token.get(token_hash(proofs.token)))
        if proofs.certificate is not None:
            found.add(self._by_certificate.get(proofs.certificate))
        # A claimed name counts only where no proof was given: it must not stand in for a token that did not hold.
        if not found and proofs.claimed in self._users:
            found.add(proofs.claimed)
        # Two proofs of different users, or one that holds and one that does not, come from a confused or stolen credential.
        return found.pop() if len(found) == 1 else None

    def decision(self, user: str, key: str) -> AccessDecision:
        """Return whether `user` may use `key`."""
        listed = self._users.get(user, _User())
        # Masks win over a key that is listed in both: of two entries the one that shows less counts.
        if key in listed.masks:
            return AccessDecision.MASKS
        return AccessDecision.ALLOWED if key in listed.keys else AccessDecision.DENIED

    def allowed(self, user: str, names: Iterable[str]) -> list[str]:
        """Return those of `names` that `user` may use."""
        return [name for name in names if self.decision(user, name) is AccessDecision.ALLOWED]


class AllowListFile:
    """The file, for many threads that need the current list. `parse` returns what TOML says."""

    def __init__(self, path: Path, parse: Callable[[str], dict[str, Any]] = tomllib.loads) -> None:
        self._path = path
        self._parse = parse
        # One reference to both, so that a thread never meets the bytes of one list with the users of another.
        self._parsed: tuple[bytes, AllowList | str] | None = None

    def read(self) -> AllowList:
        """Return the list. Its bytes are read each time, and parsed only when they have changed."""
        content, known = _content(self._path), self._parsed
        if known is None or known[0] != content:
            known = self._parsed = content, self._list_or_problem(content)
        if isinstance(known[1], str):
            raise ConfigurationError(known[1])
        return known[1]

    def _list_or_problem(self, content: bytes) -> AllowList | str:
        try:
            return _allow_list(self._path, content, self._parse)
        except ConfigurationError as error:
            return str(error)


def _content(path: Path) -> bytes:
    try:
        return small_content(path, _MAX_BYTES)
    except OSError as error:
        raise ConfigurationError(f"the allow list {path} cannot be read ({error.strerror})") from error


def _allow_list(path: Path, content: bytes, parse: Callable[[str], dict[str, Any]]) -> AllowList:
    try:
        document = _Document.model_validate(parse(content.decode()))
    except ValidationError as error:
        # Without the cause: the message goes to the log, and a token may stand where its hash belongs.
        raise ConfigurationError(f"the allow list {path}: {problem_of(error)}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(f"the allow list {path} is not TOML: {error}") from error

    for name in document.users:
        if not _USER_NAME.fullmatch(name):
            raise ConfigurationError(f"the allow list {path}: {name!r} cannot be a user's name")
    try:
        return AllowList(document)
    except ConfigurationError as error:
        raise ConfigurationError(f"the allow list {path}: {error}") from None


def new_token() -> str:
    """Return a fresh token of 256 random bits, in URL-safe text."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def token_hash(token: str) -> str:
    """Return what the list holds of a token. One SHA-256 is enough for a token that cannot be guessed."""
    return hashlib.sha256(token.encode()).hexdigest()


def _unique(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    owners: dict[str, str] = {}
    for proof, name in pairs:
        # One proof for two users would give each of them the keys of the other.
        if owners.setdefault(proof, name) != name:
            raise ConfigurationError(f"the users {owners[proof]!r} and {name!r} have a token or certificate in common")
    return owners
