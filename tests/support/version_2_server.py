"""A REST catalog server that makes tables of format version 2, whatever it is asked for: HTTP in front of PyIceberg's own catalog."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from tests.support.restricting_server import RestrictingServer

_REFUSED = 403, {"error": {"message": "not allowed", "type": "ForbiddenException", "code": 403}}


class Version2Server(RestrictingServer):
    """One running server.

    Attributes:
        may_drop: whether it drops tables.
        stages_version_3: whether it says of a table that it only stages that it will have version 3, which is not so.
        meanwhile: what somebody else does with a table that was just made, before the client gets the answer.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.may_drop = True
        self.stages_version_3 = True
        self.meanwhile: Callable[[Table], object] = lambda table: None
        super().__init__(catalog)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Answer one request."""
        match method, [unquote(part) for part in path.strip("/").split("/")]:
            case "DELETE", ["v1", "namespaces", namespace, "tables", name]:
                if not self.may_drop:
                    return _REFUSED
                self.catalog.drop_table((namespace, name))
                return 200, {}
            case "POST", ["v1", "namespaces", namespace, "tables"] if not self.catalog.table_exists((namespace, json.loads(body)["name"])):
                asked = json.loads(body)
                is_staged = self.stages and bool(asked["stage-create"])
                return 200, self._made((namespace, asked["name"]), asked["schema"], asked["properties"], is_staged)
            case "POST", ["v1", "namespaces", namespace, "tables", name] if b"assert-create" in body:
                updates = {update["action"]: update for update in json.loads(body)["updates"]}
                answer = self._made((namespace, name), updates["add-schema"]["schema"], updates["set-properties"]["updates"], False)
                return 200, {each: answer[each] for each in ("metadata-location", "metadata")}
            case "POST", ["v1", "namespaces", namespace, "register"]:
                asked = json.loads(body)
                return 200, self._loaded(self.catalog.register_table((namespace, asked["name"]), asked["metadata-location"]))
            case "GET", ["v1", "namespaces", namespace]:
                return 200, {"namespace": [namespace], "properties": self.catalog.load_namespace_properties(namespace)}
            case "GET", ["v1", "namespaces", namespace, "tables", name] if not self.catalog.table_exists((namespace, name)):
                return 404, {"error": {"message": "no such table", "type": "NoSuchTableException", "code": 404}}
        return super().answer(method, path, body)

    def _made(self, identifier: tuple[str, str], schema: dict[str, Any], properties: dict[str, str], is_staged: bool) -> dict[str, Any]:
        parsed = Schema.model_validate(schema)
        kept = {name: value for name, value in properties.items() if name != "format-version"}
        if is_staged:
            return self.staged(identifier, parsed, {**kept, **({"format-version": "3"} if self.stages_version_3 else {})})
        table = self.catalog.create_table(identifier, parsed, properties=kept)
        answer = self._loaded(table)
        self.meanwhile(table)
        return answer
