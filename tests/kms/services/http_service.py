"""A service that speaks JSON over HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.http_server import HttpServer


@dataclass(frozen=True)
class Request:
    """`headers` by their lower-case names; `body` is the JSON that came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


class HttpService(HttpServer):
    """Subclass it and define `answer`. `unavailable` makes it answer 503 to everything."""

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        self.unavailable = False
        self.requests: list[Request] = []
        super().__init__(certificate)
        self.url = self.uri

    def serve(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes, Mapping[str, str]]:
        """Answer one request, as HTTP has it."""
        request = Request(method, path, headers, json.loads(body) if body else {})
        self.requests.append(request)
        answer = Answer(503, {}) if self.unavailable else self.answer(request)
        return answer.status, json.dumps(answer.body).encode(), answer.headers

    def answer(self, request: Request) -> Answer:
        """Answer one request."""
        raise NotImplementedError
