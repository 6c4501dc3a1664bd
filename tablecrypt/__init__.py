"""Encrypted Apache Iceberg tables from Python.

load_catalog(name, …)    a PyIceberg catalog whose tables are encrypted; most users need nothing else
register()               PyIceberg's own load_catalog opens these catalogs too
is_encrypted(table)      whether a table that a catalog returned is encrypted

load_kms(properties)     a client of the key management service that the properties name
EncryptionManager        the key hierarchy of one table, without a catalog
errors                   every error a caller can meet
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from tablecrypt import errors

if TYPE_CHECKING:
    from tablecrypt.keys.manager import EncryptionManager as EncryptionManager
    from tablecrypt.kms.client import KeyManagementClient as KeyManagementClient
    from tablecrypt.kms.factory import load_kms as load_kms
    from tablecrypt.table.table import EncryptedTable as EncryptedTable
    from tablecrypt.table.table import is_encrypted as is_encrypted
    from tablecrypt_catalog.configuration import load_catalog as load_catalog
    from tablecrypt_catalog.registration import register as register

__version__ = version("tablecrypt")
__all__ = ["EncryptedTable", "EncryptionManager", "KeyManagementClient", "errors", "is_encrypted", "load_catalog", "load_kms", "register"]

# What a name stands for is imported when it is asked for: the lower layers are used without the upper ones.
_ON_DEMAND: Final = {
    "EncryptedTable": "tablecrypt.table.table",
    "EncryptionManager": "tablecrypt.keys.manager",
    "KeyManagementClient": "tablecrypt.kms.client",
    "is_encrypted": "tablecrypt.table.table",
    "load_catalog": "tablecrypt_catalog.configuration",
    "load_kms": "tablecrypt.kms.factory",
    "register": "tablecrypt_catalog.registration",
}
_PACKAGES: Final = ("maintenance", "orc", "parquet")
"""Whose functions the README calls by their full names."""


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ON_DEMAND[name]), name)
