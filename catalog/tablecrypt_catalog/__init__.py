"""PyIceberg catalogs whose tables are encrypted. Name one in the property py-catalog-impl.

Each name is imported when it is first used: a program loads the client libraries of the one catalog that it has.
Where they are missing, MissingExtraError names the extra.
"""

from __future__ import annotations

TYPE_CHECKING = False  # for type checkers it is true; every process of an activated environment imports this, so it imports nothing
if TYPE_CHECKING:
    from typing import Any

    from tablecrypt_catalog.configuration import load_catalog as load_catalog
    from tablecrypt_catalog.encrypting_catalog import encrypted as encrypted
    from tablecrypt_catalog.glue import EncryptedGlueCatalog as EncryptedGlueCatalog
    from tablecrypt_catalog.hive import EncryptedHiveCatalog as EncryptedHiveCatalog
    from tablecrypt_catalog.rest import EncryptedRestCatalog as EncryptedRestCatalog
    from tablecrypt_catalog.sql import EncryptedInMemoryCatalog as EncryptedInMemoryCatalog
    from tablecrypt_catalog.sql import EncryptedSqlCatalog as EncryptedSqlCatalog

__all__ = [
    "EncryptedGlueCatalog",
    "EncryptedHiveCatalog",
    "EncryptedInMemoryCatalog",
    "EncryptedRestCatalog",
    "EncryptedSqlCatalog",
    "encrypted",
    "load_catalog",
]

_MODULES = {
    "EncryptedGlueCatalog": "glue",
    "EncryptedHiveCatalog": "hive",
    "EncryptedInMemoryCatalog": "sql",
    "EncryptedRestCatalog": "rest",
    "EncryptedSqlCatalog": "sql",
    "encrypted": "encrypting_catalog",
    "load_catalog": "configuration",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
