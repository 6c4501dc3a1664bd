"""Cloud KMS through the real SDK: its refusals, and names that are never sent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tablecrypt.errors import (
    AuthenticationError,
    ConfigurationError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    KmsCredentialsError,
    KmsUnavailableError,
)
from tablecrypt.kms.gcp import GcpKeyManagementClient
from tests.kms.services.cloud_kms import CloudKms


@pytest.fixture
def client(cloud_kms: CloudKms) -> Iterator[GcpKeyManagementClient]:
    client = GcpKeyManagementClient({"gcp.kms.endpoint": cloud_kms.url, "gcs.oauth2.token": cloud_kms.token})
    yield client
    client.close()


def test_a_missing_permission_is_named(client: GcpKeyManagementClient, cloud_kms: CloudKms) -> None:
    name = cloud_kms.create_key("forbidden")
    cloud_kms.forbidden.add(name)
    with pytest.raises(KmsAccessDeniedError, match="useToEncrypt") as refusal:
        client.wrap_key(bytes(16), name)
    assert not refusal.value.retryable


def test_a_disabled_key_is_a_denial_and_not_tampering(client: GcpKeyManagementClient, cloud_kms: CloudKms) -> None:
    name = cloud_kms.create_key("disabled")
    wrapped = client.wrap_key(bytes(16), name)
    cloud_kms.disabled.add(name)
    with pytest.raises(KmsAccessDeniedError, match="disabled"):
        client.unwrap_key(wrapped, name)


def test_a_changed_blob_is_an_authentication_failure(client: GcpKeyManagementClient, cloud_kms: CloudKms) -> None:
    name = cloud_kms.create_key("changed")
    wrapped = client.wrap_key(bytes(16), name)
    with pytest.raises(AuthenticationError):
        client.unwrap_key(wrapped[:-1] + bytes([wrapped[-1] ^ 1]), name)


def test_a_missing_key_is_not_found(client: GcpKeyManagementClient) -> None:
    with pytest.raises(KeyNotFoundError):
        client.wrap_key(bytes(16), "projects/test/locations/global/keyRings/ring/cryptoKeys/nobody")


def test_a_token_that_is_not_valid_is_said_so(cloud_kms: CloudKms) -> None:
    client = GcpKeyManagementClient({"gcp.kms.endpoint": cloud_kms.url, "gcs.oauth2.token": "expired"})
    with pytest.raises(KmsCredentialsError, match=r"gcs\.oauth2\.token"):
        client.wrap_key(bytes(16), cloud_kms.create_key("orders"))


def test_missing_credentials_are_said_to_be_missing(cloud_kms: CloudKms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/credentials.json")
    client = GcpKeyManagementClient({"gcp.kms.endpoint": cloud_kms.url})
    with pytest.raises(KmsCredentialsError, match="DefaultCredentialsError"):
        client.wrap_key(bytes(16), cloud_kms.create_key("orders"))


def test_an_outage_is_retryable_and_the_sdk_does_not_retry_by_itself(client: GcpKeyManagementClient, cloud_kms: CloudKms) -> None:
    name = cloud_kms.create_key("outage")
    cloud_kms.unavailable = True
    before = len(cloud_kms.requests)
    try:
        with pytest.raises(KmsUnavailableError) as failure:
            client.wrap_key(bytes(16), name)
    finally:
        cloud_kms.unavailable = False
    assert failure.value.retryable
    assert len(cloud_kms.requests) == before + 1


def test_a_server_that_is_not_there_is_unavailable() -> None:
    client = GcpKeyManagementClient({"gcp.kms.endpoint": "http://127.0.0.1:1", "gcs.oauth2.token": "t"})
    with pytest.raises(KmsUnavailableError):
        client.wrap_key(bytes(16), "projects/p/locations/l/keyRings/r/cryptoKeys/k")


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        "projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1",
        "projects/p/locations/l/keyRings/r/cryptoKeys/../../x",
        "projects/p/locations/l/keyRings/r/cryptoKeys/k\n",
        "",
    ],
)
def test_a_name_of_another_form_is_never_sent(client: GcpKeyManagementClient, cloud_kms: CloudKms, name: str) -> None:
    before = len(cloud_kms.requests)
    with pytest.raises(ConfigurationError, match="Cloud KMS key"):
        client.wrap_key(bytes(16), name)
    with pytest.raises(ConfigurationError, match="Cloud KMS key"):
        client.unwrap_key(bytes(40), name)
    assert len(cloud_kms.requests) == before
