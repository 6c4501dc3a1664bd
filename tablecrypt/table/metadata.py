"""Table metadata of format version 3 that keeps what encryption needs: `encryption-keys` and each snapshot's `key-id`.

    metadata.json
      ├── encryption-keys [ EncryptedKey … ]       see keys/key_ring.py
      ├── next-row-id                              always written; the next snapshot's first-row-id
      └── snapshots [ { …, first-row-id, added-rows, key-id } … ]

PyIceberg's models drop both encryption fields and refuse to write version 3. These subclasses keep and write them, and change nothing else:
update functions, evaluators and catalogs take them as what they are, a TableMetadataV3 and a Snapshot. metadata.json itself is
plaintext and not authenticated; the header of the encrypted manifest list is, so `EncryptedSnapshot.manifests` compares the two.

Iceberg table spec, "Table Metadata Fields", "Snapshots", "Encryption Keys".
"""

from __future__ import annotations

from copy import copy
from typing import Any, Self

from pydantic import Field, PrivateAttr, field_serializer, model_validator
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.snapshots import IsolationLevel, Operation, Snapshot
from pyiceberg.typedef import IcebergBaseModel

from tablecrypt.errors import PlaintextRefusedError, TamperedFileError
from tablecrypt.keys.key_ring import EncryptedKey, KeyRing
from tablecrypt.manifests.manifest_list import ManifestList, ManifestListHeader, read_manifest_list
from tablecrypt.manifests.stated_layout import StatedLayout
from tablecrypt.table.table_files import TableFileIO


class EncryptedSnapshot(Snapshot):
    """A snapshot whose manifest list is an AGS1 stream under the key that `key-id` names."""

    key_id: str | None = Field(alias="key-id", default=None)
    _ring: KeyRing = PrivateAttr(default_factory=KeyRing)
    _layout: StatedLayout | None = PrivateAttr(default=None)

    def bound_to(self, ring: KeyRing, layout: StatedLayout | None = None) -> Self:
        """Return this snapshot with the keys of the metadata that it is part of, and its schemas and partition specs.

        A key that is missing is reported when it is needed. Without a layout, the one that it had stays.
        """
        bound = self.model_copy()
        bound._ring = ring
        bound._layout = layout or self._layout
        return bound

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EncryptedSnapshot) and self.__dict__ == other.__dict__

    __hash__ = Snapshot.__hash__

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self

    def manifests(self, io: FileIO) -> list[ManifestFile]:
        """Read and authenticate this snapshot's manifest list.

        Raises:
            PlaintextRefusedError: the snapshot has no key-id, or the file is not encrypted.
            KeyNotFoundError: the metadata holds no key of that id, or not the KEK above it.
            TamperedFileError: the list does not authenticate, or its header contradicts the metadata.
        """
        rows = self._read(io).manifests
        return list(rows) if self._layout is None else [row.stated_by(self._layout) for row in rows]

    def authenticated_header(self, io: FileIO) -> ManifestListHeader:
        """Read and authenticate this snapshot's manifest list, and return what it says about the snapshot. Raises as `manifests`."""
        return self._read(io).header

    def _read(self, io: FileIO) -> ManifestList:
        if not isinstance(io, TableFileIO):
            raise PlaintextRefusedError(self.manifest_list, "an encrypted snapshot is read through its table's own FileIO only")
        if self.key_id is None:
            raise PlaintextRefusedError(
                self.manifest_list, f"snapshot {self.snapshot_id} has no key-id: its manifest list is not encrypted"
            )
        key_metadata = io.manager.decrypt_manifest_list_key_metadata(self._ring.chain(self.key_id))
        manifest_list = read_manifest_list(io, self.manifest_list, key_metadata)
        self._check_header(manifest_list.header)
        return manifest_list

    def _check_header(self, header: ManifestListHeader) -> None:
        claims = {
            "snapshot-id": (header.snapshot_id, self.snapshot_id),
            "sequence-number": (header.sequence_number, self.sequence_number),
            "first-row-id": (header.first_row_id, self.first_row_id),
        }
        for name, (authenticated, claimed) in claims.items():
            if authenticated != claimed:
                raise TamperedFileError(
                    self.manifest_list, f"{name} is {authenticated} in the authenticated manifest list, but {claimed} in the table metadata"
                )


