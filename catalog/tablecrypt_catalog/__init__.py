"""PyIceberg catalogs whose tables are encrypted. Name one in the property py-catalog-impl."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tablecrypt.errors import MissingExtraError
from tablecrypt_catalog.configuration import load_catalog
from tablecrypt_catalog.encrypted import encrypted
from tablecrypt_catalog.rest import EncryptedRestCatalog
from tablecrypt_catalog.sql import EncryptedInMemoryCatalog, EncryptedSqlCatalog

if TYPE_CHECKING:
    from tablecrypt_catalog.glue import EncryptedGlueCatalog as EncryptedGlueCatalog
    from tablecrypt_catalog.hive import EncryptedHiveCatalog as EncryptedHiveCatalog

__all__ = ["EncryptedInMemoryCatalog", "EncryptedRestCatalog", "EncryptedSqlCatalog", "encrypted", "load_catalog"]

# Catalogs whose client libraries are extras, imported when they are asked for: (module, extra, packages that the extra brings).
_ON_DEMAND: Final = {
    "EncryptedGlueCatalog": ("tablecrypt_catalog.glue", "glue", ("boto3", "botocore")),
    "EncryptedHiveCatalog": ("tablecrypt_catalog.hive", "hive", ("hive_metastore", "thrift")),
}


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra, packages = _ON_DEMAND[name]
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in packages:
            raise
        raise MissingExtraError(f'{name} needs the package {package}: pip install "tablecrypt[{extra}]"') from error
