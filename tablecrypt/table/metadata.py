"""Table metadata of format version 3 that keeps what encryption needs: `encryption-keys` and each snapshot's `key-id`.

    metadata.json
      ├── encryption-keys [ EncryptedKey … ]       see keys/key_ring.py
      ├── next-row-id                              always written; the next snapshot's first-row-id
      └── snapshots [ { …, first-row-id, added-rows, key-id } … ]

PyIceberg's models drop both encryption fields and refuse to write version 3. These subclasses keep and write them, and change nothing else:
update functions, evaluators and catalogs take them as what they are, a TableMetadataV3 and a Snapshot. metadata.json itself is
plaintext and not authenticated; the header of the encrypted manifest list is, so `EncryptedSnapshot.manifests` compares the two.

A file is read once, hashed, checked, and parsed into the class that its content calls for:

    <version>-<uuid>.metadata.json      JSON
    <version>-<uuid>.gz.metadata.json   gzip of the JSON

The digest is SHA-256, in hexadecimal, over the uncompressed JSON, so that it is the same for both.

What must hold of an encrypted table's document, before anything that it says is compared or used:

    keys        each is one that Iceberg Java hashes, in its spelling, and stands once in its object. PyIceberg's models also read Python's
                spelling (initial_default) and skip what they do not know; readers differ in which of two equal keys counts. So without
                this, what is parsed and what a hash was made of could be two things. What version 3 requires is there: PyIceberg's
                models make up what is missing, such as another table-uuid at each load, or schema 0 as the current one.
    entries     no two snapshots, schemas, specs, sort orders or encryption keys have one id, no two statistics files one snapshot
    columns     no two of a schema have one field id, by which columns are protected, and none has one above last-column-id, which another
                column would get next
    snapshots   current-snapshot-id names one that is there, and it is where `main` and the last entry of the snapshot log point

PyIceberg reads tables that are not encrypted, and none of this is asked of them. The checks are pure: a document or metadata in, an error
or nothing out.

What was parsed is kept in the process, so that a commit need not parse again what was loaded just before. Loading a table reads its
metadata.json and hashes it, always; what was parsed is kept under that hash. So a file that was edited, or put back, is parsed and checked
like any other, and what the pins say of a hash is asked in either case. Nothing of it is secret: metadata.json is plaintext, and the keys
in it are wrapped. Commits keep what they have written, which the next commit would read. The longest unused goes first. A forked child
starts with an empty cache.

Iceberg table spec, "Table Metadata Fields", "Snapshots", "Encryption Keys".
"""

from __future__ import annotations

import gc
import hashlib
import os
import re
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NoReturn, Self, TypeAlias

from pydantic import Field, PrivateAttr, field_serializer, model_validator
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO, InputFile
from pyiceberg.manifest import ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.serializers import Compressor
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV3
from pyiceberg.table.name_mapping import parse_mapping_from_json
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import IsolationLevel, Operation, Snapshot
from pyiceberg.typedef import IcebergBaseModel
from pyiceberg.types import NestedField

from tablecrypt import properties
from tablecrypt._bytes import DECOMPRESSED_RATIO, SMALL_DECOMPRESSED
from tablecrypt._parsed_json import ParsedJson, problem_of
from tablecrypt._per_process import SizeBoundedCache
from tablecrypt._store_errors import reraise_naming
from tablecrypt.arguments import described, interruptible
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError, PlaintextRefusedError, TamperedFileError
from tablecrypt.files.deletion import DeletionScope, ParsedLocation
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, refusing_made_up
from tablecrypt.files.raw_output import TABLE_METADATA_SUFFIXES
from tablecrypt.iceberg_properties import ISOLATION_LEVELS
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.keys.key_ring import EncryptedKey, KeyRing, entries_with_copies, is_copy
from tablecrypt.keys.nested_columns import field_ids
from tablecrypt.manifests.entries import known_manifest_list
from tablecrypt.manifests.manifest_list import ManifestList, ManifestListHeader, read_manifest_list
from tablecrypt.manifests.table_state import StatedLayout, StatedTable, other_type
from tablecrypt.table._pyiceberg.statistics import AnyStatisticsFile
from tablecrypt.table._pyiceberg.transactions import private_attributes, replace_counts
from tablecrypt.table.canonical_metadata import unknown_keys
from tablecrypt.table.table_files import TableFileIO

