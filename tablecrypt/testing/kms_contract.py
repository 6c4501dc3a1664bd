"""What every key management client must do, as a pytest class to run on your own client.

    class TestMyClient(KeyManagementClientContract):
        @pytest.fixture
        def client(self): ...                    # a fresh client, not wrapped by load_kms
        @pytest.fixture
        def wrapping_key_id(self): ...           # a master key that may wrap and unwrap
        @pytest.fixture
        def other_wrapping_key_id(self): ...     # another one
        @pytest.fixture
        def missing_key_id(self): ...            # well formed, but no such key is there

The tests send about a hundred small requests. They hold for a service in the cloud as well as for one in this process.
"""

from __future__ import annotations

import base64
import logging
import pickle
import secrets
import traceback
from concurrent.futures import ThreadPoolExecutor

import pytest

from tablecrypt.crypto.aes_gcm import KEY_LENGTHS
from tablecrypt.errors import (
    AuthenticationError,
    ConfigurationError,
    FormatError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    KmsError,
    TablecryptError,
)
from tablecrypt.kms.client import KeyManagementClient, rewrap_unchecked

REFUSED = (AuthenticationError, FormatError, KeyNotFoundError, KmsError)


class KeyManagementClientContract:
    """Subclass it, name the subclass Test…, and give the four fixtures."""

    @pytest.fixture
    def client(self) -> KeyManagementClient:
        raise NotImplementedError("give a fixture `client`")

    @pytest.fixture
    def wrapping_key_id(self) -> str:
        raise NotImplementedError("give a fixture `wrapping_key_id`")

    @pytest.fixture
    def other_wrapping_key_id(self) -> str:
        raise NotImplementedError("give a fixture `other_wrapping_key_id`")

    @pytest.fixture
    def missing_key_id(self) -> str:
        raise NotImplementedError("give a fixture `missing_key_id`")

    def test_it_is_a_key_management_client(self, client: KeyManagementClient) -> None:
        assert isinstance(client, KeyManagementClient)

    @pytest.mark.parametrize("length", KEY_LENGTHS)
    def test_a_wrapped_key_unwraps_to_itself(self, client: KeyManagementClient, wrapping_key_id: str, length: int) -> None:
        key = secrets.token_bytes(length)
        wrapped = client.wrap_key(key, wrapping_key_id)
        assert key not in wrapped
        assert client.unwrap_key(wrapped, wrapping_key_id) == key

    @pytest.mark.parametrize("length", KEY_LENGTHS)
    def test_a_generated_key_unwraps_to_itself(self, client: KeyManagementClient, wrapping_key_id: str, length: int) -> None:
        generated = client.generate_key(wrapping_key_id, length)
        assert len(generated.key) == length
        assert client.unwrap_key(generated.wrapped_key, wrapping_key_id) == generated.key

    @pytest.mark.parametrize("length", KEY_LENGTHS)
    def test_a_rewrapped_key_unwraps_to_itself(
        self, client: KeyManagementClient, wrapping_key_id: str, other_wrapping_key_id: str, length: int
    ) -> None:
        key = secrets.token_bytes(length)
        wrapped = client.wrap_key(key, wrapping_key_id)
        for new_key_id in (wrapping_key_id, other_wrapping_key_id):
            rewrapped = rewrap_unchecked(client, wrapped, new_key_id, wrapping_key_id)
            assert key not in rewrapped
            assert client.unwrap_key(rewrapped, new_key_id) == key

    def test_generated_keys_differ(self, client: KeyManagementClient, wrapping_key_id: str) -> None:
        assert client.generate_key(wrapping_key_id).key != client.generate_key(wrapping_key_id).key

    @pytest.mark.parametrize("length", [0, 15, 17, 33])
    def test_a_key_of_another_length_is_refused(self, client: KeyManagementClient, wrapping_key_id: str, length: int) -> None:
        with pytest.raises(ConfigurationError):
            client.generate_key(wrapping_key_id, length)
        with pytest.raises(ConfigurationError):
            client.wrap_key(bytes(length), wrapping_key_id)

    def test_a_key_wrapped_under_another_master_key_is_refused(
        self, client: KeyManagementClient, wrapping_key_id: str, other_wrapping_key_id: str
    ) -> None:
        wrapped = client.wrap_key(secrets.token_bytes(16), other_wrapping_key_id)
        with pytest.raises(REFUSED) as refusal:
            client.unwrap_key(wrapped, wrapping_key_id)
        # A retry would ask a service that has refused until its budget is spent.
        assert not getattr(refusal.value, "retryable", False)

    def test_a_master_key_that_is_not_there_is_refused(
        self, client: KeyManagementClient, wrapping_key_id: str, missing_key_id: str
    ) -> None:
        wrapped = client.wrap_key(secrets.token_bytes(16), wrapping_key_id)
        for ask in (
            lambda: client.wrap_key(secrets.token_bytes(16), missing_key_id),
            lambda: client.generate_key(missing_key_id),
            lambda: client.unwrap_key(wrapped, missing_key_id),
        ):
            with pytest.raises((KeyNotFoundError, KmsAccessDeniedError, AuthenticationError)) as refusal:
                ask()
            assert missing_key_id in str(refusal.value)

    def test_a_changed_wrapped_key_never_unwraps_to_another_key(self, client: KeyManagementClient, wrapping_key_id: str) -> None:
        key = secrets.token_bytes(32)
        wrapped = client.wrap_key(key, wrapping_key_id)
        for position in sorted({0, 1, len(wrapped) // 4, len(wrapped) // 2, 3 * len(wrapped) // 4, len(wrapped) - 1}):
            changed = bytearray(wrapped)
            # A bit that changes the value of a letter in base64 too, where a blob is text.
            changed[position] ^= 0x04
            try:
                unwrapped = client.unwrap_key(bytes(changed), wrapping_key_id)
            except REFUSED:
                continue

            # A textual blob may have several spellings of the same bytes. A different key would be a break.
            assert unwrapped == key

    def test_a_wrapped_key_changed_in_its_middle_is_refused(self, client: KeyManagementClient, wrapping_key_id: str) -> None:
        wrapped = bytearray(client.wrap_key(secrets.token_bytes(32), wrapping_key_id))
        wrapped[len(wrapped) // 2] ^= 0x01
        with pytest.raises(REFUSED):
            client.unwrap_key(bytes(wrapped), wrapping_key_id)

    def test_a_cut_empty_or_foreign_blob_is_refused(self, client: KeyManagementClient, wrapping_key_id: str) -> None:
        wrapped = client.wrap_key(secrets.token_bytes(16), wrapping_key_id)
        for blob in (b"", wrapped[:-1], wrapped[: len(wrapped) // 2], secrets.token_bytes(len(wrapped)), b"no blob of any service"):
            with pytest.raises(REFUSED):
                client.unwrap_key(blob, wrapping_key_id)

    def test_no_key_shows_in_repr_errors_or_logs(
        self, client: KeyManagementClient, wrapping_key_id: str, missing_key_id: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        key = secrets.token_bytes(32)
        with caplog.at_level(logging.DEBUG):
            generated = client.generate_key(wrapping_key_id, 32)
            wrapped = client.wrap_key(key, wrapping_key_id)
            client.unwrap_key(wrapped, wrapping_key_id)
            with pytest.raises(TablecryptError) as refusal:
                client.wrap_key(key, missing_key_id)

        shown = [repr(client), repr(generated), "".join(traceback.format_exception(refusal.value))]
        shown += [f"{record.getMessage()} {record.__dict__}" for record in caplog.records]
        for secret in (key, generated.key):
            for spelling in (repr(secret)[2:-1], secret.hex(), base64.b64encode(secret).decode()):
                assert not [text for text in shown if spelling in text]

    def test_errors_survive_pickling(self, client: KeyManagementClient, missing_key_id: str) -> None:
        with pytest.raises(TablecryptError) as refusal:
            client.wrap_key(secrets.token_bytes(16), missing_key_id)
        assert str(pickle.loads(pickle.dumps(refusal.value))) == str(refusal.value)

    def test_a_generated_key_is_never_pickled(self, client: KeyManagementClient, wrapping_key_id: str) -> None:
        with pytest.raises(TypeError):
            pickle.dumps(client.generate_key(wrapping_key_id))

    def test_many_threads_share_one_client(self, client: KeyManagementClient, wrapping_key_id: str) -> None:
        keys = [secrets.token_bytes(16) for _ in range(16)]
        with ThreadPoolExecutor(max_workers=8) as pool:
            wrapped = list(pool.map(lambda key: client.wrap_key(key, wrapping_key_id), keys))
            assert list(pool.map(lambda blob: client.unwrap_key(blob, wrapping_key_id), wrapped)) == keys

    def test_a_closed_client_opens_again_when_it_is_used(self, client: KeyManagementClient, wrapping_key_id: str) -> None:
        key = secrets.token_bytes(16)
        wrapped = client.wrap_key(key, wrapping_key_id)
        client.close()
        client.close()
        assert client.unwrap_key(wrapped, wrapping_key_id) == key
