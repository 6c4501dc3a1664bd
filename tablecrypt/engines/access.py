"""What the tasks of a job need of a table."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from tablecrypt.engines.protected_columns import JobColumns, file_io_of_task
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, ReadRestrictions
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.table_files import TableFileIO


@dataclass(frozen=True)
class TableAccess:
    """What an executor needs of a table besides its files' keys: metadata without history or the table's keys, the FileIO of its storage,
    what the catalog's server restricts, with the salt of this one query, what the job may do with protected columns, and the sequence
    number of the snapshot by whose schema it reads.

    The FileIO's properties may hold credentials of the store, so this is only ever sent encrypted.
    """

    metadata_json: str
    inner_io: bytes
    data_key_length: int
    read_restrictions: ReadRestrictions | None = None
    columns: JobColumns | None = None
    read_at: int | None = None

    @classmethod
    def of(cls, metadata: EncryptedTableMetadata, io: TableFileIO, columns: JobColumns | None) -> TableAccess:
        """Return what the tasks of a job on a table need.

        Args:
            metadata: as the job is planned on it.
            io: the table's.
            columns: what tasks may do with protected columns; None for a table that has and had none.
        """
        # The salt is chosen here, once: with one salt per task, a hash mask would give one value several hashes in one result.
        restrictions = None if io.read_restrictions is None else io.read_restrictions.of_query()
        # With the snapshots' keys an executor could open manifests, and so files that its tasks are not about.
        json = metadata.without_history().model_dump_json()
        return cls(json, pickle.dumps(io.inner), io.manager.data_key_length, restrictions, columns, metadata.read_at)

    def metadata(self) -> EncryptedTableMetadata:
        """Return the table metadata: schemas, specs and properties are those of the table, snapshots and keys are left out."""
        metadata = EncryptedTableMetadata.model_validate_json(self.metadata_json)
        return metadata if self.read_at is None else metadata.with_schema_of(metadata.current_schema_id, self.read_at)

    def io(self) -> EncryptingFileIO:
        """Return a FileIO that reads and writes ciphertext only."""
        return file_io_of_task(self.inner_io, self.read_restrictions, self.columns)
