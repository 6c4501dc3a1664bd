"""Key Vault through the real SDK: versions, refusals, and key ids that are never sent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tablecrypt.errors import (
    AuthenticationError,
    ConfigurationError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    KmsCredentialsError,
    KmsError,
    KmsUnavailableError,
)
from tablecrypt.kms.azure import AzureKeyManagementClient
from tests.kms.services.key_vault import KeyVault, StaticCredential


@pytest.fixture
def client(key_vault: KeyVault) -> Iterator[AzureKeyManagementClient]:
    client = AzureKeyManagementClient({"azure.keyvault.url": key_vault.url}, StaticCredential(key_vault.token))
    yield client
    client.close()


@pytest.fixture
def hsm_client(key_vault: KeyVault) -> Iterator[AzureKeyManagementClient]:
    properties = {"azure.keyvault.url": key_vault.url, "azure.keyvault.key-wrap-algorithm": "A256KW"}
    client = AzureKeyManagementClient(properties, StaticCredential(key_vault.token))
    yield client
    client.close()


def test_the_service_does_the_wrapping(client: AzureKeyManagementClient, key_vault: KeyVault) -> None:
    before = len(key_vault.requests)
    client.unwrap_key(client.wrap_key(bytes(16), "orders"), "orders")
    asked = [request.path.partition("?")[0] for request in key_vault.requests[before:] if "authorization" in request.headers]
    assert asked == ["/keys/orders//wrapkey", "/keys/orders//unwrapkey"]
    assert key_vault.requests[-1].body["alg"] == "RSA-OAEP-256"


def test_a_named_version_goes_on_unwrapping_after_a_rotation(hsm_client: AzureKeyManagementClient, key_vault: KeyVault) -> None:
    version = key_vault.create_key("rotated", bytes(range(32)))
    wrapped = hsm_client.wrap_key(bytes(16), "rotated")
    key_vault.create_key("rotated", bytes(range(1, 33)))
    assert hsm_client.unwrap_key(wrapped, f"rotated/{version}") == bytes(16)
    with pytest.raises(AuthenticationError, match="version"):
        hsm_client.unwrap_key(wrapped, "rotated")


def test_a_missing_permission_is_named(client: AzureKeyManagementClient, key_vault: KeyVault) -> None:
    key_vault.forbidden.add(("orders", "wrapkey"))
    with pytest.raises(KmsAccessDeniedError, match="keys/wrapKey"):
        client.wrap_key(bytes(16), "orders")


def test_a_missing_key_or_version_is_not_found(client: AzureKeyManagementClient) -> None:
    for key_id in ("nobody", f"orders/{'0' * 32}"):
        with pytest.raises(KeyNotFoundError):
            client.wrap_key(bytes(16), key_id)


def test_a_token_that_is_not_valid_is_said_so(key_vault: KeyVault) -> None:
    client = AzureKeyManagementClient({"azure.keyvault.url": key_vault.url}, StaticCredential("stolen"))
    with pytest.raises(KmsCredentialsError, match="credentials"):
        client.wrap_key(bytes(16), "orders")


def test_an_algorithm_that_the_key_cannot_do_is_refused(hsm_client: AzureKeyManagementClient) -> None:
    with pytest.raises(KmsError):
        hsm_client.wrap_key(bytes(16), "orders")


def test_an_outage_is_retryable_and_the_sdk_does_not_retry_by_itself(client: AzureKeyManagementClient, key_vault: KeyVault) -> None:
    client.wrap_key(bytes(16), "orders")
    key_vault.unavailable = True
    before = len(key_vault.requests)
    with pytest.raises(KmsUnavailableError):
        client.wrap_key(bytes(16), "orders")
    assert len(key_vault.requests) == before + 1


def test_a_vault_that_is_not_there_is_unavailable() -> None:
    client = AzureKeyManagementClient({"azure.keyvault.url": "https://127.0.0.1:1"}, StaticCredential("t"))
    with pytest.raises(KmsUnavailableError, match=r"azure\.keyvault\.url"):
        client.wrap_key(bytes(16), "orders")


@pytest.mark.parametrize("key_id", ["", "../secrets/x", "https://evil.example/keys/orders", "orders/latest", "a/b/c", "orders?x"])
def test_a_key_id_of_another_form_is_never_sent(client: AzureKeyManagementClient, key_vault: KeyVault, key_id: str) -> None:
    before = len(key_vault.requests)
    with pytest.raises(ConfigurationError):
        client.unwrap_key(bytes(256), key_id)
    assert len(key_vault.requests) == before


@pytest.mark.parametrize(
    "properties", [{"adls.client-secret": "s"}, {"azure.keyvault.key-wrap-algorithm": "ROT13"}, {"azure.keyvault.url": "http://vault"}]
)
def test_a_contradiction_shows_before_the_first_call(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        AzureKeyManagementClient({"azure.keyvault.url": "https://v.vault.azure.net", **properties})
