"""What somebody can do who knew a KEK before it was replaced, has no access to the master key any more, and writes the storage.

He makes commits of his own with what he knows, on the metadata of that time, as a writer does that unwrapped the KEK in time.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyiceberg.catalog import load_catalog

from tablecrypt.errors import KmsAccessDeniedError
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tests.security.matrix.attacks import Attack
from tests.security.matrix.scene import NAME, Scene
from tests.support.tables import metadata_path

TARGET: Final = "metadata.json"


class FormerHoldersKeys(MemoryKeyManagementClient):
    """A key service that opens the KEKs in `known`, by the wrapped form, in this process, and nothing else, and wraps nothing."""

    known: ClassVar[dict[bytes, bytes]] = {}

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        if wrapped_key not in self.known:
            raise KmsAccessDeniedError("this key was never known")
        return self.known[wrapped_key]

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        raise KmsAccessDeniedError("the master key is not to be used any more")


def holder_attacks(scene: Scene) -> Iterator[Attack]:
    """The replaced KEK put back; the state of its time; rows of his own under it, in the file's place or as the next version."""

    def attack(target: str, how: str, act: Callable[[Scene], object]) -> Attack:
        return Attack("former key holder", target, how, "", act)

    yield attack(TARGET, "the replaced KEK put back", _put_back)
    yield attack(TARGET, "put back as it was", lambda each: each.write(each.pointer, each.saved(_of_his_time(each))))
    yield attack(TARGET, "his own rows added to the state of his time", lambda each: each.write_metadata(_forged(each)))
    yield attack(TARGET, "his own rows added to the current state", lambda each: each.write_metadata(_spliced(each)))
    yield attack("pointer to metadata.json", "to the state of his time with his own rows", lambda each: _point(each, _forged(each)))
    yield attack("pointer to metadata.json", "to the current state with his own rows", lambda each: _point(each, _spliced(each)))


def _of_his_time(scene: Scene) -> str:
    """The last metadata file before the KEK was replaced."""
    known = _retired(scene)["key-id"]
    old = [at for at in scene.earlier_metadata() if [each["key-id"] for each in _keks(json.loads(scene.saved(at)))] == [known]]
    return old[-1]


def _keks(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    return [key for key in metadata.get("encryption-keys", []) if "KEY_TIMESTAMP" in key.get("properties", {})]


def _retired(scene: Scene) -> dict[str, Any]:
    """The entry of the KEK that was replaced."""
    current = {key["key-id"] for key in _keks(scene.metadata)}
    entries = [key for at in scene.earlier_metadata() for key in _keks(json.loads(scene.saved(at)))]
    return next(key for key in entries if key["key-id"] not in current)


def _put_back(scene: Scene) -> None:
    metadata = copy.deepcopy(scene.metadata)
    metadata["encryption-keys"].append(_retired(scene))
    scene.write_metadata(metadata)


def _forged(scene: Scene) -> dict[str, Any]:
    """The metadata of his time with two commits more, which he makes with the KEK that he knows."""
    FormerHoldersKeys.known[base64.b64decode(_retired(scene)["encrypted-key-metadata"])] = scene.retired_kek
    catalog = load_catalog(
        "forger",
        **{
            "py-catalog-impl": "tablecrypt_catalog.EncryptedInMemoryCatalog",
            "warehouse": f"file://{scene.folder}/warehouse",
            "encryption.kms-impl": f"{__name__}.{FormerHoldersKeys.__name__}",
        },
    )
    catalog.create_namespace("db")
    table = catalog.register_table(NAME, _of_his_time(scene))
    for row in scene.forged_rows:
        table.append(pa.Table.from_pylist([dict(row)], schema=table.schema().as_arrow()))
    forged: dict[str, Any] = json.loads(metadata_path(table).read_bytes())
    return forged


def _spliced(scene: Scene) -> dict[str, Any]:
    """The current metadata, with his snapshots as its newest ones."""
    metadata, forged = copy.deepcopy(scene.metadata), _forged(scene)
    known = {each["snapshot-id"] for each in metadata["snapshots"]}
    keys = {each["key-id"] for each in metadata["encryption-keys"]}
    metadata["snapshots"] += [each for each in forged["snapshots"] if each["snapshot-id"] not in known]
    metadata["encryption-keys"] += [each for each in forged["encryption-keys"] if each["key-id"] not in keys]
    metadata["snapshot-log"].append(forged["snapshot-log"][-1])
    metadata["refs"]["main"] = forged["refs"]["main"]
    for name in ("current-snapshot-id", "last-sequence-number", "next-row-id", "last-updated-ms"):
        metadata[name] = forged[name]
    return metadata


def _point(scene: Scene, metadata: dict[str, Any]) -> None:
    location = f"{scene.pointer.rpartition('/')[0]}/00099-00000000-0000-4000-8000-000000000000.metadata.json"
    scene.write(location, json.dumps(metadata).encode())
    scene.point(location, NAME)
