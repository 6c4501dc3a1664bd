"""Google Cloud KMS, for real."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.gcp import GcpKeyManagementClient
from tablecrypt.testing.kms_contract import KeyManagementClientContract


class TestGcp(KeyManagementClientContract):
    @pytest.fixture
    def client(self) -> Iterator[KeyManagementClient]:
        client = GcpKeyManagementClient({})
        yield client
        client.close()

    @pytest.fixture
    def wrapping_key_id(self) -> str:
        return os.environ["TABLECRYPT_LIVE_GCP_KEY_ID"]

    @pytest.fixture
    def other_wrapping_key_id(self) -> str:
        return os.environ["TABLECRYPT_LIVE_GCP_OTHER_KEY_ID"]

    @pytest.fixture
    def missing_key_id(self, wrapping_key_id: str) -> str:
        return f"{wrapping_key_id}-no-such-key"
