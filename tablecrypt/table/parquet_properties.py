"""Table properties `write.parquet.*` and `write.format.default`, as options of the encrypted Parquet writer.

Compression codec and level, page size, page row limit, dictionary size and row-group limit mean what they mean to PyIceberg, which also
warns of the properties that it knows and does not implement. Three are refused, each with its reason, because honouring them would put
plaintext into the file or make a file that other readers of the table cannot open.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadataCommonFields
from pyiceberg.typedef import Properties
from pyiceberg.utils.properties import property_as_int

from tablecrypt.errors import ConfigurationError
from tablecrypt.table._pyiceberg.arrow import parquet_writer_kwargs

M = TypeVar("M", bound=TableMetadataCommonFields)

PAGE_VERSION: Final = "write.parquet.page-version"
_PAGE_VERSION_1: Final = frozenset({"v1", "1", "1.0"})
_BLOOM_FILTER_PREFIX: Final = TableProperties.PARQUET_BLOOM_FILTER_COLUMN_ENABLED_PREFIX + "."


def parquet_writer_options(properties: Properties) -> dict[str, Any]:
    """Return the writer's options for a table.

    Raises:
        ConfigurationError: a property asks for another format than Parquet, for data page version 2, or for bloom filters.
    """
    _check_format(properties)
    _check_page_version(properties)
    _check_bloom_filters(properties)
    return parquet_writer_kwargs(properties)


def row_group_limit(properties: Properties) -> int:
    """Return the most rows of a row group, `write.parquet.row-group-limit`."""
    return positive(properties, TableProperties.PARQUET_ROW_GROUP_LIMIT, TableProperties.PARQUET_ROW_GROUP_LIMIT_DEFAULT)


def target_file_size(properties: Properties) -> int:
    """Return `write.target-file-size-bytes`: of an Arrow table bytes in memory, as for PyIceberg; of a stream stored bytes, as for Java."""
    return positive(properties, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT)


def with_target_file_size(metadata: M, size: int) -> M:
    """Return table metadata whose data files end at `size` bytes. For writing files only, never to be committed."""
    return metadata.model_copy(update={"properties": {**metadata.properties, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES: str(size)}})


def positive(properties: Properties, name: str, default: int) -> int:
    """Return a property that is a number above 0. ConfigurationError for any other."""
    value = property_as_int(properties, name, default)
    if value is None or value <= 0:
        raise ConfigurationError(f"{name} is {value}; it must be a positive number")
    return value


def _check_format(properties: Properties) -> None:
    name = properties.get(TableProperties.WRITE_FILE_FORMAT, TableProperties.WRITE_FILE_FORMAT_DEFAULT)
    if name.lower() != "parquet":
        raise ConfigurationError(f"{TableProperties.WRITE_FILE_FORMAT} is {name!r}; encrypted data files are written as parquet only")


def _check_page_version(properties: Properties) -> None:
    version = properties.get(PAGE_VERSION, "v1")
    if version.lower() not in _PAGE_VERSION_1:
        raise ConfigurationError(
            f"{PAGE_VERSION} is {version!r}; encrypted files are written with data pages of version 1, because parquet-java "
            "cannot read Arrow's encrypted pages of version 2: set v1, or remove the property"
        )


def _check_bloom_filters(properties: Properties) -> None:
    for name, value in properties.items():
        if name.startswith(_BLOOM_FILTER_PREFIX) and str(value).lower() == "true":
            raise ConfigurationError(
                f"{name} is true, but bloom filters cannot be written into an encrypted file: Arrow has no encrypted ones, and a "
                "plaintext filter would tell which values a column holds"
            )
