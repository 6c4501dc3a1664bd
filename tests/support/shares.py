"""Shares as their source remembers them, for tests: over a real table's files."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
from pyiceberg.table import ALWAYS_TRUE

from tablecrypt.crypto.secret import Secret
from tablecrypt.files.deletion import DeletionScope
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.maintenance import Shared
from tablecrypt.maintenance._storage import write_metadata
from tablecrypt.maintenance.runner import LocalRunner
from tablecrypt.maintenance.sharing.metadata import Place, ShareWriter
from tablecrypt.maintenance.sharing.plan import plan_share
from tablecrypt.maintenance.sharing.records import ShareRecord, remember_share
from tablecrypt.maintenance.sharing.sealing import PublicKey, info_of
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import TableFileIO
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.tables import encrypted_sql_catalog, encrypted_table

PARTNER_KEY = "alias/partner"
NORTH: Final = "team = 'north'"
"""The rows of `team_rows` that tests share."""
LINEAGE: Final = ("id", "team", "note", "_row_id", "_last_updated_sequence_number")
"""Columns of a scan that show the lineage of each row too."""


def in_order(scan: Any) -> pa.Table:
    """What a scan finds, by id."""
    return scan.to_arrow().sort_by("id")


def record_of(table: EncryptedTable, row_filter: str = "", **changed: Any) -> ShareRecord:
    """The record of a share of the files that a scan of the current snapshot reads."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    tasks = list((table.scan(row_filter=row_filter) if row_filter else table.scan()).plan_files())
    files = {file.file_path for task in tasks for file in (task.file, *task.delete_files)}
    share_uuid = str(uuid.uuid4())
    location = f"{table.location()}-shared-{share_uuid}"
    record = ShareRecord(
        share_uuid=share_uuid,
        key_id=PARTNER_KEY,
        location=location,
        metadata_location=f"{location}/metadata/00000-{share_uuid}.metadata.json",
        snapshot_id=snapshot.snapshot_id,
        created_ms=1_700_000_000_000,
        row_filter=row_filter,
        columns=(),
        files=tuple(sorted(files)),
    )
    return replace(record, **changed)


def shared(table: EncryptedTable, row_filter: str = "", **changed: Any) -> ShareRecord:
    """A share of these files that the table remembers."""
    record = record_of(table, row_filter, **changed)
    remember_share(table, record)
    return record


@dataclass(frozen=True)
class Partner:
    """An organisation with a catalog and master keys of its own, which may use no other key.

    Attributes:
        key_id: its master key.
        column_key_id: its master key for protected columns, which not everybody there may use.
        location: where shares for it go.
    """

    catalog: EncryptedSqlCatalog
    key_id: str
    column_key_id: str
    location: str
    home: Path
    aws: AwsServer

    @classmethod
    def of(cls, folder: Path, aws: AwsServer) -> Self:
        """A partner whose catalog is in `folder`, beside that of the source."""
        key_id, column_key_id = aws.new_key(), aws.new_key()
        home = folder / "partner"
        home.mkdir()
        catalog = encrypted_sql_catalog(home, aws, {"encryption.allowed-key-ids": f"{key_id},{column_key_id}"})
        return cls(catalog, key_id, column_key_id, f"file://{home}/shares/{uuid.uuid4()}", home, aws)

    def user(self, *others: str) -> EncryptedSqlCatalog:
        """The partner's catalog, as somebody there has it who may use the share's key and these others alone."""
        return encrypted_sql_catalog(self.home, self.aws, {"encryption.allowed-key-ids": ",".join((self.key_id, *others))})

    def register(self, shared: Shared, name: str = "db.share") -> EncryptedTable:
        """The share, as the partner's catalog loads it."""
        return encrypted_table(self.catalog.register_table(name, shared.metadata_location))


def state_of(
    table: EncryptedTable, victim: Shared, to: str | PublicKey, secret: Secret, writer: type[ShareWriter] = ShareWriter, number: int = 7
) -> str:
    """Write a state of a share from any table's rows, as a program of one's own can, and return where its metadata is.

    Args:
        table: whose rows it has; of its protected columns none.
        victim: the share whose uuid and folder it has.
        to: the master key that its KEK is wrapped under, or the public key that it is sealed to.
        secret: what its list says.
        writer: writes it.
        number: of the state.
    """
    key_id = to.key_id if isinstance(to, PublicKey) else to
    scope = DeletionScope((victim.location,))
    io = TableFileIO(table.io.inner, EncryptionManager(table.io.manager.kms, key_id), scope, scope)
    place = Place(victim.location, uuid.UUID(victim.share_uuid), uuid.uuid4(), number)
    if isinstance(to, PublicKey):
        kek = io.manager.new_sealed_kek(lambda entry, key: to.seal(key, info_of(victim.share_uuid, entry)))
    else:
        kek = io.manager.new_kek_for_another()

    metadata = writer(plan_share(table, ALWAYS_TRUE, None, LocalRunner()), place, io, secret, time.time_ns() // 1_000_000).write(kek)
    write_metadata(io, place.metadata_location, metadata)
    return place.metadata_location
