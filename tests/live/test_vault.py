"""HashiCorp Vault or OpenBao, for real."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.vault import VaultKeyManagementClient
from tests.live.keys import LiveKeys


class TestVault(LiveKeys):
    service = "VAULT"

    @pytest.fixture
    def client(self) -> Iterator[KeyManagementClient]:
        client = VaultKeyManagementClient({})
        yield client
        client.close()
