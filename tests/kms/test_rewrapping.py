"""Rewrapping: inside the service where it can, through this process where it cannot, and under the newest version either way."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tablecrypt.errors import AuthenticationError, FormatError, KeyNotFoundError
from tablecrypt.kms.aws import AwsKeyManagementClient
from tablecrypt.kms.client import KeyManagementClient, RewrappingClient, rewrap_unchecked
from tablecrypt.kms.factory import load_kms
from tablecrypt.kms.gcp import GcpKeyManagementClient
from tablecrypt.kms.local_file import LocalFileKeyManagementClient, add_key, add_key_version, create_key_file
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.kms.resilient import ResilientKeyManagementClient
from tablecrypt.kms.vault import VaultKeyManagementClient
from tests.kms.services.cloud_kms import CloudKms
from tests.kms.services.transit import Transit
from tests.support.aws import AwsServer

KEY = bytes(range(32))


@pytest.fixture
def vault(transit: Transit) -> VaultKeyManagementClient:
    for name in ("orders", "people"):
        if name not in transit.keys:
            transit.rotate(name)
    return VaultKeyManagementClient({"vault.url": transit.url, "vault.token": "root-token"})


def test_vault_rewraps_under_the_newest_version_without_giving_the_key_out(vault: VaultKeyManagementClient, transit: Transit) -> None:
    old = vault.wrap_key(KEY, "orders")
    transit.rotate("orders")
    before = len(transit.requests)

    new = vault.rewrap_key(old, "orders", "orders")

    assert [request.path for request in transit.requests[before:]] == ["/v1/transit/rewrap/orders"]
    assert new.startswith(f"vault:v{len(transit.keys['orders'])}:".encode())
    assert vault.unwrap_key(new, "orders") == KEY


def test_vault_goes_through_this_process_to_another_key(vault: VaultKeyManagementClient, transit: Transit) -> None:
    before = len(transit.requests) + 1
    new = vault.rewrap_key(vault.wrap_key(KEY, "orders"), "people", "orders")
    assert [request.path for request in transit.requests[before:]] == ["/v1/transit/decrypt/orders", "/v1/transit/encrypt/people"]
    assert vault.unwrap_key(new, "people") == KEY


def test_vault_refuses_to_rewrap_what_it_did_not_wrap(vault: VaultKeyManagementClient) -> None:
    with pytest.raises(AuthenticationError):
        vault.rewrap_key(vault.wrap_key(KEY, "people"), "orders", "orders")
    with pytest.raises(FormatError):
        vault.rewrap_key(b"no blob", "orders", "orders")
    with pytest.raises(KeyNotFoundError):
        vault.rewrap_key(vault.wrap_key(KEY, "orders"), "nobody", "nobody")


def test_aws_rewraps_in_one_request_that_names_the_old_key(aws: AwsServer) -> None:
    """KMS would find the old key by the blob alone, and so open one of a key that has nothing to do with the table."""
    client, old, new = AwsKeyManagementClient(aws.kms_properties), aws.new_key(), aws.new_key()
    wrapped = client.wrap_key(KEY, old)
    sent: list[dict[str, object]] = []
    client._client.get().meta.events.register("before-parameter-build.kms.*", lambda params, **_: sent.append(dict(params)))

    rewrapped = client.rewrap_key(wrapped, new, old)

    assert [{name: each[name] for name in ("SourceKeyId", "DestinationKeyId")} for each in sent] == [
        {"SourceKeyId": old, "DestinationKeyId": new}
    ]
    assert "SourceEncryptionContext" not in sent[0]
    assert "DestinationEncryptionContext" not in sent[0]
    assert client.unwrap_key(rewrapped, new) == KEY


def test_a_key_file_rewraps_under_the_newest_version_or_another_key(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    create_key_file(path, "orders")
    add_key(path, "people")
    client = LocalFileKeyManagementClient({"kms.local.key-file": str(path)})
    old = client.wrap_key(KEY, "orders")
    add_key_version(path, "orders")

    assert not isinstance(client, RewrappingClient)
    newest = rewrap_unchecked(client, old, "orders", "orders")
    assert (old[:5], newest[:5]) == (b"\x01\x00\x00\x00\x01", b"\x01\x00\x00\x00\x02")
    assert client.unwrap_key(newest, "orders") == KEY
    assert client.unwrap_key(rewrap_unchecked(client, old, "people", "orders"), "people") == KEY


@pytest.mark.parametrize("service", ["memory", "gcp"])
def test_a_resilient_client_rewraps_whatever_is_inside(service: str, cloud_kms: CloudKms) -> None:
    inner: KeyManagementClient = MemoryKeyManagementClient({"kms.memory.name": str(uuid.uuid4())}, {"a": bytes(32), "b": bytes(16)})
    old_key, new_key = "a", "b"
    if service == "gcp":
        inner = GcpKeyManagementClient({"gcp.kms.endpoint": cloud_kms.url, "gcs.oauth2.token": cloud_kms.token})
        old_key, new_key = (cloud_kms.create_key(f"rewrap-{uuid.uuid4()}") for _ in range(2))
    client = ResilientKeyManagementClient(inner)

    rewrapped = client.rewrap_key(client.wrap_key(KEY, old_key), new_key, old_key)

    assert client.unwrap_key(rewrapped, new_key) == KEY
    assert client.calls == {"wrap_key": 2, "unwrap_key": 2}


def test_a_resilient_client_uses_the_service_where_it_can(aws: AwsServer) -> None:
    client, key_id = load_kms(aws.kms_properties), aws.new_key()
    rewrapped = client.rewrap_key(client.wrap_key(KEY, key_id), key_id, key_id)
    assert client.calls == {"wrap_key": 1, "rewrap_key": 1}
    assert client.unwrap_key(rewrapped, key_id) == KEY
