"""Key providers: what they derive, how keys roll, who has no rights, and that no key is shown."""

from __future__ import annotations

import pickle
import secrets
from functools import partial
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tablecrypt import orc
from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError, KeyNotFoundError, TablecryptError
from tablecrypt.kms.aws import AwsKeyManagementClient
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tests.support.aws import AwsServer
from tests.support.orc_files import encrypted, local_keys, same_rows, sample_rows

MASTER = bytes(range(16))
LONG_MASTER = bytes(range(32))


@pytest.fixture
def kms() -> MemoryKeyManagementClient:
    client = MemoryKeyManagementClient({"kms.memory.name": secrets.token_hex(8)})
    client.create_key("2025")
    client.create_key("2026")
    return client


@pytest.mark.parametrize("master", [MASTER, LONG_MASTER])
def test_a_local_key_is_the_encrypted_one_under_the_master_key_in_counter_mode(master: bytes) -> None:
    keys = orc.LocalKeys({"pii": [master]})
    local = keys.create_local_key(keys.current_version("pii"))
    cipher = Cipher(algorithms.AES(master), modes.CTR(local.encrypted[:16])).decryptor()
    assert len(local.encrypted) == len(master)
    assert local.key.reveal() == cipher.update(local.encrypted)
    assert keys.decrypt_local_key(keys.current_version("pii"), local.encrypted) == local.key


def test_the_last_version_is_the_current_one() -> None:
    keys = orc.LocalKeys({"pii": [MASTER, LONG_MASTER]})
    assert keys.current_version("pii") == orc.MasterKeyVersion("pii", 1, 32)


@pytest.mark.parametrize("keys", [{"pii": [b"short"]}, {"pii": [bytes(24)]}, {"pii": [MASTER, b""]}])
def test_master_keys_of_other_lengths_are_refused(keys: dict[str, list[bytes]]) -> None:
    with pytest.raises(ConfigurationError, match="16 and 32"):
        orc.LocalKeys(keys)


def test_a_master_key_that_is_no_bytes_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="'pii' is a str"):
        orc.LocalKeys({"pii": ["k" * 16]})  # type: ignore[list-item]


def test_names_and_versions_that_are_not_there_are_named() -> None:
    kms = MemoryKeyManagementClient()
    for keys in (orc.LocalKeys({"pii": []}), orc.KmsKeys(kms, {"pii": []}), orc.KmsMasterKeys(kms, {"pii": []})):
        for name in ("pii", "absent"):
            with pytest.raises(KeyNotFoundError, match=name):
                keys.current_version(name)
        for version in (0, 1, -1):
            with pytest.raises(KeyNotFoundError, match="pii"):
                keys.decrypt_local_key(orc.MasterKeyVersion("pii", version, 16), bytes(16))


def test_every_provider_is_one() -> None:
    kms = MemoryKeyManagementClient()
    for keys in (orc.LocalKeys({}), orc.KmsKeys(kms, {}), orc.KmsMasterKeys(kms, {})):
        assert isinstance(keys, orc.KeyProvider)


@pytest.mark.parametrize("length", [16, 32])
def test_local_keys_that_the_kms_wrapped_open_files(kms: MemoryKeyManagementClient, length: int) -> None:
    keys = orc.KmsKeys(kms, {"pii": "2025"}, length)
    data = encrypted(sample_rows(), {"pii": ["text", "home"]}, keys)
    assert same_rows(orc.read_table(data, keys), sample_rows())


@pytest.mark.parametrize("length", [16, 32])
def test_master_keys_that_the_kms_wrapped_open_files(kms: MemoryKeyManagementClient, length: int) -> None:
    wrapped = orc.WrappedMasterKey.generate(kms, "2025", length)
    data = encrypted(sample_rows(), {"pii": ["text", "home"]}, orc.KmsMasterKeys(kms, {"pii": [wrapped]}))
    assert same_rows(orc.read_table(data, orc.KmsMasterKeys(kms, {"pii": [wrapped]})), sample_rows())
    master = kms.unwrap_key(wrapped.wrapped_key, "2025")
    assert same_rows(orc.read_table(data, orc.LocalKeys({"pii": [master]})), sample_rows())


def test_a_master_key_is_unwrapped_once() -> None:
    class Counting(MemoryKeyManagementClient):
        unwrapped = 0

        def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
            self.unwrapped += 1
            return super().unwrap_key(wrapped_key, wrapping_key_id)

    kms = Counting({"kms.memory.name": secrets.token_hex(8)})
    kms.create_key("2025")
    keys = orc.KmsMasterKeys(kms, {"pii": [orc.WrappedMasterKey.generate(kms, "2025")]})
    kms.unwrapped = 0  # what was just wrapped is opened once before it is used
    for _ in range(3):
        orc.read_table(encrypted(sample_rows(), {"pii": ["text", "home"]}, keys), keys)
    assert kms.unwrapped == 1


def test_keys_roll_to_another_key_of_the_kms(kms: MemoryKeyManagementClient) -> None:
    rows = sample_rows()
    old = encrypted(rows, {"pii": ["text"]}, orc.KmsKeys(kms, {"pii": ["2025"]}))
    rolled = orc.KmsKeys(kms, {"pii": ["2025", "2026"]})
    new = encrypted(rows, {"pii": ["text"]}, rolled)
    assert str(rolled.current_version("pii")) == "pii@1"
    for data in (old, new):
        assert same_rows(orc.read_table(data, rolled), rows)
    with pytest.raises(KeyNotFoundError, match="version 1"):
        orc.read_table(new, orc.KmsKeys(kms, {"pii": ["2025"]}))


