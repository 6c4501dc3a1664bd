"""How few rows lie together in the files of a table with protected columns.

Whoever has the table's key sees how long each page of a hidden column is. A page with one row tells how long its value is, and whether it
is null.
So in a table with protected columns these settings have a floor, and smaller ones are refused: where they are set, and where files are
written.

    write.parquet.row-group-limit         1,000 rows
    write.parquet.page-row-limit          1,000 rows; Arrow looks after so many whether a page has write.parquet.page-size-bytes
    write.parquet.row-group-size-bytes    1 MiB; Arrow knows no such limit, other writers of the table's files do
    write.target-file-size-bytes          1 MiB, so that a file has about 1,000 rows of 1 kB; and `target_file_size` of compact and Spark

What one write brings is the floor below these: of an append of one row there is a file of one row.

A thousand is the number of rows after which Iceberg writers look at a file's size anyway, and costs nothing: the default row group has a
thousand times as many. In what is told of 1,000 values in sum, one of them is not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyiceberg.table import TableProperties
from pyiceberg.utils.properties import property_as_int

from tablecrypt.errors import ConfigurationError
from tablecrypt.keys.column_keys import ColumnPolicy

LEAST_ROWS: Final = 1000
LEAST_BYTES: Final = 1024 * 1024
LEAST: Final[Mapping[str, int]] = {
    TableProperties.PARQUET_ROW_GROUP_LIMIT: LEAST_ROWS,
    TableProperties.PARQUET_PAGE_ROW_LIMIT: LEAST_ROWS,
    TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES: LEAST_BYTES,
    TableProperties.WRITE_TARGET_FILE_SIZE_BYTES: LEAST_BYTES,
}
"""By property, the smallest value in a table with protected columns."""


def check_sizes(properties: Mapping[str, Any]) -> None:
    """Check that a table with protected columns is written in pages, row groups and files of many rows.

    Raises:
        ConfigurationError: a property is below its floor.
    """
    if ColumnPolicy.from_properties(properties):
        for name in LEAST:
            check_size(name, properties)


def check_size(name: str, properties: Mapping[str, Any]) -> None:
    """Raise ConfigurationError where one of these properties is below its floor, in a table with protected columns."""
    # What is no number at all is refused where it is used.
    value = property_as_int(dict(properties), name, None)
    if value is not None and 0 < value < LEAST[name] and ColumnPolicy.from_properties(properties):
        raise ConfigurationError(
            f"{name} is {value}, and the table has protected columns: the length of few rows tells how long single values are, and "
            f"which are null. Set {LEAST[name]} or more"
        )


def check_changed_sizes(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Check the properties of a commit: a table that had too small a setting before this rule takes other changes still.

    Raises:
        ConfigurationError: a commit sets a property below its floor, or protects columns where one is.
    """
    was_protected = bool(ColumnPolicy.from_properties(before))
    for name in LEAST:
        if not was_protected or before.get(name) != after.get(name):
            check_size(name, after)


def least_file_size(properties: Mapping[str, Any], size: int) -> int:
    """Return a file size that was computed, and not chosen: no less than the floor where the table has protected columns."""
    return max(size, LEAST_BYTES) if ColumnPolicy.from_properties(properties) else size