REQUIRED_KEYS: Final = (
    *("format-version", "table-uuid", "location", "last-sequence-number", "last-updated-ms", "last-column-id", "schemas"),
    *("current-schema-id", "partition-specs", "default-spec-id", "last-partition-id", "sort-orders", "default-sort-order-id"),
)
"""Iceberg table spec, "Table Metadata Fields", version 3."""
_LAST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_LARGEST_ID: Final = 2**31 - 202
"""Of a column, schema, spec or order: the next one is an int still, and none of the field ids that the specification reserves."""
_LARGEST_COUNT: Final = 2**62
_FILE_LOCATION: Final = re.compile(r"(?:[^\x00-\x1f\x7f]*/)?[^/\x00-\x1f\x7f]{1,255}")
_LONGEST_LOCATION: Final = 4096
_SHOWN: Final = 80
ListReader: TypeAlias = Callable[[EncryptingFileIO, str, StandardKeyMetadata], ManifestList]
_GZIP_SUFFIXES: Final = (".gz.metadata.json", ".metadata.json.gz")
_GZIP: Final = 31
"""zlib's window bits for a gzip stream of any window."""
MOST_KEPT_BYTES: Final = 32 * 1024 * 1024
"""How many bytes of JSON all that is kept was at most: 30,000 snapshots of one table. Parsed, they take several times as much."""


@dataclass(frozen=True, slots=True)
class _Binding:
    """The metadata that a snapshot is part of: its keys, its schemas and partition specs; and the header that was read with them."""

    ring: KeyRing
    layout: StatedLayout | None = None
    header: ManifestListHeader | None = None


_UNBOUND: Final = _Binding(KeyRing())


class EncryptedSnapshot(Snapshot):
    """A snapshot whose manifest list is an AGS1 stream under the key that `key-id` names."""

    key_id: str | None = Field(alias="key-id", default=None)
    # One attribute: pydantic makes each by itself, and a long history has thousands of snapshots.
    _binding: _Binding = PrivateAttr(default_factory=lambda: _UNBOUND)

    def model_post_init(self, context: Any, /) -> None:
        """Make the summary one that does not change: metadata that is loaded again, and the next commit's, has this snapshot too."""
        super().model_post_init(context)
        if self.summary is not None:
            replace_counts(self.summary, Unchanging)

    def bound_to(self, ring: KeyRing, layout: StatedLayout | None = None) -> Self:
        """Return this snapshot with the keys of the metadata that it is part of, and its schemas and partition specs.

        A key that is missing is reported when it is needed. Without a layout, the one that it had stays.
        """
        bound = self.model_copy()
        bound._binding = _Binding(ring, layout or self._binding.layout)
        return bound

    def first_bound_to(self, ring: KeyRing, layout: StatedLayout) -> Self:
        """Return what `bound_to` does: this snapshot itself where no other metadata has it yet, as when it was just parsed."""
        if private_attributes(self)["_binding"] is not _UNBOUND:
            return self.bound_to(ring, layout)
        self._binding = _Binding(ring, layout)
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EncryptedSnapshot) and self.__dict__ == other.__dict__

    __hash__ = Snapshot.__hash__

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self

    def key_id_of_list(self) -> str:
        """Return the id of the key of the manifest list. PlaintextRefusedError: the snapshot has none."""
        # PyIceberg would read the list as plaintext, and any writer of the storage could put one there.
        if self.key_id is None:
            raise PlaintextRefusedError(
                self.manifest_list, f"snapshot {self.snapshot_id} has no key-id: its manifest list is not encrypted"
            )
        return self.key_id

    def manifests(self, io: FileIO) -> list[ManifestFile]:
        """Read and authenticate this snapshot's manifest list.

        Raises:
            PlaintextRefusedError: the snapshot has no key-id, or the file is not encrypted.
            KeyNotFoundError: the metadata holds no key of that id, or not the KEK above it.
            TamperedFileError: the list does not authenticate, or its header contradicts the metadata.
            FormatError: what the header says of the table cannot be read.
        """
        return self._stated(self._read(io, read_manifest_list))

    def manifests_to_plan(self, io: FileIO) -> list[ManifestFile]:
        """Return what `manifests` does, of a list that this process has read before without reading it again. Raises as `manifests`."""
        return self._stated(self._read(io, known_manifest_list))

    def authenticated_header(self, io: FileIO) -> ManifestListHeader:
        """Read and authenticate this snapshot's manifest list, and return what it says about the snapshot. Raises as `manifests`."""
        return self._read(io, read_manifest_list).header

    def known_header(self, io: FileIO) -> ManifestListHeader:
        """Return the authenticated header as it was read before from this object, or read it. Raises as `manifests`."""
        return self._binding.header or self.authenticated_header(io)

    def _stated(self, manifest_list: ManifestList) -> list[ManifestFile]:
        layout, rows = self._binding.layout, manifest_list.manifests
        return list(rows) if layout is None else [row.stated_by(layout) for row in rows]

    def _read(self, io: FileIO, read: ListReader) -> ManifestList:
        if not isinstance(io, TableFileIO):
            raise PlaintextRefusedError(self.manifest_list, "an encrypted snapshot is read through its table's own FileIO only")

        key_metadata = io.manager.decrypt_manifest_list_key_metadata(self._binding.ring.chain(self.key_id_of_list()))
        with refusing_made_up(self.manifest_list, io.own_folders):
            manifest_list = read(io, self.manifest_list, key_metadata)
        self.check_list(manifest_list)
        # Kept only after both checks: `known_header` returns it without checking again.
        self._binding = replace(self._binding, header=manifest_list.header)

        return manifest_list

    def check_list(self, manifest_list: ManifestList) -> None:
        """Hold what the metadata says of this snapshot against its authenticated manifest list. TamperedFileError where they differ."""
        self._check_header(manifest_list.header)
        self._check_table_state(manifest_list)

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

    def _check_table_state(self, manifest_list: ManifestList) -> None:
        state, layout = manifest_list.header.table_state, self._binding.layout
        if state is None or layout is None or layout.table is None:
            return

        layout.table.check(state, {row.partition_spec_id for row in manifest_list.manifests}, self.manifest_list)
        # Time travel reads by this schema. A server may leave the id out, which the specification lets it.
        if self.schema_id not in (None, state.schema.id):
            raise TamperedFileError(
                self.manifest_list,
                f"schema-id is {state.schema.id} in the authenticated manifest list, but {self.schema_id} in the table metadata",
            )


