"""Writing a DataFrame's rows with Spark's own Parquet writer, in one Spark job.

    driver     columns and partition values as Spark expressions ─▶ a job of ours over the rows, run by a WriteCoordinator
    executor   a DEK and an AAD prefix for each file, made there ─▶ Parquet straight to its location ─▶ result, encrypted
    driver     the results of the attempts that won ─▶ manifest entries, for the one commit of write.py

It uses no committer or format of Spark and changes no setting of the session, so other writes of the session are not affected. Nothing is
renamed. A failed attempt removes its files; the driver, which gave every file its location, removes the others (coordinator.py).

Rows of a partitioned table are sorted by partition within each task, so a task has one file open at a time. Table properties `write.*`
are given to Spark's Parquet writer as its own settings:

    write.parquet.compression-codec, -level         zstd, gzip, snappy, lz4 (as LZ4_RAW), uncompressed; levels of zstd and gzip
    write.parquet.row-group-size-bytes, -limit      bytes as Parquet's Java writer counts them; rows
    write.parquet.page-size-bytes, page-row-limit, dict-size-bytes
    write.target-file-size-bytes                    bytes of the file, as Iceberg Java counts them, looked at every 1,000 rows

Where the Python path refuses a property, so does this one: it is asked first.

Raises ConfigurationError where path="jvm" was asked for and does not support the write. What fails on an executor fails the job with
Spark's error.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import TableProperties
from pyiceberg.typedef import Properties

from tablecrypt.errors import ConfigurationError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.spark.jvm.columns import partition_column, quoted, stored_columns, stored_fields
from tablecrypt.spark.jvm.coordinator import FileLocations, responding
from tablecrypt.spark.jvm.install import JvmSide, jvm_side, length_in_hadoop
from tablecrypt.spark.jvm.keys import ResultKey
from tablecrypt.spark.jvm.schema import inner_ids, stored_json
from tablecrypt.spark.jvm.support import (
    check_messages,
    check_supported,
    if_supported,
    unsupported_rows,
    unsupported_session,
    unsupported_store,
)
from tablecrypt.spark.jvm.written_files import TaskResult, decode_result, split_results
from tablecrypt.spark.layout import Distribution, check_distribution, check_sort_columns
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.table.parquet_options import parquet_writer_options, positive, row_group_limit, target_file_size
from tablecrypt.table.table_files import TableFileIO

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CODECS: Final = {
    "zstd": "ZSTD",
    "gzip": "GZIP",
    "snappy": "SNAPPY",
    "lz4": "LZ4_RAW",
    "lz4_raw": "LZ4_RAW",
    "none": "UNCOMPRESSED",
}
_LEVELS: Final = {"zstd": range(1, 23), "gzip": range(10)}
_ZSTD_LEVEL: Final = "parquet.compression.codec.zstd.level"
_GZIP_LEVEL: Final = "zlib.compress.level"
_GZIP_LEVELS: Final = (
    "NO_COMPRESSION",
    "BEST_SPEED",
    "TWO",
    "THREE",
    "FOUR",
    "FIVE",
    "SIX",
    "SEVEN",
    "EIGHT",
    "BEST_COMPRESSION",
)
"""Hadoop's names of the levels 0 to 9."""
TARGET_FILE_SIZE: Final = "tablecrypt.target-file-size"
_PARTITION: Final = "__tablecrypt_partition_"
_IN_THE_CLEAR: Final = (
    "rows would be committed that anyone who reaches the driver may have sent: set spark.authenticate and spark.network.crypto.enabled"
)


def unsupported_codec(properties: Properties) -> str | None:
    """Return why the table's compression codec, with its level, is not supported; None if it is."""
    options = parquet_writer_options(properties)
    codec, level = str(options["compression"]).lower(), options["compression_level"]
    if codec not in _CODECS:
        return f"Parquet's Java writer does not have the codec {codec}"
    if level is not None and level not in _LEVELS.get(codec, (level,)):
        return f"Parquet's Java writer does not have the codec {codec} of level {level}"
    return None


def write_settings(properties: Properties) -> dict[str, str]:
    """Return the settings by their names in WriteJob.java. The codec is a supported one."""
    options = parquet_writer_options(properties)
    codec = _CODECS[str(options["compression"]).lower()]
    row_group_bytes = positive(
        properties, TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES, TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES_DEFAULT
    )
    settings = {
        "parquet.compression": codec,
        "parquet.block.size": str(row_group_bytes),
        "parquet.block.row.count.limit": str(row_group_limit(properties)),
        "parquet.page.size": str(options["data_page_size"]),
        "parquet.page.row.count.limit": str(options["write_batch_size"]),
        "parquet.dictionary.page.size": str(options["dictionary_pagesize_limit"]),
        TARGET_FILE_SIZE: str(target_file_size(properties)),
    }
    return settings | _level(codec, options["compression_level"])


def _level(codec: str, level: int | None) -> dict[str, str]:
    if level is None:
        return {}
    if codec == "ZSTD":
        return {_ZSTD_LEVEL: str(level)}
    return {_GZIP_LEVEL: _GZIP_LEVELS[level]} if codec == "GZIP" else {}


@dataclass(frozen=True)
class PlannedWrite:
    """Rows ready to be written: the stored columns, then the partition values."""

    rows: DataFrame
    located: LocatedTable
    stored: Schema
    side: JvmSide


