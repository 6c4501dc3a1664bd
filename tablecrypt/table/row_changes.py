"""What changes in the rows and files of a table, before a producer commits it: delete, update, add.

    found rows: (file, positions) ──copy-on-write──▶ those files are written again without the rows
                                  ──merge-on-read──▶ deletion vectors (deletes.py), written when the change is staged
    new files                     ──────────────────▶ added

Rows leave their data files in one of these two ways, as the table's properties say. `EncryptedTransaction.stage_rows` makes one snapshot of
a change, whoever found and wrote it: a table, Spark or Ray.

A row that only moves keeps its `_row_id` and its `_last_updated_sequence_number`. upserts.py says which rows an upsert changes.

A Parquet file that is encrypted already is added only with the key metadata that opens it: its footer is decrypted and authenticated here,
and the statistics for the manifest come from it. Plaintext is refused, since nothing would encrypt it afterwards.

Iceberg table spec, "Row Lineage" and "Deletion Vectors".
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io.pyarrow import data_file_statistics_from_parquet_metadata, parquet_path_to_id_mapping
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE, TableProperties, upsert_util
from pyiceberg.table.snapshots import IsolationLevel
from pyroaring import BitMap64

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError, PlaintextRefusedError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.parquet.uniform import UniformParquetFile
from tablecrypt.setting_kinds import one_of
from tablecrypt.table._pyiceberg.arrow import check_pyarrow_schema_compatible
from tablecrypt.table.filters import DeleteFilter
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.parquet_options import statistics_plan
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.scan import EncryptedDataScan
from tablecrypt.table.table_files import TableFileIO
from tablecrypt.table.write import write_data_files

UPDATE_MODE: Final = "write.update.mode"
MERGE_MODE: Final = "write.merge.mode"
_MODES: Final = (TableProperties.DELETE_MODE_COPY_ON_WRITE, TableProperties.DELETE_MODE_MERGE_ON_READ)


@dataclass
class RowChange:
    """What was found and written, before it is committed."""

    conflicts_with: BooleanExpression = ALWAYS_TRUE
    """Rows that other writers must not have changed in the meantime."""
    dropped: list[DataFile] = field(default_factory=list)
    """Data files that are removed as a whole."""
    position_deleted: list[tuple[EncryptedFileScanTask, BitMap64]] = field(default_factory=list)
    """Data files that lose some of their rows, with the positions of these rows."""
    rewritten: list[DataFile] = field(default_factory=list)
    """New files with the remaining rows of dropped files."""
    added: list[DataFile] = field(default_factory=list)
    """New rows."""
    write_uuid: uuid.UUID = field(default_factory=uuid.uuid4)
    """Part of the names of files that are written for it."""

    def __bool__(self) -> bool:
        return bool(self.dropped or self.position_deleted or self.rewritten or self.added)

    @property
    def written(self) -> list[DataFile]:
        """Data files that exist for this change alone."""
        return [*self.rewritten, *self.added]


def is_merge_on_read(mode: str) -> bool:
    """Whether a mode of `row_mode` says that rows are position-deleted, and files not rewritten."""
    return mode == TableProperties.DELETE_MODE_MERGE_ON_READ


def row_mode(properties: Mapping[str, str], *names: str) -> str:
    """Return copy-on-write or merge-on-read, as the first of the named properties says that the table has; else copy-on-write.

    Raises:
        ConfigurationError: it says neither.
    """
    name = next((each for each in names if properties.get(each)), None)
    return TableProperties.DELETE_MODE_DEFAULT if name is None else one_of(name, properties[name], _MODES)


def isolation_of(properties: Mapping[str, str], command: str) -> IsolationLevel:
    """Return what others may do while a delete, an update or a merge runs, as write.COMMAND.isolation-level says.

    Raises:
        ConfigurationError: it is neither serializable nor snapshot.
    """
    name = f"write.{command}.isolation-level"
    return isolation_level(properties.get(name, TableProperties.WRITE_ISOLATION_LEVEL_DEFAULT), name)


def isolation_level(level: str, name: str) -> IsolationLevel:
    """Return an isolation level by its name, as a property or an option says. ConfigurationError for any other name."""
    return IsolationLevel(one_of(name, level, (each.value for each in IsolationLevel)))


def upsert_mode(properties: Mapping[str, str]) -> str:
    """Return the mode of an upsert's updates: write.merge.mode, else write.update.mode, else copy-on-write."""
    return row_mode(properties, MERGE_MODE, UPDATE_MODE)


def deleted_rows(scan: EncryptedDataScan, mode: str) -> RowChange:
    """Return the change that deletes the rows which match a scan's filter; copies of files without them are written.

    Args:
        scan: the table, the branch and the filter of the rows to delete. For deletion vectors only the columns of the filter are read.
        mode: see `row_mode`.
    """
    if not is_merge_on_read(mode):
        return _rewritten_without(scan)

    matching = ((task, BitMap64(scan.matching_positions(task).to_pylist())) for task in scan.plan_files())
    return RowChange(scan.row_filter, position_deleted=[(task, positions) for task, positions in matching if positions])


def _rewritten_without(scan: EncryptedDataScan) -> RowChange:
    """Write every data file again that holds matching rows, without those rows. One data file at a time is in memory."""
    metadata = scan.table_metadata
    io = cast("TableFileIO", scan.io)
    delete = DeleteFilter(metadata.schema(), scan.row_filter, scan.case_sensitive)
    counter = itertools.count(0)
    change = RowChange(scan.row_filter)

    for task in scan.plan_files():
        rows = scan.rows_with_lineage(task)
        kept = delete.remaining(rows)
        # Statistics only say that rows may match: a file without one stays, with its key and its place.
        if kept.num_rows == rows.num_rows:
            continue
        change.dropped.append(task.file)
        if kept.num_rows:
            change.rewritten += write_data_files(metadata, kept, io, io.manager, change.write_uuid, counter)

    return change


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
    keys = join_cols if join_cols is not None else identifier_columns(schema)
    if not keys:
        raise ValueError("Join columns could not be found, please set identifier-field-ids or pass in explicitly.")
    if upsert_util.has_duplicate_rows(df, keys):
        raise ValueError("Duplicate rows found in source dataset based on the key columns. No upsert executed")
    return keys


def identifier_columns(schema: Schema) -> list[str]:
    """Return the names of the schema's identifier fields."""
    columns = []
    for field_id in schema.identifier_field_ids:
        name = schema.find_column_name(field_id)
        if name is None:
            raise ValueError(f"Field-ID could not be found: {field_id}")
        columns.append(name)

    return columns


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
            stats_columns=statistics_plan(schema, metadata.properties),
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
