"""Azure Key Vault, for real."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tablecrypt.kms.azure import AzureKeyManagementClient
from tablecrypt.kms.client import KeyManagementClient
from tests.live.keys import LiveKeys


class TestAzure(LiveKeys):
    service = "AZURE"

    @pytest.fixture
    def client(self) -> Iterator[KeyManagementClient]:
        client = AzureKeyManagementClient({"azure.keyvault.url": os.environ["TABLECRYPT_LIVE_AZURE_VAULT_URL"]})
        yield client
        client.close()
