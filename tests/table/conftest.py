"""Fixtures of this folder: what a table does is tested with keys and a catalog in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tablecrypt_catalog import EncryptedInMemoryCatalog
from tests.support.tables import memory_catalog


@pytest.fixture
def catalog(warehouse: Path) -> EncryptedInMemoryCatalog:
    """A catalog in memory, with files in `warehouse`, MASTER_KEY in a keyring of its own, and the namespace `db`."""
    return memory_catalog(warehouse)
