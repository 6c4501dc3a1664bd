"""The SDKs' DEBUG logs: silent where a key would stand in them, and nowhere else."""

from __future__ import annotations

import base64
import logging

import pytest

from tablecrypt.kms.aws import AwsKeyManagementClient
from tests.support.aws import AwsServer

KEY = bytes(range(100, 132))


def test_plain_boto3_logs_the_key_at_debug_and_our_client_does_not(aws: AwsServer, caplog: pytest.LogCaptureFixture) -> None:
    client = AwsKeyManagementClient(aws.kms_properties)
    spelling = base64.b64encode(KEY).decode()
    with caplog.at_level(logging.DEBUG):
        client.unwrap_key(client.wrap_key(KEY, "alias/orders"), "alias/orders")
        assert spelling not in caplog.text
        aws.kms.encrypt(KeyId="alias/orders", Plaintext=KEY)
        assert spelling in caplog.text
