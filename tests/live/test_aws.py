"""AWS KMS, for real."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tablecrypt.kms.aws import AwsKeyManagementClient
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.testing.kms_contract import KeyManagementClientContract


class TestAws(KeyManagementClientContract):
    @pytest.fixture
    def client(self) -> Iterator[KeyManagementClient]:
        client = AwsKeyManagementClient({})
        yield client
        client.close()

    @pytest.fixture
    def wrapping_key_id(self) -> str:
        return os.environ["TABLECRYPT_LIVE_AWS_KEY_ID"]

    @pytest.fixture
    def other_wrapping_key_id(self) -> str:
        return os.environ["TABLECRYPT_LIVE_AWS_OTHER_KEY_ID"]

    @pytest.fixture
    def missing_key_id(self) -> str:
        return "alias/tablecrypt-no-such-key"
