"""Requests of Hadoop's KMS REST protocol, understood or refused before anything is done for them.

    /kms/v1/<collection>/<name>/<what>?<query>             names are percent-encoded
    /token/<token>/kms/v1/...                              the same, with the caller's proof before it

An encrypted local key comes as JSON {"name", "iv", "material"} in either alphabet of base64. Hadoop's client sends the complement of the
bytes that ORC took as the IV: iv = ~(first 16 bytes of the encrypted local key). Other IVs, which HDFS would send, are refused: this server
decrypts local keys, and does not offer AES-CTR under the master key.

Raises Refusal, which names the Java exception that Hadoop's client throws for it.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from tablecrypt.hadoop_kms.master_keys import KEY_NAME

_VERSION_NAME: Final = re.compile(rf"({KEY_NAME.pattern})@([0-9]{{1,9}})")
_IV_LENGTH: Final = 16
_MAX_FIELDS: Final = 1000

AUTHORIZATION: Final = "org.apache.hadoop.security.authorize.AuthorizationException"
SECURITY: Final = "java.lang.SecurityException"
ILLEGAL_ARGUMENT: Final = "java.lang.IllegalArgumentException"
ILLEGAL_STATE: Final = "java.lang.IllegalStateException"
UNSUPPORTED: Final = "java.lang.UnsupportedOperationException"


@dataclass(frozen=True)
class KmsRequest:
    """One request.

    Attributes:
        target: path and query as they came.
        certificate: the common name of the verified client certificate.
        host: by which name, and port, the client asked for this server; empty where it gave none, or two.
    """

    method: str
    target: str = field(repr=False)
    body: bytes = b""
    cookie: str = ""
    certificate: str | None = None
    peer: str = "-"
    host: str = ""

    @property
    def is_for_loopback(self) -> bool:
        """Whether the client asked for this machine by a name that means no other machine."""
        try:
            name = urlsplit(f"//{self.host}").hostname
            return name == "localhost" or ipaddress.ip_address(name or "").is_loopback
        except ValueError:
            return False


class Refusal(Exception):
    """Ends a request with a status and a Java exception for the client; `reason` is for the log alone."""

    def __init__(self, status: int, java_class: str, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.java_class = java_class
        self.message = message
        self.reason = reason or message


@dataclass(frozen=True)
class KmsCall:
    """An understood request of a known user: what is asked, of which key, of which version."""

    operation: str
    key: str = ""
    version: int = 0
    query: Mapping[str, list[str]] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)

    @property
    def shown_key(self) -> str:
        """What the log says of the key."""
        return f"{self.key}@{self.version}" if self.operation in {"decrypt", "version"} else self.key or "-"


def split_target(target: str) -> tuple[str | None, list[str], Mapping[str, list[str]]]:
    """Return the token, the parts of the path after /kms/v1, and the query."""
    path, _, query_text = target.partition("?")
    # Split before decoding: an encoded slash belongs to a name and must not begin another part.
    parts = [unquote(part) for part in path.split("/")[1:]]
    token = None
    if len(parts) > 2 and parts[0] == "token":
        token, parts = parts[1], parts[2:]
    if parts[:2] != ["kms", "v1"]:
        raise Refusal(404, ILLEGAL_ARGUMENT, "paths begin with /kms/v1, or /token/<token>/kms/v1")

    try:
        # Bounded, because a query of millions of fields costs more than the request that brings it.
        return token, parts[2:], parse_qs(query_text, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise Refusal(400, ILLEGAL_ARGUMENT, f"a query has at most {_MAX_FIELDS} fields") from None


def understand(request: KmsRequest, path: list[str], query: Mapping[str, list[str]]) -> KmsCall:
    """Return what the request asks for. `path` and `query` are those of split_target."""
    match request.method, path:
        case "GET", ["keys", "names"]:
            return KmsCall("names")
        case "GET", ["keys", "metadata"]:
            return KmsCall("metadata of many", query=query)
        case "GET", ["key", name, "_metadata"]:
            return KmsCall("metadata", _checked_name(name))
        case "GET", ["key", name, "_currentversion"]:
            return KmsCall("current", _checked_name(name))
        case "GET", ["key", name, "_versions"]:
            return KmsCall("versions", _checked_name(name))
        case "GET", ["key", name, "_eek"] if query.get("eek_op") == ["generate"]:
            return KmsCall("generate", _checked_name(name), query=query)
        case "GET", ["keyversion", version_name]:
            return KmsCall("version", *_checked_version(version_name))
        case "POST", ["keyversion", version_name, "_eek"] if query.get("eek_op") == ["decrypt"]:
            return KmsCall("decrypt", *_checked_version(version_name), body=request.body)

    raise Refusal(
        405, UNSUPPORTED, "this server decrypts ORC's local keys and does nothing else: keys are made with tablecrypt hadoop-kms-key"
    )


def _checked_name(name: str) -> str:
    if not KEY_NAME.fullmatch(name):
        raise Refusal(400, ILLEGAL_ARGUMENT, "this is not a valid name of a key")
    return name


def _checked_version(version_name: str) -> tuple[str, int]:
    match = _VERSION_NAME.fullmatch(version_name)
    if match is None:
        raise Refusal(400, ILLEGAL_ARGUMENT, "a key version is written as name@number")
    return match[1], int(match[2])


def encrypted_local_key(call: KmsCall) -> bytes:
    """Return the encrypted local key in the body of a decrypt call."""
    try:
        body = json.loads(call.body)
        name, iv, encrypted = body["name"], decode_base64(body["iv"]), decode_base64(body["material"])
    except (ValueError, KeyError, TypeError, RecursionError):
        # Not chained: what was sent stays out of the log.
        raise Refusal(400, ILLEGAL_ARGUMENT, "the body is not JSON with name, iv and material") from None

    # The allow list was asked for the name in the path: the body must not bring in another key.
    if name != call.key:
        raise Refusal(400, ILLEGAL_ARGUMENT, "body and path name different keys")
    # A free IV would give AES-CTR under the master key to the caller, and with it any other local key.
    if len(encrypted) < _IV_LENGTH or iv != sent_iv(encrypted):
        raise Refusal(400, ILLEGAL_ARGUMENT, "this server decrypts only ORC's local keys, whose IV is their first 16 bytes")

    return encrypted


def decode_base64(text: object) -> bytes:
    """Decode either alphabet of base64, padded or not, as Hadoop writes both. Raises ValueError for anything else."""
    if not isinstance(text, str):
        raise ValueError("not text")
    bare = text.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)


def sent_iv(encrypted: bytes) -> bytes:
    """The IV that Hadoop's client sends with an encrypted local key."""
    return bytes(byte ^ 0xFF for byte in encrypted[:_IV_LENGTH])