def isolation_of(properties: Mapping[str, str], command: str) -> IsolationLevel:
    """Return what others may do while a delete, an update or a merge runs, as write.COMMAND.isolation-level says.

    Raises:
        ConfigurationError: it is neither serializable nor snapshot.
    """
    return IsolationLevel(ISOLATION_LEVELS[command].chosen(properties))


class EncryptedTableMetadata(TableMetadataV3):
    """Version 3 table metadata with its encryption keys."""

    snapshots: list[EncryptedSnapshot] = Field(default_factory=list)  # type: ignore[assignment]
    statistics: list[AnyStatisticsFile] = Field(default_factory=list)  # type: ignore[assignment]
    encryption_keys: list[EncryptedKey] = Field(alias="encryption-keys", default_factory=list)
    _read_at: int | None = PrivateAttr(default=None)

    @property
    def read_at(self) -> int | None:
        """The sequence number of the snapshot by whose own schema rows are read; None where the schema is the table's."""
        return self._read_at

    def with_schema_of(self, schema_id: int, sequence_number: int | None) -> Self:
        """Return the metadata by which a snapshot is read that has a schema and a sequence number of its own."""
        changed = self.model_copy(update={"current_schema_id": schema_id})
        changed._read_at = sequence_number
        return changed

    def isolation_level(self, operation: Operation | IsolationLevel) -> IsolationLevel:
        """Return the isolation level of an operation, as the properties say; a level stands for itself. Raises as `isolation_of`."""
        if isinstance(operation, IsolationLevel):
            return operation
        return isolation_of(self.properties, "update" if operation == Operation.OVERWRITE else "delete")

    @model_validator(mode="after")
    def _bind_snapshots(self) -> Self:
        # In place, as the model is frozen: the list is this model's own. Copies of 10,000 snapshots would take half of the time of a load.
        ring, layout = self.key_ring, self.stated_layout
        self.snapshots[:] = [snapshot.first_bound_to(ring, self._layout_of(snapshot, layout)) for snapshot in self.snapshots]
        return self

    def _layout_of(self, snapshot: Snapshot, layout: StatedLayout) -> StatedLayout:
        # As PyIceberg reads them: the current snapshot with the current schema, another with its own.
        return layout if snapshot.snapshot_id == self.current_snapshot_id else layout.read_with(snapshot.schema_id)

    def as_read(self) -> Self:
        """Return this metadata as it will be read once it is written. Updates leave older snapshots with the keys that they had before."""
        ring, layout = self.key_ring, self.stated_layout
        snapshots = [snapshot.bound_to(ring, self._layout_of(snapshot, layout)) for snapshot in self.snapshots]
        return self.model_copy(update={"snapshots": snapshots, "properties": dict(self.properties)})

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
        """The keys of this version of the metadata: `encryption-keys`, and copies of column entries that it lacks."""
        entries = entries_with_copies(self.encryption_keys, self.properties)
        return KeyRing(entries, self._name_of, self._fields_of, str(self.table_uuid))

    def _name_of(self, field_id: int) -> str | None:
        """Return a column's name in the current schema, else in the newest that has it."""
        schemas = (self.schema(), *reversed(self.schemas))
        return next((name for schema in schemas if (name := schema.find_column_name(field_id)) is not None), None)

    def _fields_of(self, field_id: int) -> list[NestedField]:
        """Return what a column is in each schema that has it."""
        return [schema.find_field(field_id) for schema in self.schemas if schema.find_column_name(field_id) is not None]

    @property
    def stated_layout(self) -> StatedLayout:
        """The schemas and partition specs of this version of the metadata, to hold manifests and their lists against."""
        table = StatedTable(self.table_uuid, self.schemas, self.partition_specs, self.sort_orders)
        named = frozenset(each.schema_id for each in self.snapshots)
        return StatedLayout(self.schemas, self.current_schema_id, self.partition_specs, table, named)

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
        """Return what a worker process needs to read and write data files: no snapshots, and of keys the wrapped ones of columns alone."""
        nothing: dict[str, Any] = {"current_snapshot_id": None, "refs": {}}
        lists = ("snapshots", "snapshot_log", "metadata_log", "statistics", "partition_statistics")
        of_columns = [key for key in self.key_ring.entries if key.is_of_columns]
        properties = {name: value for name, value in self.properties.items() if not is_copy(name)}
        kept = {"encryption_keys": of_columns, "properties": properties}
        return self.model_copy(update=nothing | {name: [] for name in lists} | kept)

    def model_dump_json(  # type: ignore[override]
        self, exclude_none: bool = True, exclude: Any | None = None, by_alias: bool = True, **kwargs: Any
    ) -> str:
        """Serialize as the specification names the fields, without an empty list of keys, as Java does. PyIceberg's own class refuses."""
        left_out = {*(exclude or ()), *(() if self.encryption_keys else ("encryption_keys",))}
        with interruptible():
            return IcebergBaseModel.model_dump_json(self, exclude_none=exclude_none, exclude=left_out, by_alias=by_alias, **kwargs)


