"""PyIceberg catalogs whose tables are encrypted. Name one in the property py-catalog-impl."""

from tablecrypt_catalog.encrypted import encrypted
from tablecrypt_catalog.sql import EncryptedInMemoryCatalog, EncryptedSqlCatalog

__all__ = ["EncryptedInMemoryCatalog", "EncryptedSqlCatalog", "encrypted"]
