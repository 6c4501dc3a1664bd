"""The golden tables: what Iceberg Java 1.12 wrote (tests/vectors/golden), opened without a catalog and without a KMS.

Everything here decrypts with the fixed KMS keys of the vectors and with AESGCM itself, not with the library's key code, so that a test of
the manifests or of the scan does not depend on the KMS client or the key manager being right.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, cast

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.files.encrypting_file_io import EncryptingFileIO

GOLDEN: Final = Path(__file__).parents[1] / "vectors" / "golden"
TABLES: Final = ("orders", "people")
_KEY_ID_LENGTH: Final = 36
_NONCE_LENGTH: Final = 12
_TAG_LENGTH: Final = 16


class GoldenFileIO(FileIO):
    """Reads s3://bucket/key from the file <folder>/bucket/key. Writes nothing; give it a copy of the folder to test tampering."""

    def __init__(self, folder: Path = GOLDEN / "s3") -> None:
        super().__init__()
        self.folder = folder

    def path(self, location: str) -> Path:
        return self.folder / location.removeprefix("s3://")

    def new_input(self, location: str) -> InputFile:
        return _StoredFile(location, self.path(location))

    def new_output(self, location: str) -> OutputFile:
        raise PermissionError(f"the golden tables are read only: {location}")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise PermissionError(f"the golden tables are read only: {location}")


class _StoredFile(InputFile):
    def __init__(self, location: str, path: Path) -> None:
        super().__init__(location)
        self._path = path

    def __len__(self) -> int:
        return self._path.stat().st_size

    def exists(self) -> bool:
        return self._path.exists()

    def open(self, seekable: bool = True) -> InputStream:
        return cast("InputStream", self._path.open("rb"))


@dataclass(frozen=True)
class GoldenTable:
    """One table of the vectors at its newest metadata; `folder` holds its buckets."""

    name: str
    folder: Path = GOLDEN / "s3"

    @cached_property
    def metadata_location(self) -> str:
        tables = json.loads((GOLDEN / "golden.json").read_text())
        return str(tables[self.name]["metadata"])

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The table metadata as the JSON says it."""
        return cast("dict[str, Any]", json.loads(self.file_io.path(self.metadata_location).read_text()))

    @property
    def snapshots(self) -> list[dict[str, Any]]:
        """The snapshots of the metadata, oldest first."""
        return sorted(self.metadata["snapshots"], key=lambda snapshot: int(snapshot["sequence-number"]))

    @cached_property
    def file_io(self) -> GoldenFileIO:
        """The store: ciphertext."""
        return GoldenFileIO(self.folder)

    @cached_property
    def io(self) -> EncryptingFileIO:
        """The store behind the library's own FileIO."""
        return EncryptingFileIO(self.file_io)

    def manifest_list_key(self, snapshot: dict[str, Any]) -> StandardKeyMetadata:
        """The key metadata of a snapshot's manifest list."""
        keys = {key["key-id"]: key for key in self.metadata["encryption-keys"]}
        entry = keys[snapshot["key-id"]]
        kek = keys[entry["encrypted-by-id"]]
        encrypted = base64.b64decode(entry["encrypted-key-metadata"])
        aad = kek["properties"]["KEY_TIMESTAMP"].encode()
        return StandardKeyMetadata.decode(AESGCM(_unwrap(kek)).decrypt(encrypted[:_NONCE_LENGTH], encrypted[_NONCE_LENGTH:], aad))

    def expected(self, snapshot_index: int | None = None) -> Path:
        """The Parquet file of the rows that Java read: at the n-th snapshot, or now."""
        return GOLDEN / "expected" / self.name / ("current.parquet" if snapshot_index is None else f"snapshot-{snapshot_index}.parquet")


def _unwrap(kek: dict[str, Any]) -> bytes:
    """Decrypt a KEK as moto's KMS does: key id (36 characters) | nonce (12) | tag (16) | ciphertext."""
    blob = base64.b64decode(kek["encrypted-key-metadata"])
    materials = {key["key_id"]: base64.b64decode(key["key_material_b64"]) for key in json.loads((GOLDEN / "kms_keys.json").read_text())}
    material = materials[blob[:_KEY_ID_LENGTH].decode()]
    nonce, rest = blob[_KEY_ID_LENGTH : _KEY_ID_LENGTH + _NONCE_LENGTH], blob[_KEY_ID_LENGTH + _NONCE_LENGTH :]
    return AESGCM(material).decrypt(nonce, rest[_TAG_LENGTH:] + rest[:_TAG_LENGTH], b"")