def check_types(metadata: TableMetadata, snapshot_id: int | None) -> None:
    """Check that the current schema reads a snapshot, so that it can be current and that rows can be written on top of it.

    Raises:
        ConfigurationError: a column of the snapshot's own schema has a type there that has nothing to do with that of now.
    """
    own = _older_schema(metadata, _snapshot(metadata, snapshot_id))
    if own is not None and (other := other_type(own, metadata.schema())) is not None:
        raise ConfigurationError(
            f"{metadata.location}: column {other.name} is {other.before} in snapshot {snapshot_id}, and {other.now} since the table was "
            "replaced, which it cannot be read as. Read that snapshot by its id, or write its rows to another table"
        )


def readable_at(metadata: TableMetadata, snapshot_id: int | None, *, as_now: bool = False) -> TableMetadata:
    """Return the metadata by whose current schema a snapshot is read, and names in filters are understood, as in Iceberg Java.

    Args:
        metadata: the table's.
        snapshot_id: None for the current snapshot.
        as_now: read it by the table's schema, as the head of a branch is, to which rows are written with these columns; where their types
            are others now, by its own all the same.
    """
    snapshot = _snapshot(metadata, snapshot_id)
    own = _older_schema(metadata, snapshot)
    if snapshot is None or own is None or (as_now and other_type(own, metadata.schema()) is None):
        return metadata
    if not isinstance(metadata, EncryptedTableMetadata):
        return metadata.model_copy(update={"current_schema_id": own.schema_id})
    return metadata.with_schema_of(own.schema_id, snapshot.sequence_number)


def _snapshot(metadata: TableMetadata, snapshot_id: int | None) -> Snapshot | None:
    return None if snapshot_id is None else metadata.snapshot_by_id(snapshot_id)


