"""What a transaction does with rows and files before a producer commits it: delete, update, add.

Rows leave their data files in one of two ways, as the table's properties say. Copy-on-write writes the data files again without the rows
that a filter matches. Merge-on-read marks the rows in deletion vectors, and the data files stay as they are: a data file has at most one
deletion vector, so a new one holds what earlier deletes of that file said too, and takes their place. A file whose every row goes is
dropped instead.

An upsert matches rows as PyIceberg does (`pyiceberg.table.upsert_util`). An updated row keeps the `_row_id` of the row it replaces, and its
`_last_updated_sequence_number` is left null, so that it becomes the sequence number of the commit. A row that only moves keeps both.

A Parquet file that is encrypted already is added only with the key metadata that opens it: its footer is decrypted and authenticated here,
and the statistics for the manifest come from it. Plaintext is refused, since nothing would encrypt it afterwards.

Iceberg table spec, "Row Lineage" and "Deletion Vectors".
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

import pyarrow as pa
from pyiceberg.expressions import AlwaysFalse, BooleanExpression, Or
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    expression_to_pyarrow,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, TableProperties, upsert_util
from pyroaring import BitMap64

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError, PlaintextRefusedError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.parquet.uniform import UniformParquetFile
from tablecrypt.table._pyiceberg.arrow import check_pyarrow_schema_compatible
from tablecrypt.table.deletion_vectors import RowDelta, write_row_delta
from tablecrypt.table.filters import DeleteFilter
from tablecrypt.table.lineage import LAST_UPDATED, ROW_ID
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.scan import EncryptedDataScan
from tablecrypt.table.table_files import TableFileIO
from tablecrypt.table.write import write_data_files

UPDATE_MODE: Final = "write.update.mode"
MERGE_MODE: Final = "write.merge.mode"
Replaced = tuple[DataFile, list[DataFile]]
"""A data file and the files that take its place; none where every row of it goes."""
_POSITION = "__tablecrypt_position"


@dataclass(frozen=True)
class RowDelete:
    """Rows to delete: those that match the predicate on a branch (None: the main branch), in one of the two modes."""

    predicate: BooleanExpression
    case_sensitive: bool
    branch: str | None
    mode: str


def upsert_mode(properties: Mapping[str, str]) -> str:
    """Return the mode of an upsert's updates: write.merge.mode, else write.update.mode, else copy-on-write."""
    return properties.get(MERGE_MODE) or properties.get(UPDATE_MODE) or TableProperties.DELETE_MODE_COPY_ON_WRITE


def rewrite_without(scan: EncryptedDataScan, write_uuid: uuid.UUID) -> list[Replaced]:
    """Write every data file again that holds rows matching the scan's filter, without those rows.

    Args:
        scan: the table, the branch and the filter of the rows to leave out. One data file at a time is in memory.
        write_uuid: part of the new files' names.

    Returns:
        The replaced files. Files that may match by their statistics but hold no matching row are not among them.
    """
    metadata = scan.table_metadata
    io = cast("TableFileIO", scan.io)
    delete = DeleteFilter(metadata.schema(), scan.row_filter, scan.case_sensitive)
    counter = itertools.count(0)
    replaced: list[Replaced] = []
    for task in scan.plan_files():
        rows = scan.rows_with_lineage(task)
        kept = delete.remaining(rows)
        if kept.num_rows == rows.num_rows:
            continue
        new = write_data_files(metadata, kept, io, io.manager, write_uuid, counter) if kept.num_rows else []
        replaced.append((task.file, new))
    return replaced


def delete_by_vectors(scan: EncryptedDataScan, write_uuid: uuid.UUID) -> RowDelta:
    """Write deletion vectors for the rows that match a scan's filter.

    Args:
        scan: the table, the branch and the filter of the rows to delete. Only the columns of the filter are read.
        write_uuid: part of the Puffin file's name.
    """
    return write_row_delta(scan.table_metadata, cast("TableFileIO", scan.io), _deleted_positions(scan), write_uuid)


def _deleted_positions(scan: EncryptedDataScan) -> Iterator[tuple[FileScanTask, BitMap64]]:
    """Each data file with a matching row, and the positions of all its rows that are or will be deleted."""
    for task in scan.plan_files():
        found = scan.matching_positions(task)
        if len(found.matching):
            matching = BitMap64(position for chunk in found.matching.chunks for position in chunk.to_pylist())
            yield task, BitMap64(found.deleted or ()) | matching


@dataclass(frozen=True)
class UpsertPlan:
    """What an upsert does: rows to write in place of others (with lineage columns), the filter of those others, rows to insert."""

    updated: pa.Table
    updated_predicate: BooleanExpression
    inserted: pa.Table