class EncryptedTableMetadata(TableMetadataV3):
    """Version 3 table metadata with its encryption keys."""

    snapshots: list[EncryptedSnapshot] = Field(default_factory=list)  # type: ignore[assignment]
    encryption_keys: list[EncryptedKey] = Field(alias="encryption-keys", default_factory=list)

    def isolation_level(self, operation: Operation | IsolationLevel) -> IsolationLevel:
        """Return the isolation level of an operation, as the properties say; a level stands for itself."""
        return operation if isinstance(operation, IsolationLevel) else super().isolation_level(operation)

    @model_validator(mode="after")
    def _bind_snapshots(self) -> Self:
        ring, layout = self.key_ring, self.stated_layout
        # In place, as the model is frozen: the list is this model's own, the snapshots in it may be shared with other metadata.
        self.snapshots[:] = [snapshot.bound_to(ring, layout) for snapshot in self.snapshots]
        return self

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        # Every part is immutable but for the lists and dicts at the top. A full copy of each snapshot, key and schema, which PyIceberg asks
        # for several times in a commit, would make commits slower with every snapshot that a table has.
        containers = {name: copy(value) for name, value in self if isinstance(value, (list, dict))}
        return self.model_copy(update=containers)

    @field_serializer("snapshots")
    def serialize_snapshots(self, snapshots: list[EncryptedSnapshot]) -> list[EncryptedSnapshot]:  # type: ignore[override]
        """Keep the subclass's own fields: PyIceberg's serializer is annotated with Snapshot and would drop key-id."""
        return snapshots

    @property
    def key_ring(self) -> KeyRing:
        """The keys of this version of the metadata."""
        return KeyRing(self.encryption_keys)

    @property
    def stated_layout(self) -> StatedLayout:
        """The schemas and partition specs of this version of the metadata, to hold manifests against."""
        return StatedLayout(self.schemas, self.current_schema_id, self.partition_specs)

    def key_id_of(self, snapshot_id: int | None) -> str | None:
        """Return the id of a snapshot's manifest-list key; None for no snapshot."""
        snapshot = None if snapshot_id is None else self.snapshot_by_id(snapshot_id)
        return snapshot.key_id if isinstance(snapshot, EncryptedSnapshot) else None

    def head_key_id(self, branch: str | None) -> str | None:
        """Return the id of the manifest-list key of a branch's head, else of the current snapshot; None where there is no snapshot."""
        if branch is None:
            return self.key_id_of(self.current_snapshot_id)
        head = self.refs.get(branch)
        return self.key_id_of(self.current_snapshot_id if head is None else head.snapshot_id)

    def without_history(self) -> Self:
        """Return what a worker process needs to read and write data files: no snapshots, and so no keys."""
        nothing: dict[str, Any] = {"current_snapshot_id": None, "refs": {}}
        lists = ("snapshots", "snapshot_log", "metadata_log", "statistics", "partition_statistics", "encryption_keys")
        return self.model_copy(update=nothing | {name: [] for name in lists})

    def model_dump_json(  # type: ignore[override]
        self, exclude_none: bool = True, exclude: Any | None = None, by_alias: bool = True, **kwargs: Any
    ) -> str:
        """Serialize as the specification names the fields, without an empty list of keys, as Java does. PyIceberg's own class refuses."""
        left_out = {*(exclude or ()), *(() if self.encryption_keys else ("encryption_keys",))}
        return IcebergBaseModel.model_dump_json(self, exclude_none=exclude_none, exclude=left_out, by_alias=by_alias, **kwargs)


def encrypted_metadata(plain: TableMetadata) -> EncryptedTableMetadata:
    """Return fresh version 3 metadata (as PyIceberg makes it for a new table) in the class that can hold keys."""
    fields = {**IcebergBaseModel.model_dump(plain), "format-version": 3}
    fields.setdefault("next-row-id", 0)
    return EncryptedTableMetadata.model_validate(fields)


def has_encryption_traces(metadata: EncryptedTableMetadata) -> bool:
    """Whether the metadata holds keys or names them: the table was encrypted, whatever its properties say now."""
    return bool(metadata.encryption_keys) or any(snapshot.key_id is not None for snapshot in metadata.snapshots)
