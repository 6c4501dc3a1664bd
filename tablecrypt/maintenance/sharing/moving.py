"""Moving a registered share to its next state: one commit at the partner's table, in the place of registering anew.

    state of the share, as its sharer wrote it ─▶ checked ─▶ in the place of the table's metadata, by one compare-and-swap in its catalog

What is checked before: the state opens under the table's own master key, and its list, which is authenticated, says the same of the table
as its metadata.json does; it is of the same share; and it is newer, by the moment that the sharer wrote into its properties, which the
list authenticates too. And its list says the secret that all states of the share have in common. The sharer has that in the table's record
of the share, and whoever has opened a state knows it; who can only seal a key to the partner's public key, or wrap under his master key,
does not. So who writes the share's folder neither exchanges the share for another, nor puts an older state of it back, nor makes one.

The table keeps its location, which may be a folder of the partner's own: there the catalog writes the new metadata.json. A table to which
the partner has committed himself does not move: its rows would be lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, cast

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, SetSnapshotRefUpdate, TableUpdate

from tablecrypt.arguments import checked_arguments, file_path
from tablecrypt.errors import ConfigurationError, FormatError, MetadataRollbackError, TamperedFileError
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.maintenance.operation import OperationResult, reload
from tablecrypt.maintenance.sharing.acceptance import SharedState
from tablecrypt.maintenance.sharing.states import SHARED_AT
from tablecrypt.manifests.manifest_list import ManifestListHeader
from tablecrypt.printable import counted, shown
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import delete_written, name_of
from tablecrypt.table.updates import NextShareStateUpdate

_NUMBER: Final = re.compile("[0-9]{1,18}", re.ASCII)
_NO_LIMITS: Final = {"max_ref_age_ms": None, "max_snapshot_age_ms": None, "min_snapshots_to_keep": None}


@dataclass(frozen=True)
class MovedShare(OperationResult):
    """What `accept_update` did.

    Attributes:
        share_uuid: the table-uuid of the share.
        accepted_location: the metadata of the share's state that the table has now.
        rows: how many rows that has; None where its summary does not say so.
        moved: whether the table was at another state before.
    """

    share_uuid: str
    accepted_location: str = field(metadata=shown("state of the share"))
    rows: int | None
    moved: bool

    def summary(self) -> str:
        """Return what was done in one sentence."""
        if not self.moved:
            return f"{self.table} is at this state of share {self.share_uuid} already."
        rows = "" if self.rows is None else f" ({counted(self.rows, 'row', 'rows')})"
        return f"{self._did('Moved', 'Would move')} {self.table} to the next state of share {self.share_uuid}{rows}."


@checked_arguments()
def accept_update(table: Table, metadata_location: str, key_file: str | None = None, dry_run: bool = False) -> MovedShare:
    """Move a share that is registered as a table to its next state, in one commit.

    For whom rows are shared with: in the place of dropping the table and registering the new metadata.

    Args:
        table: the share, as it is registered. Its state in memory is brought up to date.
        metadata_location: of the new state, as `share` with `update` returned it.
        key_file: path of the private key, for a share that is sealed to a public key.
        dry_run: only check it.

    Raises:
        ConfigurationError: the table is no share, has commits of its own, or is in a REST catalog; the state is another share's; or
            other protected columns are shared, so that the new metadata has to be registered.
        MetadataRollbackError: the state is older than that of the table.
        FormatError: the state cannot be read.
        TamperedFileError, AuthenticationError: somebody has edited the state, or somebody else has made it, or it does not open.
        KmsError: the KMS does not unwrap under the table's master key.
        CommitFailedException: somebody else has moved the table in the meantime.
    """
    fresh = reload(table)
    _check_is_share(fresh)
    state = SharedState.read(fresh.io.inner, metadata_location)
    if state.metadata.table_uuid != fresh.metadata.table_uuid:
        raise ConfigurationError(
            f"{metadata_location} is of share {state.metadata.table_uuid}, and {name_of(fresh)} is share {fresh.metadata.table_uuid}"
        )
    opened = state.opened(fresh.io, None if key_file is None else file_path("key_file", key_file))
    _check_follows(fresh, opened.header, metadata_location)
    at, now = _shared_at(state.metadata, metadata_location), _shared_at(fresh.metadata, fresh.metadata_location)
    result = MovedShare(
        *(name_of(fresh), dry_run, str(state.metadata.table_uuid), metadata_location),
        rows=_rows(state.snapshot),
        moved=at != now,
    )
    if at < now:
        raise MetadataRollbackError(f"{metadata_location} is an older state of the share than {name_of(fresh)} has: ask for the newest one")
    _check_columns(fresh.metadata, state.metadata, metadata_location)
    if dry_run or not result.moved:
        return result

    moved_to = state.for_table(fresh, opened)
    try:
        _commit(fresh, moved_to)
    except CommitFailedException:
        # Of a sealed state the list is the table's own. After other errors the catalog may have made the commit, and name it.
        delete_written(fresh.io, [moved_to.snapshots[0].manifest_list] if state.is_sealed else [])
        raise
    table.refresh()
    return result


def _check_is_share(table: EncryptedTable) -> None:
    metadata = table.metadata
    if SHARED_AT not in metadata.properties:
        raise ConfigurationError(f"{name_of(table)} is no share that tablecrypt has made")
    if len(metadata.snapshots) != 1 or list(metadata.refs) != [MAIN_BRANCH] or metadata.snapshots[0].parent_snapshot_id is not None:
        raise ConfigurationError(
            f"{name_of(table)} has snapshots, branches or tags of its own, which the next state of the share lacks: register that under "
            "another name"
        )
    if isinstance(table.catalog, RestCatalog):
        raise ConfigurationError(
            f"{name_of(table)} is in a REST catalog, whose protocol has no such commit: drop the table without purge, and register the new "
            "metadata"
        )


def _check_follows(table: EncryptedTable, header: ManifestListHeader, location: str) -> None:
    """Refuse a state of somebody who has opened none before it: whoever has the public key seals to it, and others may wrap under a key."""
    secret = table.metadata.snapshots[0].authenticated_header(table.io).share_secret
    # A share of an earlier release has none, until its first update.
    if secret is not None and header.share_secret != secret:
        raise TamperedFileError(
            location,
            f"does not follow the state that {name_of(table)} has: somebody else made it, or the share was ended and made anew. If its "
            "sharer says so, drop the table without purge, and accept or register this metadata",
        )


def _shared_at(metadata: EncryptedTableMetadata, location: str) -> int:
    text = metadata.properties.get(SHARED_AT, "")
    if not _NUMBER.fullmatch(text):
        raise FormatError(f"{location}: {SHARED_AT} is {text[:32]!r}, and no moment in milliseconds")
    return int(text)


def _rows(snapshot: EncryptedSnapshot) -> int | None:
    # Summaries are not authenticated, and nothing depends on this one.
    rows = "" if snapshot.summary is None else str(snapshot.summary.additional_properties.get("total-records", ""))
    return int(rows) if _NUMBER.fullmatch(rows) else None


def _check_columns(before: EncryptedTableMetadata, after: EncryptedTableMetadata, location: str) -> None:
    """Refuse a state in which a protected column of the table is gone or under another key: no commit changes a protection by the way."""
    earlier, later = (ColumnPolicy.from_properties(each.properties) for each in (before, after))
    for field_id, column in earlier.columns.items():
        if later.master_keys(field_id) != (column.column_key_id,):
            name = before.schema().find_column_name(field_id) or after.schema().find_column_name(field_id) or field_id
            raise ConfigurationError(
                f"{location}: protected column {name!r} is under another key than in the table's state, or shared no more: drop the table "
                "without purge, and register this metadata"
            )


def _commit(table: EncryptedTable, state: EncryptedTableMetadata) -> None:
    [before], main = table.metadata.snapshots, state.refs[MAIN_BRANCH]
    updates = (
        NextShareStateUpdate(metadata=state),
        # The branch points there already. This tells whoever compares with what he has pinned that it was meant.
        SetSnapshotRefUpdate(ref_name=MAIN_BRANCH, type="branch", snapshot_id=main.snapshot_id, **_NO_LIMITS),
    )
    transaction = table.transaction()
    transaction.apply(cast("tuple[TableUpdate, ...]", updates), (AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=before.snapshot_id),))
    transaction.commit_transaction()
