"""Catalogs whose client libraries are pip extras: they cost nothing until they are asked for, and then name what is missing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tablecrypt_catalog
from tablecrypt_catalog import EncryptedInMemoryCatalog
from tests.support.restricting_server import RestrictingServer

EXTRAS = [
    ("EncryptedHiveCatalog", "hive_metastore", "hive"),
    ("EncryptedHiveCatalog", "thrift", "hive"),
    ("EncryptedGlueCatalog", "boto3", "glue"),
]
WITHOUT = """
import sys
from pyiceberg.catalog import load_catalog
catalog, package = sys.argv[1:]
sys.modules[package] = None
load_catalog("prod", **{"py-catalog-impl": f"tablecrypt_catalog.{catalog}", "uri": "thrift://127.0.0.1:1"})
"""


def in_a_new_process(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(("name", "package", "extra"), EXTRAS)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(name: str, package: str, extra: str) -> None:
    refused = in_a_new_process(WITHOUT, name, package).stderr.splitlines()[-1]
    assert re.fullmatch(rf'.*MissingExtraError: {name} needs the package [\w.]+\. .*pip install "…\[{extra}\]".*', refused)


@pytest.mark.parametrize("statement", ["import tablecrypt_catalog", "from tablecrypt_catalog import load_catalog"])
def test_catalogs_and_what_they_are_made_with_are_imported_when_they_are_used(statement: str) -> None:
    unused = {
        *("boto3", "botocore", "hive_metastore", "thrift", "sqlalchemy", "requests", "grpc"),
        *("pyarrow", "numpy", "pandas", "polars", "duckdb", "fastavro"),
        *("pyiceberg.table", "pyiceberg.table.metadata", "pyiceberg.io.pyarrow", "pyiceberg.manifest", "pyiceberg.catalog.rest"),
        *("tablecrypt.table.table", "tablecrypt.table.metadata", "tablecrypt.kms.aws", "tablecrypt_catalog.encrypting_catalog"),
    }
    if "load_catalog" in statement:
        # pyiceberg.catalog, which knows what catalogs there are, brings these.
        unused -= {"pyiceberg.table", "pyiceberg.table.metadata", "pyiceberg.manifest"}
    program = f"import sys; {statement}; print(*sorted({unused} & sys.modules.keys()))"
    done = in_a_new_process(program)
    assert (done.returncode, done.stdout.strip()) == (0, "")


def test_a_rest_catalog_is_loaded_without_sqlalchemy(warehouse: Path) -> None:
    behind = EncryptedInMemoryCatalog("behind", **{"warehouse": f"file://{warehouse}", "encryption.kms-type": "memory"})
    behind.create_namespace("db")
    program = (
        "import json, sys; from tablecrypt_catalog import load_catalog; "
        "load_catalog('prod', **json.loads(sys.argv[1])); print('sqlalchemy' in sys.modules)"
    )
    with RestrictingServer(behind) as server:
        done = in_a_new_process(program, json.dumps(server.client_properties(**{"encryption.kms-type": "memory"})))
    assert (done.stdout.strip(), done.stderr) == ("False", "")


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'EncryptedNothing'"):
        _ = tablecrypt_catalog.EncryptedNothing
