"""The live shares of a table: to whom, which files, and whether these are still there and the table's own.

What the records of shares say is read in `observed_shares`, which opens the heads of branches and tags again for a table that shares
something. The rules read nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.table import Table

from tablecrypt.errors import ShareRecordError
from tablecrypt.maintenance._audit.file_signatures import FileStart, Signature
from tablecrypt.maintenance._audit.findings import Finding, FindingKind
from tablecrypt.maintenance.reachable import files_of_snapshot
from tablecrypt.maintenance.sharing.records import LiveShare
from tablecrypt.printable import counted
from tablecrypt.table.shares import ShareRecord, named_records, read_record
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import heads_of

_SHOWN = 3


@dataclass(frozen=True)
class ObservedShares:
    """What a table remembers of its shares.

    Attributes:
        records: those that open.
        locations: where the records are that metadata names.
        lost: what is wrong with the others.
        of_heads: data and delete files that heads of branches and tags have.
    """

    records: tuple[ShareRecord, ...] = ()
    locations: tuple[str, ...] = ()
    lost: tuple[ShareRecordError, ...] = ()
    of_heads: frozenset[str] = frozenset()

    @property
    def files(self) -> set[str]:
        """The table's files that some share names."""
        return {location for record in self.records for location in record.all_files}


def observed_shares(table: Table) -> ObservedShares:
    """Read what a table remembers of its shares. KmsError where the KMS does not unwrap."""
    if not isinstance(table, EncryptedTable):
        return ObservedShares()
    try:
        named = named_records(table.metadata)
    except ShareRecordError as error:
        return ObservedShares(lost=(error,))
    if not named:
        return ObservedShares()

    records: list[ShareRecord] = []
    lost: list[ShareRecordError] = []
    for each in named:
        try:
            records.append(read_record(table, each))
        except ShareRecordError as error:
            lost.append(error)

    heads = heads_of(table.metadata)
    snapshots = (snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id in heads)
    of_heads = {file.file_path for snapshot in snapshots for file in files_of_snapshot(table.metadata, table.io, snapshot)[0]}

    return ObservedShares(tuple(records), tuple(each.location for each in named), tuple(lost), frozenset(of_heads))


def share_findings(shares: ObservedShares, starts: dict[str, FileStart], knows_all: bool) -> Iterator[Finding]:
    """Yield what is to be said of a table's shares.

    Args:
        shares: what was read.
        starts: how their files begin, by location.
        knows_all: whether all manifests were read, so that a file which none names is not the table's any more.
    """
    for error in shares.lost:
        yield Finding(FindingKind.SHARE_RECORD, error.share_uuid, error.what)

    for record in shares.records:
        yield Finding(FindingKind.LIVE_SHARE, record.location, str(LiveShare.of(record)))
        missing = [each for each in record.all_files if starts[each].signature == Signature.MISSING]
        if missing:
            yield Finding(FindingKind.SHARED_FILE_MISSING, record.location, _of_files(record, missing, "are not in the store"))
        behind = [each for each in record.files if each not in shares.of_heads and each not in missing]
        if behind and knows_all:
            yield Finding(FindingKind.SHARE_BEHIND, record.location, _of_files(record, behind, "are in no branch or tag any more"))


def _of_files(record: ShareRecord, files: list[str], what: str) -> str:
    shown = ", ".join(files[:_SHOWN]) + (" …" if len(files) > _SHOWN else "")
    return f"{len(files):,} of {counted(len(record.files), 'file', 'files')} of share {record.share_uuid} {what}: {shown}"
