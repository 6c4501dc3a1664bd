"""A REST server that answers with what is no list of names, or what else was asked for, or with a list that has no end: one error, which
quotes nothing of the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest
from pyiceberg.catalog.rest.scan_planning import PlanTableScanRequest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.view.metadata import ViewVersion

from tablecrypt.errors import FormatError
from tablecrypt.maintenance.catalog_tables import identifiers_of
from tablecrypt_catalog import EncryptedRestCatalog
from tests.support.http_server import HttpServer
from tests.support.tables import SCHEMA

_NAMESPACE: Final = "GET /v1/{prefix}/namespaces/{namespace}"
_ENDPOINTS: Final = [
    "GET /v1/{prefix}/namespaces",
    *(f"{_NAMESPACE}{what}" for what in ("", "/tables", "/views", "/views/{view}", "/tables/{table}/credentials")),
    f"{_NAMESPACE}/tables/{{table}}",
    *(f"POST{_NAMESPACE.removeprefix('GET')}{what}" for what in ("/properties", "/views", "/tables/{table}/plan", "/tables/{table}/tasks")),
]
CONFIGURATION: Final = json.dumps({"defaults": {}, "overrides": {}, "endpoints": _ENDPOINTS}).encode()
ANSWERS: Final = (
    b"",
    b"null",
    b"[]",
    b'{"identifiers": "s3cret", "namespaces": "s3cret", "namespace": 5, "storage-credentials": [{"prefix": "s3", "config": "s3cret"}]}',
    b'{"identifiers": [{"namespace": "s3cret", "name": {}}], "namespaces": [5], "properties": []}',
    b'{"identifiers": [{"namespace": ["\\ud800"], "name": "t"}], "namespaces": [["\\ud800"]], "namespace": ["\\ud800"]}',
    b"[" * 100_000,
    b"\xff\xfe",
)
VIEW: Final = ViewVersion.model_validate(
    {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 1,
        "summary": {},
        "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
        "default-namespace": ["db"],
    }
)
PLAIN: Final = new_table_metadata(SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///lake/t", {"format-version": "2"})
LISTINGS: Final[dict[str, Callable[[EncryptedRestCatalog], object]]] = {
    "a list of tables": lambda catalog: catalog.list_tables("db"),
    "a list of views": lambda catalog: catalog.list_views("db"),
    "a list of namespaces": lambda catalog: catalog.list_namespaces(),
    "the properties of a namespace": lambda catalog: catalog.load_namespace_properties("db"),
    "changed properties": lambda catalog: catalog.update_namespace_properties("db", {"one"}, {"other": "value"}),
    "credentials": lambda catalog: catalog.load_credentials("db.t", "s3://lake/db/t"),
    "the metadata of a view": lambda catalog: catalog.create_view("db.v", SCHEMA, VIEW),
}


PAGED: Final = [what for what in LISTINGS if what.startswith("a list of")]


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


def view(place: Sequence[str | int], value: object) -> bytes:
    """A server's answer of a view, with a value in one place of its metadata."""
    field = {
        "id": 1,
        "name": "l",
        "required": False,
        "type": {"type": "list", "element-id": 2, "element": "string", "element-required": True},
    }
    metadata: dict[str, Any] = {
        "view-uuid": "0d6f5c11-6b0f-4bb4-9d8e-1f2a3b4c5d6e",
        "format-version": 1,
        "location": "file:///lake/v",
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [field]}],
        "current-version-id": 1,
        "versions": [VIEW.model_dump(mode="json", by_alias=True)],
        "version-log": [{"timestamp-ms": 1, "version-id": 1}],
        "properties": {},
    }
    *around, name = place
    part: Any = metadata
    for each in around:
        part = part[each]
    part[name] = value
    return json.dumps({"metadata-location": "file:///lake/v/1.json", "metadata": metadata, "config": {}}).encode()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("schemas", 0, "fields", 0, "type", "element"), None),
        (("current-version-id",), 5),
        (("properties",), None),
    ],
    ids=["a list of nothing", "no current version", "properties that are none"],
)
def test_an_answer_that_is_half_a_view_is_one_error(place: Sequence[str | int], value: object) -> None:
    with Odd(view(place, value)) as server:
        catalog = EncryptedRestCatalog("odd", uri=server.uri)
        with pytest.raises(FormatError, match=r"^db\.v: .* cannot be read as the metadata of a view$"):
            catalog.load_view("db.v")
        if place != ("current-version-id",):
            with pytest.raises(FormatError, match="cannot be read as the metadata of a view"):
                catalog.create_view("db.v", SCHEMA, VIEW)


class Paged(HttpServer):
    """A catalog that answers with empty pages, of which `next_of` tells the token of the next by the number of the request.

    Attributes:
        tokens: those that pages were asked for with.
        answers: what some requests get in place of a page, by their numbers.
    """

    def __init__(self, next_of: Callable[[int], str | None], answers: Mapping[int, int] | None = None) -> None:
        self.tokens: list[str | None] = []
        self._next_of = next_of
        self._answers = answers or {}
        super().__init__()

    def serve(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes, Mapping[str, str]]:
        if path.startswith("/v1/config"):
            return 200, CONFIGURATION, {}
        [token] = parse_qs(urlsplit(path).query).get("pageToken", [None])
        self.tokens.append(token)
        number = len(self.tokens)
        page: dict[str, Any] = {"identifiers": [], "namespaces": [], "next-page-token": self._next_of(number)}
        return self._answers.get(number, 200), json.dumps(page).encode(), {}


