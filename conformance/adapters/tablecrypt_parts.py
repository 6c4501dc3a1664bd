"""What tablecrypt needs to read and write: its key service, a file of keys, and the folder in which the kit lies."""

from __future__ import annotations

import json
import os
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyarrow.fs import FileSystem, LocalFileSystem, SubTreeFileSystem
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from conformance.adapters.protocol import Case
from conformance.verdicts import ROOT
from tablecrypt.errors import AuthenticationError, KeyNotFoundError, KmsAccessDeniedError
from tablecrypt.kms.client import GeneratedKey
from tablecrypt.parquet import FileKeys

_NONCE, _TAG, _ID = 12, 16, 36


class JsonKms:
    """wrapped = key id (36, ASCII) | nonce (12) | tag (16) | ciphertext    AES-256-GCM without AAD, as moto's AWS KMS wraps."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        entries = json.loads(Path(properties["conformance.keys"]).read_text())["master_keys"]
        self._ids = {name: each["key_id"] for each in entries for name in (each["alias"], each["key_id"])}
        # A reader without this list may use every key.
        self._held = properties.get("conformance.held", ",".join(self._ids)).split(",")
        self._keys = {each["key_id"]: AESGCM(b64decode(each["key_base64"])) for each in entries}

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        key_id, nonce = self._id(wrapping_key_id), os.urandom(_NONCE)
        sealed = self._keys[key_id].encrypt(nonce, key, None)
        return key_id.encode() + nonce + sealed[-_TAG:] + sealed[:-_TAG]

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        key_id, rest = self._id(wrapping_key_id), wrapped_key[_ID:]
        if wrapped_key[:_ID] != key_id.encode():
            raise AuthenticationError("another master key wrapped this")
        nonce, tag, ciphertext = rest[:_NONCE], rest[_NONCE : _NONCE + _TAG], rest[_NONCE + _TAG :]
        try:
            return self._keys[key_id].decrypt(nonce, ciphertext + tag, None)
        except Exception as error:
            raise AuthenticationError("the wrapped key was changed") from error

    def generate_key(self, wrapping_key_id: str, length: int = 16) -> GeneratedKey:
        key = os.urandom(length)
        return GeneratedKey(key=key, wrapped_key=self.wrap_key(key, wrapping_key_id))

    def close(self) -> None:
        return

    def _id(self, name: str) -> str:
        if name not in self._ids:
            raise KeyNotFoundError(f"the kit has no master key {name!r}")
        if not any(self._ids.get(held) == self._ids[name] for held in self._held):
            raise KmsAccessDeniedError(f"this reader may not use the master key {name!r}")
        return str(self._ids[name])


class KitFileIO(PyArrowFileIO):
    """Finds what the tables call ROOT in the folder in which the kit really is."""

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        kit = self.properties["conformance.folder"]
        return SubTreeFileSystem(kit, LocalFileSystem()) if scheme == "file" else super()._initialize_fs(scheme, netloc)

    def new_output(self, location: str) -> PyArrowFile:
        _, _, path = self.parse_location(location)
        Path(self.properties["conformance.folder"], path).parent.mkdir(parents=True, exist_ok=True)
        return super().new_output(location)

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        scheme, netloc, path = PyArrowFileIO.parse_location(location, properties)
        if not path.startswith(f"{ROOT}/"):
            raise ValueError(f"{location} is not in the kit")
        return scheme, netloc, path.removeprefix(f"{ROOT}/")


def properties(kit: Path, held: Sequence[str] | None = None) -> dict[str, str]:
    """Of a catalog that reads the kit in this folder, for somebody who may use these master keys; by default all."""
    rights = {} if held is None else {"conformance.held": ",".join(held)}
    return {
        **rights,
        **key_properties(kit / "keys.json"),
        "py-io-impl": f"{KitFileIO.__module__}.KitFileIO",
        "conformance.folder": str(kit),
        "warehouse": f"file://{ROOT}",
    }


def file_keys(case: Case) -> FileKeys:
    """The keys of a Parquet file by itself."""
    return FileKeys(
        bytes.fromhex(case["footer_key"]),
        {name: bytes.fromhex(key) for name, key in case["column_keys"].items()},
        bytes.fromhex(case["aad_prefix"]),
        case["aad_prefix_is_stored"],
        algorithm=case["algorithm"],
        plaintext_footer=case["plaintext_footer"],
    )


def key_properties(key_file: Path) -> dict[str, str]:
    """Of a catalog whose tables lie where their metadata says."""
    return {"conformance.keys": str(key_file), "encryption.kms-impl": f"{JsonKms.__module__}.JsonKms"}
