"""Encrypting catalogs that .pyiceberg.yaml and environment variables describe."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

import tablecrypt
from tablecrypt.errors import ConfigurationError
from tablecrypt.kms.factory import load_kms
from tablecrypt.kms.local_file import create_key_file
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedInMemoryCatalog, EncryptedSqlCatalog, load_catalog
from tablecrypt_catalog.glue import EncryptedGlueCatalog
from tests.support.aws import AwsServer
from tests.support.configuration import configure, fails_closed
from tests.support.glue import glue_properties
from tests.support.tables import ENCRYPTED, MASTER_KEY, ROWS

pytestmark = pytest.mark.usefixtures("home")


def set_variables(monkeypatch: pytest.MonkeyPatch, properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{name.replace('.', '__').replace('-', '_').upper()}", value)


def rows_after_an_append(catalog: Catalog) -> int:
    catalog.create_namespace_if_not_exists("db")
    table = catalog.create_table_if_not_exists("db.t", ROWS.schema, properties=ENCRYPTED)
    assert isinstance(table, EncryptedTable)
    table.append(ROWS)
    rows: int = catalog.load_table("db.t").scan().to_arrow().num_rows
    return rows


def test_a_catalog_of_the_configuration_file_encrypts(home: Path, sql: dict[str, str]) -> None:
    configure(home, {"prod": {**sql, "encryption.pins": str(home / "pins.json")}})
    for appended in (3, 6):
        catalog = load_catalog("prod")
        assert isinstance(catalog, EncryptedSqlCatalog)
        assert rows_after_an_append(catalog) == appended
    (pin,) = json.loads((home / "pins.json").read_text())["pins"]
    assert (pin["catalog"], pin["identifier"], pin["last-sequence-number"]) == ("prod", ["db", "t"], 2)


def test_paths_are_as_good_as_text_and_numbers_and_switches_may_be_what_yaml_makes_of_them(home: Path) -> None:
    create_key_file(home / "my.keys", MASTER_KEY)
    paths: dict[str, Any] = {"warehouse": home / "lake", "kms.local.key-file": home / "my.keys", "encryption.pins": home / "pins.json"}
    made: dict[str, Any] = {"encryption.required": True, "encryption.kms.cache-ttl-ms": 5000}

    catalog = load_catalog("prod", type="tablecrypt", uri="sqlite://", **{"encryption.kms-type": "local"}, **paths, **made)

    assert rows_after_an_append(catalog) == 3
    assert catalog.properties["kms.local.key-file"] == str(home / "my.keys")
    assert load_kms({"encryption.kms-type": "local", "kms.local.key-file": home / "my.keys"}).wrap_key(bytes(16), MASTER_KEY)  # type: ignore[dict-item]


@pytest.mark.parametrize("value", [["my.keys"], {"path": "my.keys"}, b"my.keys"])
def test_what_is_no_text_in_its_place_is_refused_by_name(home: Path, sql: dict[str, str], value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"^kms\.local\.key-file is a (list|dict|bytes); it must be text"):
        load_catalog("prod", **{**sql, "encryption.kms-type": "local", "kms.local.key-file": value})  # type: ignore[arg-type]


def test_the_default_catalog_may_be_an_encrypting_one(home: Path, sql: dict[str, str]) -> None:
    configure(home, {"prod": sql}, **{"default-catalog": "prod"})
    catalog = load_catalog()
    assert catalog.name == "prod"
    assert rows_after_an_append(catalog) == 3


def test_environment_variables_describe_an_encrypting_catalog(monkeypatch: pytest.MonkeyPatch, sql: dict[str, str]) -> None:
    set_variables(monkeypatch, sql)
    assert "PYICEBERG_CATALOG__PROD__ENCRYPTION__KMS_TYPE" in os.environ
    assert rows_after_an_append(load_catalog("prod")) == 3


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
    assert rows_after_an_append(catalog) == 3


@pytest.mark.slow
def test_several_encrypting_catalogs_live_in_one_file(home: Path, sql: dict[str, str], aws: AwsServer) -> None:
    glue = glue_properties(aws, aws.bucket("configured-glue"))
    memory = {**sql, "py-catalog-impl": "tablecrypt_catalog.EncryptedInMemoryCatalog", "uri": "sqlite:///:memory:"}
    configure(home, {"glue": glue, "memory": memory, "prod": sql})
    for name, implementation in (("glue", EncryptedGlueCatalog), ("memory", EncryptedInMemoryCatalog)):
        catalog = load_catalog(name)
        assert type(catalog) is implementation
        assert rows_after_an_append(catalog) == 3


def test_a_catalog_that_would_not_encrypt_is_refused(home: Path, sql: dict[str, str]) -> None:
    without_class = {name: value for name, value in sql.items() if name != "py-catalog-impl"}
    configure(home, {"prod": without_class, "plain": {**without_class, "type": "sql"}})
    with pytest.raises(ConfigurationError, match="'prod' has neither 'type: tablecrypt' nor py-catalog-impl"):
        load_catalog("prod")
    with pytest.raises(
        ConfigurationError, match=r"^no catalog 'prdo' is configured: .*/\.pyiceberg\.yaml does not name it, .*mean prod\?$"
    ):
        load_catalog("prdo")
    with pytest.raises(ConfigurationError, match="'type: sql', which does not encrypt"):
        load_catalog("plain")
    for plain_class in ("pyiceberg.catalog.sql.SqlCatalog", "pathlib.Path", "no.such.Class", "Nothing"):
        with pytest.raises(ConfigurationError, match="py-catalog-impl"):
            load_catalog("prod", **{"py-catalog-impl": plain_class})


@pytest.mark.parametrize(
    ("uri", "implementation"), [("sqlite:///{}/catalog.db", "EncryptedSqlCatalog"), ("thrift://localhost:1", "EncryptedHiveCatalog")]
)
def test_the_uri_says_which_encrypting_catalog_it_is(home: Path, sql: dict[str, str], uri: str, implementation: str) -> None:
    configure(home, {"prod": {**fails_closed(sql), "uri": uri.format(home)}})
    catalog = load_catalog("prod")
    assert type(catalog).__name__ == implementation
    assert "type" not in catalog.properties


def test_a_uri_that_does_not_say_which_catalog_it_is_needs_a_class(home: Path, sql: dict[str, str], aws: AwsServer) -> None:
    without_uri = {name: value for name, value in fails_closed(sql).items() if name != "uri"}
    configure(home, {"prod": without_uri, "odd": {**without_uri, "uri": "ftp://server"}})
    for name in ("prod", "odd"):
        with pytest.raises(ConfigurationError, match="name its class in py-catalog-impl"):
            load_catalog(name)
    glue = load_catalog("prod", **{"py-catalog-impl": "tablecrypt_catalog.EncryptedGlueCatalog", "glue.endpoint": aws.endpoint})
    assert type(glue) is EncryptedGlueCatalog


@pytest.mark.slow
@pytest.mark.parametrize("implementation", [{}, {"py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog"}], ids=["type", "class"])
@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://u:pa@s3:cret@host/db",  # SQLAlchemy takes the end of the password for a port
        "postgresql://u@host:s3cret/db",
        "postgresql:/u:s3cret@host/db?next=http://x",
        "u:s3cret@host://db",
    ],
)
def test_no_part_of_a_password_in_a_mistyped_uri_is_shown(home: Path, uri: str, implementation: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="catalog 'prod'") as refused:
        load_catalog("prod", type="tablecrypt", uri=uri, warehouse="warehouse", **implementation)

    assert "cret" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize("by", ["file", "environment"])
def test_what_is_configured_to_fail_closed_encrypts_here_and_is_refused_by_pyiceberg(
    home: Path, monkeypatch: pytest.MonkeyPatch, sql: dict[str, str], by: str
) -> None:
    if by == "file":
        configure(home, {"prod": fails_closed(sql)})
    else:
        set_variables(monkeypatch, fails_closed(sql))
    catalog = load_catalog("prod")
    assert isinstance(catalog, EncryptedSqlCatalog)
    assert rows_after_an_append(catalog) == 3
    files = set(home.rglob("*"))

    for program in (
        "from pyiceberg.catalog import load_catalog; load_catalog('prod')",
        "from pyiceberg.catalog import load_catalog; load_catalog('prod', uri='sqlite:///other.db')",
        "from pyiceberg.catalog import load_catalog; load_catalog('prod', **{'py-catalog-impl': 'pyiceberg.catalog.sql.SqlCatalog'})",
        "from pyiceberg.cli.console import run; run(['--catalog', 'prod', 'create', 'namespace', 'stray'], standalone_mode=False)",
    ):
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=os.environ)
        assert "not a valid CatalogType" in run.stderr + run.stdout or "Must not set both" in run.stderr
    assert set(home.rglob("*")) == files
    assert catalog.list_namespaces() == [("db",)]


def test_a_class_without_the_type_still_loads_and_says_what_is_missing(
    home: Path, sql: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    configure(home, {"prod": sql})
    assert isinstance(load_catalog("prod"), EncryptedSqlCatalog)
    assert "has no 'type: tablecrypt'" in caplog.text
    caplog.clear()
    load_catalog("elsewhere", **sql)
    assert "type: tablecrypt" not in caplog.text


def test_the_package_offers_what_most_users_need(home: Path, sql: dict[str, str]) -> None:
    catalog = tablecrypt.load_catalog("prod", **fails_closed(sql))
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    plain = catalog.create_table("db.plain", ROWS.schema)
    assert isinstance(table, tablecrypt.EncryptedTable)
    assert (tablecrypt.is_encrypted(table), tablecrypt.is_encrypted(plain)) == (True, False)
    assert f"encrypted: encryption.key-id {MASTER_KEY}" in repr(table)
    assert "encrypted" not in repr(plain)
    assert tablecrypt.__version__ == importlib.metadata.version("tablecrypt")


@pytest.mark.slow
def test_pyicebergs_own_load_catalog_takes_no_class_from_the_file(home: Path, sql: dict[str, str]) -> None:
    """Why there is a load_catalog of ours. When this fails, PyIceberg has learnt it."""
    configure(home, {"prod": sql})
    program = "from pyiceberg.catalog import load_catalog; print(type(load_catalog('prod')).__name__)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    assert run.stdout.split() == ["SqlCatalog"]
