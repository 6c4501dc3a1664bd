"""How keys reach the workers of Ray and of Daft: by a key of the job, wrapped by the KMS, which workers unwrap themselves.

    driver    SHARED, TASK messages, encrypted under the job key; a ticket with the wrapped key ──the engine──▶ worker
    worker    unwraps the job key with its own right to the KMS, opens the messages; sends RESULT messages, encrypted too

Ray, on which Daft may run too, keeps what tasks get and give in an object store that every process of a node's user can read, and writes
it to disk where memory is short; none of that is encrypted, with TLS between the nodes or without. So a key is there neither opened nor in
a form that whoever reads it could open without a right to the KMS, and no other way is offered: a job key that Ray delivered would lie in
that store. For the same reason no credentials of the KMS are sent: workers find their own, in their environment or their machine's role.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tablecrypt import properties as names
from tablecrypt.engines.access import TableAccess
from tablecrypt.engines.job_keys import JobKey, JobTicket, issue_job
from tablecrypt.engines.protected_columns import JobColumns
from tablecrypt.errors import ConfigurationError
from tablecrypt.files.locations import is_relative
from tablecrypt.kms.factory import properties_of
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.table_files import TableFileIO

GIVE_THE_RIGHT: Final = "give the cluster's nodes the same right"


@dataclass(frozen=True)
class WorkerJob:
    """A job on a table, on the driver. Not for other processes: it holds the job key.

    Attributes:
        metadata: of the table, as the job is planned on it.
        io: of the table.
        ticket: with which workers get the job key.
        key: of the job.
        engine: whose workers do it, for messages.
    """

    metadata: EncryptedTableMetadata
    io: TableFileIO
    ticket: JobTicket
    key: JobKey
    engine: str

    @classmethod
    def on(cls, metadata: EncryptedTableMetadata, io: TableFileIO, engine: str) -> WorkerJob:
        """Begin a job.

        Raises:
            ConfigurationError: workers cannot be sent the way to the KMS or the table's storage.
            KmsError: the KMS refused to wrap the job key.
        """
        _check_place(metadata.location, engine)
        ticket, key = issue_job(io.manager.kms, io.manager.table_key_id, _kms_properties(io, engine))
        return cls(metadata, io, ticket, key, engine)

    def access(self, readable: frozenset[int] | None = None, write_only: frozenset[int] = frozenset()) -> TableAccess:
        """Return what its tasks need of the table.

        Args:
            readable: field ids of the protected columns whose values tasks may use; None for all that the driver may read.
            write_only: field ids of the columns that tasks write and may not read.
        """
        columns = JobColumns.of(self.metadata, self.io, readable, self.ticket.kms_properties, write_only, GIVE_THE_RIGHT)
        return TableAccess.of(self.metadata, self.io, columns)


def _kms_properties(io: TableFileIO, engine: str) -> Mapping[str, str]:
    properties = properties_of(io.manager.kms)
    if names.KMS_TYPE.chosen(properties) == "memory":
        raise ConfigurationError(f"{names.KMS_TYPE.name}=memory lives in the driver's process alone: {engine}'s workers cannot reach it")
    # A class of somebody else may read credentials from any property.
    if names.is_foreign_kms(properties):
        raise ConfigurationError(
            f"the catalog names its own class by {names.KMS_IMPL.name}, which may read credentials from any property: {engine} would "
            f"pass them on in the clear. Use a service that {names.KMS_TYPE.name} names"
        )

    credentials = [name for name, value in properties.items() if names.is_sensitive(name, value)]
    if credentials:
        raise ConfigurationError(
            f"the catalog properties {', '.join(credentials)} would be passed on in the clear by {engine}: leave credentials out, and "
            "give the driver and the cluster's nodes their own, by environment variables or a role"
        )

    return properties


def _check_place(location: str, engine: str) -> None:
    if is_relative(location):
        raise ConfigurationError(
            f"the table's location {location} is relative to the current folder, and {engine}'s workers run in other folders: copy the "
            "table with tablecrypt relocate"
        )
