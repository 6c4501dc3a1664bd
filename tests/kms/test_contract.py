"""Every client keeps the contract that ships in tablecrypt.testing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tablecrypt.kms.aws import AwsKeyManagementClient
from tablecrypt.kms.azure import AzureKeyManagementClient
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.gcp import GcpKeyManagementClient
from tablecrypt.kms.local_file import LocalFileKeyManagementClient, add_key, create_key_file
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.kms.resilient import ResilientKeyManagementClient
from tablecrypt.kms.vault import VaultKeyManagementClient
from tablecrypt.testing.kms_contract import KeyManagementClientContract
from tests.kms.services.cloud_kms import CloudKms
from tests.kms.services.key_vault import KeyVault, StaticCredential
from tests.kms.services.transit import Transit
from tests.support.aws import AwsServer
from tests.support.named_keys import NamedKeys


@pytest.fixture(scope="module")
def aws_client(aws: AwsServer) -> Iterator[KeyManagementClient]:
    client = AwsKeyManagementClient(aws.kms_properties)
    yield client
    client.close()


@pytest.fixture(scope="module")
def gcp_client(cloud_kms: CloudKms) -> Iterator[KeyManagementClient]:
    client = GcpKeyManagementClient({"gcp.kms.endpoint": cloud_kms.url, "gcs.oauth2.token": cloud_kms.token})
    yield client
    client.close()


class TestMemory(NamedKeys):
    @pytest.fixture
    def client(self) -> KeyManagementClient:
        keys = {"orders": bytes(range(32)), "people": bytes(range(16))}
        return MemoryKeyManagementClient({"kms.memory.name": f"contract-{uuid.uuid4()}"}, keys)


class TestResilient(TestMemory):
    @pytest.fixture
    def client(self) -> KeyManagementClient:
        keys = {"orders": bytes(range(32)), "people": bytes(range(16))}
        return ResilientKeyManagementClient(MemoryKeyManagementClient({"kms.memory.name": f"contract-{uuid.uuid4()}"}, keys))


class TestLocalFile(NamedKeys):
    @pytest.fixture
    def client(self, tmp_path: Path) -> KeyManagementClient:
        path = tmp_path / "keys.json"
        create_key_file(path, "orders", 32)
        add_key(path, "people", 16)
        return LocalFileKeyManagementClient({"kms.local.key-file": str(path)})


class TestAws(KeyManagementClientContract):
    @pytest.fixture
    def client(self, aws_client: KeyManagementClient) -> KeyManagementClient:
        return aws_client

    @pytest.fixture
    def wrapping_key_id(self) -> str:
        return "alias/orders"

    @pytest.fixture
    def other_wrapping_key_id(self, aws: AwsServer) -> str:
        return aws.kms_key_id("alias/people")

    @pytest.fixture
    def missing_key_id(self) -> str:
        return "alias/nobody"


class TestGcp(KeyManagementClientContract):
    @pytest.fixture
    def client(self, gcp_client: KeyManagementClient) -> KeyManagementClient:
        return gcp_client

    @pytest.fixture
    def wrapping_key_id(self, cloud_kms: CloudKms) -> str:
        return cloud_kms.create_key("orders")

    @pytest.fixture
    def other_wrapping_key_id(self, cloud_kms: CloudKms) -> str:
        return cloud_kms.create_key("people")

    @pytest.fixture
    def missing_key_id(self) -> str:
        return "projects/test/locations/global/keyRings/ring/cryptoKeys/nobody"


class TestAzureRsa(NamedKeys):
    @pytest.fixture
    def client(self, key_vault: KeyVault) -> Iterator[KeyManagementClient]:
        client = AzureKeyManagementClient({"azure.keyvault.url": key_vault.url}, StaticCredential(key_vault.token))
        yield client
        client.close()


class TestAzureAesKeyWrap(NamedKeys):
    @pytest.fixture
    def client(self, key_vault: KeyVault) -> Iterator[KeyManagementClient]:
        properties = {"azure.keyvault.url": key_vault.url, "azure.keyvault.key-wrap-algorithm": "A256KW"}
        client = AzureKeyManagementClient(properties, StaticCredential(key_vault.token))
        yield client
        client.close()

    @pytest.fixture
    def wrapping_key_id(self) -> str:
        return "orders-hsm"

    @pytest.fixture
    def other_wrapping_key_id(self) -> str:
        return "people-hsm"


class TestVault(NamedKeys):
    @pytest.fixture
    def client(self, transit: Transit) -> Iterator[KeyManagementClient]:
        transit.rotate("orders")
        transit.rotate("people")
        client = VaultKeyManagementClient({"vault.url": transit.url, "vault.token": "root-token"})
        yield client
        client.close()
