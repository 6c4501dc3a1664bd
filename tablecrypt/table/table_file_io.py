"""The FileIO of one encrypted table: the fail-closed EncryptingFileIO together with the table's encryption manager.

PyIceberg hands a table's FileIO to everything that reads or writes for the table, so the manager travels with it. A pickled copy, for a
worker process, holds the KMS client's configuration and no key.
"""

from __future__ import annotations

from pyiceberg.io import FileIO

from tablecrypt.files.encrypting_file_io import EncryptingFileIO, EncryptingOutputFile
from tablecrypt.keys.manager import EncryptionManager


class TableFileIO(EncryptingFileIO):
    """EncryptingFileIO of one table, with the manager that makes its DEKs and opens its manifest lists."""

    def __init__(self, inner: FileIO, manager: EncryptionManager) -> None:
        super().__init__(inner)
        self.manager = manager

    def __reduce__(self) -> tuple[type[TableFileIO], tuple[FileIO, EncryptionManager]]:  # type: ignore[override]
        return TableFileIO, (self.inner, self.manager)

    def new_encrypted_output(self, location: str) -> EncryptingOutputFile:
        """Return an AGS1 output under a fresh DEK and AAD prefix."""
        return self.encrypting_output(location, self.manager.new_key_metadata())
