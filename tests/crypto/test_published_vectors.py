"""Published AES-GCM vectors through our own layer: NIST CAVP and Project Wycheproof."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cryptography_vectors
import pytest

from tablecrypt.crypto.aes_gcm import AesGcm
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ConfigurationError

WYCHEPROOF = Path(__file__).parents[1] / "vectors" / "wycheproof" / "aes_gcm_test.json"
CAVP = "ciphers/AES/GCM"


@dataclass(frozen=True)
class Vector:
    """One published case; `plaintext` is None where the bytes must be refused."""

    key: bytes
    nonce: bytes
    aad: bytes
    ciphertext: bytes
    tag: bytes
    plaintext: bytes | None


def check(vector: Vector) -> None:
    cipher = AesGcm(Secret(vector.key))
    encrypted = vector.nonce + vector.ciphertext + vector.tag
    target = bytearray(len(vector.ciphertext))
    if vector.plaintext is None:
        with pytest.raises(AuthenticationError):
            cipher.decrypt(encrypted, vector.aad)
        with pytest.raises(AuthenticationError):
            cipher.decrypt_into(encrypted, vector.aad, target)
        assert not any(target)
        return
    cipher.decrypt_into(encrypted, vector.aad, target)
    assert cipher.decrypt(encrypted, vector.aad) == vector.plaintext == target
    assert cipher.encrypt(vector.nonce, vector.plaintext, vector.aad) == encrypted


def cavp_vectors(name: str) -> Iterator[Vector]:
    """The cases with a 96-bit IV and a 128-bit tag. A case is a block of `name = hex` lines; a bare FAIL says that it must be refused."""
    with cryptography_vectors.open_vector_file(f"{CAVP}/{name}", "r") as file:
        paragraphs = file.read().split("\n\n")
    for paragraph in paragraphs:
        lines = paragraph.split("\n")
        fields = {
            key.strip(): bytes.fromhex(value.strip())
            for key, sign, value in (line.partition("=") for line in lines)
            if is_hex_field(key, sign)
        }
        if "Key" not in fields or len(fields["IV"]) != 12 or len(fields["Tag"]) != 16:
            continue
        refused = "FAIL" in lines
        yield Vector(fields["Key"], fields["IV"], fields["AAD"], fields["CT"], fields["Tag"], None if refused else fields["PT"])


def is_hex_field(key: str, sign: str) -> bool:
    return bool(sign) and key.strip() in {"Key", "IV", "CT", "AAD", "Tag", "PT"}


@pytest.mark.parametrize(
    ("name", "count", "refused"),
    [
        ("gcmEncryptExtIV128.rsp", 375, 0),
        ("gcmEncryptExtIV192.rsp", 375, 0),
        ("gcmEncryptExtIV256.rsp", 375, 0),
        ("gcmDecrypt128.rsp", 375, 196),
        ("gcmDecrypt192.rsp", 375, 190),
        ("gcmDecrypt256.rsp", 375, 191),
    ],
)
def test_nist_cavp_vectors_hold(name: str, count: int, refused: int) -> None:
    vectors = list(cavp_vectors(name))
    for vector in vectors:
        check(vector)
    assert (len(vectors), sum(vector.plaintext is None for vector in vectors)) == (count, refused)


def wycheproof_vectors(*, with_our_lengths: bool) -> list[Vector]:
    groups = json.loads(WYCHEPROOF.read_text())["testGroups"]
    return [
        Vector(
            key=bytes.fromhex(test["key"]),
            nonce=bytes.fromhex(test["iv"]),
            aad=bytes.fromhex(test["aad"]),
            ciphertext=bytes.fromhex(test["ct"]),
            tag=bytes.fromhex(test["tag"]),
            plaintext=bytes.fromhex(test["msg"]) if test["result"] == "valid" else None,
        )
        for group in groups
        if (group["ivSize"] == 96 and group["tagSize"] == 128) is with_our_lengths
        for test in group["tests"]
    ]


def test_wycheproof_vectors_hold() -> None:
    vectors = wycheproof_vectors(with_our_lengths=True)
    for vector in vectors:
        check(vector)
    assert (len(vectors), sum(vector.plaintext is None for vector in vectors)) == (197, 81)


def test_wycheproof_vectors_with_other_iv_lengths_are_refused() -> None:
    vectors = wycheproof_vectors(with_our_lengths=False)
    for vector in vectors:
        with pytest.raises(ConfigurationError):
            AesGcm(Secret(vector.key)).encrypt(vector.nonce, vector.plaintext or b"", vector.aad)
        with pytest.raises(AuthenticationError):
            AesGcm(Secret(vector.key)).decrypt(vector.nonce + vector.ciphertext + vector.tag, vector.aad)
    assert len(vectors) == 316 - 197
