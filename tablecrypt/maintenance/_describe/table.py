"""One table, as its metadata says: columns and who holds them, layout, snapshots, keys. And its size, as its manifests say.

metadata.json is in the clear: all of this but the size needs no key, no master key of a column and no Java. For the size the manifest list
and the manifests of the current snapshot are opened. Where that is refused or fails, the description says so and has no size.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from tablecrypt import properties as names
from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import ConfigurationError, KeyIdChangedError, TablecryptError
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.keys.key_ring import is_kept_by_commits
from tablecrypt.keys.nested_columns import fields_in
from tablecrypt.maintenance._audit.columns import audited_column_keks
from tablecrypt.maintenance._audit.table_audit import created_at
from tablecrypt.maintenance.operation import EPOCH, moment_of
from tablecrypt.maintenance.reachable import FileKind, files_of_snapshot, kind_of
from tablecrypt.printable import AsJson
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.protection.policy import policy_of
from tablecrypt.table.table import is_encrypted
from tablecrypt.table.table_files import name_of

NOT_SHOWN: Final = "(not shown: it looks like a secret)"
_COUNT: Final = re.compile("[0-9]{1,18}")
_COUNTS: Final = {"rows_added": "added-records", "rows_deleted": "deleted-records", "rows": "total-records"}


@dataclass(frozen=True)
class DescribedColumn:
    """A column, or a field of one.

    Attributes:
        field_id: its id, which renames do not change.
        name: with the names of the columns around it: `person.email`.
        type: as Iceberg writes it; "struct", "list" or "map" where its fields are columns of their own here.
        required: whether it has no nulls.
        doc: its documentation.
        master_key_id: the master key without which it cannot be read; None where the table's is enough.
        mask: what readers see who may not use that key; None where it has none.
        former_key_id: the master key under which older files hold it, from when it was protected.
    """

    field_id: int
    name: str
    type: str
    required: bool
    doc: str | None = None
    master_key_id: str | None = None
    mask: str | None = None
    former_key_id: str | None = None


@dataclass(frozen=True)
class DescribedSortField:
    """One column of the sort order."""

    column: str
    transform: str
    direction: str
    null_order: str


@dataclass(frozen=True)
class DescribedPartitionField:
    """One field of the partition spec: its name in paths, and what of which column it is."""

    name: str
    column: str
    transform: str


@dataclass(frozen=True)
class DescribedRef:
    """A branch or a tag."""

    name: str
    kind: str
    snapshot_id: int


@dataclass(frozen=True)
class DescribedSnapshot:
    """A snapshot, with the counts of rows that its writer put into the summary; None where it put none there.

    Attributes:
        snapshot_id, parent_id: its own and its parent's.
        made: when; None where the metadata says what is no time.
        operation: append, overwrite, delete or replace.
        rows_added, rows_deleted: by this snapshot.
        rows: of the table then.
        refs: branches and tags that name it.
    """

    snapshot_id: int
    parent_id: int | None
    made: dt.datetime | None
    operation: str | None
    rows_added: int | None
    rows_deleted: int | None
    rows: int | None
    refs: tuple[str, ...] = ()


@dataclass(frozen=True)
class DescribedKek:
    """A KEK of the table, or of protected columns.

    Attributes:
        key_id: its entry in encryption-keys.
        master_key_id: the master key that wraps it.
        created: when; None where its entry has no such time.
        columns: the protected columns that it is for; empty for the table's.
    """

    key_id: str
    master_key_id: str | None
    created: dt.datetime | None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableSize:
    """What the current snapshot has.

    Attributes:
        data_files, data_bytes: files with rows, and their stored bytes.
        delete_files, delete_bytes: files with deletes, and their stored bytes. Deletion vectors that share a file count once.
        rows: in data files.
        deleted_rows: of these, those that deletes by position hide; None where there are deletes by value, whose rows are not counted.
    """

    data_files: int = 0
    data_bytes: int = 0
    delete_files: int = 0
    delete_bytes: int = 0
    rows: int = 0
    deleted_rows: int | None = 0


@dataclass(frozen=True)
class TableDescription(AsJson):
    """What is known of a table.

    Attributes:
        table: its name.
        encrypted: whether all that is written into it is encrypted.
        table_key_id: the master key that encryption.key-id names. A plain table that names one has never been migrated.
        format_version, table_uuid, location, metadata_location: as in its metadata.
        updated: when its metadata was last written; None where it says what is no time.
        columns: of the current schema, fields of structs, lists and maps too.
        partition_fields, sort_fields: empty where it is not partitioned or sorted.
        properties: with a note in place of each value that looks like a secret, and without copies of column entries and their marks.
        refs: branches and tags.
        snapshot_count: how many snapshots there are.
        snapshots: the newest of them, the newest first.
        keks: KEKs of the table and of its columns, the oldest first.
        size: of the current snapshot; None where it could not be found out.
        unread: what could not be read, by name or location, and why.
    """

    table: str
    encrypted: bool
    table_key_id: str | None
    format_version: int
    table_uuid: str
    location: str
    metadata_location: str
    updated: dt.datetime | None
    columns: tuple[DescribedColumn, ...]
    partition_fields: tuple[DescribedPartitionField, ...]
    sort_fields: tuple[DescribedSortField, ...]
    properties: dict[str, str]
    refs: tuple[DescribedRef, ...]
    snapshot_count: int
    snapshots: tuple[DescribedSnapshot, ...]
    keks: tuple[DescribedKek, ...] = ()
    size: TableSize | None = None
    unread: dict[str, str] = field(default_factory=dict)


@checked_arguments()
def describe(table: Table, snapshots: int = 10) -> TableDescription:
    """Describe a table, encrypted or plain. Nothing is changed, and no row is read.

    Args:
        table: as it was loaded.
        snapshots: how many of the newest snapshots to describe.

    Raises:
        ConfigurationError: `snapshots` is negative.
    """
    if snapshots < 0:
        raise ConfigurationError(f"snapshots is {snapshots}; it must be 0 or more")

    metadata = table.metadata
    unread: dict[str, str] = {}
    schema = metadata.schema()
    # By sequence number first, since the clocks of writers differ.
    newest = sorted(metadata.snapshots, key=lambda each: (each.sequence_number or 0, each.timestamp_ms), reverse=True)[:snapshots]

    return TableDescription(
        table=name_of(table),
        encrypted=is_encrypted(table),
        table_key_id=metadata.properties.get(names.KEY_ID.name),
        format_version=metadata.format_version,
        table_uuid=str(metadata.table_uuid),
        location=metadata.location,
        metadata_location=table.metadata_location,
        updated=_moment(metadata.last_updated_ms),
        columns=tuple(_columns(schema, _policy(metadata, unread))),
        partition_fields=tuple(
            DescribedPartitionField(each.name, _column_name(schema, each.source_id), str(each.transform)) for each in metadata.spec().fields
        ),
        sort_fields=tuple(_sort_fields(metadata, schema)),
        # metadata.json shows them all the same, but descriptions are what people paste elsewhere.
        properties={
            name: NOT_SHOWN if names.is_sensitive(name, value) else value
            for name, value in sorted(metadata.properties.items())
            if not (is_kept_by_commits(name) or name.startswith(names.SHARE.name))
        },
        refs=tuple(DescribedRef(name, each.snapshot_ref_type.value, each.snapshot_id) for name, each in sorted(metadata.refs.items())),
        snapshot_count=len(metadata.snapshots),
        snapshots=tuple(_snapshots(metadata, newest)),
        keks=tuple(sorted(_keks(metadata), key=lambda each: (each.created or EPOCH, each.key_id))),
        size=_size(table, unread),
        unread=unread,
    )


def _moment(milliseconds: int) -> dt.datetime | None:
    try:
        return moment_of(milliseconds)
    except OverflowError:
        return None


def _policy(metadata: TableMetadata, unread: dict[str, str]) -> ColumnPolicy:
    try:
        return policy_of(metadata)
    except (ConfigurationError, KeyIdChangedError) as error:
        # A broken property is when a description is needed: it says so, and shows the rest.
        unread["protected columns"] = str(error)
        return ColumnPolicy()


def _columns(schema: Schema, policy: ColumnPolicy) -> Iterator[DescribedColumn]:
    for each in schema.fields:
        yield from _column(each, each.name, policy)


def _column(column: NestedField, name: str, policy: ColumnPolicy) -> Iterator[DescribedColumn]:
    protected, former = policy.columns.get(column.field_id), policy.former.get(column.field_id)
    yield DescribedColumn(
        column.field_id,
        name,
        _type_name(column.field_type),
        column.required,
        column.doc,
        None if protected is None else protected.column_key_id,
        None if protected is None else str(protected.mask),
        None if former is None else former.key_id,
    )
    for below in fields_in(column.field_type):
        yield from _column(below, f"{name}.{below.name}", policy)


def _type_name(column_type: IcebergType) -> str:
    for nested, name in ((StructType, "struct"), (ListType, "list"), (MapType, "map")):
        if isinstance(column_type, nested):
            return name
    return str(column_type)


def _column_name(schema: Schema, field_id: int) -> str:
    return schema.find_column_name(field_id) or f"a dropped column, field {field_id}"


def _sort_fields(metadata: TableMetadata, schema: Schema) -> Iterator[DescribedSortField]:
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    for each in () if order is None else order.fields:
        yield DescribedSortField(_column_name(schema, each.source_id), str(each.transform), each.direction.value, each.null_order.value)


def _snapshots(metadata: TableMetadata, newest: list[Snapshot]) -> Iterator[DescribedSnapshot]:
    refs: defaultdict[int, list[str]] = defaultdict(list)
    for name, ref in sorted(metadata.refs.items()):
        refs[ref.snapshot_id].append(name)
    for each in newest:
        said = {} if each.summary is None else each.summary.additional_properties
        counts = {name: _count(said.get(key)) for name, key in _COUNTS.items()}
        operation = None if each.summary is None else each.summary.operation.value
        own_refs = tuple(refs[each.snapshot_id])
        yield DescribedSnapshot(each.snapshot_id, each.parent_snapshot_id, _moment(each.timestamp_ms), operation, **counts, refs=own_refs)


def _count(said: Any) -> int | None:
    # A summary is free, and may hold more than text: no more digits are parsed than a count can have.
    return int(said) if isinstance(said, str) and _COUNT.fullmatch(said) else None


def _keks(metadata: TableMetadata) -> Iterator[DescribedKek]:
    if not isinstance(metadata, EncryptedTableMetadata):
        return
    for kek in metadata.key_ring.keks:
        yield DescribedKek(kek.key_id, kek.encrypted_by_id, created_at(kek))
    for column_kek in audited_column_keks(metadata, created_at):
        yield DescribedKek(column_kek.key_id, column_kek.encrypted_by_id, column_kek.created, tuple(dict.fromkeys(column_kek.columns)))


def _size(table: Table, unread: dict[str, str]) -> TableSize | None:
    snapshot = table.metadata.current_snapshot()
    if snapshot is None:
        return TableSize()

    try:
        files, unopened = files_of_snapshot(table.metadata, table.io, snapshot)
    except TablecryptError as error:
        # A reader without the table's key still gets the rest.
        unread[snapshot.manifest_list] = str(error)
        return None

    unread.update({each.location: str(each.error) for each in unopened})

    # A sum over the manifests that opened would look like the whole table.
    return None if unopened else _sum(files)


def _sum(files: list[DataFile]) -> TableSize:
    data = [each for each in files if each.content == DataFileContent.DATA]
    deletes = [each for each in files if each.content != DataFileContent.DATA]
    by_value = any(kind_of(each) == FileKind.EQUALITY_DELETES for each in deletes)
    stored_deletes = {each.file_path: each.file_size_in_bytes for each in deletes}

    return TableSize(
        data_files=len(data),
        data_bytes=sum(each.file_size_in_bytes for each in data),
        delete_files=len(stored_deletes),
        delete_bytes=sum(stored_deletes.values()),
        rows=sum(each.record_count for each in data),
        deleted_rows=None if by_value else sum(each.record_count for each in deletes),
    )
