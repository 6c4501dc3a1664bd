"""What rotation and rewrap make of key entries: other ciphertext, the same ids, and nothing that the old keys open."""

from __future__ import annotations

import pytest

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import AuthenticationError, KeyIdChangedError, KeyNotFoundError
from tablecrypt.keys.key_ring import KeyChain, KeyRing
from tablecrypt.keys.manager import EncryptionManager, key_metadata_under
from tablecrypt.kms.memory import MemoryKeyManagementClient

MASTER_KEY, OLD_KEY = "rekeying", "rekeying-old"
KEY_METADATA = StandardKeyMetadata.generate(16, bytes).with_file_length(100)


@pytest.fixture
def kms() -> MemoryKeyManagementClient:
    return MemoryKeyManagementClient({"kms.memory.name": "rekeying"}, {MASTER_KEY: bytes(32), OLD_KEY: bytes(range(32))})


@pytest.fixture
def manager(kms: MemoryKeyManagementClient) -> EncryptionManager:
    return EncryptionManager(kms, MASTER_KEY, now_ms=lambda: 1_700_000_000_000)


def test_a_reencrypted_key_keeps_its_id_and_opens_under_the_new_kek_alone(manager: EncryptionManager) -> None:
    encrypted = manager.encrypt_manifest_list_key_metadata(KEY_METADATA, KeyRing())
    chain, new_kek = KeyRing(encrypted.added).chain(encrypted.key_id), manager.new_kek()

    reencrypted = manager.reencrypt_manifest_list_key_metadata(chain, new_kek)

    assert (reencrypted.key_id, reencrypted.encrypted_by_id) == (encrypted.key_id, new_kek.key_id)
    assert manager.decrypt_manifest_list_key_metadata(KeyChain(reencrypted, new_kek)) == KEY_METADATA
    with pytest.raises(AuthenticationError):
        manager.decrypt_manifest_list_key_metadata(KeyChain(reencrypted, chain.kek))


def test_a_key_that_does_not_open_is_not_reencrypted(manager: EncryptionManager) -> None:
    encrypted = manager.encrypt_manifest_list_key_metadata(KEY_METADATA, KeyRing())
    chain = KeyRing(encrypted.added).chain(encrypted.key_id)
    other = manager.new_kek()
    with pytest.raises(AuthenticationError):
        manager.reencrypt_manifest_list_key_metadata(KeyChain(chain.manifest_list_key, other), other)


def test_a_new_kek_is_made_whatever_keks_there_are(manager: EncryptionManager) -> None:
    first, second = manager.new_kek(), manager.new_kek()
    assert first.key_id != second.key_id


def test_a_kek_for_another_opens_what_was_encrypted_under_it(manager: EncryptionManager) -> None:
    kek = manager.new_kek_for_another()
    chain = KeyChain(manager.encrypt_under(kek, KEY_METADATA), kek.entry)

    assert manager.decrypt_manifest_list_key_metadata(chain) == key_metadata_under(chain, kek.key) == KEY_METADATA
    assert len(kek.key) == manager.data_key_length
    with pytest.raises(AuthenticationError):
        key_metadata_under(chain, manager.new_kek_for_another().key)


def test_a_sealed_kek_is_sealed_by_whom_the_caller_says_and_asks_no_kms() -> None:
    class Unreachable(MemoryKeyManagementClient):
        def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
            raise AssertionError("the KMS is not asked")

    manager = EncryptionManager(Unreachable({"kms.memory.name": "rekeying-sealed"}, {MASTER_KEY: bytes(32)}), MASTER_KEY)
    kek = manager.new_sealed_kek(lambda entry, key: entry.key_id.encode() + key.reveal())
    chain = KeyChain(manager.encrypt_under(kek, KEY_METADATA), kek.entry)

    assert kek.entry.wrapped_bytes() == kek.entry.key_id.encode() + kek.key.reveal()
    assert (kek.entry.encrypted_by_id, len(kek.key)) == (MASTER_KEY, manager.data_key_length)
    assert key_metadata_under(chain, kek.key) == KEY_METADATA


def test_a_rewrapped_kek_is_the_same_kek(manager: EncryptionManager, kms: MemoryKeyManagementClient) -> None:
    chain = _chain(manager)
    kek, rewrapped = chain.kek, manager.rewrap_kek(chain)
    assert rewrapped.encrypted_key_metadata != kek.encrypted_key_metadata
    assert (rewrapped.key_id, rewrapped.properties, rewrapped.encrypted_by_id) == (kek.key_id, kek.properties, MASTER_KEY)
    assert kms.unwrap_key(rewrapped.wrapped_bytes(), MASTER_KEY) == kms.unwrap_key(kek.wrapped_bytes(), MASTER_KEY)


def test_a_kek_comes_from_the_master_key_that_is_named_and_from_no_other(
    manager: EncryptionManager, kms: MemoryKeyManagementClient
) -> None:
    chain = _chain(EncryptionManager(kms, OLD_KEY, now_ms=lambda: 1_700_000_000_000))
    moved = KeyChain(chain.manifest_list_key, chain.kek.model_copy(update={"encrypted_by_id": MASTER_KEY}))
    with pytest.raises(AuthenticationError):
        manager.rewrap_kek(moved)
    with pytest.raises(KeyNotFoundError):
        manager.rewrap_kek(moved, from_key_id="nobody")
    with pytest.raises(KeyIdChangedError):
        manager.rewrap_kek(chain, from_key_id=OLD_KEY)
    assert kms.unwrap_key(manager.rewrap_kek(moved, from_key_id=OLD_KEY).wrapped_bytes(), MASTER_KEY)


def test_a_kek_that_opens_no_key_of_the_table_is_not_rewrapped(manager: EncryptionManager, kms: MemoryKeyManagementClient) -> None:
    """Another table's KEK, put into this one's metadata to have it wrapped for its readers."""
    foreign = EncryptionManager(kms, OLD_KEY, now_ms=lambda: 1_700_000_000_000).new_kek()
    moved = foreign.model_copy(update={"encrypted_by_id": MASTER_KEY})
    with pytest.raises(AuthenticationError, match="does not open under KEK"):
        manager.rewrap_kek(KeyChain(_chain(manager).manifest_list_key, moved), from_key_id=OLD_KEY)


def _chain(manager: EncryptionManager) -> KeyChain:
    encrypted = manager.encrypt_manifest_list_key_metadata(KEY_METADATA, KeyRing())
    return KeyRing(encrypted.added).chain(encrypted.key_id)