@pytest.mark.parametrize("tokens", ["s3cret", "s3cret other"], ids=["itself", "an earlier page"])
@pytest.mark.parametrize("what", PAGED)
def test_a_list_whose_pages_lead_in_a_circle_ends_with_one_error(what: str, tokens: str) -> None:
    names = tokens.split()
    with (
        Paged(lambda number: names[number % len(names)]) as server,
        pytest.raises(FormatError, match=f"gives {what} without an end") as refused,
    ):
        LISTINGS[what](EncryptedRestCatalog("odd", uri=server.uri))

    assert len(server.tokens) == len(names) + 2
    assert "s3cret" not in str(refused.value)


def test_a_list_of_ever_new_pages_ends_with_one_error() -> None:
    with Paged(lambda number: f"s3cret-{number}") as server, pytest.raises(FormatError, match="on more than 1000 pages") as refused:
        EncryptedRestCatalog("odd", uri=server.uri).list_tables("db")

    assert len(server.tokens) == 1_001
    assert "s3cret" not in str(refused.value)


def test_a_list_begins_anew_after_a_token_that_has_expired() -> None:
    with Paged({1: "second", 2: "third", 4: "second", 5: "third"}.get, {3: 401}) as server:
        assert EncryptedRestCatalog("odd", uri=server.uri).list_tables("db") == []

    assert server.tokens == [None, "second", "third"] * 2


class Planning(HttpServer):
    """A catalog whose plans of a scan name a part, and whose parts name others: `next_of` tells which, by the number of the request."""

    def __init__(self, next_of: Callable[[int], list[str]]) -> None:
        self.asked = 0
        self._next_of = next_of
        super().__init__()

    def serve(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes, Mapping[str, str]]:
        if path.startswith("/v1/config"):
            return 200, CONFIGURATION, {}
        if method == "GET":
            return 200, json.dumps({"metadata": PLAIN.model_dump(mode="json", by_alias=True)}).encode(), {}
        self.asked += 1
        # Every third request is not believed at first, so that the client asks again.
        if self.asked % 3 == 0:
            return 401, b"{}", {}
        return 200, json.dumps({"status": "completed", "plan-tasks": self._next_of(self.asked)}).encode(), {}


ENDLESS: Final[dict[str, Callable[[int], list[str]]]] = {
    "itself": lambda number: ["s3cret"],
    "an earlier one": lambda number: [f"s3cret-{number}", "s3cret-1"],
    "one twice": lambda number: ["s3cret"] * 2,
    "ever new ones": lambda number: [f"s3cret-{number}-{part}" for part in range(2_000)],
}


@pytest.mark.parametrize("next_of", ENDLESS.values(), ids=ENDLESS)
def test_a_plan_of_a_scan_whose_parts_have_no_end_ends_with_one_error(next_of: Callable[[int], list[str]]) -> None:
    with Planning(next_of) as server, pytest.raises(FormatError, match=r"the plan of a scan (without an end|in more than)") as refused:
        EncryptedRestCatalog("odd", uri=server.uri).plan_scan("db.t", PlanTableScanRequest(snapshot_id=1))

    assert server.asked < 100
    assert "s3cret" not in str(refused.value)


def test_a_plan_of_a_scan_that_is_none_is_one_error_and_one_with_an_end_is_read() -> None:
    with Planning(lambda number: ["one", "two", "three"] if number == 1 else []) as server:
        assert EncryptedRestCatalog("odd", uri=server.uri).plan_scan("db.t", PlanTableScanRequest(snapshot_id=1)) == []
    with Planning(lambda number: [{"s3cret": 1}]) as server, pytest.raises(FormatError, match="cannot be read as the plan") as refused:  # type: ignore[list-item]
        EncryptedRestCatalog("odd", uri=server.uri).plan_scan("db.t", PlanTableScanRequest(snapshot_id=1))

    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("namespace", [["other"], [], ["d"], ["other", "db"]], ids=".".join)
@pytest.mark.parametrize("what", ["a list of tables", "a list of views"])
def test_a_list_with_names_of_another_namespace_is_refused(what: str, namespace: list[str]) -> None:
    names = {"identifiers": [{"namespace": ["db"], "name": "t"}, {"namespace": namespace, "name": "s3cret"}]}
    with Odd(json.dumps(names).encode()) as server, pytest.raises(FormatError, match="has names that are not in it") as refused:
        LISTINGS[what](EncryptedRestCatalog("odd", uri=server.uri))

    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("other", [["other"], ["other", "below"], []], ids=".".join)
def test_a_list_of_namespaces_has_those_that_are_in_the_one_alone(other: list[str]) -> None:
    for names, found in (
        ([["db", "below"], ["db"]], [("db", "below")]),
        ([["DB", "below"]], [("DB", "below")]),
        ([["db", "below"], other], None),
    ):
        with Odd(json.dumps({"namespaces": names}).encode()) as server:
            catalog = EncryptedRestCatalog("odd", uri=server.uri)
            if found is not None:
                assert catalog.list_namespaces("db") == found
                continue
            with pytest.raises(FormatError, match="has names that are not in it"):
                catalog.list_namespaces("db")


class Deep(Odd):
    """A catalog whose every namespace has another one in it."""

    def serve(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes, Mapping[str, str]]:
        parent = parse_qs(urlsplit(path).query).get("parent", [""])[0].split("\x1f")
        self.answer = json.dumps({"identifiers": [], "namespaces": [[*filter(None, parent), "below"]]}).encode()
        return super().serve(method, path, headers, body)


def test_a_walk_through_ever_deeper_namespaces_ends_with_one_error() -> None:
    with Deep(b"") as server, pytest.raises(FormatError, match="more than 100 levels deep"):
        identifiers_of(EncryptedRestCatalog("odd", uri=server.uri))
