"""The keys of every file of an encrypted table, opened by the kit itself: by keys.json, metadata.json, manifest lists and manifests.

Needs the packages cryptography and fastavro. It shares no code with an implementation that is judged.
"""

from __future__ import annotations

import io
import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from conformance.streams import NONCE, TAG, KeyMetadata, StreamError, decrypt_gcm, decrypt_stream

_ID: Final = 36
_SCHEME: Final = "file:"


class TableKeysError(Exception):
    """A table's keys cannot be opened, or are not as its metadata says."""


def keys_of_files(metadata_file: Path, key_file: Path) -> dict[Path, KeyMetadata]:
    """Of every manifest list, manifest, data and delete file that some snapshot reaches. TableKeysError where one has no key."""
    metadata = json.loads(metadata_file.read_text())
    try:
        found: dict[Path, KeyMetadata] = {}
        for snapshot in metadata.get("snapshots", ()):
            for path, key in _of_snapshot(snapshot, metadata, key_file):
                # A file that several manifests name, or whose deletion vectors are of several files, has one key all the same.
                if found.setdefault(path, key).key != key.key:
                    raise TableKeysError(f"{path.name} has two keys")
        return found
    except (StreamError, OSError, KeyError, StopIteration) as error:
        raise TableKeysError(f"{type(error).__name__}: {error}") from error


def _of_snapshot(snapshot: dict[str, Any], metadata: dict[str, Any], key_file: Path) -> Iterator[tuple[Path, KeyMetadata]]:
    manifest_list, key = _path(snapshot["manifest-list"]), _lists_key(snapshot["key-id"], metadata, key_file)
    yield manifest_list, key
    for entry in _records(manifest_list, key):
        manifest, manifest_key = _path(entry["manifest_path"]), _key(entry["key_metadata"], entry["manifest_path"])
        yield manifest, manifest_key
        for row in _records(manifest, manifest_key):
            file = row["data_file"]
            yield _path(file["file_path"]), _key(file["key_metadata"], file["file_path"])


def _lists_key(key_id: str, metadata: dict[str, Any], key_file: Path) -> KeyMetadata:
    """A manifest list's key is encrypted by a KEK, which a master key wraps."""
    entries = {each["key-id"]: each for each in metadata["encryption-keys"]}
    entry = entries[key_id]
    kek = entries[entry["encrypted-by-id"]]
    timestamp = kek["properties"]["KEY_TIMESTAMP"].encode()
    return KeyMetadata.decode(decrypt_gcm(_unwrapped(kek, key_file), b64decode(entry["encrypted-key-metadata"]), timestamp))


def _unwrapped(kek: dict[str, Any], key_file: Path) -> bytes:
    """wrapped = key id (36, ASCII) | nonce (12) | tag (16) | ciphertext"""
    master = next(
        each for each in json.loads(key_file.read_text())["master_keys"] if kek["encrypted-by-id"] in (each["alias"], each["key_id"])
    )
    wrapped = b64decode(kek["encrypted-key-metadata"])
    nonce, tag, ciphertext = wrapped[_ID : _ID + NONCE], wrapped[_ID + NONCE : _ID + NONCE + TAG], wrapped[_ID + NONCE + TAG :]
    return decrypt_gcm(b64decode(master["key_base64"]), nonce + ciphertext + tag, None)


def _records(path: Path, key: KeyMetadata) -> list[dict[str, Any]]:
    import fastavro

    return list(fastavro.reader(io.BytesIO(decrypt_stream(path.read_bytes(), key))))  # type: ignore[arg-type]


def _key(key_metadata: bytes | None, location: str) -> KeyMetadata:
    if key_metadata is None:
        raise TableKeysError(f"{_path(location).name} has no key")
    return KeyMetadata.decode(key_metadata)


def _path(location: str) -> Path:
    """file:///tmp/x and file:/tmp/x are /tmp/x."""
    return Path("/" + location.removeprefix(_SCHEME).lstrip("/"))