def _older_schema(metadata: TableMetadata, snapshot: Snapshot | None) -> Schema | None:
    """Return the schema that a snapshot names; None where that is the current one, or is not known."""
    if snapshot is None or snapshot.schema_id is None or snapshot.schema_id == metadata.current_schema_id:
        return None
    return metadata.schema_by_id(snapshot.schema_id)


def encrypted_metadata(plain: TableMetadata) -> EncryptedTableMetadata:
    """Return fresh version 3 metadata (as PyIceberg makes it for a new table) in the class that can hold keys."""
    fields = {**IcebergBaseModel.model_dump(plain), "format-version": 3}
    fields.setdefault("next-row-id", 0)
    return EncryptedTableMetadata.model_validate(fields)


def has_column_keys(metadata: TableMetadata) -> bool:
    """Whether a column of the table is or was protected, by its properties or its keys."""
    ring = metadata.key_ring if isinstance(metadata, EncryptedTableMetadata) else KeyRing()
    policy = ColumnPolicy.from_properties(metadata.properties)
    return bool(policy or policy.former or ring.column_keys)


def has_encryption_traces(metadata: EncryptedTableMetadata) -> bool:
    """Whether the metadata holds keys or names them: the table was encrypted, whatever its properties say now."""
    return bool(metadata.encryption_keys) or any(snapshot.key_id is not None for snapshot in metadata.snapshots)


@dataclass(frozen=True)
class MetadataFile:
    """The uncompressed JSON of a metadata.json, and where it is."""

    location: str
    content: bytes

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the JSON, in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def table_uuid(self) -> uuid.UUID:
        """Whose metadata it is, also where a newer Iceberg wrote it than `parse` reads: the files of that table are its own all the same.

        Raises:
            FormatError: the bytes are not JSON, or not table metadata.
        """
        try:
            document = ParsedJson(self.content).document
            stated = document.get("table-uuid") if isinstance(document, dict) and "format-version" in document else None
            if isinstance(stated, str):
                return uuid.UUID(stated)
        except ValueError as error:
            raise FormatError(f"{self.location}: not readable as table metadata: {problem_of(error)}") from error

        # That of version 1 may be missing.
        return self.parse().table_uuid

    def parse(self) -> TableMetadata:
        """Return version 3 metadata with everything that encryption needs, other versions as PyIceberg reads them.

        An encrypted table's is parsed and checked once, and kept in `PARSED`.

        Raises:
            FormatError: the bytes are not JSON, or not table metadata of a known version; or they are an encrypted table's and hold a key
                that is not read or not hashed (`check_keys`).
        """
        if (known := PARSED.get(self.digest)) is not None:
            return known

        with _collector_paused():
            return self._parsed()

    def _parsed(self) -> TableMetadata:
        try:
            parsed = ParsedJson(self.content)
            metadata = _validated(parsed.document)
        except UNREADABLE as error:
            raise FormatError(f"{self.location}: not readable as table metadata: {problem_of(error)}") from error

        if is_encrypted_tables(metadata):
            check_keys(self.location, parsed, parsed.document)
            # Kept only after the check, which a kept copy does not go through again.
            PARSED.put(self.digest, metadata, len(self.content))

        return metadata


UNREADABLE: Final = (ValueError, TypeError, AttributeError, LookupError, RuntimeError, ValidationError)
"""What comes of parsing what is no table metadata: PyIceberg's models use some values before they have checked what they are."""


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause Python's garbage collector: while a long history is made, it would look through all of it again and again, and free nothing."""
    if not gc.isenabled():
        yield
        return

    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _validated(document: Any) -> TableMetadata:
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    # Said here, since PyIceberg's error would show the document: a file that is no metadata may be one of keys.
    if "format-version" not in document:
        raise ValueError("it has no format-version")
    if not isinstance(document.get("properties", {}), dict):
        raise ValueError("its properties are no JSON object")
    # Validating changes the object at the top.
    fields = dict(document)
    return EncryptedTableMetadata.model_validate(fields) if fields.get("format-version") == 3 else TableMetadataUtil.parse_obj(fields)


def check_metadata_location(location: str) -> None:
    """Refuse what a user gives for the location of a metadata file.

    Raises:
        ConfigurationError: it is no text, or blank: that would be the current folder.
    """
    given: object = location
    if not isinstance(given, str):
        raise ConfigurationError(f"the location of a metadata file is {described(given)}; it must be text")
    if not location.strip():
        raise ConfigurationError("the location of a metadata file is blank: write that of the table's newest metadata.json")


