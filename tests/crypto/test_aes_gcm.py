"""AES-GCM of one key: what goes in comes out, and nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.crypto.aes_gcm import OVERHEAD, AesGcm
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ConfigurationError
from tablecrypt.testing.strategies import keys

nonces = st.binary(min_size=12, max_size=12)


@given(keys(), nonces, st.binary(max_size=200), st.binary(max_size=40))
def test_what_was_encrypted_opens_to_the_same_bytes(key: bytes, nonce: bytes, plaintext: bytes, aad: bytes) -> None:
    cipher = AesGcm(Secret(key))
    encrypted = cipher.encrypt(nonce, plaintext, aad)
    opened = bytearray(len(plaintext))
    cipher.decrypt_into(encrypted, aad, opened)

    assert encrypted[:12] == nonce
    assert len(encrypted) == len(plaintext) + OVERHEAD
    assert encrypted == nonce + cipher.encrypt_detached(nonce, plaintext, aad)
    assert cipher.decrypt(encrypted, aad) == plaintext == opened


@given(keys(), nonces, st.binary(max_size=60), st.binary(max_size=20), st.data())
def test_a_flipped_bit_anywhere_is_refused(key: bytes, nonce: bytes, plaintext: bytes, aad: bytes, data: st.DataObject) -> None:
    cipher = AesGcm(Secret(key))
    encrypted = bytearray(cipher.encrypt(nonce, plaintext, aad))
    bit = data.draw(st.integers(0, len(encrypted) * 8 - 1))
    encrypted[bit // 8] ^= 1 << bit % 8
    with pytest.raises(AuthenticationError):
        cipher.decrypt(encrypted, aad)


@given(keys(), nonces, st.binary(max_size=60), st.binary(max_size=20), st.binary(max_size=20))
def test_another_aad_is_refused(key: bytes, nonce: bytes, plaintext: bytes, aad: bytes, other: bytes) -> None:
    cipher = AesGcm(Secret(key))
    encrypted = cipher.encrypt(nonce, plaintext, aad)
    if other == aad:
        assert cipher.decrypt(encrypted, other) == plaintext
        return
    with pytest.raises(AuthenticationError):
        cipher.decrypt(encrypted, other)


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16), st.binary(max_size=60))
def test_another_key_is_refused(key: bytes, other: bytes, plaintext: bytes) -> None:
    encrypted = AesGcm(Secret(key)).encrypt(bytes(12), plaintext, b"")
    if other == key:
        return
    with pytest.raises(AuthenticationError):
        AesGcm(Secret(other)).decrypt(encrypted, b"")


@given(st.binary(max_size=OVERHEAD - 1))
def test_bytes_too_few_for_nonce_and_tag_are_refused(encrypted: bytes) -> None:
    with pytest.raises(AuthenticationError):
        AesGcm(Secret(bytes(16))).decrypt(encrypted, b"")


def test_a_refused_decryption_leaves_zeros_and_not_unauthenticated_plaintext() -> None:
    cipher = AesGcm(Secret(bytes(16)))
    encrypted = bytearray(cipher.encrypt(bytes(12), b"forty bytes of plaintext that are secret", b""))
    encrypted[-1] ^= 1
    target = bytearray(b"\xff" * 40)
    with pytest.raises(AuthenticationError):
        cipher.decrypt_into(encrypted, b"", target)
    assert target == bytes(40)


@pytest.mark.parametrize("length", [0, 1, 15, 17, 31, 33, 64])
def test_a_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ConfigurationError, match=f"not {length}"):
        AesGcm(Secret(bytes(length)))


@pytest.mark.parametrize("length", [0, 8, 11, 13, 16])
def test_a_nonce_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ConfigurationError, match="nonce"):
        AesGcm(Secret(bytes(16))).encrypt(bytes(length), b"", b"")


@pytest.mark.parametrize("length", [0, 4, 6])
def test_a_target_that_does_not_fit_the_plaintext_is_refused(length: int) -> None:
    cipher = AesGcm(Secret(bytes(16)))
    with pytest.raises(ConfigurationError, match="out"):
        cipher.decrypt_into(cipher.encrypt(bytes(12), b"12345", b""), b"", bytearray(length))
