"""Fixtures of this folder: a table with a history, in a catalog whose folder tests look into."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table import Table

from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.tables import encrypted_sql_catalog, table_with_history


@pytest.fixture
def catalog(tmp_path: Path, aws: AwsServer) -> EncryptedSqlCatalog:
    """A catalog on SQLite in `tmp_path`, with keys in moto's KMS and the namespace `db`."""
    return encrypted_sql_catalog(tmp_path, aws)


@pytest.fixture
def table(catalog: EncryptedSqlCatalog) -> Table:
    """db.t: two appends, a merge-on-read delete, and an append to the branch `side`."""
    return table_with_history(catalog)
