"""A REST catalog server that misbehaves: a proxy before the real one, which answers as a test says.

A behaviour is a function of a request and of `forward`, which sends a request to the real server and returns its answer. It returns what
the client is to get, or None to close the connection without an answer.

    proxy.behave(lambda request, forward: forward(request))            as the real server
    proxy.behave(edit_metadata(lambda metadata: metadata.pop(...)))    the real server's metadata, changed
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import requests

from tests.support.http_server import HttpServer

_FORWARDED_HEADERS: Final = ("content-type", "x-iceberg-access-delegation", "authorization")


@dataclass(frozen=True)
class Request:
    """What the client asked. `path` holds the query too."""

    method: str
    path: str
    body: bytes
    headers: Mapping[str, str]

    @property
    def is_commit(self) -> bool:
        """Whether it commits to a table."""
        return self.method == "POST" and "/tables/" in self.path and not self.path.endswith("/plan")

    @property
    def is_load(self) -> bool:
        """Whether it loads a table."""
        return self.method == "GET" and "/tables/" in self.path


@dataclass(frozen=True)
class Answer:
    """What the client gets."""

    status: int
    body: bytes

    @property
    def content(self) -> dict[str, Any]:
        """The body, which is JSON."""
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed


Forward = Callable[[Request], Answer]
Behaviour = Callable[[Request, Forward], Answer | None]


def honest(request: Request, forward: Forward) -> Answer | None:
    """Answer as the real server does."""
    return forward(request)


def edit_answer(edit: Callable[[dict[str, Any]], object], when: Callable[[Request], bool] = lambda request: True) -> Behaviour:
    """Change the answers to loads and commits that succeed, of those requests that `when` names."""

    def behaviour(request: Request, forward: Forward) -> Answer | None:
        answer = forward(request)
        if answer.status != 200 or not (request.is_load or request.is_commit) or not when(request):
            return answer
        content = answer.content
        edit(content)
        return Answer(answer.status, json.dumps(content).encode())

    return behaviour


def edit_metadata(edit: Callable[[dict[str, Any]], object], when: Callable[[Request], bool] = lambda request: True) -> Behaviour:
    """Change the table metadata in those answers."""
    return edit_answer(lambda content: edit(content["metadata"]), when)


def edit_commits(edit: Callable[[dict[str, Any]], object]) -> Behaviour:
    """Change the commits that reach the real server."""

    def behaviour(request: Request, forward: Forward) -> Answer | None:
        if not request.is_commit:
            return forward(request)
        content = json.loads(request.body)
        edit(content)
        return forward(replace(request, body=json.dumps(content).encode()))

    return behaviour


def failing_commits(status: int, times: int, after_forwarding: bool = False) -> Behaviour:
    """Answer the first commits with an error, having done what they ask or not."""
    left = [times]

    def behaviour(request: Request, forward: Forward) -> Answer | None:
        if not request.is_commit or left[0] == 0:
            return forward(request)
        left[0] -= 1
        if after_forwarding:
            forward(request)
        error = {"error": {"message": "the proxy says so", "type": "ProxyException", "code": status}}
        return Answer(status, json.dumps(error).encode())

    return behaviour


def losing_commit_answers(request: Request, forward: Forward) -> Answer | None:
    """Do what a commit asks, and close the connection without an answer."""
    answer = forward(request)
    return None if request.is_commit else answer


class RestProxy(HttpServer):
    """One running proxy."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._behaviour: Behaviour = honest
        self.seen: list[Request] = []
        super().__init__()

    def behave(self, behaviour: Behaviour) -> None:
        """Answer like this from now on."""
        self._behaviour = behaviour

    def serve(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes, Mapping[str, str]] | None:
        """Answer one request."""
        request = Request(method, path, body, headers)
        self.seen.append(request)
        answer = self._behaviour(request, self._forward)
        return None if answer is None else (answer.status, answer.body, {})

    def _forward(self, request: Request) -> Answer:
        headers = {name: value for name, value in request.headers.items() if name in _FORWARDED_HEADERS}
        response = requests.request(request.method, self._target + request.path, data=request.body, headers=headers, timeout=60)
        return Answer(response.status_code, response.content)
