"""What a table remembers of former protection, forgotten once no file needs it.

    encryption.column.<id>.since            files up to this sequence number lack the hidden column
        forgotten when every data file of every snapshot has one: from then on a file without a hidden column is refused
    encryption.column.<id>.former-key-id    files hold the column under this master key, which is not the column's now
        forgotten, with former-until, when no data file of any snapshot does; the column keys under that master key go in the same
        commit, with their KEKs

Of every file the footer is read. If one cannot be, or is no encrypted Parquet file, everything stays remembered. A manifest list that says
that a column was protected keeps its former master key too: a snapshot that follows it is refused without.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyiceberg.manifest import FileFormat
from pyiceberg.table.update import RemovePropertiesUpdate, TableUpdate

from tablecrypt.keys.column_keys import COLUMN_PREFIX, ColumnPolicy, key_id_in
from tablecrypt.keys.key_ring import EncryptedKey, KeyRing
from tablecrypt.maintenance._key_commit import commit_keys, removed_keys
from tablecrypt.maintenance.columns.footers import footer_works, inspect_hidden_columns
from tablecrypt.maintenance.reachable import FileKind, reachable_files
from tablecrypt.maintenance.runner import Runner
from tablecrypt.parquet.protected.protected_layout import StoredHiddenColumns
from tablecrypt.table.metadata import EncryptedSnapshot, EncryptedTableMetadata
from tablecrypt.table.protection.policy import policy_of
from tablecrypt.table.table import EncryptedTable

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Forgotten:
    """Properties and entries of encryption-keys that nothing needs any more."""

    properties: tuple[str, ...] = ()
    key_ids: tuple[str, ...] = ()

    @property
    def updates(self) -> tuple[TableUpdate, ...]:
        """The updates; none when nothing is forgotten."""
        removals = (RemovePropertiesUpdate(removals=list(self.properties)),) if self.properties else ()
        return (*removals, *removed_keys(self.key_ids))


def forget_former_protection(table: EncryptedTable, runner: Runner) -> None:
    """Remove what a table remembers of earlier protection and no file of any snapshot needs.

    Args:
        table: the table. Its state in memory is brought up to date.
        runner: reads footers.

    Raises:
        TamperedFileError, FormatError: a footer is not what was written.
        CommitFailedException: others committed first, several times in a row.
    """
    policy = ColumnPolicy.from_properties(table.metadata.properties)
    if not policy.former and not any(column.since is not None for column in policy.columns.values()):
        return
    # Planned on the newest state each time: a commit that was faster may have brought a file that needs what would go.
    done = commit_keys(table, lambda base: _forgotten(base, runner)).plan
    if done.updates:
        logger.info("%s: no file needs %s any more", table.metadata.location, ", ".join(done.properties))


def _forgotten(table: EncryptedTable, runner: Runner) -> _Forgotten:
    metadata = table.metadata
    footers = _footers_of_all(table, runner)
    if footers is None:
        return _Forgotten()

    current = policy_of(metadata)
    since = {field_id for field_id, column in current.columns.items() if column.since is not None}
    since = since.intersection(*(found.protected for found in footers))
    former = dict(_unused_keys(table, metadata, footers))
    names = (
        *(f"{each}.since" for each in sorted(since)),
        *(f"{each}.{name}" for each in former for name in ("former-key-id", "former-until")),
    )
    properties = tuple(name for name in (f"{COLUMN_PREFIX}{each}" for each in names) if name in metadata.properties)
    column_keys = [entry for entries in former.values() for entry in entries]

    return _Forgotten(properties, _with_keks(metadata.key_ring, column_keys))


def _footers_of_all(table: EncryptedTable, runner: Runner) -> list[StoredHiddenColumns] | None:
    """What the footers of all data files say; None where one of the files may hold more than can be told."""
    found = reachable_files(table.metadata, table.io)
    files = [file for file in found.files.values() if file.kind == FileKind.DATA]
    if found.unopened or any(file.key is None or file.file_format != FileFormat.PARQUET.value for file in files):
        return None
    works = footer_works({file.location: file.key for file in files if file.key is not None})
    return [done.result for _, done in runner.run(table, inspect_hidden_columns, works)]


def _unused_keys(
    table: EncryptedTable, metadata: EncryptedTableMetadata, footers: Iterable[StoredHiddenColumns]
) -> Iterator[tuple[int, list[EncryptedKey]]]:
    """Yield the columns whose former master key no file needs, each with its column keys under that."""
    policy, ring = ColumnPolicy.from_properties(metadata.properties), metadata.key_ring
    used = {key_id_in(stored) for found in footers for _, stored in found.keys if stored}
    with_hidden_columns = frozenset[int]().union(*(found.protected for found in footers)) | _named_by_lists(table, metadata)

    for field_id, former in sorted(policy.former.items()):
        entries = [entry for entry in ring.column_keys if entry.field_id == field_id and _master_key(ring, entry) == former.key_id]
        is_needed = any(entry.key_id in used for entry in entries) or (field_id not in policy.columns and field_id in with_hidden_columns)
        if not is_needed:
            yield field_id, entries


def _named_by_lists(table: EncryptedTable, metadata: EncryptedTableMetadata) -> frozenset[int]:
    encrypted = (each for each in metadata.snapshots if isinstance(each, EncryptedSnapshot) and each.key_id is not None)
    return frozenset[int]().union(*(each.known_header(table.io).protected_columns for each in encrypted))


def _master_key(ring: KeyRing, entry: EncryptedKey) -> str | None:
    return ring.entry(entry.encrypted_by_id or "").encrypted_by_id


def _with_keks(ring: KeyRing, column_keys: list[EncryptedKey]) -> tuple[str, ...]:
    """The ids of these column keys, and of the KEKs above them under which no other column key is."""
    gone = [entry.key_id for entry in column_keys]
    kept = {entry.encrypted_by_id for entry in ring.column_keys if entry.key_id not in gone}
    keks = dict.fromkeys(entry.encrypted_by_id for entry in column_keys if entry.encrypted_by_id is not None)
    return (*gone, *(kek for kek in keks if kek not in kept))
