"""The files of a table as the store has them: which there are, and whether one of them is plaintext."""

from __future__ import annotations

from collections.abc import Collection

from pyiceberg.table import Table

from tablecrypt.files.encrypting_file_io import store_io
from tablecrypt.maintenance.reachable import reachable_files
from tablecrypt.testing.plaintext import PlaintextFinding, findings


def files_of(table: Table) -> set[str]:
    """Return the locations of all files that the table's metadata leads to, the metadata files in its log included."""
    metadata = {table.metadata_location, *(each.metadata_file for each in table.metadata.metadata_log)}
    return metadata | reachable_files(table.metadata, table.io).files.keys()


def stored_content(table: Table, location: str) -> bytes:
    """Return what the store has in a file of the table, still encrypted."""
    io = store_io(table.io)
    with io.new_input(location).open() as stream:
        return stream.read()


def plaintext_in(table: Table, locations: Collection[str]) -> list[PlaintextFinding]:
    """Look for plaintext in files of the table."""
    return [found for location in sorted(locations) for found in findings(location, stored_content(table, location))]
