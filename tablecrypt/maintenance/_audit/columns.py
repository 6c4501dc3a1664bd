"""What an audit reports of protected columns: files with one under the table's key, wrong keys, and a changed engine write barrier.

The footer of a file, which the file's DEK opens, says whether the file has a column, and whether it has a hidden column for it. So an audit
needs no right to the columns' keys. Footers are read only of tables that have protected columns.

    the file has the column, and no hidden column       its values are under the table's key: older than the protection, or written by Java
    the file is Avro                                    likewise, of each protected column
    it is a delete file that copies more of its rows    likewise, of what it does not compare
    its manifest entry has metrics of the column        readers of manifests know bounds or counts, with or without the file
    the hidden column names a column key that is gone   the column was shredded, or an edit removed the entry

If a file lacks the hidden column and is not from before, the column is decoded: where it shows the column's mask in every row, masks became
values.

Values of protected columns may also lie outside of the columns, in partitions of earlier specs and in equality deletes:

    the spec of a data or delete file has a field of the column       its value is in the file's entry, and mostly in its name
    the spec of a manifest has one                                    a summary in the manifest list, and entries of deleted files, have it
    a folder of the file is named by such a field                     the name shows the value, whatever the file's spec is
    an equality delete file deletes by the column                     it holds values under the table's key

Messages of these name no file: its name would repeat the value.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import NameMapping

from tablecrypt._store_errors import is_store_error, reraise_naming
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError, FormatError, KeyIdChangedError, KeyNotFoundError, TablecryptError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.keys.column_keys import ColumnPolicy, ProtectedColumn, key_id_in
from tablecrypt.keys.column_lookup import is_under_another_key
from tablecrypt.keys.key_ring import EncryptedKey
from tablecrypt.keys.nested_columns import name_or_id
from tablecrypt.maintenance._audit.findings import AuditedColumnKek, Finding, FindingKind
from tablecrypt.maintenance.columns.footers import columns_of_deletes, name_mapping_of
from tablecrypt.maintenance.columns.masks import MaskWork, masked_columns, may_hold_masks
from tablecrypt.maintenance.reachable import FileKind, ReachableFile
from tablecrypt.parquet.file_keys import FileKeys
from tablecrypt.parquet.layout import encrypted_layout
from tablecrypt.parquet.protected.hidden_columns import leaves_of
from tablecrypt.parquet.protected.mapped_ids import with_mapped_ids
from tablecrypt.parquet.storage import source_of
from tablecrypt.parquet.structs import FileMetaData
from tablecrypt.printable import counted
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.protection.exposed_values import ShownPartitions, deleted_by
from tablecrypt.table.protection.policy import policy_of
from tablecrypt.table.protection.write_barrier import changed_barrier, metrics_names
from tablecrypt.table.table_files import heads_of

THREADS: Final = 16
_SHOWN: Final = 3
_WITH_COLUMNS: Final = (FileKind.DATA, FileKind.EQUALITY_DELETES, FileKind.POSITION_DELETES)


@dataclass(frozen=True)
class ColumnsInFile:
    """What a file's footer says of its columns.

    Attributes:
        present: field ids of the columns that it has, at every level, hidden columns left out, and those that an equality delete compares.
        hidden_columns: for each protected column that it hides, the ids of the column keys that open it.
        masks: field ids of columns without hidden columns whose values all look like masks.
    """

    present: frozenset[int] = frozenset()
    hidden_columns: Mapping[int, frozenset[str]] = field(default_factory=dict)
    masks: frozenset[int] = frozenset()


def read_columns(io: FileIO, files: Iterable[ReachableFile], metadata: TableMetadata) -> dict[str, ColumnsInFile]:
    """Read what files say of their columns, by location. Files that are not what was written are left out: other findings are about them.

    Args:
        io: the store's own FileIO.
        files: of the table, which begin as they should. Those that are missing now or may not be read are left out too.
        metadata: the table's.

    Raises:
        OSError: the store failed otherwise.
    """
    policy, schema, mapping = _readable_policy(metadata), metadata.schema(), name_mapping_of(metadata)
    # Files without a key are plaintext, which another finding reports.
    wanted = [file for file in files if file.kind in _WITH_COLUMNS and file.key is not None]

    def read(file: ReachableFile) -> ColumnsInFile | None:
        assert file.key is not None
        if file.kind != FileKind.DATA:
            return _columns_of_deletes(io, file, file.key, mapping, policy)
        if file.file_format != FileFormat.PARQUET.value:
            # Avro has no column under a key of its own.
            return ColumnsInFile(frozenset(policy.columns))

        try:
            found = _columns_in(io, file.location, file.key, mapping, policy)
        except (TablecryptError, OSError) as error:
            _raise_if_of_the_store(error, file.location)
            return None
        try:
            return _with_masks(found, io, file, policy, schema, mapping)
        except (TablecryptError, OSError) as error:
            _raise_if_of_the_store(error, file.location)
            # As an error placeholder without its hidden column: what the footer says is to be reported all the same.
            return found

    with ThreadPoolExecutor(THREADS, thread_name_prefix="tablecrypt-columns") as pool:
        found = dict(zip((file.location for file in wanted), pool.map(read, wanted), strict=True))
    return {location: columns for location, columns in found.items() if columns is not None}


def _columns_of_deletes(
    io: FileIO, file: ReachableFile, key_metadata: StandardKeyMetadata, mapping: NameMapping, policy: ColumnPolicy
) -> ColumnsInFile | None:
    try:
        held = columns_of_deletes(EncryptingFileIO(io), file.location, file.file_format, key_metadata, mapping)
    except FormatError:
        # As of data files: any protected column may be among those that nobody can tell.
        held = frozenset(policy.columns)
    except (TablecryptError, OSError) as error:
        _raise_if_of_the_store(error, file.location)
        return None
    # Of those another finding tells.
    return ColumnsInFile(held - file.equality_ids)


def _raise_if_of_the_store(error: Exception, location: str) -> None:
    """Raise what a store says that fails: it says nothing of the file, whose columns would go unchecked without a word."""
    if is_store_error(error) and not isinstance(error, (FileNotFoundError, PermissionError)):
        reraise_naming(error, location)


def _columns_in(io: FileIO, location: str, key_metadata: StandardKeyMetadata, mapping: NameMapping, policy: ColumnPolicy) -> ColumnsInFile:
    with io.new_input(location).open() as stored:
        layout = encrypted_layout(source_of(stored, location), FileKeys.of_table_file(key_metadata))
        if not layout.rows:
            # Its columns hold no values, under whatever key.
            return ColumnsInFile()

        elements = layout.metadata.structs(FileMetaData.SCHEMA)
        try:
            leaves = leaves_of(with_mapped_ids(elements, mapping.root))
        except FormatError:
            # Nobody can tell which columns it has: any protected one may be among them, under the file's key.
            return ColumnsInFile(frozenset(policy.columns))

        hidden_columns: defaultdict[int, set[str]] = defaultdict(set)
        for chunk in layout.chunks():
            field_id = leaves[chunk.ordinals.column].hidden_field_id
            if field_id is not None and chunk.key_metadata is not None:
                hidden_columns[field_id].add(key_id_in(chunk.key_metadata))

    present = frozenset(field_id for leaf in leaves if leaf.hidden_field_id is None for field_id in leaf.field_ids)
    return ColumnsInFile(present, {field_id: frozenset(ids) for field_id, ids in hidden_columns.items()})


def _with_masks(
    found: ColumnsInFile, io: FileIO, file: ReachableFile, policy: ColumnPolicy, schema: Schema, mapping: NameMapping
) -> ColumnsInFile:
    suspects = may_hold_masks(policy, found.present, found.hidden_columns, file.sequence_number)
    if not suspects or file.key is None:
        return found
    with io.new_input(file.location).open() as stored:
        return replace(found, masks=masked_columns(stored, file.key, MaskWork(file.location, suspects, schema, mapping)))


def _readable_policy(metadata: TableMetadata) -> ColumnPolicy:
    """That of a table whose properties cannot be used protects nothing; another finding is about them."""
    try:
        return ColumnPolicy.from_properties(metadata.properties, metadata.schema())
    except ConfigurationError:
        return ColumnPolicy()


def column_findings(
    metadata: EncryptedTableMetadata,
    table_key_id: str,
    files: Iterable[ReachableFile],
    columns: Mapping[str, ColumnsInFile],
    undeclared: Mapping[int, KeyIdChangedError],
) -> Iterator[Finding]:
    """Yield what is wrong with the protected columns of a table. Pure.

    Args:
        metadata: the table's.
        table_key_id: its own master key.
        files: that its snapshots lead to.
        columns: what their footers say, by location.
        undeclared: columns that are protected less than was declared, by field id.
    """
    try:
        policy = policy_of(metadata)
        whole = ColumnPolicy.from_properties(metadata.properties)
    except (ConfigurationError, KeyIdChangedError) as error:
        # Which columns are protected is not known now: whatever else could be said of them would be a guess.
        yield Finding(FindingKind.COLUMN_POLICY_CHANGED, "table properties", str(error))
        return

    for field_id, refusal in undeclared.items():
        yield Finding(FindingKind.COLUMN_POLICY_CHANGED, name_or_id(metadata.schema(), field_id), str(refusal))
    yield from _key_findings(metadata, table_key_id, whole)
    files = list(files)
    yield from _exposed(metadata, policy, files, columns)
    yield from partition_findings(metadata, files)
    yield from _hidden_column_findings(metadata, whole, columns)
    for name, value in changed_barrier(metadata.properties, policy, metadata.schema()).items():
        is_metrics = name.removeprefix("write.metadata.metrics.column.") in metrics_names(policy, metadata.schema())
        what = "Java would write its bounds into manifests" if is_metrics else "Java may write its values under the table's key"
        yield Finding(FindingKind.COLUMN_GUARD_CHANGED, name, f"is {'missing' if value is None else repr(value)}: {what}")


def audited_column_keks(metadata: TableMetadata, created_at: Callable[[EncryptedKey], dt.datetime | None]) -> tuple[AuditedColumnKek, ...]:
    """Return the column KEKs of a table, in the order of its metadata; none of a plain table.

    Args:
        metadata: the table's.
        created_at: reads a KEK's timestamp.
    """
    if not isinstance(metadata, EncryptedTableMetadata):
        return ()

    ring, schema = metadata.key_ring, metadata.schema()
    below: dict[str, list[str]] = {}

    for entry in ring.column_keys:
        try:
            name = name_or_id(schema, entry.field_id)
        except FormatError:
            # Another finding reports the broken entry. Here it must not hide the other keys.
            name = "unreadable entry"
        below.setdefault(entry.encrypted_by_id or "", []).append(name)

    return tuple(
        AuditedColumnKek(kek.key_id, kek.encrypted_by_id, created_at(kek), tuple(dict.fromkeys(below.get(kek.key_id, ()))))
        for kek in ring.column_keks
    )


def _key_findings(metadata: EncryptedTableMetadata, table_key_id: str, policy: ColumnPolicy) -> Iterator[Finding]:
    ring = metadata.key_ring
    for kek in ring.column_keks:
        if kek.encrypted_by_id == table_key_id:
            # Every reader of the table may unwrap under its master key, so the column key would keep the column from none of them.
            message = f"wraps column keys and is wrapped by {table_key_id}, the table's own master key"
            yield Finding(FindingKind.COLUMN_KEY_DIFFERS, kek.key_id, message)

    for entry in ring.column_keys:
        try:
            field_id, kek, is_strange = entry.field_id, ring.entry(entry.encrypted_by_id or ""), ring.is_strange(entry)
        except (FormatError, KeyNotFoundError) as error:
            yield Finding(FindingKind.COLUMN_KEY_DIFFERS, entry.key_id, str(error))
            continue

        if is_strange:
            message = (
                f"the key of {ring.column(field_id)} was made for the table {entry.made_for}: somebody has brought it in, with a file that "
                "verify names; once the file's rows are deleted, rotate_column_keks takes the key out"
            )
            yield Finding(FindingKind.COLUMN_KEY_DIFFERS, entry.key_id, message)

        named = policy.master_keys(field_id)
        # A column that the properties do not name has nothing to compare with: that is a finding already.
        if not kek.is_column_kek or (named and kek.encrypted_by_id not in named):
            message = (
                f"the key of {ring.column(field_id)} is under {kek.kind} {kek.key_id} of {kek.encrypted_by_id}, "
                f"the properties name {', '.join(named)}"
            )
            yield Finding(FindingKind.COLUMN_KEY_DIFFERS, entry.key_id, message)


def _exposed(
    metadata: EncryptedTableMetadata, policy: ColumnPolicy, files: list[ReachableFile], columns: Mapping[str, ColumnsInFile]
) -> Iterator[Finding]:
    schema = metadata.schema()
    for field_id in policy.columns:
        name = name_or_id(schema, field_id)
        told_of = metrics_names(ColumnPolicy.of([policy.columns[field_id]]), schema)
        leaves = {each for each in schema.field_ids if schema.find_column_name(each) in told_of}
        # The footer decides, which the file's DEK authenticates: an edit of metadata.json cannot make a bare column look hidden.
        bare = [place for place, found in columns.items() if field_id in found.present and field_id not in found.hidden_columns]
        stated = [file.location for file in files if file.metrics & leaves]
        if bare:
            message = f"{_files(bare)} it under the table's key, as before it was protected or as Java writes it: {_some(bare)}"
            yield Finding(FindingKind.COLUMN_EXPOSED, name, message)
        if masks := [place for place, found in columns.items() if field_id in found.masks]:
            yield Finding(FindingKind.COLUMN_MASKS_AS_VALUES, name, _masks_message(policy.columns[field_id], masks, files))
        if other := sorted(set(stated) - set(bare)):
            message = f"manifests hold metrics of it for {len(other)} of the files, although they have it under its own key: {_some(other)}"
            yield Finding(FindingKind.COLUMN_EXPOSED, name, message)


def _masks_message(column: ProtectedColumn, places: list[str], files: list[ReachableFile]) -> str:
    added = sorted({file.added_by for file in files if file.location in places and file.added_by is not None})
    snapshots = f", added by snapshot {', '.join(map(str, added[:_SHOWN]))}{', …' if len(added) > _SHOWN else ''}" if added else ""
    return f"{_files(places)} in every row what its mask ({column.mask}) shows, and no value under its own key{snapshots}: {_some(places)}"


def _hidden_column_findings(
    metadata: EncryptedTableMetadata, policy: ColumnPolicy, columns: Mapping[str, ColumnsInFile]
) -> Iterator[Finding]:
    ring, schema = metadata.key_ring, metadata.schema()
    missing: defaultdict[int, list[str]] = defaultdict(list)
    unnamed: defaultdict[int, list[str]] = defaultdict(list)
    former: defaultdict[int, list[str]] = defaultdict(list)
    under_former: defaultdict[int, list[str]] = defaultdict(list)

    for location, found in columns.items():
        for field_id, ids in found.hidden_columns.items():
            if schema.find_column_name(field_id) is None:
                # Files keep the hidden column of a column that was dropped: no reader of the table asks for it any more.
                continue

            if not policy.master_keys(field_id):
                unnamed[field_id].append(location)
            elif field_id not in policy.columns:
                former[field_id].append(location)
            elif any(is_under_another_key(ring, key_id, policy.columns[field_id]) for key_id in ids):
                under_former[field_id].append(location)

            if any(key_id not in ring for key_id in ids):
                missing[field_id].append(location)

    for kind, by_column, what in (
        (FindingKind.COLUMN_POLICY_CHANGED, unnamed, "it under a key of its own, and the table's properties do not name the column"),
        (FindingKind.COLUMN_KEY_MISSING, missing, "it under a column key that encryption-keys lacks"),
        (FindingKind.COLUMN_UNDER_FORMER_KEY, under_former, "it under a former master key"),
        (FindingKind.COLUMN_FORMERLY_PROTECTED, former, "it under a key of its own, although it is no longer protected"),
    ):
        for field_id, places in by_column.items():
            yield Finding(kind, name_or_id(schema, field_id), f"{_files(places)} {what}: {_some(places)}")


def _files(places: list[str]) -> str:
    return "1 file holds" if len(places) == 1 else f"{len(places)} files hold"


def _some(places: list[str]) -> str:
    shown = ", ".join(sorted(places)[:_SHOWN])
    return shown if len(places) <= _SHOWN else f"{shown}, …"


def partition_findings(metadata: TableMetadata, files: Iterable[ReachableFile]) -> Iterator[Finding]:
    """Yield which protected columns show outside of their files' columns. Pure.

    Args:
        metadata: the table's, with usable properties.
        files: that its snapshots lead to.
    """
    shown, policy = ShownPartitions.of(metadata), ColumnPolicy.from_properties(metadata.properties)
    by_column: defaultdict[str, list[ReachableFile]] = defaultdict(list)
    by_value: defaultdict[str, list[ReachableFile]] = defaultdict(list)

    for file in files:
        if (column := shown.column(file.spec_id, file.location)) is not None:
            by_column[column].append(file)
        if (column := deleted_by(policy, metadata.schemas, file.equality_ids)) is not None:
            by_value[column].append(file)

    for column, showing in sorted(by_column.items()):
        yield Finding(FindingKind.COLUMN_IN_PARTITIONS, column, _message(metadata, showing))

    for column, deletes in sorted(by_value.items()):
        held = counted(len(deletes), "equality delete file holds", "equality delete files hold")
        message = (
            f"{held} its values under the table's key, and rows that they apply to are not read: roll the branch back to the snapshot "
            "before, delete the rows through tablecrypt, then shred the snapshots with these files"
        )
        yield Finding(FindingKind.COLUMN_IN_PARTITIONS, column, message)


def _message(metadata: TableMetadata, showing: Iterable[ReachableFile]) -> str:
    manifests = [file for file in showing if file.kind == FileKind.MANIFEST]
    files = [file for file in showing if file.kind != FileKind.MANIFEST]
    snapshots = frozenset[int]().union(*(file.snapshots for file in manifests))
    refs = sorted(f"{ref.snapshot_ref_type.value} {name}" for name, ref in metadata.refs.items() if ref.snapshot_id in snapshots)
    others = len(snapshots - heads_of(metadata))
    kept_by = [*refs, *([counted(others, "snapshot without a name", "snapshots without a name")] if others else [])]

    return (
        f"{counted(len(files), 'data or delete file', 'data and delete files')} and {counted(len(manifests), 'manifest', 'manifests')} "
        f"of partition specs from before show it; they belong to {', '.join(kept_by) or 'current specs'}"
    )
