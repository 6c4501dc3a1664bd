"""Tokens of a REST catalog: where a client's secret goes, how it ends where none comes back, and what a server sends with its tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tablecrypt.errors import ConfigurationError
from tablecrypt_catalog import EncryptedRestCatalog, EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.http_server import HttpServer
from tests.support.lying_rest_server import LyingRestServer
from tests.support.tables import metadata_path, new_table

SECRET: Final = "the-secret"
GOOD: Final = json.dumps({"access_token": "the-token", "expires_in": 100}).encode()
NO_TOKENS: Final[dict[str, bytes]] = {
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "no token": b'{"token": "s3cret"}',
    "no end": b'{"access_token": "s3cret"}',
    "an end that is none": b'{"access_token": "s3cret", "expires_in": "s3cret"}',
    "a null": b'{"access_token": null, "expires_in": 100}',
    "a deep nest": b"[" * 100_000,
    "no UTF-8": b"\xff",
}
UNUSABLE: Final[dict[str, Any]] = {
    "text": "oauth2",
    "nothing of its kind": {"type": "oauth2"},
    "no secret": {"type": "oauth2", "oauth2": {"client_id": "me", "token_url": "http://127.0.0.1/"}},
    "a class that is none": {"type": "custom", "impl": "os.system"},
}


class Fixed(HttpServer):
    """Answers each request alike, and notes what it was sent."""

    def __init__(self, status: int, answer: bytes, **headers: str) -> None:
        self.sent: list[tuple[str, Mapping[str, str], bytes]] = []
        self._answer = status, answer, headers
        super().__init__()

    def serve(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes, Mapping[str, str]]:
        self.sent.append((path, headers, body))
        return self._answer


@pytest.fixture
def server() -> Iterator[Fixed]:
    """A catalog without tables."""
    with Fixed(200, json.dumps({"defaults": {}, "overrides": {}, "identifiers": []}).encode()) as running:
        yield running


def oauth2(tokens: HttpServer) -> dict[str, Any]:
    return {"type": "oauth2", "oauth2": {"client_id": "me", "client_secret": SECRET, "token_url": f"{tokens.uri}/token"}}


def tables(server: HttpServer, auth: Any) -> list[Any]:
    return EncryptedRestCatalog("r", uri=server.uri, auth=auth).list_tables("db")


@pytest.mark.parametrize("answer", NO_TOKENS.values(), ids=NO_TOKENS)
def test_an_answer_without_a_token_is_one_error_and_no_request(server: Fixed, answer: bytes) -> None:
    with Fixed(200, answer) as tokens, pytest.raises(ConfigurationError, match=r"^catalog r: auth gives no token: \w+") as refused:
        tables(server, oauth2(tokens))

    assert not server.sent
    assert "s3cret" not in str(refused.value) and len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("auth", UNUSABLE.values(), ids=UNUSABLE)
def test_an_auth_that_cannot_be_used_is_one_error_of_the_clients_own(server: Fixed, auth: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^catalog r: auth or ssl cannot be used: ") as refused:
        tables(server, auth)

    assert not server.sent
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_token_server_that_redirects_sends_the_secret_nowhere(server: Fixed, status: int) -> None:
    with Fixed(200, GOOD) as elsewhere, Fixed(status, b"", Location=f"{elsewhere.uri}/token") as tokens:
        assert tables(server, oauth2(tokens)) == []

    assert tokens.sent and elsewhere.sent
    assert all("authorization" not in headers and SECRET.encode() not in body for _, headers, body in elsewhere.sent)


@pytest.mark.parametrize("sent", [{"token": f"{SECRET}\n"}, {"s3.session-token": f"{SECRET}\n"}], ids=str)
def test_a_credential_that_no_header_can_hold_is_refused_when_it_comes_and_not_shown(
    catalog: EncryptedSqlCatalog, aws: AwsServer, sent: dict[str, str]
) -> None:
    """Sent with a commit, it would pass for a commit that may have landed."""
    table = new_table(catalog)
    with LyingRestServer(catalog, lambda: metadata_path(table)) as server:
        server.config = sent
        with pytest.raises(ConfigurationError, match=f"{next(iter(sent))}, which the server of catalog restricted sent, ") as refused:
            server.client(**aws.kms_properties).load_table("db.t")

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("sent", [{"namespace-separator": ""}, {"view-endpoints-supported": "a\nb"}, {"rest-page-size": "0"}], ids=str)
def test_a_configuration_that_cannot_be_read_is_one_line_that_names_the_server(
    catalog: EncryptedSqlCatalog, aws: AwsServer, sent: dict[str, str]
) -> None:
    table = new_table(catalog)
    with LyingRestServer(catalog, lambda: metadata_path(table)) as server:
        server.overrides = sent
        with pytest.raises(ConfigurationError, match=r"what the server and this client say|which the server of") as refused:
            server.client(**aws.kms_properties)

    assert len(str(refused.value).splitlines()) == 1
