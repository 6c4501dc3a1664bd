"""Google Cloud KMS as far as keys need it: encrypt and decrypt of symmetric keys over its documented JSON, with real AES-GCM."""

from __future__ import annotations

import base64
import re
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.kms.services.http_service import Answer, HttpService, Request

_PATH = re.compile(r"/v1/(?P<name>projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/:?]+):(?P<operation>encrypt|decrypt)")


class CloudKms(HttpService):
    token = "ya29.test-token"

    def __init__(self) -> None:
        self.keys: dict[str, AESGCM] = {}
        self.disabled: set[str] = set()
        self.forbidden: set[str] = set()
        super().__init__()

    def create_key(self, name: str) -> str:
        full_name = f"projects/test/locations/global/keyRings/ring/cryptoKeys/{name}"
        self.keys[full_name] = AESGCM(secrets.token_bytes(32))
        return full_name

    def answer(self, request: Request) -> Answer:
        match = _PATH.match(request.path)
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return _error(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        if match is None or request.method != "POST":
            return _error(404, "NOT_FOUND", "no such method")
        name = match["name"]
        if name in self.forbidden:
            return _error(403, "PERMISSION_DENIED", f"Permission denied on resource '{name}'.")
        if name not in self.keys:
            return _error(404, "NOT_FOUND", f"CryptoKey {name} not found.")
        if name in self.disabled:
            return _error(400, "FAILED_PRECONDITION", f"{name}/cryptoKeyVersions/1 is not enabled, current state is: DISABLED.")
        return self._encrypt(name, request) if match["operation"] == "encrypt" else self._decrypt(name, request)

    def _encrypt(self, name: str, request: Request) -> Answer:
        nonce = secrets.token_bytes(12)
        encrypted = nonce + self.keys[name].encrypt(nonce, base64.b64decode(request.body["plaintext"]), name.encode())
        return Answer(200, {"name": f"{name}/cryptoKeyVersions/1", "ciphertext": base64.b64encode(encrypted).decode()})

    def _decrypt(self, name: str, request: Request) -> Answer:
        encrypted = base64.b64decode(request.body.get("ciphertext", ""))
        try:
            key = self.keys[name].decrypt(encrypted[:12], encrypted[12:], name.encode())
        except (InvalidTag, ValueError):
            return _error(400, "INVALID_ARGUMENT", "Decryption failed: verify that 'name' refers to the correct CryptoKey.")
        return Answer(200, {"plaintext": base64.b64encode(key).decode()})


def _error(code: int, status: str, message: str) -> Answer:
    return Answer(code, {"error": {"code": code, "status": status, "message": message}})
