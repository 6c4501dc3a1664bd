"""Changes of how columns are protected, each of which somebody makes while others write."""

from __future__ import annotations

from collections.abc import Callable

from tablecrypt import maintenance
from tablecrypt.maintenance.columns.key_changes import shred_column
from tablecrypt.table.table import EncryptedTable
from tests.support.protected_tables import declare


def columns(text: str) -> Callable[[EncryptedTable], object]:
    """Declare these columns, and no others."""
    return lambda table: declare(table, text)


def mask(text: str) -> Callable[[EncryptedTable], object]:
    """Give the column ssn this mask."""
    return lambda table: declare(table, ssn=text)


def rotate_and_rewrap(table: EncryptedTable) -> None:
    """Rotate the KEK of a table, and rewrap it."""
    maintenance.rotate_kek(table)
    maintenance.rewrap(table)


def rename(table: EncryptedTable) -> None:
    """Rename the column ssn."""
    with table.update_schema() as update:
        update.rename_column("ssn", "social")


def shred(table: EncryptedTable) -> None:
    """Shred the column ssn."""
    shred_column(table, "ssn", delete_below=[table.location()])
