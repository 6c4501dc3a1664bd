"""The settings of Parquet's Java writer for a table. Its properties are given to that writer as the writer's own settings:

    write.parquet.compression-codec, -level         zstd, gzip, snappy, lz4 (as LZ4_RAW), uncompressed; levels of zstd and gzip
    write.parquet.row-group-size-bytes, -limit      bytes as Parquet's Java writer counts them; rows
    write.parquet.page-size-bytes, page-row-limit, dict-size-bytes
    write.target-file-size-bytes                    bytes of the file, as Iceberg Java counts them, looked at every 1,000 rows

Where the Python path refuses a property, so does this one: it is asked first.
"""

from __future__ import annotations

from typing import Final

from pyiceberg.typedef import Properties

from tablecrypt.iceberg_properties import ROW_GROUP_BYTES, ROW_GROUP_LIMIT
from tablecrypt.table.parquet_options import parquet_writer_options, target_file_size

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


def unsupported_codec(properties: Properties) -> str | None:
    """Return why the table's compression codec, with its level, is not supported; None if it is."""
    # The Python path's check comes first: a property must not be an error on one path and none on the other.
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
    settings = {
        "parquet.compression": codec,
        "parquet.block.size": str(ROW_GROUP_BYTES.whole_number(properties)),
        "parquet.block.row.count.limit": str(ROW_GROUP_LIMIT.whole_number(properties)),
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
