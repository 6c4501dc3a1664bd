"""ORC column encryption: chosen columns as ciphertext, masks in their place for readers without the key. docs/orc.md has the picture."""

from tablecrypt.orc.integrity_manifest import ManifestWriter
from tablecrypt.orc.keys import (
    KeyProvider,
    KeyProviderKind,
    KmsKeys,
    KmsMasterKeys,
    LocalKey,
    LocalKeys,
    MasterKeyVersion,
    WrappedMasterKey,
)
from tablecrypt.orc.masks import KeyedHash, Mask, Nullify, Redact, Sha256
from tablecrypt.orc.reader import read_batches, read_table
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