def key_columns(df: pa.Table, schema: Schema, join_cols: list[str] | None) -> list[str]:
    """Return the columns that say which row is which.

    Args:
        df: the rows, at most one for each key.
        schema: the table's.
        join_cols: the key columns; None for the schema's identifier fields.

    Raises:
        ValueError: there are no key columns, or a key occurs twice.
        KeyError: a key column is not in `df`.
    """
    keys = join_cols if join_cols is not None else _identifier_columns(schema)
    if not keys:
        raise ValueError("Join columns could not be found, please set identifier-field-ids or pass in explicitly.")
    if upsert_util.has_duplicate_rows(df, keys):
        raise ValueError("Duplicate rows found in source dataset based on the key columns. No upsert executed")
    return keys


def plan_upsert(df: pa.Table, scan: EncryptedDataScan, keys: list[str], update_matched: bool, insert_unmatched: bool) -> UpsertPlan:
    """Compare a DataFrame with the rows of the table that have its keys.

    Args:
        df: the rows, at most one for each key.
        scan: the table without a filter; it is read with the filter of the keys, a batch at a time.
        keys: the key columns.
        update_matched: whether rows that differ from their match are updated.
        insert_unmatched: whether rows without a match are inserted.
    """
    schema = scan.table_metadata.schema()
    updated: list[pa.Table] = []
    predicates: list[BooleanExpression] = []
    inserted = df
    matches = scan.filter(upsert_util.create_match_filter(df, keys))
    for batch in matches.batches_with_lineage():
        found = pa.Table.from_batches([batch])
        existing = found.drop_columns([ROW_ID.name, LAST_UPDATED.name])
        if update_matched:
            changed = upsert_util.get_rows_to_update(df, existing, keys)
            if changed.num_rows:
                updated.append(_with_row_ids(changed, found, keys))
                predicates.append(upsert_util.create_match_filter(changed, keys))
        if insert_unmatched:
            present = bind(schema, upsert_util.create_match_filter(existing, keys), scan.case_sensitive)
            inserted = inserted.filter(~expression_to_pyarrow(present))
    return UpsertPlan(
        updated=pa.concat_tables(updated) if updated else df.slice(0, 0),
        updated_predicate=Or(*predicates) if len(predicates) > 1 else next(iter(predicates), AlwaysFalse()),
        inserted=inserted if insert_unmatched else df.slice(0, 0),
    )


def _identifier_columns(schema: Schema) -> list[str]:
    columns = []
    for field_id in schema.identifier_field_ids:
        name = schema.find_column_name(field_id)
        if name is None:
            raise ValueError(f"Field-ID could not be found: {field_id}")
        columns.append(name)
    return columns


def _with_row_ids(changed: pa.Table, found: pa.Table, keys: list[str]) -> pa.Table:
    key_types = pa.schema([found.schema.field(key) for key in keys])
    positions = changed.select(keys).cast(key_types).append_column(_POSITION, pa.array(range(changed.num_rows), pa.int64()))
    joined = positions.join(found.select([*keys, ROW_ID.name]), keys=keys, join_type="inner").sort_by(_POSITION)
    unknown = pa.nulls(changed.num_rows, pa.int64())
    return changed.append_column(ROW_ID.name, joined.column(ROW_ID.name)).append_column(LAST_UPDATED.name, unknown)


def encrypted_files_to_data_files(
    metadata: EncryptedTableMetadata, io: EncryptingFileIO, paths: list[str], key_metadata: Mapping[str, StandardKeyMetadata | bytes]
) -> Iterator[DataFile]:
    """Yield a manifest entry's data file for each path.

    Raises:
        PlaintextRefusedError: a path has no key metadata, or the file is plaintext.
        FormatError: a file's key metadata is not StandardKeyMetadata version 1.
        TamperedFileError: a file does not open with its key, or has another length than its key metadata says.
        ValueError: a file's schema does not fit the table's.
    """
    for path in paths:
        given = key_metadata.get(path)
        if given is None:
            raise PlaintextRefusedError(path, "add_files takes only encrypted files: give its key in key_metadata={path: ...}")
        yield _data_file(metadata, io, path, _decoded(path, given))


def _decoded(path: str, given: StandardKeyMetadata | bytes) -> StandardKeyMetadata:
    if isinstance(given, StandardKeyMetadata):
        return given
    try:
        return StandardKeyMetadata.decode(given)
    except FormatError as error:
        raise FormatError(f"{path}: its key metadata: {error}") from error


def _data_file(metadata: EncryptedTableMetadata, io: EncryptingFileIO, path: str, key_metadata: StandardKeyMetadata) -> DataFile:
    source = io.raw_input(path)
    length = len(source)
    schema = metadata.schema()
    with source.open() as stream:
        file = UniformParquetFile(stream, key_metadata, path)
        check_pyarrow_schema_compatible(schema, file.schema, format_version=3)
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=file.footer(),
            stats_columns=compute_statistics_plan(schema, metadata.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
    data_file = DataFile.from_args(
        _table_format_version=3,
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=statistics.partition(metadata.spec(), schema),
        file_size_in_bytes=length,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=key_metadata.with_file_length(length).encode(),
        **statistics.to_serialized_dict(),
    )
    data_file.spec_id = metadata.default_spec_id
    return data_file
