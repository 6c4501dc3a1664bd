"""Azure Key Vault as far as keys need it: wrapkey and unwrapkey over its documented JSON, with real RSA-OAEP-256 and AES-KW.

The vault answers a request without a token with the challenge of the real one. The SDK asks that the vault's host end with "." and the
host of the challenge's resource, so for the vault at 127.0.0.1:1234 the resource is https://0.0.1:1234.
"""

from __future__ import annotations

import base64
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azure.core.credentials import AccessToken
from cryptography.hazmat.primitives import hashes, keywrap
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.kms.services.http_service import Answer, HttpService, Request

_PATH = re.compile(r"/keys/(?P<name>[^/?]+)/(?P<version>[0-9a-f]{32})?/(?P<operation>wrapkey|unwrapkey)\?api-version=")
_OAEP = {
    "RSA-OAEP": padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None),
    "RSA-OAEP-256": padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None),
}

Key = rsa.RSAPrivateKey | bytes


@dataclass(frozen=True)
class StaticCredential:
    """An azure TokenCredential with one token."""

    token: str

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken(self.token, int(time.time()) + 3600)


class KeyVault(HttpService):
    token = "test-token"

    def __init__(self, certificate: tuple[Path, Path]) -> None:
        self.keys: dict[str, dict[str, Key]] = {}
        self.forbidden: set[tuple[str, str]] = set()
        super().__init__(certificate)

    def create_key(self, name: str, key: Key | None = None) -> str:
        """Add a version of the key, RSA 2048 unless a key is given; return the version."""
        version = secrets.token_hex(16)
        made = key if key is not None else rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.keys.setdefault(name, {})[version] = made
        return version

    def answer(self, request: Request) -> Answer:
        if request.headers.get("authorization") is None:
            challenge = f'Bearer authorization="https://login.microsoftonline.com/tenant", resource="https://0.0.1:{self.port}"'
            return Answer(401, {}, {"WWW-Authenticate": challenge})
        if request.headers["authorization"] != f"Bearer {self.token}":
            return _error(401, "Unauthorized")
        match = _PATH.match(request.path)
        if match is None:
            return _error(404, "NotFound")
        operation = match["operation"]
        versions = self.keys.get(match["name"], {})
        version = match["version"] or next(reversed(versions), "")
        if (match["name"], operation) in self.forbidden:
            return _error(403, "Forbidden")
        if version not in versions:
            return _error(404, "KeyNotFound")
        return _operate(operation, versions[version], request, f"{self.url}/keys/{match['name']}/{version}")


def _operate(operation: str, key: Key, request: Request, key_id: str) -> Answer:
    value = _decode(request.body["value"])
    algorithm = request.body["alg"]
    try:
        if isinstance(key, bytes):
            if algorithm != f"A{len(key) * 8}KW":
                return _error(400, "BadParameter")
            result = keywrap.aes_key_wrap(key, value) if operation == "wrapkey" else keywrap.aes_key_unwrap(key, value)
        else:
            result = key.public_key().encrypt(value, _OAEP[algorithm]) if operation == "wrapkey" else key.decrypt(value, _OAEP[algorithm])
    except (ValueError, KeyError, keywrap.InvalidUnwrap):
        return _error(400, "BadParameter")
    return Answer(200, {"kid": key_id, "value": _encode(result)})


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _error(status: int, code: str) -> Answer:
    return Answer(status, {"error": {"code": code, "message": code}})
