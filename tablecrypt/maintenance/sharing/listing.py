"""The live shares of a table, as its records say: to whom, how many files, since when, under which key."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.table import Table

from tablecrypt.arguments import checked_arguments
from tablecrypt.maintenance._tables import moment_of, reload
from tablecrypt.maintenance.sharing.records import ShareRecord, live_shares
from tablecrypt.printable import counted, json_fields, shown
from tablecrypt.table.table_files import name_of


@dataclass(frozen=True)
class LiveShare:
    """One share.

    Attributes:
        share_uuid: the table-uuid of the share.
        key_id: the partner's master key, or the fingerprint of the public key that the share's key is sealed to.
        since: when it was shared, or last updated.
        location: its folder.
        metadata_location: the metadata that the partner gets.
        snapshot_id: of the table, from which the files are.
        row_filter: what the shared rows match; empty for all.
        columns: protected columns that were shared, by name with the partner's master key of each.
        files: how many data and delete files of the table it names.
    """

    share_uuid: str
    key_id: str
    since: dt.datetime
    location: str
    metadata_location: str
    snapshot_id: int
    row_filter: str
    columns: dict[str, str]
    files: int

    @classmethod
    def of(cls, record: ShareRecord) -> LiveShare:
        """Return what a record says."""
        return cls(
            record.share_uuid,
            record.key_id,
            moment_of(record.created_ms),
            record.location,
            record.metadata_location,
            record.snapshot_id,
            record.row_filter,
            {each.name: each.key_id for each in record.columns},
            len(record.files),
        )

    def __str__(self) -> str:
        """Return it for people."""
        rows = f" where {self.row_filter}" if self.row_filter else ""
        files, since = counted(self.files, "file", "files"), self.since.isoformat(timespec="seconds")
        columns = "".join(f", with column {name} under {key_id}" for name, key_id in self.columns.items())
        return f"{self.share_uuid}: {files}{rows}{columns}, to {self.key_id} since {since}, at {self.location}"


@dataclass(frozen=True)
class Shares:
    """The live shares of a table, the oldest first."""

    table: str
    shares: tuple[LiveShare, ...] = field(metadata=shown("shares", is_whole=True))

    def summary(self) -> str:
        """Return how many there are in one sentence."""
        return f"{self.table} has {counted(len(self.shares), 'live share', 'live shares') if self.shares else 'no live share'}."

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON's types."""
        return json_fields(self)


@checked_arguments()
def shares(table: Table) -> Shares:
    """List the live shares of an encrypted table.

    Args:
        table: an encrypted table; its current state is loaded again.

    Raises:
        ConfigurationError: the table is not encrypted.
        ShareRecordError: what the table remembers of a share cannot be read.
        KmsError: the KMS does not unwrap under the table's master key.
    """
    fresh = reload(table)
    return Shares(name_of(fresh), tuple(LiveShare.of(record) for record in live_shares(fresh)))
