"""The pages for beginners hold: what a reader copies from them runs, and prints what they show."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import boto3
import pytest
import strictyaml
from botocore.exceptions import ClientError

from tablecrypt.kms.factory import load_kms
from tablecrypt.kms.resilient import AllowedKeys
from tests.support import key_picture, notebook
from tests.support.aws import AwsServer
from tests.support.aws_commands import run_aws
from tests.support.pages import DOCS, blocks, run_page
from tests.support.plaintext import FolderStore, findings

START = DOCS / "start"
CLOUDS = ("aws", "gcp", "azure", "vault")
REGION: Final = "eu-west-3"  # Nothing else is there: the page itself makes its key.


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
    key_id = ""
    for line in _commands("aws"):
        key_id = run_aws(line.replace("KEY_ID", key_id), aws.endpoint, REGION) or key_id
    run_page(_page("aws"), warehouse, {"AWS_ENDPOINT_URL_KMS": aws.endpoint, "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION})

    kms = boto3.client("kms", endpoint_url=aws.endpoint, region_name=REGION)
    assert kms.describe_key(KeyId="alias/orders")["KeyMetadata"]["KeyId"] == key_id
    assert kms.get_key_rotation_status(KeyId=key_id)["KeyRotationEnabled"]
    assert _only_ciphertext(warehouse / "warehouse")


@pytest.mark.parametrize(
    "line",
    [
        "aws kms make-key --description orders",
        "aws kms create-key --named orders",
        "aws kms create-alias --alias-name orders --target-key-id 1234abcd-12ab-34cd-56ef-1234567890ab",
    ],
)
def test_a_command_of_aws_that_would_fail_is_noticed(aws: AwsServer, line: str) -> None:
    with pytest.raises((AssertionError, ClientError)):
        run_aws(line, aws.endpoint, REGION)


def test_the_commands_of_a_page_make_the_key_that_its_configuration_names() -> None:
    gcp = next(_options(line) for line in _commands("gcp") if " keys create " in line)
    assert _key_id("gcp") == f"projects/PROJECT/locations/{gcp['location']}/keyRings/{gcp['keyring']}/cryptoKeys/orders"
    assert all("keys add-iam-policy-binding orders " in line for line in _commands("gcp") if "--role" in line)
    azure = next(_options(line) for line in _commands("azure") if " key create " in line)
    assert (_key_id("azure"), _properties("azure")["azure.keyvault.url"]) == (
        azure["name"],
        f"https://{azure['vault-name']}.vault.azure.net",
    )
    assert f"vault write -f transit/keys/{_key_id('vault')} type=aes256-gcm96" in _commands("vault")


def test_a_page_grants_what_the_page_on_permissions_names_and_nothing_else() -> None:
    permissions = (DOCS / "how-to" / "permissions.md").read_text(encoding="utf-8")
    policies = [text for page in (_page("aws"), permissions) for language, text in blocks(page) if language == "json"]
    assert policies[0] == policies[1]
    assert set(json.loads(policies[0])["Statement"][0]["Action"]) == set(re.findall(r"`(kms:\w+)`", _row(permissions, "AWS KMS")))
    roles = {_options(line)["role"] for line in _commands("gcp") if "--role" in line}
    assert roles == set(re.findall(r"`(roles/[\w.]+)`", _row(permissions, "Google Cloud KMS")))
    operations = next(line for line in _commands("azure") if " key create " in line).partition("--ops ")[2].split()
    assert {f"keys/{each}" for each in operations} == set(re.findall(r"`(keys/\w+)`", _row(permissions, "Azure Key Vault")))
    paths = re.findall(r'path "([^"]+)" \{ capabilities = \["update"\] \}', _page("vault"))
    allowed = set(re.findall(r"`(transit/\S+)`", _row(permissions, "Vault, OpenBao")))
    assert {path.replace(_key_id("vault"), "<key>") for path in paths} == allowed


def _commands(service: str) -> list[str]:
    """The lines of a page that call the service's own command."""
    tools = ("aws ", "gcloud ", "az ", "vault ")
    return [line for language, text in blocks(_page(service)) if language == "text" for line in text.splitlines() if line.startswith(tools)]


def _options(line: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+) ([^-\s]\S*)", line))


def _properties(service: str) -> dict[str, str]:
    (configuration,) = [text for language, text in blocks(_page(service)) if language == "yaml"]
    properties: dict[str, str] = strictyaml.load(configuration).data["catalog"]["prod"]
    return properties


def _key_id(service: str) -> str:
    (program,) = [text for language, text in blocks(_page(service)) if language == "python"]
    return program.partition('"encryption.key-id": "')[2].partition('"')[0]


def _row(page: str, service: str) -> str:
    return next(line for line in page.splitlines() if line.startswith(f"| {service} |"))


@pytest.mark.parametrize("service", CLOUDS)
def test_a_page_configures_its_own_key_service_and_allows_the_key_that_it_uses(service: str) -> None:
    properties, key_id = _properties(service), _key_id(service)

    assert properties["encryption.kms-type"] == service
    load_kms(properties).close()
    assert AllowedKeys.of(properties).allows(key_id)
    assert f"--key-id {key_id}" in _page(service)


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
