"""A REST server whose answer to the creation or the registration of a table is none: one error of one line, which quotes nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tablecrypt.errors import FormatError, KeyIdChangedError
from tablecrypt_catalog import EncryptedRestCatalog
from tests.support.aws import AwsServer
from tests.support.restricting_server import RestrictingServer
from tests.support.tables import ENCRYPTED, SCHEMA, encrypted_sql_catalog, new_table

SECRET: Final = "s3cret\n\x1b[31mred"
Edit = Callable[[dict[str, Any]], dict[str, Any]]


def within(*place: str | int, value: object) -> Edit:
    """Put a value into an answer."""

    def edit(answer: dict[str, Any]) -> dict[str, Any]:
        *folders, name = place
        part: Any = answer
        for each in folders:
            part = part[each]
        part[name] = value
        return answer

    return edit


EDITS: Final[dict[str, Edit]] = {
    "nothing": lambda answer: {},
    "no metadata": lambda answer: {**answer, "metadata": SECRET},
    "credentials of another kind": lambda answer: {**answer, "storage-credentials": [SECRET]},
    "another format version": within("metadata", "format-version", value=SECRET),
    "properties that are none": within("metadata", "properties", value=[SECRET]),
    "a type that is none": within("metadata", "schemas", 0, "fields", 0, "type", value=SECRET),
    "schemas that are none": within("metadata", "schemas", value={SECRET: SECRET}),
    "a field id that is none": within("metadata", "schemas", 0, "fields", 0, "id", value=SECRET),
    "no current schema": within("metadata", "current-schema-id", value=77),
    "a snapshot that is none": within("metadata", "snapshots", value=[{SECRET: SECRET}]),
}


class Edited(RestrictingServer):
    """A catalog that edits what it answers of a new table."""

    edit: Edit

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        status, content = super().answer(method, path, body)
        is_new = method == "POST" and path.endswith(("/tables", "/register"))
        return status, self.edit(content) if is_new and status == 200 else content


def create(catalog: EncryptedRestCatalog, location: str) -> None:
    catalog.create_table("db.new", SCHEMA, properties=ENCRYPTED)


def register(catalog: EncryptedRestCatalog, location: str) -> None:
    catalog.register_table("db.new", location)


@pytest.mark.parametrize("ask", [create, register])
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_answer_that_is_no_table_is_one_error(unwatched_warehouse: Path, aws: AwsServer, ask: Callable[..., None], edit: Edit) -> None:
    catalog = encrypted_sql_catalog(unwatched_warehouse, aws)
    location = new_table(catalog).metadata_location
    with Edited(catalog) as server:
        server.edit = edit
        with pytest.raises(FormatError) as refused:
            ask(server.client(**aws.kms_properties), location)

    assert len(str(refused.value).splitlines()) == 1
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_server_that_makes_a_table_with_shorter_keys_has_not_made_what_was_asked_for(unwatched_warehouse: Path, aws: AwsServer) -> None:
    def edit(answer: dict[str, Any]) -> dict[str, Any]:
        answer["metadata"]["properties"].pop("encryption.data-key-length")
        return answer

    with Edited(encrypted_sql_catalog(unwatched_warehouse, aws)) as server:
        server.edit = edit
        with pytest.raises(KeyIdChangedError, match="data-key-length 16, not 32"):
            server.client(**aws.kms_properties).create_table("db.new", SCHEMA, properties={**ENCRYPTED, "encryption.data-key-length": "32"})
