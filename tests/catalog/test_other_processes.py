"""A client of a catalog in a forked child, or pickled for a worker: connections and tokens stay in their process, and limits go along."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from sqlalchemy import text

from tablecrypt.bounded_answers import OF_CATALOGS
from tablecrypt_catalog import EncryptedRestCatalog, EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.forking import fork_to, holds_in_forked_child, wait_for
from tests.support.http_server import HttpServer
from tests.support.lying_rest_server import LyingRestServer
from tests.support.tables import ROWS, encrypted_table, ids, metadata_path, new_table, rows

TOKEN: Final = "the-token-of-this-process"
AUTHS: Final[dict[str, dict[str, Any]]] = {
    "none": {},
    "credential": {"credential": "me:s3cret", "oauth2-server-uri": "TOKENS"},
    "oauth2": {"auth": {"type": "oauth2", "oauth2": {"client_id": "me", "client_secret": "s3cret", "token_url": "TOKENS"}}},
    "SigV4": {"rest.sigv4-enabled": "true", "rest.signing-region": "us-east-1"},
}


class Tokens(HttpServer):
    """Gives each client a token, and counts them."""

    given = 0

    def serve(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes, Mapping[str, str]]:
        self.given += 1
        return 200, json.dumps({"access_token": TOKEN, "token_type": "bearer", "expires_in": 3600}).encode(), {}


class Waiting(HttpServer):
    """Lists one table of each namespace; those of `slow` once somebody has asked for those of `fast`."""

    def __init__(self) -> None:
        self.slow_asked, self.fast_asked = threading.Event(), threading.Event()
        super().__init__()

    def serve(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes, Mapping[str, str]]:
        if path.endswith("/config"):
            return 200, json.dumps({"defaults": {}, "overrides": {}}).encode(), {}
        namespace = path.split("/")[3]
        if namespace == "slow":
            self.slow_asked.set()
            self.fast_asked.wait(5)
        elif namespace == "fast":
            self.fast_asked.set()
        return 200, json.dumps({"identifiers": [{"namespace": [namespace], "name": "t"}]}).encode(), {}


class NotingWaits(HTTPAdapter):
    """Notes how long each request waits: for a connection, and between two bytes of the answer."""

    def __init__(self) -> None:
        self.waits: list[object] = []
        super().__init__()

    def send(self, request: PreparedRequest, *arguments: Any, **named: Any) -> Response:
        self.waits.append(named["timeout"])
        return super().send(request, *arguments, **named)


@pytest.mark.parametrize("auth", AUTHS)
def test_a_pickled_table_scans_elsewhere_and_takes_no_token_along(
    catalog: EncryptedSqlCatalog, aws: AwsServer, auth: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    stored = new_table(catalog, appends=[ROWS])
    with LyingRestServer(catalog, lambda: metadata_path(stored)) as server, Tokens() as tokens:
        properties = json.loads(json.dumps(AUTHS[auth]).replace("TOKENS", f"{tokens.uri}/token"))
        table = server.client(**aws.kms_properties, **properties).load_table("db.t")
        given = tokens.given

        pickled = pickle.dumps((table, table.scan()))
        copy, scan = pickle.loads(pickled)

        assert TOKEN.encode() not in pickled
        assert_same_rows(scan.to_arrow(), ROWS)
        assert tokens.given == given
        assert copy.refresh().metadata == table.metadata


def test_a_signer_of_requests_to_s3_gets_a_token_wherever_it_is(catalog: EncryptedSqlCatalog, aws: AwsServer) -> None:
    stored = new_table(catalog, appends=[ROWS])
    with LyingRestServer(catalog, lambda: metadata_path(stored)) as server, Tokens() as tokens:
        properties = {"s3.signer": "S3V4RestSigner", "credential": "me:s3cret", "oauth2-server-uri": tokens.uri}
        table = encrypted_table(server.client(**aws.kms_properties, **properties).load_table("db.t"))
        given = tokens.given
        copy = pickle.loads(pickle.dumps(table))

        # PyIceberg's name, under which its signer looks.
        headers = [each.io.inner.properties["auth.manager"].auth_header() for each in (table, copy)]

        assert headers == [f"Bearer {TOKEN}"] * 2
        assert tokens.given == given + 1


def test_a_pickled_client_waits_no_longer_for_an_answer_than_the_one_it_was_made_of() -> None:
    with Waiting() as server:
        copy = pickle.loads(pickle.dumps(EncryptedRestCatalog("r", uri=server.uri)))
        noting = NotingWaits()
        copy._session.mount(server.uri, noting)
        copy.list_tables("db")

    assert noting.waits == [(OF_CATALOGS.connection_s, OF_CATALOGS.silence_s)]


def test_a_forked_child_and_its_parent_get_each_their_own_answers() -> None:
    """Over one connection the server would answer them one after the other, and each of the two would read what comes first."""
    with Waiting() as server:
        client = EncryptedRestCatalog("r", uri=server.uri)
        client.list_tables("db")

        child = fork_to(lambda: client.list_tables("slow") == [("slow", "t")])
        assert server.slow_asked.wait(20)
        found = client.list_tables("fast")

        assert wait_for(child) == 0
        assert found == [("fast", "t")]


def test_a_forked_child_connects_to_the_database_by_itself(catalog: EncryptedSqlCatalog) -> None:
    with catalog.engine.connect() as connection:
        parents = connection.connection.dbapi_connection

    def uses_another() -> bool:
        with catalog.engine.connect() as connection:
            return connection.connection.dbapi_connection is not parents and not catalog.namespace_exists("nowhere")

    assert holds_in_forked_child(uses_another)


def test_a_forked_child_can_commit_where_a_thread_of_its_parent_was_in_the_middle_of_a_commit(catalog: EncryptedSqlCatalog) -> None:
    """SQLite would take the parent's lock on the file for the child's own, and call the database locked for ever."""
    table, is_written, may_end = new_table(catalog, appends=[rows(0, 1)]), threading.Event(), threading.Event()

    def write() -> None:
        with catalog.engine.begin() as connection:
            connection.execute(text("UPDATE iceberg_tables SET previous_metadata_location = 'x' WHERE table_name = 'another'"))
            is_written.set()
            may_end.wait(0.5)

    def appends() -> bool:
        table.append(rows(1, 1))
        return ids(table) == [0, 1]

    writer = threading.Thread(target=write)
    writer.start()
    assert is_written.wait(20)

    assert holds_in_forked_child(appends)
    may_end.set()
    writer.join(20)
    assert ids(table.refresh()) == [0, 1]


@pytest.mark.slow
def test_a_fork_in_a_session_of_its_own_thread_goes_ahead(catalog: EncryptedSqlCatalog) -> None:
    with catalog.engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        assert holds_in_forked_child(lambda: catalog.namespace_exists("db"))
    assert catalog.namespace_exists("db")


def test_a_forked_child_has_what_was_in_a_database_in_memory(tmp_path: Path) -> None:
    catalog = EncryptedSqlCatalog("memory", uri="sqlite:///:memory:", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("db")

    assert holds_in_forked_child(lambda: catalog.namespace_exists("db"))