def read_metadata_file(file: InputFile) -> MetadataFile:
    """Read a metadata.json.

    Raises:
        FormatError: it is a folder; or its name says gzip, and it is not, or it holds more than `decompressed` allows.
    """
    try:
        with file.open() as stream:
            return MetadataFile(file.location, decompressed(file.location, bytes(stream.read())))
    except OSError as error:
        # Arrow's error of a folder has no type of its own.
        if not os.path.isdir(file.location.removeprefix("file://")):
            reraise_naming(error, file.location)
        raise FormatError(f"{file.location} is a folder: write the location of the newest metadata.json in it") from error


def read_named_metadata_file(io: FileIO, location: str, own_folders: DeletionScope) -> MetadataFile:
    """Read a metadata file that other metadata names, or that lies in a table's folder: the name, or the file, may be made up.

    Args:
        io: the store's own.
        location: of the file.
        own_folders: of the table. What the store says of a file outside of them is an error of the name.

    Raises:
        FormatError: it is no metadata file by its name, its spelling or its content; or lies elsewhere and cannot be read.
        FileNotFoundError: it is not there.
    """
    if not location.endswith(TABLE_METADATA_SUFFIXES):
        raise FormatError(f"{location}: not named as a metadata file is")

    try:
        ParsedLocation.of(location)
    except ConfigurationError as error:
        raise FormatError(str(error)) from error

    with refusing_made_up(location, own_folders):
        return read_metadata_file(io.new_input(location))


def decompressed(location: str, stored: bytes, may_be_cut: bool = False) -> bytes:
    """Return the JSON of a metadata file's bytes: those of a gzip stream where its name says so, else as they are.

    The result is bounded: 32 MiB, or 64 times the bytes that are stored where that is more.

    Args:
        location: names the compression.
        stored: the file's bytes.
        may_be_cut: whether to return what half a stream, or none, says.

    Raises:
        FormatError: its name says gzip, and it is not, or it holds more.
    """
    if not location.endswith(_GZIP_SUFFIXES):
        return stored

    limit = max(SMALL_DECOMPRESSED, DECOMPRESSED_RATIO * len(stored))
    found, rest = bytearray(), stored

    try:
        while rest:
            stream = zlib.decompressobj(_GZIP)
            found += stream.decompress(rest, limit + 1 - len(found))
            if len(found) > limit:
                raise FormatError(f"{location}: {len(stored)} bytes of gzip decompress to more than {limit}, which no metadata file does")
            if not stream.eof:
                raise EOFError("the stream ends before its end")

            # gzip allows several members, with zeros behind them: other readers take them all, and the hash has to cover the same JSON.
            rest = stream.unused_data.lstrip(b"\0")
    except (zlib.error, EOFError) as error:
        if may_be_cut:
            return bytes(found) or stored
        raise FormatError(f"{location}: not readable as gzip: {error}") from error

    return bytes(found)


def write_metadata_file(metadata: TableMetadata, io: FileIO, location: str) -> MetadataFile:
    """Write a new metadata.json, compressed where its name says so. Where that fails, none is left: half of it would keep keys."""
    try:
        content = metadata.model_dump_json().encode()
    except ValueError as error:
        raise FormatError(
            f"{location}: a property or a comment holds text that UTF-8 cannot, so no metadata is written: {error}"
        ) from error

    stored = Compressor.get_compressor(location).bytes_compressor()(content)
    try:
        _write_whole(io, location, stored)
    except OSError as error:
        reraise_naming(error, location)

    return MetadataFile(location, content)


def _write_whole(io: FileIO, location: str, stored: bytes) -> None:
    # A file that is there already is refused here, and not deleted below: it is another's.
    stream = io.new_output(location).create()
    try:
        with stream:
            stream.write(stored)
    except BaseException:
        # What the write says is what the caller needs to know.
        with suppress(Exception):
            io.delete(location)
        raise


def changed_metadata(metadata: EncryptedTableMetadata, changed: Mapping[str, Any]) -> EncryptedTableMetadata:
    """Return metadata with other fields, parsed again as a reader will: `model_copy` checks nothing."""
    return EncryptedTableMetadata.model_validate_json(metadata.model_copy(update=changed).model_dump_json())


def is_encrypted_tables(metadata: TableMetadata) -> bool:
    """Whether metadata is that of an encrypted table, or shows that it was."""
    return isinstance(metadata, EncryptedTableMetadata) and (
        properties.KEY_ID.name in metadata.properties or has_encryption_traces(metadata)
    )


