"""ORC column encryption: chosen columns as ciphertext, masks in their place for readers without the key. docs/orc.md has the picture."""

from tablecrypt.orc.keys import KeyProvider, KeyProviderKind, LocalKey, LocalKeys, MasterKeyVersion
from tablecrypt.orc.kms_keys import KmsKeys, KmsMasterKeys, WrappedMasterKey

__all__ = [
    "KeyProvider",
    "KeyProviderKind",
    "KmsKeys",
    "KmsMasterKeys",
    "LocalKey",
    "LocalKeys",
    "MasterKeyVersion",
    "WrappedMasterKey",
]
