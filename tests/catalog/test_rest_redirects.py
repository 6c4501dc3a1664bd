"""A REST server that redirects: to another host nothing of a request goes, since its headers and body hold the client's credentials."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import pytest

from tablecrypt.errors import ConfigurationError, TablecryptError
from tablecrypt_catalog import EncryptedRestCatalog
from tests.support.http_server import HttpServer

SECRETS: Final = {"token": "the-token", "header.X-Api-Key": "the-api-key"}
_NAMESPACE: Final = "/v1/{prefix}/namespaces/{namespace}"
ENDPOINTS: Final = (
    f"GET {_NAMESPACE}",
    f"GET {_NAMESPACE}/tables",
    f"GET {_NAMESPACE}/tables/{{table}}",
    f"GET {_NAMESPACE}/views/{{view}}",
    "POST /v1/{prefix}/tables/rename",
)


class Elsewhere(HttpServer):
    """Notes what it is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Mapping[str, str], bytes]] = []
        super().__init__()

    def serve(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes, Mapping[str, str]]:
        self.sent.append((path, headers, body))
        return 404, b"{}", {}


class Redirecting(HttpServer):
    """A catalog whose answers all lead to another place, but for its configuration and for what was redirected to itself."""

    def __init__(self, to: str, status: int) -> None:
        self.to, self.status, self.asked = to, status, list[str]()
        super().__init__()

    def serve(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes, Mapping[str, str]]:
        self.asked.append(path)
        if path.startswith("/v1/config"):
            return 200, json.dumps({"defaults": {}, "overrides": {}, "endpoints": ENDPOINTS}).encode(), {}
        if path.startswith("/again"):
            return 404, b"{}", {}
        return self.status, b"", {"Location": f"{self.to}{path}"}


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    with Elsewhere() as server:
        yield server


def catalog_of(server: HttpServer, **properties: str) -> EncryptedRestCatalog:
    return EncryptedRestCatalog("redirected", uri=server.uri, **{**SECRETS, **properties})


REQUESTS: Final[dict[str, Callable[[EncryptedRestCatalog], object]]] = {
    "load": lambda catalog: catalog.load_table("db.t"),
    "list": lambda catalog: catalog.list_tables("db"),
    "view": lambda catalog: catalog.load_view("db.v"),
    "rename": lambda catalog: catalog.rename_table("db.t", "db.u"),
}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
def test_nothing_is_sent_to_another_host(elsewhere: Elsewhere, request_of: Callable[[EncryptedRestCatalog], object], status: int) -> None:
    with Redirecting(elsewhere.uri, status) as server, pytest.raises(ConfigurationError, match="redirects to") as refused:
        request_of(catalog_of(server))

    assert not elsewhere.sent
    assert not [secret for secret in SECRETS.values() if secret in str(refused.value)]


def test_the_secret_for_a_token_is_not_sent_to_another_host(elsewhere: Elsewhere) -> None:
    with Redirecting(elsewhere.uri, 307) as server, pytest.raises(ConfigurationError, match="redirects to"):
        catalog_of(server, token="", credential="client:the-secret", **{"oauth2-server-uri": f"{server.uri}/tokens"})

    assert not elsewhere.sent


def test_a_redirect_within_the_host_is_followed() -> None:
    with Redirecting("/again", 307) as server:
        with pytest.raises(Exception, match="404") as missing:
            catalog_of(server).load_table("db.t")
        assert not isinstance(missing.value, TablecryptError)
        assert server.asked[-1].startswith("/again/")
