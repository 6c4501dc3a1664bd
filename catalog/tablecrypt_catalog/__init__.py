"""PyIceberg catalogs whose tables are encrypted. Name one in the property py-catalog-impl.

Each name is imported when it is first used: a program loads the client libraries of the one catalog that it has.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tablecrypt.errors import MissingExtraError

if TYPE_CHECKING:
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

_MODULES: Final = {
    "EncryptedGlueCatalog": "glue",
    "EncryptedHiveCatalog": "hive",
    "EncryptedInMemoryCatalog": "sql",
    "EncryptedRestCatalog": "rest",
    "EncryptedSqlCatalog": "sql",
    "encrypted": "encrypting_catalog",
    "load_catalog": "configuration",
}
_PACKAGES_OF_EXTRAS: Final = {"glue": ("boto3", "botocore"), "hive": ("hive_metastore", "thrift")}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES[name]
    try:
        return getattr(import_module(f"{__name__}.{module}"), name)
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES_OF_EXTRAS.get(module, ()):
            raise
        raise MissingExtraError.named(f"{name} needs the package {package}", module) from error
