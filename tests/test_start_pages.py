"""The pages for beginners hold: what a reader copies from them runs, and prints what they show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import strictyaml

from tablecrypt.kms.allowed_keys import AllowedKeys
from tablecrypt.kms.factory import load_kms
from tests.support import key_picture, notebook
from tests.support.aws import AwsServer
from tests.support.pages import DOCS, blocks, run_page
from tests.support.plaintext import FolderStore, findings

START = DOCS / "start"
CLOUDS = ("aws", "gcp", "azure", "vault")


def _page(name: str) -> str:
    return (START / f"{name}.md").read_text(encoding="utf-8")


def _only_ciphertext(folder: Path) -> bool:
    store = FolderStore(folder)
    locations = list(store.locations())
    return len(locations) > 3 and not [found for location in locations for found in findings(location, store.read(location))]


@pytest.mark.slow
def test_the_five_minutes_run_as_they_stand(warehouse: Path) -> None:
    run_page(_page("sql-catalog"), warehouse, {})

    assert _only_ciphertext(warehouse / "warehouse")


@pytest.mark.slow
def test_the_page_for_aws_runs_as_it_stands(warehouse: Path, aws: AwsServer) -> None:
    assert aws.kms_key_id("alias/orders")
    run_page(_page("aws"), warehouse, {"AWS_ENDPOINT_URL_KMS": aws.endpoint})

    assert _only_ciphertext(warehouse / "warehouse")


@pytest.mark.parametrize("service", CLOUDS)
def test_a_page_configures_its_own_key_service_and_allows_the_key_that_it_uses(service: str) -> None:
    page = _page(service)
    (configuration,) = [text for language, text in blocks(page) if language == "yaml"]
    properties = strictyaml.load(configuration).data["catalog"]["prod"]
    (program,) = [text for language, text in blocks(page) if language == "python"]
    key_id = program.partition('"encryption.key-id": "')[2].partition('"')[0]

    assert properties["encryption.kms-type"] == service
    load_kms(properties).close()
    assert AllowedKeys.of(properties).allows(key_id)
    assert f"--key-id {key_id}" in page


def test_every_key_service_has_a_page() -> None:
    assert all(f"({name}.md)" in _page("sql-catalog") for name in CLOUDS)


def test_the_notebook_runs_and_shows_what_it_prints(warehouse: Path) -> None:
    stored = json.loads(notebook.NOTEBOOK.read_text(encoding="utf-8"))
    shown = ["".join(text for output in cell["outputs"] for text in output["text"]) for cell in notebook.code_cells(stored)]

    printed = notebook.run(stored, warehouse)

    assert [notebook.without_ids(text) for text in printed] == [notebook.without_ids(text) for text in shown]
    assert "TamperedFileError names True\n" in "".join(printed)


def test_the_picture_shows_the_keys_of_a_real_table(warehouse: Path) -> None:
    drawn = key_picture.drawn(warehouse)

    assert key_picture.without_ids(drawn) == key_picture.without_ids(key_picture.PICTURE.read_text(encoding="utf-8"))
    assert "AGS1 or PARE" in drawn
