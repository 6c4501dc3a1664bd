"""Procedures on snapshots, branches and tags, with Iceberg's names, arguments and result columns.

    rollback_to_snapshot, rollback_to_timestamp     the main branch goes back to one of its own snapshots
    set_current_snapshot                            to any snapshot, or to what a branch or tag points to
    fast_forward                                    a branch goes on to the head of another one that it is behind
    cherrypick_snapshot, publish_changes            what a snapshot beside the main branch appended is appended to it
    ancestors_of                                    a snapshot and those before it
    create_branch, create_tag, drop_branch, drop_tag

Each is one commit of the catalog, or none.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

import pyarrow as pa
from pyiceberg.exceptions import ValidationException
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table import snapshots
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot

from tablecrypt.errors import ConfigurationError
from tablecrypt.manifests.copied_files import AlreadyAddedError, copied_files_of
from tablecrypt.manifests.records import FIRST_ROW_ID, EncryptedDataFile
from tablecrypt.spark.sql.branches_and_tags import LIMITS, check_is_new, drop, head_of, point, ref_of, snapshot_of
from tablecrypt.spark.sql.calls import Row, columns
from tablecrypt.spark.sql.statements.operations import procedure
from tablecrypt.spark.sql.writes.write_audit_publish import STAGED_ID
from tablecrypt.table.metadata import EncryptedSnapshot
from tablecrypt.table.protection.writing import WrittenUnder
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import live_files, name_of

_PUBLISHED_WAP_ID: Final = "published-wap-id"
_SOURCE_SNAPSHOT: Final = "source-snapshot-id"


_MOVED: Final = columns(previous_snapshot_id=pa.int64(), current_snapshot_id=pa.int64())
_PICKED: Final = columns(source_snapshot_id=pa.int64(), current_snapshot_id=pa.int64())
_OF_BRANCH: Final = columns(branch=pa.string(), snapshot_id=pa.int64())
_OF_TAG: Final = columns(tag=pa.string(), snapshot_id=pa.int64())


@procedure(_MOVED)
def rollback_to_snapshot(table: EncryptedTable, snapshot_id: int) -> Iterator[Row]:
    """Roll a table back to a snapshot."""
    snapshot_of(table, snapshot_id)
    if all(each.snapshot_id != snapshot_id for each in _ancestors(table, head_of(table))):
        raise ConfigurationError(f"snapshot {snapshot_id} was never current: set_current_snapshot takes any snapshot")
    yield _moved_to(table, snapshot_id)


@procedure(_MOVED)
def rollback_to_timestamp(table: EncryptedTable, timestamp: dt.datetime) -> Iterator[Row]:
    """Roll a table back to the snapshot that was current at a given time."""
    milliseconds = int(timestamp.timestamp() * 1000)
    # Strictly before, as in Iceberg Java.
    earlier = [each for each in _ancestors(table, head_of(table)) if each.timestamp_ms < milliseconds]
    if not earlier:
        raise ConfigurationError(f"no snapshot of the main branch is older than {timestamp.isoformat()}")

    yield _moved_to(table, earlier[0].snapshot_id)


@procedure(_MOVED)
def set_current_snapshot(table: EncryptedTable, snapshot_id: int | None = None, ref: str | None = None) -> Iterator[Row]:
    """Make any snapshot, branch or tag the current state."""
    if (snapshot_id is None) == (ref is None):
        raise ConfigurationError("give either snapshot_id or ref")
    target = snapshot_of(table, snapshot_id).snapshot_id if snapshot_id is not None else ref_of(table, str(ref)).snapshot_id
    yield _moved_to(table, target)


@procedure(columns(branch_updated=pa.string(), previous_ref=pa.int64(), updated_ref=pa.int64()))
def fast_forward(table: EncryptedTable, branch: str, to: str) -> Iterator[Row]:
    """Move a branch to the head of another."""
    target = ref_of(table, to).snapshot_id
    current = table.metadata.refs.get(branch)

    if current is not None:
        _check_is_branch(branch, current)
        # Else the branch would lose its own snapshots, which is a rollback and not a move forward.
        if all(each.snapshot_id != current.snapshot_id for each in _ancestors(table, target)):
            raise ConfigurationError(f"{branch} cannot be moved to {to}: it has snapshots that are not in {to}")

    if current is None or current.snapshot_id != target:
        point(table, SnapshotRefType.BRANCH, branch, target, {})
    yield {"branch_updated": branch, "previous_ref": None if current is None else current.snapshot_id, "updated_ref": target}


@procedure(_PICKED)
def cherrypick_snapshot(table: EncryptedTable, snapshot_id: int) -> Iterator[Row]:
    """Append to the main branch the rows that another snapshot appended."""
    source = snapshot_of(table, snapshot_id)
    yield {"source_snapshot_id": source.snapshot_id, "current_snapshot_id": _picked(table, source)}


@procedure(_PICKED)
def publish_changes(table: EncryptedTable, wap_id: str) -> Iterator[Row]:
    """Append to the main branch the rows that were written with a WAP id."""
    found = [each for each in table.metadata.snapshots if each.summary is not None and each.summary[STAGED_ID] == wap_id]
    if not found:
        raise ConfigurationError(f"no snapshot was written with the WAP id {wap_id}")

    if len(found) > 1:
        ids = ", ".join(str(each.snapshot_id) for each in found)
        raise ConfigurationError(
            f"{name_of(table)}: {len(found)} snapshots were written with the WAP id {wap_id} ({ids}), and an id is published once: "
            "publish one of them with cherrypick_snapshot, and write the rows of the others again, each under an id of its own"
        )

    yield {"source_snapshot_id": found[0].snapshot_id, "current_snapshot_id": _picked(table, found[0])}


@procedure(columns(snapshot_id=pa.int64(), timestamp=pa.int64()), only_reads=True)
def ancestors_of(table: EncryptedTable, snapshot_id: int | None = None) -> Iterator[Row]:
    """List a snapshot and its ancestors."""
    start = head_of(table) if snapshot_id is None else snapshot_of(table, snapshot_id).snapshot_id
    for each in _ancestors(table, start):
        yield {"snapshot_id": each.snapshot_id, "timestamp": each.timestamp_ms}


@procedure(_OF_BRANCH)
def create_branch(
    table: EncryptedTable,
    branch: str,
    snapshot_id: int | None = None,
    max_ref_age_ms: int | None = None,
    max_snapshot_age_ms: int | None = None,
    min_snapshots_to_keep: int | None = None,
) -> Iterator[Row]:
    """Create a branch."""
    check_is_new(table, branch)
    limits = dict(zip(LIMITS, (max_ref_age_ms, max_snapshot_age_ms, min_snapshots_to_keep), strict=True))
    yield {"branch": branch, "snapshot_id": point(table, SnapshotRefType.BRANCH, branch, snapshot_id, limits)}


@procedure(_OF_TAG)
def create_tag(table: EncryptedTable, tag: str, snapshot_id: int | None = None, max_ref_age_ms: int | None = None) -> Iterator[Row]:
    """Create a tag."""
    check_is_new(table, tag)
    yield {"tag": tag, "snapshot_id": point(table, SnapshotRefType.TAG, tag, snapshot_id, {LIMITS[0]: max_ref_age_ms})}


@procedure(_OF_BRANCH)
def drop_branch(table: EncryptedTable, branch: str) -> Iterator[Row]:
    """Drop a branch."""
    yield {"branch": branch, "snapshot_id": drop(table, SnapshotRefType.BRANCH, branch)}


@procedure(_OF_TAG)
def drop_tag(table: EncryptedTable, tag: str) -> Iterator[Row]:
    """Drop a tag."""
    yield {"tag": tag, "snapshot_id": drop(table, SnapshotRefType.TAG, tag)}


def _picked(table: EncryptedTable, source: Snapshot) -> int:
    """Bring what a snapshot appended to the main branch, and return the snapshot that is current then."""
    head = head_of(table)
    if any(each.snapshot_id == source.snapshot_id for each in _ancestors(table, head)):
        raise ConfigurationError(f"snapshot {source.snapshot_id} is on the main branch already")

    published = {_SOURCE_SNAPSHOT: str(source.snapshot_id)}
    if source.summary is not None and (wap_id := source.summary[STAGED_ID]) is not None:
        published[_PUBLISHED_WAP_ID] = wap_id
    transaction = table.transaction()
    # Checked now, and at each new attempt: another client may publish the same changes meanwhile.
    transaction.check_each_base(partial(_check_was_not_picked, published=published))
    # The snapshot itself can become current: its rows need no second snapshot, and its files no new manifests.
    if source.parent_snapshot_id == head:
        _moved_to(table, source.snapshot_id)
        return source.snapshot_id
    # Deletes of a snapshot count for the files that were there when it was made, not for those of today.
    if source.summary is None or source.summary.operation != Operation.APPEND:
        raise ConfigurationError(
            f"snapshot {source.snapshot_id} did more than append rows, and other snapshots were committed since: it cannot be picked"
        )

    copied = _copied_by(table, source)
    transaction.check_each_base(partial(_check_was_not_copied, io=table.io, source=source, copied=copied))
    files = list(_appended_by(table, source))
    locations = frozenset(file.file_path for file in files)
    transaction.check_each_base(partial(_check_are_new, io=table.io, source=source, locations=locations))

    with transaction:
        producer = transaction.update_snapshot(published).fast_append()
        producer.copied_files = copied
        producer.written_under = _written_under(table, source)
        producer.picked_from = source.snapshot_id
        for file in files:
            producer.append_data_file(file)
        producer.commit()

    return producer.snapshot_id


class AlreadyPublishedError(ConfigurationError, ValidationException):
    """The main branch has the changes already. Nothing is committed."""


def _check_was_not_picked(metadata: TableMetadata, published: Mapping[str, str]) -> None:
    wap_id = published.get(_PUBLISHED_WAP_ID)
    # A staged snapshot that the main branch went on to has its id as what it was staged under.
    looked_for = published if wap_id is None else {**published, STAGED_ID: wap_id}
    for each in snapshots.ancestors_of(metadata.snapshot_by_name(MAIN_BRANCH), metadata):
        same = [name for name, value in looked_for.items() if each.summary is not None and each.summary[name] == value]
        if same:
            raise AlreadyPublishedError(
                f"snapshot {each.snapshot_id} of the main branch has these changes already: its {same[0]} is the same"
            )


def _check_was_not_copied(metadata: TableMetadata, io: FileIO, source: Snapshot, copied: frozenset[bytes]) -> None:
    """Check that the main branch has no rows of the files that a snapshot copied. When its rows were written, it had none."""
    head = metadata.snapshot_by_name(MAIN_BRANCH)
    if not copied or head is None:
        return

    if known := copied & copied_files_of(io, head.manifests(io)):
        raise AlreadyAddedError(
            f"the main branch has rows of {len(known)} of the files that snapshot {source.snapshot_id} was copied from: they were added "
            "since it was written. To have them twice, call add_files with check_duplicate_files => false"
        )


def _check_are_new(metadata: TableMetadata, io: FileIO, source: Snapshot, locations: frozenset[str]) -> None:
    """Check that the main branch has none of these files: the snapshot that says that they were picked may be erased or expired."""
    for file in live_files(metadata.snapshot_by_name(MAIN_BRANCH), io, ManifestContent.DATA):
        if file.file_path in locations:
            raise AlreadyPublishedError(
                f"the main branch has files of snapshot {source.snapshot_id} already, among them {file.file_path}: its rows would be there "
                "twice"
            )


def _copied_by(table: EncryptedTable, source: Snapshot) -> frozenset[bytes]:
    """Return the fingerprints of the files that a snapshot copied. A manifest that it merged with older ones has theirs too."""
    parent = table.metadata.snapshot_by_id(source.parent_snapshot_id) if source.parent_snapshot_id is not None else None
    copied = copied_files_of(table.io, _manifests_of(table, source))
    return copied - copied_files_of(table.io, parent.manifests(table.io)) if copied and parent is not None else copied


def _appended_by(table: EncryptedTable, source: Snapshot) -> Iterator[EncryptedDataFile]:
    for manifest in _manifests_of(table, source):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            if entry.status == ManifestEntryStatus.ADDED:
                file = EncryptedDataFile.of(entry.data_file)
                # Its rows get ids of the commit that appends them.
                file[FIRST_ROW_ID] = None
                yield file


def _written_under(table: EncryptedTable, source: Snapshot) -> WrittenUnder:
    """Return the protection of a snapshot's files: appended again, they are as young as the commit, and may lack none that columns have."""
    hidden_columns = source.known_header(table.io).protected_columns if isinstance(source, EncryptedSnapshot) else ()
    return WrittenUnder.with_hidden_columns(hidden_columns, table.metadata, source.sequence_number)


def _manifests_of(table: EncryptedTable, source: Snapshot) -> list[ManifestFile]:
    return [manifest for manifest in source.manifests(table.io) if manifest.added_snapshot_id == source.snapshot_id]


def _moved_to(table: EncryptedTable, snapshot_id: int) -> Row:
    previous = head_of(table)
    if previous != snapshot_id:
        table.manage_snapshots().set_current_snapshot(snapshot_id=snapshot_id).commit()
    return {"previous_snapshot_id": previous, "current_snapshot_id": snapshot_id}


def _ancestors(table: EncryptedTable, snapshot_id: int | None) -> list[Snapshot]:
    start = None if snapshot_id is None else table.metadata.snapshot_by_id(snapshot_id)
    return list(snapshots.ancestors_of(start, table.metadata))


def _check_is_branch(name: str, ref: SnapshotRef) -> None:
    if ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise ConfigurationError(f"{name} is a tag, which never moves")


PROCEDURES: Final = (
    rollback_to_snapshot,
    rollback_to_timestamp,
    set_current_snapshot,
    fast_forward,
    cherrypick_snapshot,
    publish_changes,
    ancestors_of,
    create_branch,
    create_tag,
    drop_branch,
    drop_tag,
)
