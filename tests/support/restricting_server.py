"""A REST catalog server that restricts what may be read: HTTP in front of a catalog on SQLite, in this process, without Java.

It loads, creates and commits as the specification says, and puts `read_restrictions` into its answers to loads, and to creations where told
so. The catalog behind it is the administrator's, whom nothing restricts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from pydantic import TypeAdapter
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, UpgradeFormatVersionUpdate
from pyiceberg.typedef import IcebergBaseModel

from tablecrypt.table.metadata import encrypted_metadata
from tablecrypt.table.updates import AddEncryptedSnapshotUpdate, AddEncryptionKeyUpdate, RemoveEncryptionKeyUpdate, UpgradeToVersion3Update
from tablecrypt_catalog import EncryptedRestCatalog
from tests.support.http_server import HttpServer

_OWN_UPDATES: dict[str, type[IcebergBaseModel]] = {
    "add-encryption-key": AddEncryptionKeyUpdate,
    "remove-encryption-key": RemoveEncryptionKeyUpdate,
    "add-snapshot": AddEncryptedSnapshotUpdate,
}


class RestrictingServer(HttpServer):
    """One running server over a catalog.

    Attributes:
        kms_credentials: what it sends as key-management-credentials with a table, if anything.
        stages: whether it knows of tables that are only staged; without, it makes them.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.kms_credentials: object = None
        self.stages = True
        self.read_restrictions: object = None
        self.restricts_creation = False
        self.catalog = catalog
        super().__init__()

    def client(self, **properties: str) -> EncryptedRestCatalog:
        """Return a client of this server."""
        return cast("EncryptedRestCatalog", load_catalog("restricted", **self.client_properties(**properties)))

    def client_properties(self, **properties: str) -> dict[str, str]:
        """Return the properties of such a client."""
        return {"py-catalog-impl": "tablecrypt_catalog.EncryptedRestCatalog", "uri": self.uri, **properties}

    def serve(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes, Mapping[str, str]]:
        """Answer one request, as HTTP has it."""
        status, content = self.answer(method, urlsplit(path).path, body)
        return status, json.dumps(content).encode(), {}

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Answer one request."""
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts == ["v1", "config"]:
            return 200, {"defaults": {}, "overrides": {}}
        match method, parts:
            case "GET", ["v1", "namespaces", namespace, "tables", name] if self.catalog.table_exists((namespace, name)):
                return 200, self._loaded(self.catalog.load_table((namespace, name))) | self._restrictions(True) | self.vended()
            case "DELETE", ["v1", "namespaces", namespace, "tables", name]:
                self.catalog.drop_table((namespace, name))
                return 200, {}
            case "POST", ["v1", "namespaces", namespace, "register"]:
                asked = json.loads(body)
                return 200, self._loaded(self.catalog.register_table((namespace, asked["name"]), asked["metadata-location"]))
            case "POST", ["v1", "namespaces", namespace, "tables", name]:
                commit = json.loads(body)
                if {"type": "assert-create"} in commit["requirements"]:
                    return 200, self._committed(self._new((namespace, name)), commit, UpgradeToVersion3Update)
                return 200, self._committed(self.catalog.load_table((namespace, name)), commit)
            case "POST", ["v1", "namespaces", namespace, "tables"] if self.catalog.table_exists((namespace, json.loads(body)["name"])):
                return 409, {"error": {"message": "the table is there", "type": "AlreadyExistsException", "code": 409}}
            case "POST", ["v1", "namespaces", namespace, "tables"]:
                asked = json.loads(body)
                schema = Schema.model_validate(asked["schema"])
                if asked["stage-create"] and self.stages:
                    staged = self.staged((namespace, asked["name"]), schema, {"format-version": "3", **asked["properties"]})
                    return 200, staged | self.vended()
                table = self.catalog.create_table((namespace, asked["name"]), schema, properties=asked["properties"])
                return 200, self._loaded(table) | self._restrictions(self.restricts_creation) | self.vended()
        return 404, {"error": {"message": "no such thing", "type": "NoSuchTableException", "code": 404}}

    def staged(self, identifier: tuple[str, str], schema: Schema, properties: dict[str, str]) -> dict[str, Any]:
        """The answer to who asks how a table would be that is not made yet."""
        location = f"{self.catalog.properties['warehouse']}/{'/'.join(identifier)}"
        metadata = new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, location, properties)
        return {"metadata-location": None, "metadata": json.loads(IcebergBaseModel.model_dump_json(metadata)), "config": {}}

    def vended(self) -> dict[str, Any]:
        """The credentials for the key service in an answer."""
        return {"key-management-credentials": self.kms_credentials} if self.kms_credentials is not None else {}

    def _restrictions(self, told: bool) -> dict[str, Any]:
        return {"read-restrictions": self.read_restrictions} if told and self.read_restrictions is not None else {}

    def _loaded(self, table: Table) -> dict[str, Any]:
        return {"metadata-location": table.metadata_location, "metadata": json.loads(table.metadata.model_dump_json()), "config": {}}

    def _new(self, identifier: tuple[str, str]) -> StagedTable:
        """A table that a commit is to make."""
        metadata = new_table_metadata(Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "", {"format-version": "3"})
        return StagedTable(identifier, encrypted_metadata(metadata), "", load_file_io(), self.catalog)

    def _committed(
        self, table: Table, commit: dict[str, Any], upgrade: type[IcebergBaseModel] = UpgradeFormatVersionUpdate
    ) -> dict[str, Any]:
        requirements = TypeAdapter(tuple[TableRequirement, ...]).validate_python(commit["requirements"])
        updates = tuple(_update(each, upgrade) for each in commit["updates"])
        answer = self.catalog.commit_table(table, requirements, updates)
        return {"metadata-location": answer.metadata_location, "metadata": json.loads(answer.metadata.model_dump_json())}


def _update(content: dict[str, Any], upgrade: type[IcebergBaseModel]) -> TableUpdate:
    own = {**_OWN_UPDATES, "upgrade-format-version": upgrade}.get(content["action"])
    if own is not None:
        return cast("TableUpdate", own.model_validate(content))
    update: TableUpdate = TypeAdapter(TableUpdate).validate_python(content)
    return update
