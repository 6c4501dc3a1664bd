"""PyIceberg's own command `pyiceberg` on encrypted tables: refused as a whole by the configuration that fails closed, and without that
what reads or writes plaintext metadata works, and nothing else. docs/interop.md has the table.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.configuration import configure
from tests.support.plaintext import CANARY, findings
from tests.support.tables import ROWS, contents_below, encrypted_sql_catalog, new_table

READS_METADATA = (
    "list",
    "list db",
    "describe db.t",
    "schema db.t",
    "spec db.t",
    "uuid db.t",
    "location db.t",
    "list-refs db.t",
    "properties get table db.t",
)
READS_FILES = ("files db.t",)
CHANGES = ("properties set table db.t colour blue", "properties remove table db.t encryption.key-id")
_PROGRAM = """
import json, sys
from click.testing import CliRunner
from pyiceberg.cli.console import run
done = {each: CliRunner().invoke(run, ["--catalog", "prod", *each.split()]) for each in json.loads(sys.argv[1])}
print(json.dumps({each: [result.exit_code, result.output] for each, result in done.items()}))
"""


@pytest.fixture
def catalog(tmp_path: Path, aws: AwsServer) -> EncryptedSqlCatalog:
    catalog = encrypted_sql_catalog(tmp_path, aws)
    new_table(catalog, appends=[ROWS])
    return catalog


def pyiceberg(home: Path, properties: Mapping[str, str], commands: tuple[str, ...]) -> dict[str, tuple[int, str]]:
    """What each command ends with, and prints, where .pyiceberg.yaml says this of the catalog."""
    home.mkdir(exist_ok=True)
    configure(home, {"prod": properties})
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYICEBERG_")}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(commands)],
        env={**clean, "PYICEBERG_HOME": str(home), "HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    return {command: (code, output) for command, (code, output) in json.loads(done.stdout).items()}


def test_no_command_gets_past_the_configuration_that_fails_closed(catalog: EncryptedSqlCatalog, tmp_path: Path) -> None:
    before = contents_below(tmp_path)
    configured = {"type": "tablecrypt", "uri": catalog.properties["uri"], "warehouse": catalog.properties["warehouse"]}

    answers = pyiceberg(tmp_path / "home", configured, READS_METADATA + READS_FILES + CHANGES)

    assert {answer[0] for answer in answers.values()} == {1}
    assert all("'tablecrypt' is not a valid CatalogType" in output for _, output in answers.values()), "which names whom to ask"
    assert {path: content for path, content in contents_below(tmp_path).items() if path.name != ".pyiceberg.yaml"} == before


@pytest.mark.slow
def test_without_it_metadata_is_shown_and_no_file_is_opened(catalog: EncryptedSqlCatalog, tmp_path: Path) -> None:
    configured = {"uri": catalog.properties["uri"], "warehouse": catalog.properties["warehouse"]}

    answers = pyiceberg(tmp_path / "home", configured, READS_METADATA + READS_FILES)

    assert {command for command, (code, _) in answers.items() if code != 0} == set(READS_FILES)
    assert not [command for command, (_, output) in answers.items() if CANARY in output]
    assert not [found for path, content in contents_below(tmp_path).items() for found in findings(str(path), content)]


@pytest.mark.slow
def test_without_it_no_table_is_changed_and_an_entry_of_the_catalog_can_be_renamed(catalog: EncryptedSqlCatalog, tmp_path: Path) -> None:
    """PyIceberg writes no metadata of version 3, which encrypted tables have."""
    configured = {"uri": catalog.properties["uri"], "warehouse": catalog.properties["warehouse"]}

    answers = pyiceberg(tmp_path / "home", configured, (*CHANGES, "rename db.t db.u"))

    assert {command: code for command, (code, _) in answers.items()} == {**dict.fromkeys(CHANGES, 1), "rename db.t db.u": 0}
    assert catalog.load_table("db.u").scan().to_arrow() == ROWS
    assert not [found for path, content in contents_below(tmp_path).items() for found in findings(str(path), content)]
