"""Vault's transit engine as far as keys need it, over its documented JSON, with real AES-GCM and key versions; and AppRole's login."""

from __future__ import annotations

import base64
import binascii
import re
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.kms.services.http_service import Answer, HttpService, Request

_PATH = re.compile(r"/v1/transit/(?P<operation>encrypt|decrypt|rewrap|datakey/plaintext)/(?P<name>[^/?]+)")
_CIPHERTEXT = re.compile(r"vault:v(?P<version>\d+):(?P<encrypted>.+)")


class Transit(HttpService):
    role_id = "test-role"
    secret_id = "test-secret-id"

    def __init__(self) -> None:
        self.tokens: set[str] = {"root-token"}
        self.keys: dict[str, list[AESGCM]] = {}
        self.forbidden: set[tuple[str, str]] = set()
        self.names_invalid_tokens = True
        super().__init__()

    def rotate(self, name: str) -> None:
        self.keys.setdefault(name, []).append(AESGCM(secrets.token_bytes(32)))

    def answer(self, request: Request) -> Answer:
        if request.path == "/v1/auth/approle/login":
            return self._login(request)
        if request.headers.get("x-vault-token") not in self.tokens:
            # OpenBao and older versions of Vault say no more of a token that has expired.
            return _errors(403, "permission denied", *(("invalid token",) if self.names_invalid_tokens else ()))
        if request.path == "/v1/auth/token/lookup-self":
            return Answer(200, {"data": {"ttl": 60}})
        match = _PATH.fullmatch(request.path)
        if match is None:
            return _errors(404, "no handler for route")
        operation, name = match["operation"], match["name"]
        # Writing to a key that is not there is a "create", which the policies of the documentation do not allow.
        if (name, operation) in self.forbidden or (name not in self.keys and operation not in ("decrypt", "rewrap")):
            return _errors(403, "permission denied")
        if name not in self.keys:
            return _errors(400, "encryption key not found")
        if operation in ("decrypt", "rewrap"):
            opened = self._decrypt(name, request)
            if operation == "decrypt" or opened.status != 200:
                return opened
            key = base64.b64decode(opened.body["data"]["plaintext"])
            return Answer(200, {"data": {"ciphertext": self._encrypt(name, key), "key_version": len(self.keys[name])}})
        key = secrets.token_bytes(request.body["bits"] // 8) if operation != "encrypt" else base64.b64decode(request.body["plaintext"])
        answer = {"ciphertext": self._encrypt(name, key), "key_version": len(self.keys[name])}
        return Answer(200, {"data": answer if operation == "encrypt" else {**answer, "plaintext": base64.b64encode(key).decode()}})

    def _login(self, request: Request) -> Answer:
        if (request.body.get("role_id"), request.body.get("secret_id")) != (self.role_id, self.secret_id):
            return _errors(400, "invalid role or secret ID")
        token = f"hvs.{secrets.token_hex(8)}"
        self.tokens.add(token)
        return Answer(200, {"auth": {"client_token": token, "lease_duration": 60, "renewable": True}})

    def _encrypt(self, name: str, key: bytes) -> str:
        versions = self.keys[name]
        nonce = secrets.token_bytes(12)
        return f"vault:v{len(versions)}:{base64.b64encode(nonce + versions[-1].encrypt(nonce, key, None)).decode()}"

    def _decrypt(self, name: str, request: Request) -> Answer:
        match = _CIPHERTEXT.fullmatch(request.body["ciphertext"])
        versions = self.keys[name]
        if match is None or not 1 <= int(match["version"]) <= len(versions):
            return _errors(400, "invalid ciphertext: version is not known")
        try:
            encrypted = base64.b64decode(match["encrypted"])
            key = versions[int(match["version"]) - 1].decrypt(encrypted[:12], encrypted[12:], None)
        except (binascii.Error, InvalidTag, ValueError):
            return _errors(400, "cipher: message authentication failed")
        return Answer(200, {"data": {"plaintext": base64.b64encode(key).decode()}})


def _errors(status: int, *messages: str) -> Answer:
    return Answer(status, {"errors": list(messages)})
