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
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.table import TableProperties

from tablecrypt import properties as names
from tablecrypt.arguments import checked_arguments, file_path
from tablecrypt.errors import ConfigurationError, TamperedFileError
from tablecrypt.files.deletion import DeletionScope
from tablecrypt.files.stores import check_reached, file_io_for
from tablecrypt.keys.key_ring import KeyRing
from tablecrypt.keys.manager import EncryptionManager, KeySettings, key_metadata_under
from tablecrypt.kms.factory import load_kms
from tablecrypt.maintenance._relocate_files import PathMap, copy_location
from tablecrypt.maintenance._relocate_metadata import ManifestCopier
from tablecrypt.maintenance._storage import write_metadata
from tablecrypt.maintenance.sharing.metadata import Place
from tablecrypt.maintenance.sharing.sealing import SEALED, PrivateKey, info_of
from tablecrypt.manifests.manifest_list import ManifestList, read_manifest_list
from tablecrypt.manifests.table_state import ListedTableState
from tablecrypt.printable import AsJson, shown
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata, check_metadata_location, check_whole, read_metadata_file
from tablecrypt.table.other_tables import check_no_table_around, tables_at
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import WRITE_PATHS, TableFileIO

_HIS: Final = (
    *WRITE_PATHS,
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED,
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX,
    "write.location-provider.impl",
)
"""Properties of Iceberg's that only the partner sets."""


@dataclass(frozen=True)
class Accepted(AsJson):
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
    place = Place(copy_location(location), uuid.uuid4(), uuid.uuid4())
    inner = file_io_for(properties, metadata_location)
    state = SharedState.read(inner, metadata_location)
    metadata = state.metadata
    PathMap(metadata.location.rstrip("/"), place.location)
    for found, table_uuid in tables_at(inner, place.location):
        raise ConfigurationError(f"{place.location} holds a table already ({found}, table-uuid {table_uuid}): choose another location")
    check_no_table_around(inner, place.location)

    settings = KeySettings.of(metadata.properties)
    manager = EncryptionManager(load_kms(properties), to_key_id, data_key_length=settings.data_key_length)
    io = TableFileIO(inner, manager, DeletionScope((place.location,)), DeletionScope((place.location,)))
    opened = state.opened(io, file_path("key_file", key_file))
    write_metadata(io, place.metadata_location, state.accepted(io, place, opened))

    return Accepted(str(metadata.table_uuid), to_key_id, place.metadata_location)