def check_keys(where: str, parsed: ParsedJson, document: Any) -> None:
    """Refuse keys that a reader of an encrypted table's metadata would skip, or that another reader takes for something else.

    Args:
        where: names the document.
        parsed: of what it is a part.
        document: the metadata.

    Raises:
        FormatError: a key is not Iceberg's, is spelled in Python's way, stands twice, or is missing.
    """
    for key in REQUIRED_KEYS:
        if document.get(key) is None:
            raise FormatError(f"{where}: the key {key!r} is missing, which table metadata of version 3 requires. Restore it from a copy")
    for key in parsed.repeated:
        raise FormatError(
            f"{where}: the key {key[:_SHOWN]!r} occurs twice in one object, and readers disagree on which of the two counts. "
            "No writer of Iceberg does that: somebody edited it. Restore it from a copy"
        )

    for path in unknown_keys(document):
        name = path.rpartition(".")[2]
        spelled = f" (Iceberg spells it {name.replace('_', '-')!r})" if "_" in name else ""
        raise FormatError(
            f"{where}: the key {path[-_SHOWN:]!r} is not one of Iceberg's table metadata that this version knows{spelled}. Somebody "
            "edited it, or a newer Iceberg wrote it: an encrypted table is not opened while a part of its metadata is not understood. "
            "Restore it, or upgrade tablecrypt"
        )


def check_whole(location: str, metadata: EncryptedTableMetadata) -> None:
    """Check that the parts of an encrypted table's metadata fit together, so that no reader takes a full table for an empty one.

    Raises:
        TamperedFileError: two entries have one id, or two columns of a schema, or a column one that was not assigned; a snapshot is its own
            ancestor, or the current snapshot is not there, or is not that of `main` or of the log; or a snapshot is of a time that no
            calendar has, or its manifest list has a name that no file has.
        ConfigurationError: its name mapping cannot be read.
    """
    for snapshot in metadata.snapshots:
        if not 0 <= snapshot.timestamp_ms <= _LAST_MS:
            raise TamperedFileError(location, f"snapshot {snapshot.snapshot_id} has the time {snapshot.timestamp_ms} ms, which is no date")
        if len(snapshot.manifest_list) > _LONGEST_LOCATION or not _FILE_LOCATION.fullmatch(snapshot.manifest_list):
            named = snapshot.manifest_list[:_SHOWN]
            raise TamperedFileError(location, f"snapshot {snapshot.snapshot_id} names the manifest list {named!r}, which is no file's name")

    _check_ids(location, metadata)
    _check_numbers(location, metadata)
    _check_columns(location, metadata)
    _check_ancestors(location, metadata)
    _check_current_snapshot(location, metadata)
    check_name_mapping(metadata.properties)


def check_name_mapping(table_properties: Mapping[str, object]) -> None:
    """Check the property by which columns of files without field ids get theirs.

    Raises:
        ConfigurationError: it is there and cannot be read.
    """
    name = TableProperties.DEFAULT_NAME_MAPPING
    try:
        if mapping := table_properties.get(name):
            parse_mapping_from_json(str(mapping))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"the property {name} is not a name mapping ({type(error).__name__}): {str(mapping)[:80]!r}. Set it again, or remove it"
        ) from None


def _check_ids(location: str, metadata: EncryptedTableMetadata) -> None:
    ids: dict[str, Iterable[int | str]] = {
        "snapshots have the id": (each.snapshot_id for each in metadata.snapshots),
        "schemas have the id": (each.schema_id for each in metadata.schemas),
        "partition specs have the id": (each.spec_id for each in metadata.partition_specs),
        "sort orders have the id": (each.order_id for each in metadata.sort_orders),
        "encryption keys have the key-id": (each.key_id for each in metadata.encryption_keys),
        "statistics files are of snapshot": (each.snapshot_id for each in metadata.statistics),
        "partition statistics files are of snapshot": (each.snapshot_id for each in metadata.partition_statistics),
    }
    for what, found in ids.items():
        seen: set[int | str] = set()
        for each in found:
            # Readers differ in which of two equal ids they take, so two clients would see two tables.
            if each in seen:
                raise TamperedFileError(location, f"two {what} {str(each)[:_SHOWN]}: no writer of Iceberg does that")
            seen.add(each)


