"""From properties to a client: which one, which error, and who shares it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tablecrypt.errors import ConfigurationError, MissingExtraError
from tablecrypt.kms.client import GeneratedKey
from tablecrypt.kms.factory import load_kms, shared_kms
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tests.support.aws import AwsServer
from tests.support.forking import holds_in_forked_child


class OwnClient:
    """A client that someone else wrote; it turns keys around."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = properties

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        return key[::-1]

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        return wrapped_key[::-1]

    def generate_key(self, wrapping_key_id: str, length: int = 16) -> GeneratedKey:
        return GeneratedKey(bytes(length), bytes(length))

    def close(self) -> None:
        """Nothing is open."""


class HalfAClient:
    def __init__(self, properties: Mapping[str, str]) -> None:
        """Can do nothing."""

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        return key


@pytest.mark.parametrize("kms_type", ["aws", "AWS", "gcp", "azure", "vault", "local", "memory"])
def test_each_type_gives_its_client_without_a_request(kms_type: str) -> None:
    client = load_kms(
        {"encryption.kms-type": kms_type, "azure.keyvault.url": "https://v.vault.azure.net", "kms.local.key-file": "/nowhere/keys.json"}
    )
    assert kms_type.lower() in repr(client).lower()
    assert not client.calls


@pytest.mark.parametrize(("name", "separator"), [("encryption.kms-impl", "."), ("encryption.kms-impl", ":"), ("py-kms-impl", ".")])
def test_a_class_path_is_constructed_with_the_properties(name: str, separator: str) -> None:
    client = load_kms({name: f"{__name__}{separator}OwnClient", "mine": "yes"})
    assert client.unwrap_key(client.wrap_key(bytes(range(16)), "k"), "k") == bytes(range(16))
    assert client.calls == {"wrap_key": 1, "unwrap_key": 1}


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({}, r"set the catalog property encryption.kms-type to one of aws, gcp, azure, vault, local, memory"),
        ({"encryption.kms-type": ""}, r"set the catalog property"),
        ({"encryption.kms-type": 1}, r"encryption.kms-type is '1'; it must be aws, gcp"),
        ({"encryption.kms-type": "hsm"}, r"encryption.kms-type is 'hsm'; it must be aws, gcp"),
        ({"encryption.kms-type": "aws", "encryption.kms-impl": "a.B"}, r"both set"),
        ({"encryption.kms-type": "aws", "py-kms-impl": "a.B"}, r"both set"),
        ({"encryption.kms-impl": "a.B", "py-kms-impl": "a.C"}, r"name two classes: keep one"),
        ({"encryption.kms-impl": "org.apache.iceberg.aws.Other"}, r"Java class; those known here are org.apache.iceberg.aws.Aws"),
        ({"encryption.kms-impl": "NoModule"}, r"write package.module.Class"),
        ({"encryption.kms-impl": "no_such_module.Class"}, r"cannot be imported"),
        ({"encryption.kms-impl": f"{__name__}.NoSuchClass"}, r"cannot be imported"),
        ({"encryption.kms-impl": f"{__name__}.HalfAClient"}, r"lacks unwrap_key, generate_key, close"),
        ({"encryption.kms-type": "local"}, r"kms.local.key-file"),
        ({"encryption.kms-type": "azure"}, r"azure.keyvault.url"),
        ({"encryption.kms-type": "azure", "azure.keyvault.url": "http://plain"}, r"https://"),
    ],
)
def test_what_cannot_be_used_is_said(properties: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        load_kms(properties)


@pytest.mark.parametrize("value", ["", " "])
@pytest.mark.parametrize(
    ("kms_type", "name"),
    [
        *(("aws", name) for name in ("client.assume-role.arn", "client.role-arn", "client.profile-name", "kms.endpoint", "sts.endpoint")),
        *(("aws", name) for name in ("client.access-key-id", "client.secret-access-key", "client.region")),
        *(("gcp", name) for name in ("gcp.kms.endpoint", "gcs.oauth2.token")),
        *(("azure", name) for name in ("azure.keyvault.url", "adls.tenant-id", "adls.client-secret")),
        *(("vault", name) for name in ("vault.url", "vault.token", "vault.role-id", "vault.secret-id", "vault.ca-cert")),
        ("local", "kms.local.key-file"),
    ],
)
def test_who_asks_and_who_is_asked_is_not_left_empty(kms_type: str, name: str, value: str) -> None:
    """As by a variable that is not there: keys would go to another service, or be asked for with rights that a role keeps away."""
    with pytest.raises(ConfigurationError, match=f"^{name} (is '{value}'; it must have a value|begins or ends with a space)"):
        load_kms({"encryption.kms-type": kms_type, name: value})


@pytest.mark.parametrize(
    ("kms_type", "module", "package"),
    [("aws", "aws", "boto3"), ("gcp", "gcp", "google.cloud.kms_v1"), ("azure", "azure", "azure.keyvault.keys"), ("vault", "vault", "hvac")],
)
def test_a_missing_sdk_names_the_extra(monkeypatch: pytest.MonkeyPatch, kms_type: str, module: str, package: str) -> None:
    monkeypatch.delitem(sys.modules, f"tablecrypt.kms.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf'pip install "…\[{kms_type}\]"'):
        load_kms({"encryption.kms-type": kms_type})


def test_one_client_for_the_same_kms_whatever_else_the_catalog_says(aws: AwsServer) -> None:
    shared = shared_kms({**aws.kms_properties, "warehouse": "s3://a", "uri": "sqlite://"})
    assert shared is shared_kms({**aws.kms_properties, "warehouse": "s3://b"})
    assert shared is not shared_kms({**aws.kms_properties, "client.region": "eu-central-1"})
    assert shared is not load_kms(aws.kms_properties)


def test_a_class_from_elsewhere_is_told_apart_by_any_property() -> None:
    own = {"encryption.kms-impl": f"{__name__}.OwnClient"}
    assert shared_kms({**own, "mine": "1"}) is not shared_kms({**own, "mine": "2"})


def test_threads_share_one_client() -> None:
    properties = {"encryption.kms-type": "memory", "kms.memory.name": "threads"}
    together = threading.Barrier(8)

    def ask(_: int) -> int:
        together.wait()
        return id(shared_kms(properties))

    with ThreadPoolExecutor(max_workers=8) as pool:
        assert len(set(pool.map(ask, range(8)))) == 1


def test_a_forked_child_has_a_client_of_its_own_that_works(aws: AwsServer) -> None:
    client = shared_kms(aws.kms_properties)
    generated = client.generate_key("alias/orders", 32)

    def check() -> bool:
        mine = shared_kms(aws.kms_properties)
        right = mine is not client and mine.unwrap_key(generated.wrapped_key, "alias/orders") == generated.key
        # The parent's object works as well, over a connection of this process.
        right = right and client.unwrap_key(generated.wrapped_key, "alias/orders") == generated.key
        return right and client.calls == {"unwrap_key": 1}

    assert holds_in_forked_child(check)


def test_memory_keyrings_of_one_name_are_one(aws: AwsServer) -> None:
    MemoryKeyManagementClient({"kms.memory.name": "one"}).create_key("orders")
    properties = {"encryption.kms-type": "memory", "kms.memory.name": "one"}
    generated = load_kms(properties).generate_key("orders")
    assert load_kms(properties).unwrap_key(generated.wrapped_key, "orders") == generated.key


@pytest.mark.parametrize(
    ("path", "client"),
    [
        ("org.apache.iceberg.aws.AwsKeyManagementClient", "AwsKeyManagementClient"),
        ("org.apache.iceberg.gcp.GcpKeyManagementClient", "GcpKeyManagementClient"),
        ("org.apache.iceberg.azure.keymanagement.AzureKeyManagementClient", "AzureKeyManagementClient"),
        ("tablecrypt.kms.aws.AwsKeyManagementClient", "AwsKeyManagementClient"),
        ("tablecrypt.kms.gcp.GcpKeyManagementClient", "GcpKeyManagementClient"),
        ("tablecrypt.kms.azure.AzureKeyManagementClient", "AzureKeyManagementClient"),
        ("tablecrypt.kms.vault.VaultKeyManagementClient", "VaultKeyManagementClient"),
        ("tablecrypt.kms.local_file.LocalFileKeyManagementClient", "LocalFileKeyManagementClient"),
        ("tablecrypt.kms.memory.MemoryKeyManagementClient", "MemoryKeyManagementClient"),
    ],
)
def test_the_class_paths_of_java_and_of_our_own_clients_stay(path: str, client: str, tmp_path: Path) -> None:
    """Users name classes by these paths in kms-impl, or subclass them."""
    properties = {
        "client.region": "eu-west-1",
        "azure.keyvault.url": "https://v.vault.azure.net",
        "vault.url": "https://vault.example",
        "vault.token": "t",
        "kms.local.key-file": str(tmp_path / "keys.json"),
        "gcs.oauth2.token": "t",
    }
    assert client in repr(load_kms({"encryption.kms-impl": path, **properties}))
