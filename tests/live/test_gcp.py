"""Google Cloud KMS, for real."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.gcp import GcpKeyManagementClient
from tests.live.keys import LiveKeys


class TestGcp(LiveKeys):
    service = "GCP"

    @pytest.fixture
    def client(self) -> Iterator[KeyManagementClient]:
        client = GcpKeyManagementClient({})
        yield client
        client.close()

    @pytest.fixture
    def missing_key_id(self, wrapping_key_id: str) -> str:
        return f"{wrapping_key_id}-no-such-key"
