"""Azure Key Vault, for real."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tablecrypt.kms.azure import AzureKeyManagementClient
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.testing.kms_contract import KeyManagementClientContract


class TestAzure(KeyManagementClientContract):
    @pytest.fixture
    def client(self) -> Iterator[KeyManagementClient]:
        client = AzureKeyManagementClient({"azure.keyvault.url": os.environ["TABLECRYPT_LIVE_AZURE_VAULT_URL"]})
        yield client
        client.close()

    @pytest.fixture
    def wrapping_key_id(self) -> str:
        return os.environ["TABLECRYPT_LIVE_AZURE_KEY_ID"]

    @pytest.fixture
    def other_wrapping_key_id(self) -> str:
        return os.environ["TABLECRYPT_LIVE_AZURE_OTHER_KEY_ID"]

    @pytest.fixture
    def missing_key_id(self) -> str:
        return "tablecrypt-no-such-key"
