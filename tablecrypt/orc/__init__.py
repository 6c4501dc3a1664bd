"""ORC column encryption: chosen columns are encrypted, and readers without the key see masks instead. See docs/orc.md."""

from tablecrypt.orc.integrity_manifest import IntegrityManifestWriter
from tablecrypt.orc.key_providers import (
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
from tablecrypt.orc.verification import VerifiedFile, create_integrity_manifest, verify
from tablecrypt.orc.writer import write_table

__all__ = [
    "IntegrityManifestWriter",
    "KeyProvider",
    "KeyProviderKind",
    "KeyedHash",
    "KmsKeys",
    "KmsMasterKeys",
    "LocalKey",
    "LocalKeys",
    "Mask",
    "MasterKeyVersion",
    "Nullify",
    "Redact",
    "Sha256",
    "VerifiedFile",
    "WrappedMasterKey",
    "create_integrity_manifest",
    "read_batches",
    "read_table",
    "verify",
    "write_table",
]
