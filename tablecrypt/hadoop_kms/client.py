"""Master keys in a Hadoop KMS (Apache Ranger KMS, Cloudera's, or `tablecrypt hadoop-kms`), used through its REST protocol.

    current_version      GET  <url>/v1/key/<name>/_metadata                         → versions, length in bits
    decrypt_local_key    POST <url>/v1/keyversion/<name>%40<n>/_eek?eek_op=decrypt  {"name", "iv", "material"} → {"material"}
    create_local_key     the same with fresh random bytes: encrypting and decrypting are one operation (tablecrypt/orc/key_providers.py)

    iv = the first 16 bytes of the encrypted local key, each complemented: the KMS complements them again before it uses them.

The files are those that Hive and Spark write with the same KMS, and they read ours. Every call of `decrypt_local_key` is a request: one for
each encrypted column of a file. Where several hosts are named, the next is asked when one is unavailable.

Raises: KmsCredentialsError for 401, KmsAccessDeniedError for 403, KeyNotFoundError for a key that the KMS does not know,
KmsUnavailableError when no host answers as it should, KmsError for any other answer, ConfigurationError for a URL or name that cannot be
used.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import requests
import urllib3.exceptions

from tablecrypt._per_process import PerProcess
from tablecrypt.bounded_answers import OF_KEY_SERVICES, bound_answers
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import (
    ConfigurationError,
    FormatError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    KmsCredentialsError,
    KmsError,
    KmsUnavailableError,
)
from tablecrypt.hadoop_kms.requests import AUTHORIZATION, SECURITY, decode_base64, sent_iv
from tablecrypt.kms.redaction import key_call, silence_in_key_calls
from tablecrypt.kms.resilient import AllowedKeys, RetryPolicy
from tablecrypt.orc.key_providers import DerivingProvider, MasterKeyVersion, check_local_key_length
from tablecrypt.properties import KMS_RETRY_BUDGET_MS

if TYPE_CHECKING:
    from requests.auth import AuthBase

T = TypeVar("T")

# At DEBUG it logs paths, which may hold tokens.
silence_in_key_calls("urllib3.connectionpool")
_NO_SUCH_KEY: Final = ("there is no such key or version", "not found")
"""What servers say of a key or version that they do not have: ours and Hadoop's."""
_MOST_VERSIONS: Final = 2**31 - 1
_HADOOP_URI: Final = re.compile(r"kms://(?P<scheme>https?)@(?P<hosts>[^/:]+)(?P<port>:[0-9]{1,5})?(?P<path>/.*)?")
_NAME: Final = re.compile(r"[^@/\x00-\x1f\x7f]{1,255}")


