"""HashiCorp Vault or OpenBao, for real."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.vault import VaultKeyManagementClient
from tablecrypt.testing.kms_contract import KeyManagementClientContract


class TestVault(KeyManagementClientContract):
    @pytest.fixture
    def client(self) -> Iterator[KeyManagementClient]:
        client = VaultKeyManagementClient({})
        yield client
        client.close()

    @pytest.fixture
    def wrapping_key_id(self) -> str:
        return os.environ["TABLECRYPT_LIVE_VAULT_KEY_ID"]

    @pytest.fixture
    def other_wrapping_key_id(self) -> str:
        return os.environ["TABLECRYPT_LIVE_VAULT_OTHER_KEY_ID"]

    @pytest.fixture
    def missing_key_id(self) -> str:
        return "tablecrypt-no-such-key"
