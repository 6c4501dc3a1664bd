"""AWS KMS, for real."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tablecrypt.kms.aws import AwsKeyManagementClient
from tablecrypt.kms.client import KeyManagementClient
from tests.live.keys import LiveKeys


class TestAws(LiveKeys):
    service = "AWS"

    @pytest.fixture
    def client(self) -> Iterator[KeyManagementClient]:
        client = AwsKeyManagementClient({})
        yield client
        client.close()

    @pytest.fixture
    def missing_key_id(self) -> str:
        return "alias/tablecrypt-no-such-key"
