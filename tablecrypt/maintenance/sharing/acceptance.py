"""Accepting a share whose KEK was sealed to a public key: the partner puts his own master key in its place, in metadata of his own.

    metadata.json of the share ─▶ KEK, opened with the private key ─▶ manifest list ─▶ new list, KEK and metadata.json at the new location

Manifests and files stay where they are, and the new list names them as the old one did. It is written anew since it says what the table's
properties are, of which encryption.key-id is another now.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyiceberg.io import load_file_io

from tablecrypt import properties as names
from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import ConfigurationError
from tablecrypt.files.deletion import DeletionScope
from tablecrypt.keys.key_ring import KeyRing
from tablecrypt.keys.manager import EncryptionManager, KeySettings, key_metadata_under
from tablecrypt.kms.factory import load_kms
from tablecrypt.maintenance._relocate_files import PathMap
from tablecrypt.maintenance._relocate_metadata import ManifestCopier
from tablecrypt.maintenance._storage import tables_at, write_metadata
from tablecrypt.maintenance.sharing.metadata import Place
from tablecrypt.maintenance.sharing.sealing import PrivateKey, info_of
from tablecrypt.manifests.manifest_list import read_manifest_list
from tablecrypt.printable import json_fields, shown
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata, read_metadata_file
from tablecrypt.table.table_files import TableFileIO


@dataclass(frozen=True)
class Accepted:
    """What `accept` made.

    Attributes:
        share_uuid: the table-uuid of the share.
        to_key_id: the master key that opens it now.
        metadata_location: what to register in a catalog.
    """

    share_uuid: str
    to_key_id: str
    metadata_location: str = field(metadata=shown("metadata"))

    def summary(self) -> str:
        """Return what was done in one sentence."""
        return f"Accepted share {self.share_uuid}: {self.to_key_id} opens it now."

    def to_json(self) -> Mapping[str, object]:
        """Return all fields as JSON's types."""
        return json_fields(self)


@checked_arguments()
def accept(metadata_location: str, to_key_id: str, key_file: str, location: str, properties: Mapping[str, str]) -> Accepted:
    """Accept a share that was sealed to a public key.

    Args:
        metadata_location: the share's metadata.json, as `share` returned it.
        to_key_id: the master key that is to open the share from now on.
        key_file: path of the private key.
        location: where the accepted metadata goes: a folder of your own.
        properties: of a catalog: which key service, and how files are reached.

    Raises:
        ConfigurationError: the metadata is not that of a sealed share, or the location holds a table.
        AuthenticationError: the key is not the one that it was sealed to, or the metadata was changed.
        KmsError: the KMS refused to wrap or unwrap under the master key.
    """
    place = Place(location.rstrip("/"), uuid.uuid4(), uuid.uuid4())
    inner = load_file_io({**properties}, metadata_location)
    metadata = read_metadata_file(inner.new_input(metadata_location)).parse()
    snapshot = metadata.current_snapshot()
    if not isinstance(metadata, EncryptedTableMetadata) or not isinstance(snapshot, EncryptedSnapshot):
        raise ConfigurationError(f"{metadata_location} is not the metadata of a share")
    PathMap(metadata.location.rstrip("/"), place.location)
    for found, table_uuid in tables_at(inner, place.location):
        raise ConfigurationError(f"{place.location} holds a table already ({found}, table-uuid {table_uuid}): choose another location")

    chain = metadata.key_ring.chain(snapshot.key_id or "")
    kek = PrivateKey.read(Path(key_file).expanduser()).open(chain.kek.wrapped_bytes(), info_of(str(metadata.table_uuid), chain.kek))
    list_key = key_metadata_under(chain, kek)

    settings = KeySettings.of(metadata.properties)
    manager = EncryptionManager(load_kms(properties), to_key_id, data_key_length=settings.data_key_length)
    io = TableFileIO(inner, manager, DeletionScope((place.location,)), DeletionScope((place.location,)))
    opened = read_manifest_list(io, snapshot.manifest_list, list_key)
    header = opened.header
    # metadata.json is not authenticated: of another share of the same sender, its list would open as well.
    if header.snapshot_id != snapshot.snapshot_id or header.table_state is None or header.table_state.table_uuid != metadata.table_uuid:
        raise ConfigurationError(f"{metadata_location} and its manifest list are not of one share")

    state = header.table_state.in_copy(metadata.table_uuid, {names.KEY_ID.name: to_key_id}, ())
    copier = ManifestCopier(io, io, PathMap(metadata.location.rstrip("/"), place.location), {}, "", metadata.properties)
    list_location = place.manifest_list(snapshot.snapshot_id)
    new_key = copier.write_list(list_location, replace(header, table_state=state), opened.manifests)
    wrapped = manager.encrypt_manifest_list_key_metadata(new_key, KeyRing())
    accepted = metadata.model_copy(
        update={
            "location": place.location,
            "properties": {**metadata.properties, names.KEY_ID.name: to_key_id},
            "snapshots": [snapshot.model_copy(update={"manifest_list": list_location, "key_id": wrapped.key_id})],
            "encryption_keys": list(wrapped.added),
        }
    )
    write_metadata(io, place.metadata_location, accepted)

    return Accepted(str(metadata.table_uuid), to_key_id, place.metadata_location)
