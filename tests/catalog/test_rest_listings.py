"""A REST server that answers with what is no list of names: one error that says so, and quotes nothing of the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

import pytest

from tablecrypt.errors import FormatError
from tablecrypt_catalog import EncryptedRestCatalog
from tests.support.http_server import HttpServer

_NAMESPACE: Final = "GET /v1/{prefix}/namespaces/{namespace}"
_ENDPOINTS: Final = ["GET /v1/{prefix}/namespaces", _NAMESPACE, f"{_NAMESPACE}/tables", f"{_NAMESPACE}/views"]
CONFIGURATION: Final = json.dumps({"defaults": {}, "overrides": {}, "endpoints": _ENDPOINTS}).encode()
ANSWERS: Final = (
    b"",
    b"null",
    b"[]",
    b'{"identifiers": "s3cret", "namespaces": "s3cret", "namespace": 5}',
    b'{"identifiers": [{"namespace": "s3cret", "name": {}}], "namespaces": [5], "properties": []}',
    b'{"identifiers": [{"namespace": ["\\ud800"], "name": "t"}], "namespaces": [["\\ud800"]], "namespace": ["\\ud800"]}',
    b"[" * 100_000,
    b"\xff\xfe",
)
LISTINGS: Final[dict[str, Callable[[EncryptedRestCatalog], object]]] = {
    "a list of tables": lambda catalog: catalog.list_tables("db"),
    "a list of views": lambda catalog: catalog.list_views("db"),
    "a list of namespaces": lambda catalog: catalog.list_namespaces(),
    "the properties of a namespace": lambda catalog: catalog.load_namespace_properties("db"),
}


class Odd(HttpServer):
    """A catalog whose every answer but its configuration is `answer`."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        super().__init__()

    def serve(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes, Mapping[str, str]]:
        return 200, CONFIGURATION if path.startswith("/v1/config") else self.answer, {}


@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
@pytest.mark.parametrize("what", LISTINGS)
def test_an_answer_that_is_no_list_is_one_error(what: str, answer: bytes) -> None:
    with Odd(answer) as server, pytest.raises(FormatError, match=f"cannot be read as {what}") as refused:
        LISTINGS[what](EncryptedRestCatalog("odd", uri=server.uri))

    assert "s3cret" not in str(refused.value)
    assert refused.value.__cause__ is None