def _check_numbers(location: str, metadata: EncryptedTableMetadata) -> None:
    """Refuse numbers from which the next commit could not count on: what it writes nobody could read."""
    ids = {
        "last-column-id": metadata.last_column_id,
        "last-partition-id": metadata.last_partition_id or 0,
        "schema-id": max((each.schema_id for each in metadata.schemas), default=0),
        "spec-id": max((each.spec_id for each in metadata.partition_specs), default=0),
        "order-id": max((each.order_id for each in metadata.sort_orders), default=0),
    }
    counts = {"next-row-id": metadata.next_row_id or 0, "last-sequence-number": metadata.last_sequence_number}
    for numbers, bound in ((ids, _LARGEST_ID), (counts, _LARGEST_COUNT)):
        for name, number in numbers.items():
            if number > bound:
                raise TamperedFileError(location, f"its {name} is {number}: no writer of Iceberg has counted that far")


def _check_columns(location: str, metadata: EncryptedTableMetadata) -> None:
    for schema in metadata.schemas:
        if (twice := id_of_two_columns(schema)) is not None:
            raise TamperedFileError(
                location, f"two columns of schema {schema.schema_id} have the id {twice}: no writer of Iceberg does that"
            )
        if (highest := max(_ids_of(schema), default=0)) > metadata.last_column_id:
            raise TamperedFileError(
                location, f"last-column-id is {metadata.last_column_id}, but schema {schema.schema_id} has column {highest}"
            )


def _ids_of(schema: Schema) -> list[int]:
    # Asked at each load, and most tables have no columns in columns.
    if all(each.field_type.is_primitive for each in schema.fields):
        return [each.field_id for each in schema.fields]
    return field_ids(schema)


def id_of_two_columns(schema: Schema) -> int | None:
    """Return a field id that two columns of a schema have; None where there is none."""
    seen: set[int] = set()
    for each in _ids_of(schema):
        # What protects the one, or gives it its name, would be looked up for the other.
        if each in seen:
            return each
        seen.add(each)
    return None


def _check_ancestors(location: str, metadata: EncryptedTableMetadata) -> None:
    parents = {each.snapshot_id: each.parent_snapshot_id for each in metadata.snapshots}
    ended: set[int | None] = set()
    for snapshot_id in parents:
        way: dict[int | None, None] = {}
        step: int | None = snapshot_id
        while step in parents and step not in ended:
            # Whatever looks for a snapshot among ancestors walks from parent to parent, and would never arrive.
            if step in way:
                raise TamperedFileError(location, f"snapshot {step} is an ancestor of itself: no writer of Iceberg does that")
            way[step] = None
            step = parents[step]

        ended.update(way)


def _check_current_snapshot(location: str, metadata: EncryptedTableMetadata) -> None:
    current, main = metadata.current_snapshot_id, metadata.refs.get(MAIN_BRANCH)
    if current is not None and metadata.snapshot_by_id(current) is None:
        raise TamperedFileError(location, f"current-snapshot-id is {current}, but no such snapshot exists: the table would look empty")
    if (None if main is None else main.snapshot_id) != current:
        raise TamperedFileError(
            location, f"current-snapshot-id is {current}, but main points to snapshot {None if main is None else main.snapshot_id}"
        )

    log = metadata.snapshot_log
    if current is not None and log and log[-1].snapshot_id != current:
        raise TamperedFileError(location, f"current-snapshot-id is {current}, but the snapshot log ends with {log[-1].snapshot_id}")


class Unchanging(dict[str, str]):
    """The counts and notes of a snapshot's summary. PyIceberg's can be set, and the next commit would write what was set."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("the summary of a snapshot that is committed does not change")

    __setitem__ = __delitem__ = __ior__ = update = pop = popitem = clear = setdefault = _refuse

    def __reduce__(self) -> tuple[type[Unchanging], tuple[dict[str, str]]]:
        return Unchanging, (dict(self),)


class MetadataCache(SizeBoundedCache[str, TableMetadata]):
    """Parsed metadata by the hash of its JSON."""

    def get(self, digest: str) -> TableMetadata | None:
        """Return metadata that is kept. Its lists and dicts are the caller's own; their items are shared, and immutable."""
        return deepcopy(self.find(digest))

    def put(self, digest: str, metadata: TableMetadata, size: int) -> None:
        """Keep the metadata of an encrypted table, parsed from JSON of this hash and `size` bytes."""
        if size <= MOST_KEPT_BYTES:
            self.keep(digest, deepcopy(metadata), size, MOST_KEPT_BYTES)


PARSED: Final = MetadataCache()
