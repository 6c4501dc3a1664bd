"""The FileIO of one encrypted table: the fail-closed EncryptingFileIO together with the table's encryption manager.

PyIceberg hands a table's FileIO to everything that reads or writes for the table, so the manager travels with it. A pickled copy, for a
worker process, holds the KMS client's configuration and no key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.errors import ConfigurationError
from tablecrypt.files.deletion import NOTHING, DeletionScope
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, EncryptingOutputFile
from tablecrypt.files.read_restrictions import ReadRestrictions
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.table.foreign_engines import PropertiesForOthers

WRITE_PATHS: Final = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")


class TableFileIO(EncryptingFileIO):
    """EncryptingFileIO of one table, with the manager that makes its DEKs and opens its manifest lists.

    Args:
        inner: does the storing.
        manager: the table's.
        own_folders: below which folders the table's files are, as its metadata says.
        deletable: below which folders it deletes files that it did not write itself: none where nothing pins the table's metadata.
        read_restrictions: what readers of the table's rows have to apply.
    """

    def __init__(
        self,
        inner: FileIO,
        manager: EncryptionManager,
        own_folders: DeletionScope = NOTHING,
        deletable: DeletionScope = NOTHING,
        read_restrictions: ReadRestrictions | None = None,
    ) -> None:
        super().__init__(inner, read_restrictions)
        self.properties = PropertiesForOthers.of(inner.properties, "the table's FileIO")
        self.manager = manager
        self.own_folders = own_folders
        self.deletable = deletable

    def __reduce__(  # type: ignore[override]
        self,
    ) -> tuple[type[TableFileIO], tuple[FileIO, EncryptionManager, DeletionScope, DeletionScope, ReadRestrictions | None]]:
        return TableFileIO, (self.inner, self.manager, self.own_folders, self.deletable, self.read_restrictions)

    def deleting_below(self, locations: Iterable[str]) -> TableFileIO:
        """Return the same with further folders below which it deletes.

        Raises:
            ConfigurationError: a location cannot be a table's folder.
        """
        return TableFileIO(self.inner, self.manager, self.own_folders, self.deletable.and_below(locations), self.read_restrictions)

    def new_encrypted_output(self, location: str) -> EncryptingOutputFile:
        """Return an AGS1 output under a fresh DEK and AAD prefix."""
        return self.encrypting_output(location, self.manager.new_key_metadata())


def deleting_io(table: Table, delete_below: Iterable[str]) -> TableFileIO:
    """Return an encrypted table's FileIO that may delete the table's files.

    Args:
        table: an encrypted table.
        delete_below: folders that the caller names, beside those of pinned metadata.

    Raises:
        ConfigurationError: neither a pin nor the caller says that the table lies where its metadata says; or a location is no folder.
    """
    io = cast("TableFileIO", table.io).deleting_below(delete_below)
    if not io.deletable.contains(table.location()):
        raise ConfigurationError(
            f"{'.'.join(table.name())}: no pin of this client says that the table lies in {table.location()}, so nothing there is deleted "
            f"or written over. If it does lie there, name the folder: delete_below=[{table.location()!r}] (--delete-below)"
        )
    return io


def folders_of(metadata: TableMetadata) -> DeletionScope:
    """Return the folders that a table's metadata says its files are in: its location, and those of the properties write.*.path."""
    properties = dict(metadata.properties)
    paths = (properties.get(name) for name in WRITE_PATHS)
    return DeletionScope((metadata.location, *(str(path) for path in paths if path)))
