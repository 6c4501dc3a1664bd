"""Requests to the Hadoop KMS: every one gets a response, and none a response that it may not have."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path

import atheris
from harness import fuzz

with atheris.instrument_imports(include=["tablecrypt"]):
    from tablecrypt.hadoop_kms.access import AllowListFile, token_hash
    from tablecrypt.hadoop_kms.master_keys import MasterKeyFile, create_key
    from tablecrypt.hadoop_kms.protocol import HadoopKms, RateLimit
    from tablecrypt.hadoop_kms.requests import KmsRequest, sent_iv
    from tablecrypt.kms.memory import MemoryKeyManagementClient

TOKEN = "a-token-of-the-fuzzer"
METHODS = ("GET", "POST", "OPTIONS")
FOLDER = Path(tempfile.mkdtemp())
KMS = MemoryKeyManagementClient(keys={"master": bytes(32)})
create_key(FOLDER / "keys.json", KMS, "pii", "master", 1)
create_key(FOLDER / "keys.json", KMS, "hidden", "master", 1)
(FOLDER / "allow.toml").write_text(f'[users.u]\nkeys = ["pii"]\ntoken-sha256 = ["{token_hash(TOKEN)}"]\n')
ALLOWED = AllowListFile(FOLDER / "allow.toml").read()
SERVICE = HadoopKms(MasterKeyFile(FOLDER / "keys.json", KMS), lambda: ALLOWED, RateLimit(1e9, 10**9))


def ask(data: bytes) -> None:
    """Method, then path and query, then body, between zero bytes."""
    method, target, body = [*data.split(b"\0", 2), b"", b""][:3]
    response = SERVICE.respond(KmsRequest(METHODS[sum(method) % 3], f"/{target.decode('latin-1')}", body))
    assert response.status in {200, 400, 403, 404, 405}
    assert response.status != 200 or TOKEN.encode() in target or response.operation == "login"
    assert response.status != 200 or not response.key.startswith("hidden")


ENCRYPTED = bytes(range(16))
BODY = json.dumps(
    {"name": "pii", "iv": base64.b64encode(sent_iv(ENCRYPTED)).decode(), "material": base64.b64encode(ENCRYPTED).decode()}
).encode()
SEEDS = [
    b"\0token/%s/kms/v1/key/pii/_metadata\0" % TOKEN.encode(),
    b"\0token/%s/kms/v1/key/hidden/_metadata\0" % TOKEN.encode(),
    b"\0token/%s/kms/v1/keys/metadata?key=pii&key=hidden\0" % TOKEN.encode(),
    b"\0token/%s/kms/v1/key/pii/_eek?eek_op=generate&num_keys=2\0" % TOKEN.encode(),
    b"\1\0token/%s/kms/v1/keyversion/pii%%400/_eek?eek_op=decrypt\0" % TOKEN.encode() + BODY,
]

if __name__ == "__main__":
    fuzz(ask, SEEDS)
