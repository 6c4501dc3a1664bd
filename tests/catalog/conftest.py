"""What tests of catalogs share that somebody configures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.aws import AwsServer


@pytest.fixture
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
    """The properties of an encrypting catalog on SQLite."""
    return {
        "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog",
        "uri": f"sqlite:///{warehouse}/catalog.db",
        "warehouse": f"file://{warehouse}/warehouse",
        **aws.kms_properties,
    }
