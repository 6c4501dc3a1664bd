"""Encrypting catalogs that .pyiceberg.yaml and environment variables describe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from strictyaml import as_document

from tablecrypt.errors import ConfigurationError
from tablecrypt.table.encrypted_table import EncryptedTable
from tablecrypt_catalog import EncryptedInMemoryCatalog, EncryptedSqlCatalog, load_catalog
from tablecrypt_catalog.glue import EncryptedGlueCatalog
from tests.support.aws import AwsServer
from tests.support.catalogs import CANARY, MASTER_KEY

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "text": [CANARY, None]})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where PyIceberg looks for its configuration: no developer's own is read."""
    for name in [name for name in os.environ if name.startswith("PYICEBERG_")]:
        monkeypatch.delenv(name)
    for name in ("PYICEBERG_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sql(warehouse: Path, aws: AwsServer) -> dict[str, str]:
    return {
        "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog",
        "uri": f"sqlite:///{warehouse}/catalog.db",
        "warehouse": f"file://{warehouse}/warehouse",
        **aws.kms_properties,
    }


def configure(home: Path, catalogs: Mapping[str, Mapping[str, str]], **more: str) -> None:
    document = {"catalog": {name: dict(properties) for name, properties in catalogs.items()}, **more}
    (home / ".pyiceberg.yaml").write_text(as_document(document).as_yaml())


def set_variables(monkeypatch: pytest.MonkeyPatch, properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{name.replace('.', '__').replace('-', '_').upper()}", value)


def rows_after_an_append(catalog: Catalog) -> int:
    catalog.create_namespace_if_not_exists("db")
    table = catalog.create_table_if_not_exists("db.t", ROWS.schema, properties={"encryption.key-id": MASTER_KEY})
    assert isinstance(table, EncryptedTable)
    table.append(ROWS)
    rows: int = catalog.load_table("db.t").scan().to_arrow().num_rows
    return rows


def test_a_catalog_of_the_configuration_file_encrypts(home: Path, sql: dict[str, str]) -> None:
    configure(home, {"prod": {**sql, "encryption.pins": str(home / "pins.json")}})
    for appended in (2, 4):
        catalog = load_catalog("prod")
        assert isinstance(catalog, EncryptedSqlCatalog)
        assert rows_after_an_append(catalog) == appended
    (pin,) = json.loads((home / "pins.json").read_text())["pins"]
    assert (pin["catalog"], pin["identifier"], pin["last-sequence-number"]) == ("prod", ["db", "t"], 2)


def test_the_default_catalog_may_be_an_encrypting_one(home: Path, sql: dict[str, str]) -> None:
    configure(home, {"prod": sql}, **{"default-catalog": "prod"})
    catalog = load_catalog()
    assert catalog.name == "prod"
    assert rows_after_an_append(catalog) == 2


def test_environment_variables_describe_an_encrypting_catalog(monkeypatch: pytest.MonkeyPatch, sql: dict[str, str]) -> None:
    set_variables(monkeypatch, sql)
    assert "PYICEBERG_CATALOG__PROD__ENCRYPTION__KMS_TYPE" in os.environ
    assert rows_after_an_append(load_catalog("prod")) == 2


def test_arguments_go_before_variables_and_variables_before_the_file(
    home: Path, monkeypatch: pytest.MonkeyPatch, sql: dict[str, str]
) -> None:
    configure(home, {"prod": {**sql, "kms.endpoint": "http://file:1", "client.region": "file", "a.file": "1"}})
    set_variables(monkeypatch, {"kms.endpoint": sql["kms.endpoint"], "client.region": "variable"})
    catalog = load_catalog("prod", **{"client.region": sql["client.region"]})
    assert [catalog.properties[name] for name in ("kms.endpoint", "client.region", "a.file")] == [
        sql["kms.endpoint"],
        sql["client.region"],
        "1",
    ]
    assert rows_after_an_append(catalog) == 2


def test_several_encrypting_catalogs_live_in_one_file(home: Path, sql: dict[str, str], aws: AwsServer) -> None:
    glue = {
        "py-catalog-impl": "tablecrypt_catalog.EncryptedGlueCatalog",
        "glue.endpoint": aws.endpoint,
        "glue.region": aws.region,
        "warehouse": f"s3://{aws.bucket('configured-glue')}/warehouse",
        **aws.kms_properties,
        **aws.s3_properties,
    }
    memory = {**sql, "py-catalog-impl": "tablecrypt_catalog.EncryptedInMemoryCatalog", "uri": "sqlite:///:memory:"}
    configure(home, {"glue": glue, "memory": memory, "prod": sql})
    for name, implementation in (("glue", EncryptedGlueCatalog), ("memory", EncryptedInMemoryCatalog)):
        catalog = load_catalog(name)
        assert type(catalog) is implementation
        assert rows_after_an_append(catalog) == 2


def test_a_catalog_that_would_not_encrypt_is_refused(home: Path, sql: dict[str, str]) -> None:
    configure(home, {"prod": {name: value for name, value in sql.items() if name != "py-catalog-impl"}})
    for name in ("prod", "unknown"):
        with pytest.raises(ConfigurationError, match=f"'{name}' has no py-catalog-impl"):
            load_catalog(name)


def test_pyicebergs_own_load_catalog_takes_no_class_from_the_file(home: Path, sql: dict[str, str]) -> None:
    """Why there is a load_catalog of ours. When this fails, PyIceberg has learnt it."""
    configure(home, {"prod": sql})
    program = "from pyiceberg.catalog import load_catalog; print(type(load_catalog('prod')).__name__)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    assert run.stdout.split() == ["SqlCatalog"]