def planned_write(
    df: DataFrame, located: LocatedTable, distribute_by: Distribution | None, sort_by: Sequence[str] | None, *, forced: bool
) -> PlannedWrite | None:
    """Return how rows will be written; None if the Python path has to write them.

    Args:
        df: rows that fit the table.
        located: the table.
        distribute_by: see layout.py.
        sort_by: columns of `df`, likewise.
        forced: raise instead of returning None, and go on, with a warning, where Spark's messages are not authenticated and encrypted.

    Raises:
        ConfigurationError: `forced`, and the write is not supported; or a layout that cannot be.
    """
    return if_supported(lambda: _planned(df, located, distribute_by, sort_by, forced), located.name, "written", forced=forced)


def write_planned(write: PlannedWrite) -> list[DataFile]:
    """Write the rows, and return the manifest entries of the files. If anything fails, no file is left.

    Raises:
        AuthenticationError: a result was changed on its way.
        FormatError: a result does not hold what it should.
        ConfigurationError: Hadoop put the files elsewhere than PyIceberg looks for them.
    """
    located = write.located
    io = cast("EncryptingFileIO", located.table.io)
    locations = FileLocations(located.table.metadata)
    committed: list[DataFile] = []
    try:
        committed = _run(write, locations)
        check_found(io, committed)
    except BaseException:
        locations.remove_except(io, ())
        raise
    locations.remove_except(io, [file.file_path for file in committed])
    return committed


def _planned(
    df: DataFrame, located: LocatedTable, distribute_by: Distribution | None, sort_by: Sequence[str] | None, forced: bool
) -> PlannedWrite:
    spark = df.sparkSession
    check_supported(unsupported_session(spark))
    check_messages(spark, located, _IN_THE_CLEAR, forced=forced)
    check_supported(unsupported_rows(df.schema, located))
    check_supported(unsupported_codec(located.table.metadata.properties))
    check_supported(unsupported_store(located, lambda location: length_in_hadoop(spark, location)))
    side = jvm_side(spark)
    schema = located.table.schema()
    stored = sanitize_column_names(schema)
    rows = df.select(stored_columns(df, schema, stored))
    return PlannedWrite(_laid_out(rows, located, stored, side, distribute_by, _order(df, schema, stored, sort_by)), located, stored, side)


def _order(df: DataFrame, schema: Schema, stored: Schema, sort_by: Sequence[str] | None) -> list[str]:
    """Return the stored names of the columns to sort by."""
    order = list(sort_by or ())
    check_sort_columns(order, df.columns)
    names = {field.name: at_rest.name for field, at_rest in zip(schema.fields, stored.fields, strict=True)}
    return [names[name] for name in order]


def _laid_out(
    rows: DataFrame, located: LocatedTable, stored: Schema, side: JvmSide, distribute_by: Distribution | None, order: list[str]
) -> DataFrame:
    spec = located.table.spec()
    check_distribution(distribute_by, spec)
    fields = stored_fields(spec)
    if not fields:
        return rows.sortWithinPartitions(*map(quoted, order)) if order else rows

    def bucket(count: int, column: Column) -> Column:
        return _bucket(side, count, column)

    names = [f"{_PARTITION}{number}" for number in range(len(fields))]
    values = [partition_column(field, stored, bucket).alias(name) for field, name in zip(fields, names, strict=True)]
    keyed = rows.select("*", *values)
    if distribute_by is not None:
        keyed = keyed.repartition(*names)
    return keyed.sortWithinPartitions(*names, *map(quoted, order))


def _bucket(side: JvmSide, count: int, column: Any) -> Column:
    from pyspark.sql.classic.column import Column as ClassicColumn

    return ClassicColumn(side.endpoint.bucket(count, column._jc))


def _run(write: PlannedWrite, locations: FileLocations) -> list[DataFile]:
    metadata = write.located.table.metadata
    key = ResultKey()
    length = cast("TableFileIO", write.located.table.io).manager.data_key_length
    settings = write_settings(metadata.properties) | {"tablecrypt.dek-length": str(length)}
    partitions = write.rows.select(write.rows.columns[len(write.stored.fields) :]).schema.json()
    rows: Any = write.rows
    coordinator = write.side.endpoint.openCoordinator(f"tablecrypt-write-{secrets.token_hex(8)}")
    with responding(coordinator, locations):
        encrypted = coordinator.write(
            rows._jdf, key.write_id, key.public_key, stored_json(write.stored), partitions, inner_ids(write.stored), settings
        )
    return [file.entry(metadata) for result in opened_results(key, locations, bytes(encrypted)) for file in result.files]


def opened_results(key: ResultKey, locations: FileLocations, encrypted: bytes) -> list[TaskResult]:
    """Return the results of a write's tasks, with the locations of files as the table writes them.

    Args:
        key: the write's.
        locations: those that were given in it.
        encrypted: for each task, in their order, the length of its result (4) and the result.

    Raises:
        AuthenticationError: a result was changed on its way, or names a file that its task was not given.
        FormatError: a result does not hold what it should.
    """
    results = []
    for task, message in enumerate(split_results(encrypted)):
        result = decode_result(key.decrypt(task, message))
        files = [replace(file, location=locations.as_table_has_it(file.location, task, result.attempt)) for file in result.files]
        results.append(replace(result, files=files))
    return results


def check_found(io: EncryptingFileIO, files: Sequence[DataFile]) -> None:
    """Look for one file of each bucket: Hadoop may know another store by the same name.

    Raises:
        ConfigurationError: PyIceberg does not find the file, or finds another one.
    """
    for file in {urlsplit(file.file_path)[:2]: file for file in files}.values():
        try:
            length = len(io.raw_input(file.file_path))
        except OSError as error:
            raise ConfigurationError(f"{file.file_path}: Hadoop wrote it, and PyIceberg does not find it") from error
        if length != file.file_size_in_bytes:
            raise ConfigurationError(f"{file.file_path}: Hadoop wrote {file.file_size_in_bytes} bytes, PyIceberg finds {length}")
