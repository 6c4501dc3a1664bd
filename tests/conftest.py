"""Fixtures that the whole suite shares: an AWS that runs in this process, and an environment without real credentials."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.aws import CREDENTIALS, REGION, AwsServer

if TYPE_CHECKING:
    from tests.support.plaintext_scan import Registry

pytest_plugins = ["tests.support.plaintext_scan", "tests.support.selection"]

# Set before any SDK reads them: no test may find a developer's real profile, instance role or endpoint, but for those of tests/live.
if not any(name.startswith("TABLECRYPT_LIVE_") for name in os.environ):
    os.environ.update(CREDENTIALS)
    os.environ.update(AWS_REGION=REGION, AWS_DEFAULT_REGION=REGION, AWS_EC2_METADATA_DISABLED="true")
    os.environ.update(AWS_CONFIG_FILE=os.devnull, AWS_SHARED_CREDENTIALS_FILE=os.devnull)
    for _name in [name for name in os.environ if name == "AWS_PROFILE" or name.startswith("AWS_ENDPOINT_URL")]:
        del os.environ[_name]


@pytest.fixture(scope="session")
def aws(plaintext_registry: Registry) -> Iterator[AwsServer]:
    """S3, KMS and STS on a free port of this process, with the golden KMS keys."""
    server = AwsServer()
    plaintext_registry.search_tables_in(server.s3)
    yield server
    server.stop()
