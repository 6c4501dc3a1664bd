"""The metadata.json of a table's copy.

    location, manifest lists, properties that name folders    of the new place; a folder outside the table is forgotten, not shared
    table-uuid                                                a new one: a copy is another table, with a history of its own from here on
    encryption-keys, key-id of snapshots                      new: a KEK and manifest-list keys of the copy alone
    snapshots, branches, tags, snapshot-log                   all, or the current snapshot and what points to it
    metadata-log, statistics                                  empty: older metadata and statistics files are not copied
    all else                                                  as it was

Pure.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.table import TableProperties

from tablecrypt import properties as names
from tablecrypt.keys.encrypted_key import EncryptedKey
from tablecrypt.maintenance.relocate_paths import PathMap
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata

_NAMESPACE: Final = uuid.UUID("6a2f1d0e-5b0c-5f43-9a57-0d3c1c1e7b42")
_FOLDER_PROPERTIES: Final = (
    TableProperties.WRITE_DATA_PATH,
    TableProperties.WRITE_METADATA_PATH,
    "write.object-storage.path",
    "write.folder-storage.path",
)


@dataclass(frozen=True)
class CopyIdentity:
    """Names that are the same in every run of one copy, so that a run that was killed is continued by the next.

    Attributes:
        table_uuid: of the copy: the same for every state of one table that is copied to one place.
        copy_id: of this state under this master key.
    """

    table_uuid: uuid.UUID
    copy_id: uuid.UUID

    @classmethod
    def of(
        cls, metadata: EncryptedTableMetadata, metadata_location: str, new_location: str, key_id: str, all_snapshots: bool
    ) -> CopyIdentity:
        """Return the identity of a copy."""
        table_uuid = uuid.uuid5(_NAMESPACE, f"{metadata.table_uuid} {new_location}")
        return cls(table_uuid, uuid.uuid5(table_uuid, f"{metadata_location} {key_id} {all_snapshots}"))


def kept_snapshots(metadata: EncryptedTableMetadata, all_snapshots: bool) -> list[EncryptedSnapshot]:
    """Return the snapshots that a copy has."""
    if all_snapshots:
        return list(metadata.snapshots)
    return [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id == metadata.current_snapshot_id]


def only_snapshots(metadata: EncryptedTableMetadata, snapshots: Collection[EncryptedSnapshot]) -> EncryptedTableMetadata:
    """Return metadata with these snapshots, and of branches, tags and the log what is about them."""
    ids = {snapshot.snapshot_id for snapshot in snapshots}
    return metadata.model_copy(
        update={
            "snapshots": list(snapshots),
            "refs": {name: ref for name, ref in metadata.refs.items() if ref.snapshot_id in ids},
            "snapshot_log": [entry for entry in metadata.snapshot_log if entry.snapshot_id in ids],
        }
    )


def copied_metadata(
    metadata: EncryptedTableMetadata,
    paths: PathMap,
    identity: CopyIdentity,
    key_id: str,
    lists: Mapping[int, tuple[str, str]],
    encryption_keys: list[EncryptedKey],
) -> EncryptedTableMetadata:
    """Return the copy's metadata.

    Args:
        metadata: with the snapshots that the copy has.
        paths: from old to new locations.
        identity: of the copy.
        key_id: its encryption.key-id.
        lists: for each snapshot id the location of its new manifest list, and the id of the list's key.
        encryption_keys: the copy's keys.
    """
    snapshots = [
        snapshot.model_copy(update={"manifest_list": lists[snapshot.snapshot_id][0], "key_id": lists[snapshot.snapshot_id][1]})
        for snapshot in metadata.snapshots
    ]
    changed: dict[str, Any] = {
        "location": paths.new,
        "table_uuid": identity.table_uuid,
        "properties": _properties(metadata.properties, paths, key_id),
        "snapshots": snapshots,
        "encryption_keys": encryption_keys,
        "metadata_log": [],
        "statistics": [],
        "partition_statistics": [],
    }
    return EncryptedTableMetadata.model_validate_json(metadata.model_copy(update=changed).model_dump_json())


def _properties(properties: Mapping[str, str], paths: PathMap, key_id: str) -> dict[str, str]:
    kept = {name: value for name, value in properties.items() if name not in _FOLDER_PROPERTIES}
    folders = {name: paths.folder(properties[name]) for name in _FOLDER_PROPERTIES if name in properties}
    return {**kept, **{name: folder for name, folder in folders.items() if folder is not None}, names.KEY_ID.name: key_id}
