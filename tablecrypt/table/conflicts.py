"""What a write with an isolation level finds in a table's history: changes of others to the rows that it is about.

An upsert inserts the rows whose keys it has not found. It ends where others have added rows that may have these keys, unless the table says
write.update.isolation-level=snapshot: the keys would be there twice. An overwrite by Spark has options:

    option("isolation-level", "serializable")      nothing was added to, deleted from or position-deleted in what the overwrite replaces
    option("isolation-level", "snapshot")          rows may have been added
    option("validate-from-snapshot-id", "4711")    since this snapshot; without it since the oldest that the table has, as in Iceberg

What is replaced is a condition, or the partitions of the new files. A file conflicts where its partition and the bounds of its columns do
not rule out that it has such rows. A rewrite adds no rows and marks none, but a file that it replaced counts as deleted, as in Iceberg.

The check is made on each base that the commit is tried on, so it sees what came after the write began, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import expression_evaluator
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import IsolationLevel, Operation, Snapshot, ancestors_of

from tablecrypt.keys.column_keys import told_until
from tablecrypt.manifests.records import EncryptedDataFile, in_literals, partition_values
from tablecrypt.table._pyiceberg.arrow import InclusiveMetricsEvaluator
from tablecrypt.table.planning import telling
from tablecrypt.table.planning.file_filter import of_partitions
from tablecrypt.table.row_changes import keys_filter

Matches = Callable[[TableMetadata, DataFile], bool]
_SHOWN: Final = 3


@dataclass(frozen=True)
class ConflictCheck:
    """What others may have done, and since when.

    Attributes:
        level: whether they may have added rows.
        since: the snapshot after which changes count; None for all that the table has.
        branch: the branch that is written to; None for the main one.
        matches: whether a file may have rows that the write is about.
        write: names it in errors.
        only_added: whether it does not matter what was deleted.
    """

    io: FileIO
    level: IsolationLevel
    since: int | None
    branch: str | None
    matches: Matches
    write: str = "overwrite"
    only_added: bool = False

    def check(self, metadata: TableMetadata) -> None:
        """Check a base of the commit. ValidationException for a change that conflicts, or where `since` is not in the branch's history."""
        for snapshot in self._snapshots(metadata):
            for what, files in self._changes(snapshot):
                if found := [file.file_path for file in files if self.matches(metadata, file)]:
                    shown = ", ".join(found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
                    raise ValidationException(
                        f"Found conflicting {what} that the {self.write} is about, in snapshot {snapshot.snapshot_id}: {shown}"
                    )

    def _snapshots(self, metadata: TableMetadata) -> Iterator[Snapshot]:
        # A branch that is not there yet begins where the main one is.
        head = metadata.snapshot_by_name(self.branch or MAIN_BRANCH) or metadata.current_snapshot()
        for snapshot in ancestors_of(head, metadata):
            if snapshot.snapshot_id == self.since:
                return
            yield snapshot

        # Without the snapshot it is not known what came after it: a branch that was rolled back, or history that expired.
        if self.since is not None:
            raise ValidationException(f"snapshot {self.since} is not in the history of the branch {self.branch or MAIN_BRANCH}")

    def _changes(self, snapshot: Snapshot) -> Iterator[tuple[str, list[DataFile]]]:
        is_rewrite = snapshot.summary is not None and snapshot.summary.operation == Operation.REPLACE
        added: list[DataFile] = []
        delete_files: list[DataFile] = []
        deleted: list[DataFile] = []

        for file, status in self._files(snapshot):
            if file.content != DataFileContent.DATA:
                if status == ManifestEntryStatus.ADDED:
                    delete_files.append(file)
            else:
                (added if status == ManifestEntryStatus.ADDED else deleted).append(file)

        if not self.only_added:
            yield "deleted files", deleted
        if not is_rewrite and not self.only_added:
            yield "new delete files", delete_files
        if not is_rewrite and self.level == IsolationLevel.SERIALIZABLE:
            yield "files", added

    def _files(self, snapshot: Snapshot) -> Iterator[tuple[DataFile, ManifestEntryStatus]]:
        for manifest in snapshot.manifests(self.io):
            # Manifests of earlier snapshots are checked with these, so each is opened once.
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            for entry in manifest.fetch_manifest_entry(self.io, discard_deleted=False):
                # A merged manifest also holds entries of older snapshots.
                if entry.snapshot_id == snapshot.snapshot_id and entry.status != ManifestEntryStatus.EXISTING:
                    yield entry.data_file, entry.status


def check_none_added(metadata: TableMetadata, io: FileIO, since: int | None, branch: str | None, keys: pa.Table) -> None:
    """Check a base of a commit that inserts rows because none was there: that others have added none that may match.

    Args:
        metadata: the base.
        io: the table's.
        since: the snapshot in which none was; None for a table without any.
        branch: the branch that is written to; None for the main one.
        keys: of the rows that are inserted.

    Raises:
        ValidationException: some may have been added, or `since` is not in the branch's history.
    """
    matches = may_match(keys_filter(keys, metadata.schema()))
    ConflictCheck(io, IsolationLevel.SERIALIZABLE, since, branch, matches, "upsert", only_added=True).check(metadata)


def may_match(row_filter: BooleanExpression) -> Matches:
    """Return whether a file may have rows that match a filter. For delete files, only the partition is compared."""

    def matches(metadata: TableMetadata, file: DataFile) -> bool:
        schema = metadata.schema()
        if not _partition_matches(metadata, schema, row_filter, file):
            return False
        if file.content != DataFileContent.DATA:
            return True

        # How old a file is, is not known here: of a protected column none tells anything.
        told = EncryptedDataFile.of(file).without_statistics_of(told_until(metadata.properties, schema))
        return InclusiveMetricsEvaluator(schema, row_filter, True, False).eval(told)

    return matches


def in_partitions_of(files: Iterable[DataFile]) -> Matches:
    """Return whether a file is in a partition of one of these."""
    replaced = {(file.spec_id, _values(file)) for file in files}
    return lambda _, file: (file.spec_id, _values(file)) in replaced


def _values(file: DataFile) -> Sequence[object]:
    return tuple(partition_values(file.partition))


def _partition_matches(metadata: TableMetadata, schema: Schema, row_filter: BooleanExpression, file: DataFile) -> bool:
    spec = telling(metadata.specs()[file.spec_id], told_until(metadata.properties, schema))
    projected = of_partitions(row_filter, spec, schema)
    if isinstance(projected, AlwaysTrue):
        return True
    return expression_evaluator(Schema(*spec.partition_type(schema).fields), projected, True)(in_literals(file.partition))
