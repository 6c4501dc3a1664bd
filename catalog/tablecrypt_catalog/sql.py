"""Encrypting catalogs on a SQL database: SQLite, PostgreSQL and others that SQLAlchemy knows."""

from __future__ import annotations

from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.sql import SqlCatalog

from tablecrypt_catalog.encrypted import EncryptionMixin


class EncryptedSqlCatalog(EncryptionMixin, SqlCatalog):
    """PyIceberg's SqlCatalog with encrypted tables."""


class EncryptedInMemoryCatalog(EncryptionMixin, InMemoryCatalog):
    """PyIceberg's InMemoryCatalog with encrypted tables: for tests and notebooks."""