def test_a_changed_wrapped_key_is_refused_even_for_masks(kms: MemoryKeyManagementClient) -> None:
    keys = orc.KmsKeys(kms, {"pii": "2025"})
    data = encrypted(sample_rows(), {"pii": ["text"]}, keys)
    with pytest.raises(AuthenticationError):
        orc.read_table(data, orc.KmsKeys(kms, {"pii": "2026"}), masked=True)


def test_a_key_of_another_length_than_the_file_says_is_refused(kms: MemoryKeyManagementClient) -> None:
    local = orc.KmsKeys(kms, {"pii": "2025"}, 32).create_local_key(orc.MasterKeyVersion("pii", 0, 32))
    with pytest.raises(FormatError, match="32 bytes"):
        orc.KmsKeys(kms, {"pii": "2025"}).decrypt_local_key(orc.MasterKeyVersion("pii", 0, 16), local.encrypted)
    for encrypted_key in (b"", bytes(15), bytes(32)):
        with pytest.raises(FormatError, match="128-bit"):
            local_keys().decrypt_local_key(orc.MasterKeyVersion("pii", 0, 16), encrypted_key)
    with pytest.raises(ConfigurationError, match="16 and 32"):
        orc.KmsKeys(kms, {}, 24)
    with pytest.raises(ConfigurationError, match="16 and 32"):
        orc.WrappedMasterKey.generate(kms, "2025", 24)


def test_aws_kms_opens_what_it_wrapped(aws: AwsServer) -> None:
    client = AwsKeyManagementClient(aws.kms_properties)
    keys = orc.KmsKeys(client, {"pii": "alias/people"}, kind=orc.KeyProviderKind.AWS)
    data = encrypted(sample_rows(), {"pii": ["text", "home.zip"]}, keys)
    assert same_rows(orc.read_table(data, keys), sample_rows())
    with pytest.raises(TablecryptError):
        orc.read_table(data, orc.KmsKeys(client, {"pii": "alias/orders"}))


def test_no_key_is_shown_or_pickled(kms: MemoryKeyManagementClient) -> None:
    local = orc.LocalKeys({"pii": [MASTER]})
    unwrapped = orc.KmsMasterKeys(kms, {"pii": [orc.WrappedMasterKey.generate(kms, "2025")]})
    key = unwrapped.create_local_key(unwrapped.current_version("pii"))
    for holder in (local, unwrapped, key, orc.KeyedHash(MASTER)):
        shown = f"{holder!r} {holder}"
        for secret in (MASTER, key.key.reveal()):
            assert secret.hex() not in shown
            assert repr(secret)[2:-1] not in shown
        with pytest.raises(TypeError, match="never pickled"):
            pickle.dumps(holder)


def test_one_key_in_place_of_its_versions_is_refused() -> None:
    wrong: dict[str, Any] = {"pii": MASTER}
    with pytest.raises(ConfigurationError, match="master key 'pii': give a list of its versions, the oldest first, even if there is one"):
        orc.LocalKeys(wrong)


@pytest.mark.parametrize("length", [16, 32])
def test_nothing_is_encrypted_under_zeros_and_what_was_is_still_read(length: int) -> None:
    keys = orc.LocalKeys({"pii": [bytes(length)]})
    master = keys.current_version("pii")
    with pytest.raises(ConfigurationError, match="master key 'pii' is all zeros, which everybody can guess"):
        keys.create_local_key(master)
    assert len(keys.decrypt_local_key(master, bytes(range(length)))) == length


@pytest.mark.parametrize("versions", [None, 5, {"0": b"k" * 16}])
def test_versions_that_are_no_list_are_refused_by_every_provider(kms: MemoryKeyManagementClient, versions: Any) -> None:
    said = "^master key 'pii': give a list of its versions, the oldest first, even if there is one$"
    for provider in (orc.LocalKeys, partial(orc.KmsKeys, kms), partial(orc.KmsMasterKeys, kms)):
        with pytest.raises(ConfigurationError, match=said):
            provider({"pii": versions})


def test_what_no_kms_wrapped_is_no_wrapped_master_key(kms: MemoryKeyManagementClient) -> None:
    keys: Any = {"pii": [b"k" * 16]}
    with pytest.raises(ConfigurationError, match=r"^a version of master key 'pii' is a bytes; it must be a WrappedMasterKey$"):
        orc.KmsMasterKeys(kms, keys)


def test_a_name_without_versions_is_not_among_those_that_are_there() -> None:
    with pytest.raises(KeyNotFoundError, match=r"^there is no master key 'pii' among the local keys; there is none$"):
        orc.LocalKeys({"pii": []}).current_version("pii")


def test_a_name_that_no_key_has_is_told_from_those_that_are_there() -> None:
    with pytest.raises(KeyNotFoundError, match=r"'order' among the local keys; there is 'orders', 'pii'\. Did you mean orders\?"):
        orc.LocalKeys({"pii": [MASTER], "orders": [MASTER]}).current_version("order")
