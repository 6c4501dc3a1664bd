"""Vault's transit engine through the real SDK: logins, rotation, refusals, and key names that are never sent."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pytest

from tablecrypt.errors import (
    AuthenticationError,
    ConfigurationError,
    FormatError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    KmsCredentialsError,
    KmsUnavailableError,
)
from tablecrypt.kms.vault import VaultKeyManagementClient
from tests.kms.services.transit import Transit


@pytest.fixture
def client(transit: Transit) -> Iterator[VaultKeyManagementClient]:
    if "orders" not in transit.keys:
        transit.rotate("orders")
    client = VaultKeyManagementClient({"vault.url": transit.url, "vault.token": "root-token"})
    yield client
    client.close()


def test_a_key_rotated_in_vault_goes_on_unwrapping(client: VaultKeyManagementClient, transit: Transit) -> None:
    transit.rotate("rotating")
    old = client.wrap_key(bytes(16), "rotating")
    transit.rotate("rotating")
    new = client.wrap_key(bytes(16), "rotating")
    assert old.startswith(b"vault:v1:")
    assert new.startswith(b"vault:v2:")
    assert client.unwrap_key(old, "rotating") == client.unwrap_key(new, "rotating") == bytes(16)


def test_keys_of_16_and_32_bytes_are_generated_in_vault(client: VaultKeyManagementClient, transit: Transit) -> None:
    paths = []
    for length in (16, 24, 32):
        client.generate_key("orders", length)
        paths.append(transit.requests[-1].path)
    assert paths == ["/v1/transit/datakey/plaintext/orders", "/v1/transit/encrypt/orders", "/v1/transit/datakey/plaintext/orders"]


def test_an_app_role_logs_in_and_logs_in_again_when_its_token_is_gone(transit: Transit) -> None:
    transit.rotate("app")
    client = VaultKeyManagementClient({"vault.url": transit.url, "vault.role-id": transit.role_id, "vault.secret-id": transit.secret_id})
    wrapped = client.wrap_key(bytes(16), "app")
    transit.tokens.intersection_update({"root-token"})
    assert client.unwrap_key(wrapped, "app") == bytes(16)
    logins = [request for request in transit.requests if request.path.endswith("/login")]
    assert len(logins) == 2


def test_an_app_role_without_the_permission_is_refused_once_and_for_all(transit: Transit) -> None:
    transit.rotate("closed")
    transit.forbidden.add(("closed", "encrypt"))
    client = VaultKeyManagementClient({"vault.url": transit.url, "vault.role-id": transit.role_id, "vault.secret-id": transit.secret_id})
    with pytest.raises(KmsAccessDeniedError, match="update on transit/encrypt/closed"):
        client.wrap_key(bytes(16), "closed")


def test_a_token_that_is_not_valid_is_said_so(transit: Transit) -> None:
    client = VaultKeyManagementClient({"vault.url": transit.url, "vault.token": "revoked"})
    with pytest.raises(KmsCredentialsError, match="token"):
        client.generate_key("orders")


def test_a_token_that_expired_is_told_from_a_missing_permission_where_the_server_does_not_tell(transit: Transit) -> None:
    """Taken for a refusal of the key, it would show masks for values."""
    transit.rotate("closed")
    transit.forbidden.add(("closed", "encrypt"))
    expired, valid = (VaultKeyManagementClient({"vault.url": transit.url, "vault.token": each}) for each in ("expired", "root-token"))
    transit.names_invalid_tokens = False
    try:
        with pytest.raises(KmsCredentialsError, match=r"auth/token/lookup-self"):
            expired.wrap_key(bytes(16), "closed")
        with pytest.raises(KmsAccessDeniedError, match="update on transit/encrypt/closed"):
            valid.wrap_key(bytes(16), "closed")
    finally:
        transit.names_invalid_tokens = True


def test_a_login_that_fails_says_nothing_of_the_wrapped_key(client: VaultKeyManagementClient, transit: Transit) -> None:
    wrapped = client.wrap_key(bytes(16), "orders")
    expired = VaultKeyManagementClient({"vault.url": transit.url, "vault.role-id": transit.role_id, "vault.secret-id": "expired"})
    with pytest.raises(KmsCredentialsError, match=r"vault\.secret-id"):
        expired.unwrap_key(wrapped, "orders")


def test_a_misspelt_key_id_makes_no_key(client: VaultKeyManagementClient, transit: Transit) -> None:
    with pytest.raises(KmsAccessDeniedError):
        client.wrap_key(bytes(16), "misspelt")
    with pytest.raises(KeyNotFoundError):
        client.unwrap_key(client.wrap_key(bytes(16), "orders"), "misspelt")
    assert "misspelt" not in transit.keys


def test_a_changed_blob_is_an_authentication_failure(client: VaultKeyManagementClient) -> None:
    wrapped = client.wrap_key(bytes(16), "orders")
    middle = len(wrapped) // 2
    changed = wrapped[:middle] + (b"A" if wrapped[middle : middle + 1] != b"A" else b"B") + wrapped[middle + 1 :]
    with pytest.raises(AuthenticationError):
        client.unwrap_key(changed, "orders")


@pytest.mark.parametrize("blob", [b"", b"vault:v1:", b"vault:v0:AAAA", b"vault:v1:AAAA\n", b"plain", b"\xff" * 40])
def test_a_blob_of_another_form_is_never_sent(client: VaultKeyManagementClient, transit: Transit, blob: bytes) -> None:
    before = len(transit.requests)
    with pytest.raises(FormatError):
        client.unwrap_key(blob, "orders")
    assert len(transit.requests) == before


@pytest.mark.parametrize("key_id", ["", "..", "../../sys/seal", "orders/../people", "a b", ".hidden", "orders?version=1", "orders%2f.."])
def test_a_key_id_that_climbs_is_never_sent(client: VaultKeyManagementClient, transit: Transit, key_id: str) -> None:
    before = len(transit.requests)
    with pytest.raises(ConfigurationError):
        client.wrap_key(bytes(16), key_id)
    assert len(transit.requests) == before


def test_a_mount_that_is_not_there_is_configuration(transit: Transit) -> None:
    client = VaultKeyManagementClient({"vault.url": transit.url, "vault.token": "root-token", "vault.transit-mount": "elsewhere"})
    with pytest.raises(ConfigurationError, match=r"vault\.transit-mount"):
        client.generate_key("orders")


def test_an_outage_is_retryable_and_the_sdk_does_not_retry_by_itself(client: VaultKeyManagementClient, transit: Transit) -> None:
    transit.unavailable = True
    before = len(transit.requests)
    try:
        with pytest.raises(KmsUnavailableError):
            client.generate_key("orders")
    finally:
        transit.unavailable = False
    assert len(transit.requests) == before + 1


def test_a_server_that_is_not_there_is_unavailable() -> None:
    client = VaultKeyManagementClient({"vault.url": "http://127.0.0.1:1", "vault.token": "t"})
    with pytest.raises(KmsUnavailableError):
        client.generate_key("orders")


@pytest.mark.parametrize("properties", [{"vault.role-id": "r"}, {"vault.secret-id": "s"}])
def test_half_an_app_role_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        VaultKeyManagementClient(properties)


def test_a_token_of_the_environment_with_the_end_of_its_line_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_TOKEN", "hvs.a-secret\n")
    client = VaultKeyManagementClient({"vault.url": "http://127.0.0.1:1"})

    with pytest.raises(ConfigurationError, match="no HTTP header can hold") as refused:
        client.wrap_key(bytes(range(16)), "orders")

    assert "a-secret" not in "".join(traceback.format_exception(refused.value))
