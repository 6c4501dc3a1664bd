"""Version 3 manifests and manifest lists, encrypted: reading, writing, and what entries inherit."""

from __future__ import annotations

from tablecrypt.manifests.manifest_file import EncryptedManifestFile, ManifestWriterV3
from tablecrypt.manifests.manifest_list import ManifestList, ManifestListHeader, ManifestListWriterV3, read_manifest_list
from tablecrypt.manifests.records import EncryptedDataFile

__all__ = [
    "EncryptedDataFile",
    "EncryptedManifestFile",
    "ManifestList",
    "ManifestListHeader",
    "ManifestListWriterV3",
    "ManifestWriterV3",
    "read_manifest_list",
]
