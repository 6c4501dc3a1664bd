"""Credentials for the key service that a REST catalog's server sends: taken where the client says so, and nothing else with them.

The same rules hold for the answer to a load and for those to a creation.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from tablecrypt.errors import ConfigurationError, FormatError, KmsAccessDeniedError, MasterKeyRefusedError
from tablecrypt_catalog import EncryptedRestCatalog, EncryptedSqlCatalog
from tablecrypt_catalog.vended_kms import kms_properties
from tests.support.aws import ACCOUNT, AwsServer
from tests.support.lying_rest_server import LyingRestServer
from tests.support.policies import aws_user
from tests.support.restricting_server import RestrictingServer
from tests.support.tables import SCHEMA, memory_kms, metadata_path, new_table, rows

ID_NAME: Final = "client.access-key-id"
SECRET_NAME: Final = "client.secret-access-key"
SECRET: Final = "vended-secret-that-nobody-may-see"
NOBODY: Final = {ID_NAME: "nobody", SECRET_NAME: "nothing"}


@pytest.fixture
def key_id(aws: AwsServer) -> str:
    return aws.kms_key_id("alias/orders")


@pytest.fixture
def server(catalog: EncryptedSqlCatalog, key_id: str) -> Iterator[LyingRestServer]:
    table = new_table(catalog, appends=[rows(0)], properties={"encryption.key-id": key_id})
    with LyingRestServer(catalog, lambda: metadata_path(table)) as server:
        yield server


@pytest.fixture
def maker(tmp_path: Path, key_id: str) -> Iterator[RestrictingServer]:
    """A server that makes tables, and whose own key service is another one."""
    behind = EncryptedSqlCatalog(
        "behind", uri=f"sqlite:///{tmp_path}/behind.db", warehouse=tmp_path.as_uri(), **memory_kms(tmp_path, key_id)
    )
    behind.create_namespace("db")
    with RestrictingServer(behind) as server:
        yield server


def client_of(aws: AwsServer, key_id: str, **properties: str) -> dict[str, str]:
    return {**aws.kms_properties, "encryption.kms.vended": "true", "encryption.allowed-key-ids": key_id, **properties}


def vended(key_id: str, **config: Any) -> list[dict[str, Any]]:
    return [{"kms-key-ids": [key_id], "config": {ID_NAME: "vended-id", SECRET_NAME: SECRET, **config}}]


def allowed(aws: AwsServer, key_id: str, *actions: str) -> str:
    """A policy that allows this of one key."""
    resource = f"arn:aws:kms:{aws.region}:{ACCOUNT}:key/{key_id}"
    return json.dumps({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": actions, "Resource": resource}})


def keys_of(granted: Mapping[str, str]) -> dict[str, str]:
    """Of the properties of a user, those for the key service."""
    return {name: granted[name] for name in (ID_NAME, SECRET_NAME)}


def test_vended_credentials_open_a_table_that_the_clients_own_do_not(server: LyingRestServer, aws: AwsServer, key_id: str) -> None:
    own = client_of(aws, key_id, **NOBODY)
    with aws_user(aws, "vended", allowed(aws, key_id, "kms:Decrypt")) as granted:
        with pytest.raises(KmsAccessDeniedError):
            server.client(**own).load_table("db.t").scan().to_arrow()

        server.kms_credentials = vended(key_id, **keys_of(granted))

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


def created(client: EncryptedRestCatalog, key_id: str) -> Table:
    return client.create_table("db.new", SCHEMA, properties={"encryption.key-id": key_id})


def created_with_its_rows(client: EncryptedRestCatalog, key_id: str) -> Table:
    with client.create_table_transaction("db.new", SCHEMA, properties={"encryption.key-id": key_id}) as transaction:
        transaction.append(rows(0))
    return client.load_table("db.new")


def registered(client: EncryptedRestCatalog, key_id: str) -> Table:
    """The table again, by the metadata file that it has."""
    location = created_with_its_rows(client, key_id).metadata_location
    client.drop_table("db.new")
    return client.register_table("db.new", location)


@pytest.mark.parametrize(("make", "stages"), [(created, True), (created, False), (created_with_its_rows, True), (registered, True)])
def test_vended_credentials_make_a_table_that_the_clients_own_cannot(
    maker: RestrictingServer, aws: AwsServer, key_id: str, make: Callable[..., Table], stages: bool
) -> None:
    maker.stages = stages
    own = client_of(aws, key_id, **NOBODY)
    with aws_user(aws, "vended", allowed(aws, key_id, "kms:Encrypt", "kms:GenerateDataKey", "kms:Decrypt")) as granted:
        maker.kms_credentials = vended(key_id, **keys_of(granted))

        table = make(maker.client(**own), key_id)
        table.append(rows(20))

        assert sorted(maker.client(**own).load_table("db.new").scan().to_arrow()["id"].to_pylist())[-20:] == list(range(20, 40))


@pytest.mark.parametrize("make", [created, created_with_its_rows])
@pytest.mark.parametrize("stages", [True, False])
@pytest.mark.parametrize("sent", ["none", "of another key", "not taken"])
def test_without_vended_credentials_that_serve_no_table_is_made(
    maker: RestrictingServer, aws: AwsServer, key_id: str, make: Callable[..., Table], stages: bool, sent: str
) -> None:
    maker.stages = stages
    own = client_of(aws, key_id, **NOBODY)
    with aws_user(aws, "vended", allowed(aws, key_id, "kms:*")) as granted:
        maker.kms_credentials = None if sent == "none" else vended("another" if sent == "of another key" else key_id, **keys_of(granted))
        client = maker.client(**{**own, "encryption.kms.vended": str(sent != "not taken").lower()})

        with pytest.raises(KmsAccessDeniedError):
            make(client, key_id)

    assert not maker.catalog.table_exists("db.new")


@pytest.mark.parametrize("make", [created, created_with_its_rows])
@pytest.mark.parametrize("stages", [True, False])
@pytest.mark.parametrize(
    "sent", [{"kms.endpoint": SECRET}, {"client.region": SECRET}, {"encryption.kms-impl": SECRET}, {"client.assume-role.arn": SECRET}]
)
def test_a_server_that_sends_more_than_credentials_with_a_new_table_is_left_without_it(
    maker: RestrictingServer, aws: AwsServer, key_id: str, make: Callable[..., Table], stages: bool, sent: dict[str, str]
) -> None:
    maker.stages = stages
    maker.kms_credentials = vended(key_id, **sent)

    with pytest.raises(ConfigurationError, match="among the credentials") as refused:
        make(maker.client(**client_of(aws, key_id)), key_id)

    assert SECRET not in str(refused.value)
    assert not maker.catalog.table_exists("db.new")


def test_vended_credentials_make_no_table_under_a_key_that_the_client_does_not_allow(
    maker: RestrictingServer, aws: AwsServer, key_id: str
) -> None:
    maker.kms_credentials = vended(key_id)
    with pytest.raises(MasterKeyRefusedError):
        created(maker.client(**{**client_of(aws, key_id), "encryption.allowed-key-ids": "alias/another"}), key_id)

    assert not maker.catalog.table_exists("db.new")


class ServerWithHalfAnAnswer(RestrictingServer):
    """It answers a creation with credentials and a table that is none."""

    def staged(self, *_: object) -> dict[str, Any]:
        return {"metadata": {"format-version": 3}}


def test_an_answer_to_a_creation_that_is_no_table_is_refused_without_a_word_of_it(
    maker: RestrictingServer, aws: AwsServer, key_id: str
) -> None:
    with ServerWithHalfAnAnswer(maker.catalog) as server, pytest.raises(FormatError, match="answer to a creation is no table") as refused:
        server.kms_credentials = vended(key_id)
        created(server.client(**client_of(aws, key_id)), key_id)

    assert SECRET not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize("config", [[[1, "x"], ["y", "z"]], [[None, "x"], ["y", "z"]], {"vault.token": "hvs.secret\r\nX: 1"}])
def test_odd_names_and_values_of_credentials_are_refused_in_one_line(config: object) -> None:
    client = {"encryption.kms.vended": "true", "encryption.allowed-key-ids": "*", "encryption.kms-type": "vault"}
    properties = {"format-version": "3", "encryption.key-id": "orders"}
    metadata = new_table_metadata(SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t", properties)

    with pytest.raises(ConfigurationError) as refused:
        kms_properties("db.t", client, metadata, [{"kms-key-ids": ["orders"], "config": config}])

    assert "hvs.secret" not in f"{refused.value}"
    assert "\n" not in f"{refused.value}"
