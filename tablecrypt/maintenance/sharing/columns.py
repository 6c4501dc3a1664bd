"""Protected columns that a share has: each under a second master key of the partner's, by the DEKs that shared files have of it.

    source    column key ── wraps ──▶ DEK of the column in one file        in the footer of each file of the table
    share     column KEK, under the partner's key ── AES-GCM ──▶ the DEKs of the shared files alone     in encryption-keys (given_deks.py)

The column key stays with the table: it would open the column in files whose DEKs others give away, and declare its protection.

Who shares needs the right to read the column. Who has the partner's key of the table alone reads the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from pyiceberg.schema import Schema

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError
from tablecrypt.keys.column_keys import ColumnPolicy, key_id_in
from tablecrypt.keys.given_deks import FileColumn, GivenDeks
from tablecrypt.keys.share_proofs import is_share_proven, share_proof
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.parquet.protected.protected_layout import StoredHiddenColumns
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.protection.authenticated import check_chosen, check_declared
from tablecrypt.table.protection.policy import column_keys, unreadable
from tablecrypt.table.shares import SharedColumn, ShareRecord
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import name_of


def named_columns(
    table: EncryptedTable, schema: Schema, protected: Collection[int], columns: Mapping[str, str]
) -> tuple[SharedColumn, ...]:
    """Return the protected columns that are to be shared.

    Args:
        table: that shares.
        schema: of the snapshot that is shared.
        protected: ids of its protected columns.
        columns: by name, the partner's master key for it.

    Raises:
        ConfigurationError: one is no column of the schema, or none that is protected, or no master key is named for it; or another
            protected column had its name.
    """
    found = []
    for name, key_id in columns.items():
        field_id = next((each for each in protected if schema.find_column_name(each) == name), None)
        if field_id is None:
            known = ", ".join(sorted(filter(None, map(schema.find_column_name, protected)))) or "none"
            raise ConfigurationError(
                f"{name_of(table)} has no protected column {name!r} to share under a key of its own; its protected columns: {known}. "
                "All other columns are shared anyway"
            )
        if not key_id:
            raise ConfigurationError(f"no master key of the partner is named for column {name!r}")
        check_chosen(table.metadata, table.io, field_id, name)
        found.append(SharedColumn(field_id, name, key_id))
    return tuple(sorted(found, key=lambda column: column.field_id))


def proven_columns(
    table: EncryptedTable, columns: Iterable[SharedColumn], share_uuid: str, row_filter: str, now_ms: int
) -> tuple[SharedColumn, ...]:
    """Return shared columns with the proofs by which the next update believes what the table remembers of them. Raises as `share_proof`."""
    maker, metadata, ring = table.io.manager.columns, table.metadata, table.metadata.key_ring
    found = ((each, _proven_of(metadata, each, share_uuid, row_filter, now_ms)) for each in columns)
    return tuple(replace(each, proof=share_proof(maker, ring, *proven)) for each, proven in found)


def unproven_columns(table: EncryptedTable, record: ShareRecord, columns: Iterable[SharedColumn]) -> list[SharedColumn]:
    """Return those of a share's columns of which its record does not prove that somebody with their keys shared them, under these keys."""
    maker, metadata, ring = table.io.manager.columns, table.metadata, table.metadata.key_ring
    found = ((each, _proven_of(metadata, each, record.share_uuid, record.row_filter, record.created_ms)) for each in columns)
    return [each for each, proven in found if not is_share_proven(maker, ring, *proven, each.proof)]


def _proven_of(
    metadata: EncryptedTableMetadata, column: SharedColumn, share_uuid: str, row_filter: str, created_ms: int
) -> tuple[int, str, tuple[str, ...]]:
    # Under the column's master key of now alone: who holds a former one proves nothing of what is shared today.
    master_key_id = next(iter(ColumnPolicy.from_properties(metadata.properties).master_keys(column.field_id)), "")
    said = (str(metadata.table_uuid), share_uuid, str(column.field_id), column.key_id, row_filter, str(created_ms))
    return column.field_id, master_key_id, said


def check_right(table: EncryptedTable, columns: Iterable[SharedColumn]) -> None:
    """Check that this user may read the columns that he shares, and that nobody without their keys has changed how they are protected.

    Raises:
        ColumnKeyDeniedError: he may not read one.
        KeyIdChangedError: somebody has.
    """
    field_ids = [column.field_id for column in columns]
    for error in unreadable(column_keys(table.metadata, table.io), field_ids).values():
        raise error
    check_declared(table.metadata, table.io, field_ids, writing=False)


def given_deks(
    table: EncryptedTable,
    columns: Iterable[SharedColumn],
    tasks: Iterable[EncryptedFileScanTask],
    stored: Mapping[str, StoredHiddenColumns],
) -> dict[SharedColumn, dict[tuple[int, str], GivenDeks]]:
    """Return the DEKs that shared files have of the shared columns: of each column by its field id and the id of the column key.

    Args:
        table: that shares.
        columns: which columns.
        tasks: the files.
        stored: what their footers say, by location.

    Raises:
        ColumnKeyDeniedError, KmsError: a column key cannot be used.
        KeyNotFoundError: a column was shredded.
        AuthenticationError, FormatError: a footer or an entry was changed.
    """
    shared = {column.field_id: column for column in columns}
    found: dict[SharedColumn, dict[tuple[int, str], list[tuple[FileColumn, Secret]]]] = {
        column: defaultdict(list) for column in shared.values()
    }
    keys = column_keys(table.metadata, table.io)
    for task in tasks if shared else ():
        for hidden in _hidden(task, stored[task.file.file_path]):
            if (column := shared.get(hidden.field_id)) is not None:
                dek = keys.unwrap(hidden.field_id, hidden.key_metadata, hidden.aad_prefix, hidden.schema, task.data_sequence_number)
                found[column][hidden.field_id, key_id_in(hidden.key_metadata)].append((hidden, Secret(dek)))

    return {column: {key: GivenDeks.of(deks) for key, deks in by_key.items()} for column, by_key in found.items()}


def _hidden(task: EncryptedFileScanTask, stored: StoredHiddenColumns) -> Iterator[FileColumn]:
    aad_prefix = key_metadata_of(task.file).aad_prefix
    # A file without rows has no key metadata.
    return (FileColumn(each, wrapped, aad_prefix, stored.schemas[each]) for each, wrapped in stored.keys if wrapped)