@dataclass(frozen=True)
class SharedState:
    """One state of a share, as its sharer wrote it.

    Attributes:
        location: of its metadata.json.
        metadata: what that says.
        snapshot: its one snapshot.
    """

    location: str
    metadata: EncryptedTableMetadata
    snapshot: EncryptedSnapshot

    @classmethod
    def read(cls, inner: FileIO, location: str) -> SharedState:
        """Read it.

        Raises:
            ConfigurationError: there is none, or none of a share, or the location is none; or its properties name code to import.
            TamperedFileError: it contradicts itself, or holds keys that the share does not need.
        """
        check_metadata_location(location)
        check_reached(inner, location)
        try:
            metadata = read_metadata_file(inner.new_input(location)).parse()
        except FileNotFoundError as error:
            raise ConfigurationError(f"there is no metadata file at {location}: look at what the one who shares has sent") from error

        snapshot = metadata.current_snapshot()
        if not isinstance(metadata, EncryptedTableMetadata) or not isinstance(snapshot, EncryptedSnapshot) or len(metadata.snapshots) > 1:
            raise ConfigurationError(f"{location} is not the metadata of a share")
        # Whoever writes the sharer's folder chose what it says. What the partner commits of it, all of his clients load from then on.
        names.check_table_properties(location, metadata.properties, inner.properties)
        check_whole(location, metadata)
        ring = metadata.key_ring
        needed = ring.needed_by([snapshot.key_id or ""])
        if any(entry.key_id not in needed and not entry.is_of_columns for entry in ring.entries):
            raise TamperedFileError(location, "holds keys that its one snapshot does not need: somebody put them there")
        # Nothing authenticates these, and what they name the partner's clients would take for files of the table.
        return cls(location, metadata.model_copy(update={"metadata_log": [], "statistics": [], "partition_statistics": []}), snapshot)

    @property
    def is_sealed(self) -> bool:
        """Whether its KEK is sealed to a public key."""
        return self.metadata.properties.get(names.KEY_ID.name, "").startswith(SEALED)

    def opened(self, io: TableFileIO, key_file: Path | None) -> ManifestList:
        """Open its manifest list.

        Args:
            io: reads it; its manager knows the master key of a share that is not sealed.
            key_file: of the private key, for one that is.

        Raises:
            ConfigurationError: a key file is missing, or metadata and list are not of one share.
            TamperedFileError: the metadata says what its list does not.
            AuthenticationError, KmsError: it does not open.
        """
        if self.is_sealed and key_file is None:
            raise ConfigurationError(
                f"{self.location} is sealed to a public key: name the file of the private key (key_file=…, --key-file)"
            )
        chain = self.metadata.key_ring.chain(self.snapshot.key_id or "")
        if key_file is None:
            list_key = io.manager.decrypt_manifest_list_key_metadata(chain)
        else:
            kek = PrivateKey.read(key_file).open(chain.kek.wrapped_bytes(), info_of(str(self.metadata.table_uuid), chain.kek))
            list_key = key_metadata_under(chain, kek)
        opened = read_manifest_list(io, self.snapshot.manifest_list, list_key)
        stated = opened.header.table_state
        # metadata.json is not authenticated: of another share of the same sender, its list would open as well.
        if opened.header.snapshot_id != self.snapshot.snapshot_id or stated is None or stated.table_uuid != self.metadata.table_uuid:
            raise ConfigurationError(f"{self.location} and its manifest list are not of one share")
        # Edited, it would be what the partner's own metadata, or commit, makes authentic.
        if stated != ListedTableState.of(self.metadata):
            raise self._edited()
        self.snapshot.check_list(opened)
        # A higher one would make every state that comes later an older one.
        if self.metadata.last_sequence_number != opened.header.sequence_number:
            raise self._edited()
        return opened

    def _edited(self) -> TamperedFileError:
        return TamperedFileError(self.location, "says of the share what its authenticated manifest list does not: somebody edited it")

    def for_table(self, table: EncryptedTable, opened: ManifestList) -> EncryptedTableMetadata:
        """Return what a table that moves to this state is to say: in its own location, under its own master key."""
        location, state = table.metadata.location, self.metadata
        if self.is_sealed:
            state = self.accepted(table.io, Place(location.rstrip("/"), state.table_uuid, uuid.uuid4()), opened)
        # What he has set for his table himself goes on; what protects it is the state's.
        his = {name: value for name, value in table.metadata.properties.items() if _is_his(name) or not name.startswith("encryption.")}
        theirs = {name: value for name, value in state.properties.items() if not _is_his(name)}
        return state.model_copy(update={"location": location, "properties": {**his, **theirs}})

    def accepted(self, io: TableFileIO, place: Place, opened: ManifestList) -> EncryptedTableMetadata:
        """Write a list of the same manifests under a master key of the partner's, and return the metadata that names it.

        Args:
            io: writes it; its manager knows the master key.
            place: where it goes.
            opened: the list, as the sharer wrote it.
        """
        metadata, header, key_id = self.metadata, opened.header, io.manager.table_key_id
        assert header.table_state is not None, "a state was opened"
        kept = {name: value for name, value in metadata.properties.items() if not _is_his(name)}
        changed = {**dict.fromkeys(metadata.properties.keys() - kept.keys()), names.KEY_ID.name: key_id}
        stated = header.table_state.in_copy(metadata.table_uuid, changed, ())
        copier = ManifestCopier(io, io, PathMap(metadata.location.rstrip("/"), place.location), {}, "", metadata.properties)
        location = place.manifest_list(self.snapshot.snapshot_id)
        new_key = copier.write_list(location, replace(header, table_state=stated), opened.manifests)
        wrapped = io.manager.encrypt_manifest_list_key_metadata(new_key, KeyRing())
        return metadata.model_copy(
            update={
                "location": place.location,
                "properties": {**kept, names.KEY_ID.name: key_id},
                "snapshots": [self.snapshot.model_copy(update={"manifest_list": location, "key_id": wrapped.key_id})],
                "encryption_keys": list(wrapped.added),
            }
        )


def _is_his(name: str) -> bool:
    # Where his files go and when they are deleted, which class Java loads for him, and to whom he shares the table further, a sharer does
    # not say. Without its record a further share would live on, unknown to what deletes and shreds.
    return name in _HIS or name.startswith(names.SHARE.name)
