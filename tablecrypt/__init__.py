"""Encrypted Apache Iceberg tables from Python.

Most users need nothing from this package but a catalog property: see `tablecrypt_catalog`. Here are the parts for those who work
without one:

    load_kms(properties)     a client of the key management service that the properties name
    EncryptionManager        the key hierarchy of one table
    errors                   every error a caller can meet
"""

from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.factory import load_kms

__all__ = ["EncryptionManager", "KeyManagementClient", "load_kms"]
