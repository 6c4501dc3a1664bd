"""Data files in place of others that hold the same rows: the snapshot of a compaction.

    read at the planned snapshot     data files, with the deletes that applied to them
    committed on the branch's head   those files go, with the deletes that are about them alone; the new files come

The new files get the sequence number of the planned snapshot, not that of the commit: an equality delete that others commit meanwhile is
younger than they are, so it deletes from them what it would have deleted from the old files. What cannot be carried over is refused, at
every attempt to commit: an old file that is gone, or that others deleted rows of by position meanwhile.

Rows keep their identity because the files hold `_row_id` and `_last_updated_sequence_number` as columns.

Raises ValidationException for such a conflict; nothing is committed then.

Iceberg table spec, "Snapshots" (operation replace), "Sequence Numbers", "Row Lineage".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table.update import UpdatesAndRequirements

from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table.content_files import refuse_plaintext
from tablecrypt.table.planning import EncryptedFileScanTask, ScanPlanner
from tablecrypt.table.snapshots import EncryptedOverwrite, ObsoleteDeletes


@dataclass(frozen=True)
class RewrittenFiles:
    """What one snapshot replaces.

    Attributes:
        replaced: scan tasks of the old files, as they were planned.
        written: the new files.
        spent_deletes: delete files that apply to no other data file than the old ones.
        sequence_number: of the snapshot that was planned on.
        snapshot_id: of the same snapshot.
    """

    replaced: Sequence[EncryptedFileScanTask]
    written: Sequence[DataFile]
    spent_deletes: frozenset[DataFile]
    sequence_number: int
    snapshot_id: int


class EncryptedRewrite(EncryptedOverwrite):
    """Puts files in place of others that hold the same rows. Snapshots of operation REPLACE."""

    def apply(self, rewritten: RewrittenFiles) -> None:
        """Take over what was rewritten.

        Raises:
            PlaintextRefusedError: a new file has no key metadata.
        """
        for file in rewritten.written:
            refuse_plaintext(file)
        self._rewritten = rewritten
        for task in rewritten.replaced:
            self.delete_data_file(task.file)

    def produce(self) -> UpdatesAndRequirements:
        """Write one attempt's manifests, after a look at what others committed since the plan."""
        self._check_nothing_was_lost()
        return super().produce()

    def check_concurrency(self) -> None:
        """Do nothing here: `produce` has its own check, and rows that others add are no conflict."""

    def obsolete_deletes(self) -> ObsoleteDeletes:
        """Return which delete files go: those about old files alone."""
        return replace(super().obsolete_deletes(), files=self._rewritten.spent_deletes)

    @property
    def added_data_files(self) -> list[DataFile]:
        """The new files."""
        return list(self._rewritten.written)

    @property
    def sequence_number_of_added(self) -> int:
        """That of the snapshot that was planned on."""
        return self._rewritten.sequence_number

    def _check_nothing_was_lost(self) -> None:
        if self.parent_snapshot_id == self._rewritten.snapshot_id:
            return
        planned = {task.file.file_path: task for task in self._rewritten.replaced}
        head = self.table_metadata.snapshot_by_id(self.parent_snapshot_id) if self.parent_snapshot_id is not None else None
        manifests = head.manifests(self.io) if head is not None else []
        living = ScanPlanner(self.table_metadata, self.io).plan_files(manifests, lambda entry: entry.data_file.file_path in planned)
        gone = planned.keys() - {task.file.file_path for task in living}
        if gone:
            raise ValidationException(f"data files were removed while they were rewritten: {', '.join(sorted(gone))}")
        for task in living:
            if _positional(task) - _positional(planned[task.file.file_path]):
                raise ValidationException(f"rows of {task.file.file_path} were deleted while it was rewritten")


def _positional(task: EncryptedFileScanTask) -> set[DataFile]:
    return {EncryptedDataFile.of(file) for file in task.delete_files if file.content == DataFileContent.POSITION_DELETES}