class HadoopKmsKeys(DerivingProvider):
    """The keys of one KMS, as one user.

    Args:
        url: "https://host:9600/kms", or what Hadoop's hadoop.security.key.provider.path says: "kms://https@host1;host2:9600/kms". A
            token of `tablecrypt hadoop-kms` is part of it: "https://host:9600/token/<token>/kms".
        user: the name to give to a KMS with simple authentication, which believes it. Others ignore it.
        auth: how requests are authenticated: an authentication handler of the package requests, such as Kerberos'.
        client_certificate: PEM file with a client certificate and its private key, or one file for each.
        ca: PEM file of the authority that must have issued the server's certificate; the system's by default.
        retry: how long to keep trying while no host is available.
        allowed_key_ids: globs of the keys of that KMS which files and callers may name; None allows every key. Any other is refused with
            MasterKeyRefusedError before the KMS is asked.
    """

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        auth: AuthBase | None = None,
        client_certificate: str | tuple[str, str] | None = None,
        ca: str | None = None,
        retry: RetryPolicy | None = None,
        allowed_key_ids: str | Iterable[str] | None = None,
    ) -> None:
        self._allowed = AllowedKeys.listed(allowed_key_ids)
        self._urls = _urls(url)
        self._user = user
        self._auth = auth
        self._client_certificate = client_certificate
        self._ca = ca
        self._retry = retry if retry is not None else RetryPolicy(budget_seconds=KMS_RETRY_BUDGET_MS.whole_number({}) / 1000)
        self._session = PerProcess(self._connect)

    def current_version(self, name: str) -> MasterKeyVersion:
        self._allowed.check((name,), "the writer of an ORC file")
        metadata = self._ask("GET", f"key/{_quoted(name)}/_metadata", name)
        if not metadata:
            raise KeyNotFoundError(f"the Hadoop KMS {self._shown} has no key {name!r}")

        versions, bits = _whole_number(metadata, "versions"), _whole_number(metadata, "length")
        # Of a number that ORC has no room for, the file that is written could be read by nobody.
        if not 1 <= versions <= _MOST_VERSIONS or bits % 8 != 0:
            raise KmsError(f"the Hadoop KMS {self._shown} says of key {name!r} that it has versions, or bits, of a number that no key has")

        check_local_key_length(bits // 8)

        return MasterKeyVersion(name, versions - 1, bits // 8)

    def decrypt_local_key(self, master: MasterKeyVersion, encrypted: bytes) -> Secret:
        # The name stands in the file's tail, which nothing authenticates: it must not choose among all keys of the KMS.
        self._allowed.check((master.name,), "an ORC file")
        check_local_key_length(master.length)
        if len(encrypted) != master.length:
            raise FormatError(f"an encrypted local key under {master} has {master.length} bytes, not {len(encrypted)}")

        body = {"name": master.name, "iv": base64.b64encode(sent_iv(encrypted)).decode(), "material": base64.b64encode(encrypted).decode()}
        answer = self._ask("POST", f"keyversion/{_quoted(master.name)}%40{master.version}/_eek?eek_op=decrypt", str(master), body)

        try:
            local_key = Secret(decode_base64(answer.get("material")))
        except ValueError:
            # Not chained: what was decoded is a key.
            raise KmsError(f"the Hadoop KMS {self._shown} answered with a local key under {master} that is not base64") from None

        # The answer is not authenticated: a key of another length would run another AES than the file's.
        if len(local_key) != master.length:
            raise FormatError(f"the Hadoop KMS {self._shown} returned a local key of {len(local_key)} bytes under {master}")

        return local_key

    def close(self) -> None:
        """Close connections. A later call opens new ones."""
        session = self._session.drop()
        if session is not None:
            session.close()

    @property
    def _shown(self) -> str:
        """The host, without the path, which may hold a token."""
        return urlsplit(self._urls[0]).netloc

    def _connect(self) -> requests.Session:
        session = requests.Session()
        session.auth = self._auth
        bound_answers(session, OF_KEY_SERVICES)
        return session

    def _ask(self, method: str, path: str, what: str, body: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        return self._retry.call(lambda: self._first_available(lambda url: self._send(method, f"{url}/v1/{path}", what, body)))

    def _first_available(self, ask: Callable[[str], T]) -> T:
        for url in self._urls[:-1]:
            try:
                return ask(url)
            except KmsUnavailableError:
                continue
        return ask(self._urls[-1])

    def _send(self, method: str, url: str, what: str, body: Mapping[str, str] | None) -> Mapping[str, Any]:
        host = urlsplit(url).netloc
        try:
            # A redirect would take the token, or the user's name, to another host.
            with (
                key_call(),
                self._session.get().request(
                    method,
                    url,
                    params={"user.name": self._user} if self._user else None,
                    json=body,
                    cert=self._client_certificate,
                    # Given here and not to the session, where REQUESTS_CA_BUNDLE would win over it.
                    verify=self._ca,
                    allow_redirects=False,
                ) as response,
            ):
                content, status = response.content, response.status_code
        # urllib3's own errors come from a body that is cut, or not encoded as its headers say; ValueError from a redirect to no URL.
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # Not chained: messages of requests quote the URL, which may hold a token.
            raise KmsUnavailableError(f"the Hadoop KMS {host} was not reached for {what} ({type(error).__name__})") from None

        if status != requests.codes.ok:
            raise _refusal(status, content, host, what)

        return _parsed(content, host, what)

    def __repr__(self) -> str:
        return f"HadoopKmsKeys({self._shown!r}, user={self._user!r})"


def _urls(url: str) -> list[str]:
    match = _HADOOP_URI.fullmatch(url)
    if match is None:
        return [_checked_url(url)]
    scheme, port, path = match["scheme"], match["port"] or "", match["path"] or ""
    return [_checked_url(f"{scheme}://{host}{port}{path}") for host in match["hosts"].split(";")]


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False

    # Messages show the part of the host, where a password would stand, and a query would swallow the path that is added.
    if not fits or parts.username is not None or parts.query or parts.fragment:
        # The URL is not repeated: it may hold a token.
        raise ConfigurationError("a Hadoop KMS has a URL like https://host:9600/kms, or kms://https@host:9600/kms")

    return url.rstrip("/")


def _quoted(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{name!r} cannot be the name of a key in a Hadoop KMS")
    return quote(name, safe="")


def _refusal(status: int, content: bytes, host: str, what: str) -> KmsError | KeyNotFoundError:
    if status == 401:
        return KmsCredentialsError(f"the Hadoop KMS {host} does not know this user ({status}), who asks for {what}: check the credentials")
    # These two mean no right: a reader may go on with masks after them, and after nothing else. So they count by Hadoop's word alone, and
    # not by a status, which a proxy, a wrong path or a token that is none gets too.
    said = _remote_exception(content)
    if status == 403 and said.get("javaClassName") == AUTHORIZATION:
        return KmsAccessDeniedError(f"the Hadoop KMS {host} refuses {what} to this user ({status})")
    # Hadoop's own server says 400 of a version that it does not have.
    if status in {400, 404} and any(each in str(said.get("message")) for each in _NO_SUCH_KEY):
        return KeyNotFoundError(f"the Hadoop KMS {host} has no {what}")
    if status == 429 or status >= 500:
        return KmsUnavailableError(f"the Hadoop KMS {host} cannot answer for {what} now ({status})")

    if status == 403 and said.get("javaClassName") == SECURITY:
        return KmsError(f"the Hadoop KMS {host} refuses {what} to this user ({status}), and allows no mask for it: check the user's token")

    return KmsError(f"the Hadoop KMS {host} refused the request for {what} ({status}), not for want of a right: check the path of its URL")


def _remote_exception(content: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(content)["RemoteException"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return {}
    return said if isinstance(said, dict) else {}


def _parsed(content: bytes, host: str, what: str) -> Mapping[str, Any]:
    try:
        answer = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        # Not chained: the text may hold a key.
        raise KmsError(f"the Hadoop KMS {host} answered for {what} with something other than JSON") from None

    if not isinstance(answer, Mapping):
        raise KmsError(f"the Hadoop KMS {host} answered for {what} with something other than an object")

    return answer


def _whole_number(answer: Mapping[str, Any], name: str) -> int:
    value = answer.get(name)
    # Not isinstance: true would be 1.
    if type(value) is not int:
        raise KmsError(f"the Hadoop KMS answered without {name}")
    return value
