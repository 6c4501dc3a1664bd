"""Encrypted tables on Iceberg's own REST catalog server: what they do through their life, and what RestCatalog keeps doing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.scan_planning import PlanTableScanRequest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.update import RemovePropertiesUpdate

from tablecrypt.errors import ConfigurationError, KeyIdChangedError, PlaintextRefusedError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt_catalog import EncryptedRestCatalog
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.rest_proxy import Answer, Forward, Request, RestProxy, edit_answer, edit_metadata, failing_commits
from tests.support.rest_server import RestServer, encrypted_rest_catalog, new_namespace
from tests.support.tables import ENCRYPTED, ROWS, folder_of, ids, new_table

pytestmark = pytest.mark.java


@pytest.fixture
def catalog(rest_server: RestServer, aws: AwsServer) -> EncryptedRestCatalog:
    return encrypted_rest_catalog(rest_server.uri, aws)


@pytest.fixture
def namespace(rest_server: RestServer) -> str:
    return new_namespace(rest_server)


@pytest.fixture
def proxy(rest_server: RestServer) -> Iterator[RestProxy]:
    with RestProxy(rest_server.uri) as proxy:
        yield proxy


def test_another_client_reads_what_one_wrote_row_ids_included(
    catalog: EncryptedRestCatalog, namespace: str, rest_server: RestServer, aws: AwsServer
) -> None:
    table = new_table(catalog, f"{namespace}.t", appends=[ROWS, ROWS])
    table.delete("id = 2")
    other = encrypted_rest_catalog(rest_server.uri, aws).load_table(f"{namespace}.t")
    assert_same_rows(other.scan("id = 3").to_arrow(), ROWS.slice(2).take([0, 0]))
    assert sorted(other.scan(selected_fields=("_row_id",)).to_arrow().column("_row_id").to_pylist()) == [0, 2, 3, 5]
    assert other.metadata == table.metadata


def test_an_encrypted_table_of_an_older_version_is_refused_before_it_is_asked_for(proxy: RestProxy, namespace: str, aws: AwsServer) -> None:
    catalog = encrypted_rest_catalog(proxy.uri, aws)
    with pytest.raises(ConfigurationError, match="format-version"):
        catalog.create_table(f"{namespace}.t", ROWS.schema, properties={**ENCRYPTED, "format-version": "2"})
    assert not [request for request in proxy.seen if request.method == "POST"]


@pytest.mark.parametrize("by_drop", [False, True])
def test_purge_removes_every_file(rest_server: RestServer, aws: AwsServer, tmp_path: Path, namespace: str, by_drop: bool) -> None:
    catalog = encrypted_rest_catalog(rest_server.uri, aws, {"encryption.pins": str(tmp_path / "pins.json")})
    table = new_table(catalog, f"{namespace}.t", appends=[ROWS])
    table.delete("id = 1")
    wrong: Any = "no"
    with pytest.raises(ConfigurationError, match=r"^purge_requested is a str; it must be True or False$"):
        catalog.drop_table(f"{namespace}.t", purge_requested=wrong)
    if by_drop:
        catalog.drop_table(f"{namespace}.t", purge_requested=True)
    else:
        catalog.purge_table(f"{namespace}.t")
    assert [path for path in folder_of(table).rglob("*") if path.is_file() and not path.name.endswith(".crc")] == []
    assert not catalog.table_exists(f"{namespace}.t")


def test_a_purge_that_ended_before_the_table_was_dropped_is_finished_by_another(catalog: EncryptedRestCatalog, namespace: str) -> None:
    table = new_table(catalog, f"{namespace}.t", appends=[ROWS])
    shutil.rmtree(folder_of(table))
    assert namespace in str(catalog.list_tables(namespace))
    catalog.purge_table(f"{namespace}.t")
    assert catalog.list_tables(namespace) == []
    with pytest.raises(NoSuchTableError):
        catalog.purge_table(f"{namespace}.t")


def test_a_commit_that_removes_the_key_id_is_never_sent(proxy: RestProxy, namespace: str, aws: AwsServer) -> None:
    catalog = encrypted_rest_catalog(proxy.uri, aws)
    table = catalog.create_table(f"{namespace}.t", ROWS.schema, properties=ENCRYPTED)
    with pytest.raises(KeyIdChangedError):
        catalog.commit_table(table, (), (RemovePropertiesUpdate(removals=["encryption.key-id"]),))
    assert not [request for request in proxy.seen if request.is_commit]


# Tables that are not encrypted.


def test_a_table_without_key_id_is_plain_pyicebergs(catalog: EncryptedRestCatalog, namespace: str, rest_server: RestServer) -> None:
    table = catalog.create_table(f"{namespace}.plain", ROWS.schema)
    table.append(ROWS)
    table.delete("id = 1")
    assert type(table) is Table
    assert type(catalog.load_table(f"{namespace}.plain")) is Table
    assert catalog.load_table(f"{namespace}.plain").metadata == table.metadata
    plain = RestCatalog("plain", uri=rest_server.uri).load_table(f"{namespace}.plain")
    assert_same_rows(plain.scan().to_arrow(), ROWS.slice(1))
    with catalog.create_table_transaction(f"{namespace}.staged", ROWS.schema) as transaction:
        transaction.append(ROWS)
    assert ids(catalog.rename_table(f"{namespace}.staged", f"{namespace}.renamed")) == [1, 2, 3]
    catalog.purge_table(f"{namespace}.renamed")
    assert not catalog.table_exists(f"{namespace}.renamed")


def test_a_plain_table_of_version_3_keeps_pyicebergs_own_metadata(catalog: EncryptedRestCatalog, namespace: str) -> None:
    catalog.create_table(f"{namespace}.plain", ROWS.schema, properties={"format-version": "3"})
    table = catalog.load_table(f"{namespace}.plain")
    assert type(table) is Table
    assert type(table.metadata) is TableMetadataV3


def test_a_plaintext_table_with_a_key_id_in_its_properties_is_refused(proxy: RestProxy, namespace: str, aws: AwsServer) -> None:
    catalog = encrypted_rest_catalog(proxy.uri, aws)
    catalog.create_table(f"{namespace}.t", ROWS.schema)
    # The real server refuses the property on a table of version 2; others may not.
    proxy.behave(edit_metadata(lambda metadata: metadata["properties"].update(ENCRYPTED)))
    with pytest.raises(PlaintextRefusedError, match="migrate"):
        catalog.load_table(f"{namespace}.t")


def test_a_plain_client_gets_no_row(catalog: EncryptedRestCatalog, namespace: str, rest_server: RestServer) -> None:
    new_table(catalog, f"{namespace}.t", appends=[ROWS])
    with pytest.raises(ValueError, match="Avro"):
        RestCatalog("plain", uri=rest_server.uri).load_table(f"{namespace}.t").scan().to_arrow()


# What the server says beside the metadata.


def test_table_configuration_and_vended_credentials_reach_the_tables_file_io(proxy: RestProxy, namespace: str, aws: AwsServer) -> None:
    def vend(content: dict[str, object]) -> None:
        content["config"] = {"s3.access-key-id": "of the table"}
        content["storage-credentials"] = [
            {"prefix": "s3:", "config": {"s3.session-token": "of another store"}},
            {"prefix": "file:", "config": {"s3.session-token": "vended"}},
        ]

    proxy.behave(edit_answer(vend))
    catalog = encrypted_rest_catalog(proxy.uri, aws)
    catalog.create_table(f"{namespace}.t", ROWS.schema, properties=ENCRYPTED)
    table = catalog.load_table(f"{namespace}.t")
    assert isinstance(table.io, EncryptingFileIO)
    assert table.config["s3.access-key-id"] == "of the table"
    assert table.io.inner.properties["s3.access-key-id"] == "of the table"
    assert table.io.inner.properties["s3.session-token"] == "vended"
    table.append(ROWS)
    assert ids(table.refresh()) == [1, 2, 3]


def test_headers_go_with_every_request_and_a_tables_own_token_with_its_commits_alone(
    proxy: RestProxy, namespace: str, aws: AwsServer
) -> None:
    own_token = {"config": {"token": "of-the-table"}}
    proxy.behave(edit_answer(lambda content: content.update(own_token), when=lambda request: request.is_load))
    catalog = encrypted_rest_catalog(proxy.uri, aws, {"header.x-team": "tests", "auth": {"type": "noop"}})  # type: ignore[dict-item]
    catalog.create_table(f"{namespace}.t", ROWS.schema, properties=ENCRYPTED)
    catalog.load_table(f"{namespace}.t").append(ROWS)
    catalog.load_table(f"{namespace}.t")
    assert {request.headers["x-team"] for request in proxy.seen} == {"tests"}
    tokens = {request.is_commit: request.headers.get("authorization") for request in proxy.seen}
    assert tokens == {True: "Bearer of-the-table", False: None}


def test_a_bearer_token_is_sent(proxy: RestProxy, namespace: str, aws: AwsServer) -> None:
    catalog = encrypted_rest_catalog(proxy.uri, aws, {"token": "abc", "oauth2-server-uri": f"{proxy.uri}/v1/oauth/tokens"})
    new_table(catalog, f"{namespace}.t", appends=[ROWS])
    assert {request.headers["authorization"] for request in proxy.seen} == {"Bearer abc"}


def test_a_token_that_has_expired_is_renewed_and_the_commit_sent_once_more(proxy: RestProxy, namespace: str, aws: AwsServer) -> None:
    oauth = {"credential": "client:secret", "oauth2-server-uri": f"{proxy.uri}/v1/oauth/tokens"}
    catalog = encrypted_rest_catalog(proxy.uri, aws, oauth)
    table = catalog.create_table(f"{namespace}.t", ROWS.schema, properties=ENCRYPTED)
    proxy.seen.clear()
    proxy.behave(failing_commits(419, times=1))
    table.append(ROWS)
    commits_and_renewals = [request for request in proxy.seen if not request.is_load]
    assert [request.is_commit for request in commits_and_renewals] == [True, False, True]
    assert commits_and_renewals[1].path == "/v1/oauth/tokens"
    assert ids(table.refresh()) == [1, 2, 3]


def test_the_servers_prefix_is_followed(proxy: RestProxy, namespace: str, aws: AwsServer) -> None:
    def prefixed(request: Request, forward: Forward) -> Answer | None:
        if not request.path.startswith("/v1/config"):
            assert request.path.startswith("/v1/of/the/server/")
            return forward(replace(request, path=request.path.replace("/of/the/server", "")))
        content = forward(request).content
        content["overrides"]["prefix"] = "of/the/server"
        return Answer(200, json.dumps(content).encode())

    proxy.behave(prefixed)
    table = new_table(encrypted_rest_catalog(proxy.uri, aws), f"{namespace}.t", appends=[ROWS])
    assert ids(table.refresh()) == [1, 2, 3]


@pytest.mark.parametrize("name", ["encryption.kms-type", "kms.endpoint", "client.access-key-id"])
def test_the_server_cannot_choose_the_kms(proxy: RestProxy, aws: AwsServer, name: str) -> None:
    def redirecting(request: Request, forward: Forward) -> Answer | None:
        answer = forward(request)
        if not request.path.startswith("/v1/config"):
            return answer
        content = answer.content
        content["overrides"][name] = "theirs"
        return Answer(200, json.dumps(content).encode())

    proxy.behave(redirecting)
    with pytest.raises(ConfigurationError, match=name):
        encrypted_rest_catalog(proxy.uri, aws)


def test_a_scan_of_an_encrypted_table_is_never_planned_by_the_server(proxy: RestProxy, namespace: str, aws: AwsServer) -> None:
    catalog = encrypted_rest_catalog(proxy.uri, aws, {"scan-planning-mode": "server"})
    assert catalog.supports_server_side_planning()
    table = new_table(catalog, f"{namespace}.t", appends=[ROWS])
    assert ids(table) == [1, 2, 3]
    with pytest.raises(ConfigurationError, match="planned by the client"):
        catalog.plan_scan(f"{namespace}.t", PlanTableScanRequest(snapshot_id=None))
    assert not [request for request in proxy.seen if "/plan" in request.path]
    plain = catalog.create_table(f"{namespace}.plain", ROWS.schema)
    plain.append(ROWS)
    assert ids(plain) == [1, 2, 3]
    assert [request for request in proxy.seen if "/plan" in request.path]


def test_a_server_that_insists_on_planning_an_encrypted_tables_scans_is_refused(proxy: RestProxy, namespace: str, aws: AwsServer) -> None:
    catalog = encrypted_rest_catalog(proxy.uri, aws)
    catalog.create_table(f"{namespace}.t", ROWS.schema, properties=ENCRYPTED)
    proxy.behave(edit_answer(lambda content: content.update(config={"scan-planning-mode": "server"})))
    with pytest.raises(ConfigurationError, match="planned by the client"):
        catalog.load_table(f"{namespace}.t")
