"""Credentials for the key service that a REST catalog's server sends: taken where the client says so, and nothing else with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tablecrypt.errors import ConfigurationError, KmsAccessDeniedError, MasterKeyRefusedError
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import ACCOUNT, AwsServer
from tests.support.lying_rest_server import LyingRestServer
from tests.support.policies import aws_user
from tests.support.tables import metadata_path, new_table, rows

ID_NAME: Final = "client.access-key-id"
SECRET_NAME: Final = "client.secret-access-key"
SECRET: Final = "vended-secret-that-nobody-may-see"


@pytest.fixture
def key_id(aws: AwsServer) -> str:
    return aws.kms_key_id("alias/orders")


@pytest.fixture
def server(catalog: EncryptedSqlCatalog, key_id: str) -> Iterator[LyingRestServer]:
    table = new_table(catalog, appends=[rows(0)], properties={"encryption.key-id": key_id})
    with LyingRestServer(catalog, lambda: metadata_path(table)) as server:
        yield server


def client_of(aws: AwsServer, key_id: str, **properties: str) -> dict[str, str]:
    return {**aws.kms_properties, "encryption.kms.vended": "true", "encryption.allowed-key-ids": key_id, **properties}


def vended(key_id: str, **config: Any) -> list[dict[str, Any]]:
    return [{"kms-key-ids": [key_id], "config": {ID_NAME: "vended-id", SECRET_NAME: SECRET, **config}}]


def test_vended_credentials_open_a_table_that_the_clients_own_do_not(server: LyingRestServer, aws: AwsServer, key_id: str) -> None:
    policy = {
        "Version": "2012-10-17",
        "Statement": {"Effect": "Allow", "Action": "kms:Decrypt", "Resource": f"arn:aws:kms:{aws.region}:{ACCOUNT}:key/{key_id}"},
    }
    own = client_of(aws, key_id, **{ID_NAME: "nobody", SECRET_NAME: "nothing"})
    with aws_user(aws, "vended", json.dumps(policy)) as granted:
        with pytest.raises(KmsAccessDeniedError):
            server.client(**own).load_table("db.t").scan().to_arrow()

        server.kms_credentials = vended(key_id, **{name: granted[name] for name in (ID_NAME, SECRET_NAME)})

        assert server.client(**own).load_table("db.t").scan().count() == 20
        with pytest.raises(KmsAccessDeniedError):
            server.client(**{**own, "encryption.kms.vended": "false"}).load_table("db.t").scan().to_arrow()


@pytest.mark.parametrize("sent", [[], [{"kms-key-ids": ["another"], "config": {"kms.endpoint": "http://127.0.0.1:1"}}], None])
def test_without_a_set_for_the_tables_key_the_clients_own_serves(
    server: LyingRestServer, aws: AwsServer, key_id: str, sent: object
) -> None:
    server.kms_credentials = sent

    assert server.client(**client_of(aws, key_id)).load_table("db.t").scan().count() == 20


@pytest.mark.parametrize(
    "name",
    [
        "kms.endpoint",
        "sts.endpoint",
        "client.region",
        "client.assume-role.arn",
        "client.profile-name",
        "encryption.kms-type",
        "encryption.kms-impl",
        "encryption.allowed-key-ids",
        "s3.endpoint",
        "unknown",
        "CLIENT.SESSION-TOKEN",
    ],
)
def test_a_server_sends_credentials_and_nothing_else(server: LyingRestServer, aws: AwsServer, key_id: str, name: str) -> None:
    server.kms_credentials = vended(key_id, **{name: SECRET})

    with pytest.raises(ConfigurationError, match=f"the server sent '{name}' among the credentials") as refused:
        server.client(**client_of(aws, key_id)).load_table("db.t")

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("config", [{}, {ID_NAME: "only"}, {ID_NAME: "a", SECRET_NAME: ""}, {ID_NAME: 7, SECRET_NAME: SECRET}])
def test_half_a_set_is_refused(server: LyingRestServer, aws: AwsServer, key_id: str, config: dict[str, Any]) -> None:
    server.kms_credentials = [{"kms-key-ids": [key_id], "config": config}]

    with pytest.raises(ConfigurationError, match="are not whole") as refused:
        server.client(**client_of(aws, key_id)).load_table("db.t")

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("sent", [7, "text", [7], [{}], [{"kms-key-ids": 7, "config": {}}], [{"kms-key-ids": [], "config": SECRET}]])
def test_what_cannot_be_read_is_refused_without_a_word_of_it(server: LyingRestServer, aws: AwsServer, key_id: str, sent: object) -> None:
    server.kms_credentials = sent

    with pytest.raises(ConfigurationError, match="key-management-credentials that are not a list") as refused:
        server.client(**client_of(aws, key_id)).load_table("db.t")

    assert SECRET not in str(refused.value)


def test_a_client_that_takes_them_names_its_keys(server: LyingRestServer, aws: AwsServer, key_id: str) -> None:
    server.kms_credentials = vended(key_id)
    properties = client_of(aws, key_id)
    del properties["encryption.allowed-key-ids"]

    with pytest.raises(ConfigurationError, match=r"encryption\.kms\.vended=true needs encryption\.allowed-key-ids"):
        server.client(**properties).load_table("db.t")
    with pytest.raises(MasterKeyRefusedError):
        server.client(**properties, **{"encryption.allowed-key-ids": "alias/another"}).load_table("db.t")


def test_credentials_of_another_service_are_refused(server: LyingRestServer, tmp_path: Path, aws: AwsServer, key_id: str) -> None:
    server.kms_credentials = vended(key_id)
    local = {"encryption.kms-type": "local", "kms.local.key-file": str(tmp_path / "keys")}

    with pytest.raises(ConfigurationError, match="takes them for aws and vault alone"):
        server.client(**client_of(aws, key_id, **local)).load_table("db.t")


def test_the_server_is_told_that_the_client_takes_them(server: LyingRestServer, aws: AwsServer, key_id: str) -> None:
    sent = server.client(**client_of(aws, key_id))._session.headers["X-Iceberg-Access-Delegation"]
    unasked = server.client(**aws.kms_properties)._session.headers["X-Iceberg-Access-Delegation"]

    assert (sent, unasked) == ("vended-credentials,kms-vended-credentials", "vended-credentials")
