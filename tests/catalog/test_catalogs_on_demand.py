"""Catalogs whose client libraries are pip extras: they cost nothing until they are asked for, and then name what is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyiceberg.catalog import load_catalog

import tablecrypt_catalog
from tablecrypt.errors import MissingExtraError

EXTRAS = [("EncryptedHiveCatalog", "hive_metastore", "hive"), ("EncryptedHiveCatalog", "thrift", "hive")]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    package: str = request.param
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("tablecrypt_catalog.hive", "tablecrypt_catalog.hive", "tablecrypt_catalog._pyiceberg.hive", "pyiceberg.catalog.hive"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize(("without", "name", "extra"), [(package, name, extra) for name, package, extra in EXTRAS], indirect=["without"])
@pytest.mark.usefixtures("without")
def test_a_missing_package_is_named_with_the_extra_that_brings_it(name: str, extra: str) -> None:
    with pytest.raises(MissingExtraError, match=rf'{name} needs the package \w+\. .*pip install "…\[{extra}\]"'):
        load_catalog("prod", **{"py-catalog-impl": f"tablecrypt_catalog.{name}", "uri": "thrift://127.0.0.1:1"})


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
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], check=True, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == ""


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'EncryptedNothing'"):
        _ = tablecrypt_catalog.EncryptedNothing
