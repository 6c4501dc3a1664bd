"""What every verb asks of a table first: that it is an encrypted one; its metadata with keys, its FileIO with the manager, its name."""

from __future__ import annotations

from typing import cast

from pyiceberg.table import Table

from tablecrypt.errors import ConfigurationError
from tablecrypt.table.encrypted_table import EncryptedTable
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.table_file_io import TableFileIO


def encrypted(table: Table) -> EncryptedTable:
    """Return a table as what it is.

    Raises:
        ConfigurationError: it is not encrypted.
    """
    if not isinstance(table, EncryptedTable):
        raise ConfigurationError(f"{name_of(table)} is not an encrypted table")
    return table


def name_of(table: Table) -> str:
    """Return how results and errors name a table."""
    return ".".join(table.name())


def encrypted_metadata_of(table: EncryptedTable) -> EncryptedTableMetadata:
    """Return a table's metadata in the class that holds keys."""
    return cast("EncryptedTableMetadata", table.metadata)


def table_io(table: EncryptedTable) -> TableFileIO:
    """Return a table's FileIO with its encryption manager."""
    return cast("TableFileIO", table.io)


def newest(table: Table) -> EncryptedTable:
    """Load a table anew.

    Raises:
        ConfigurationError: it is not encrypted.
    """
    return encrypted(encrypted(table).catalog.load_table(table.name()))
