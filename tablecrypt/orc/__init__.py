"""ORC column encryption: chosen columns as ciphertext, masks in their place for readers without the key. docs/orc.md has the picture."""

from tablecrypt.orc.keys import KeyProvider, KeyProviderKind, LocalKey, LocalKeys, MasterKeyVersion
from tablecrypt.orc.kms_keys import KmsKeys, KmsMasterKeys, WrappedMasterKey
from tablecrypt.orc.manifest import ManifestWriter
from tablecrypt.orc.masks import KeyedHash, Mask, Nullify, Sha256
from tablecrypt.orc.reader import read_batches, read_table
from tablecrypt.orc.redact import Redact
from tablecrypt.orc.verification import VerifiedFile, seal, verify
from tablecrypt.orc.writer import write_table

__all__ = [
    "KeyProvider",
    "KeyProviderKind",
    "KeyedHash",
    "KmsKeys",
    "KmsMasterKeys",
    "LocalKey",
    "LocalKeys",
    "ManifestWriter",
    "Mask",
    "MasterKeyVersion",
    "Nullify",
    "Redact",
    "Sha256",
    "VerifiedFile",
    "WrappedMasterKey",
    "read_batches",
    "read_table",
    "seal",
    "verify",
    "write_table",
]
