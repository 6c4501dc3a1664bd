"""Erasing rows on branches and tags: afterwards no manifest of a head names a file that held such rows.

    branch   delete the rows ─▶ write the files again that still store them, drop delete files ─▶ clean the head's manifests
    tag      the same on a working branch that begins at the tag's snapshot; then the tag moves to that branch's head, and the branch goes,
             in one commit

Each commit leaves a table that is right; a run that was killed in between is continued from what is there.

Values of a protected column cannot be taken out of a page without its key. So a file with a column whose key the caller may not use is
written again with everything else of the rows blanked, and a deletion vector hides what is left of them:

    customer_id   email (protected)        customer_id   email (protected)
    7             ciphertext          ─▶   null          ciphertext          hidden by a deletion vector
    8             ciphertext               8             ciphertext

The new file's name ends in "-blanked.parquet". Its manifest entry, which is authenticated, says so to the next erasure whose caller may
use the keys: it applies the deletion vector, and the ciphertext goes with the file.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.snapshots import ancestors_of

from tablecrypt.maintenance._file_rewrite import commit_replacement
from tablecrypt.maintenance._shred import replace_head
from tablecrypt.maintenance.columns.blanking import blanked_file
from tablecrypt.maintenance.compaction import Compaction
from tablecrypt.maintenance.compaction_plan import FileGroup
from tablecrypt.maintenance.erasure.plan import WORKING_BRANCH, RefWork, Searching
from tablecrypt.maintenance.erasure.row_filter import ErasureFilter
from tablecrypt.maintenance.erasure.search import names_any
from tablecrypt.maintenance.operation import ProgressListener, reload
from tablecrypt.maintenance.runner import Runner
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table.parquet_options import target_file_size
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.protection.policy import column_keys, policy_of, unreadable
from tablecrypt.table.replace_files import EncryptedFileSwap
from tablecrypt.table.row_changes import marks_rows
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import NOT_COMMITTED, delete_files, name_of, removing_on_error


@dataclass(frozen=True)
class Rewriting:
    """Erases rows of a filter on branches and tags.

    Attributes:
        row_filter: the filter.
        runner: writes data files again.
        progress: listener for reports of the files.
        is_blind: whether the table has protected columns that the caller may not read.
    """

    row_filter: ErasureFilter
    runner: Runner
    progress: ProgressListener
    is_blind: bool

    def erase(self, searching: Searching, work: RefWork) -> int:
        """Erase on one branch or tag; return the id of the snapshot that it points to then.

        Raises:
            CommitFailedException, ValidationException: others committed what cannot be brought together with it: call again.
        """
        if work.kind == "branch":
            return self._erase_branch(searching, work.name)
        return self._erase_tag(searching, work.name)

    def _erase_branch(self, searching: Searching, branch: str) -> int:
        work = self._work(searching, branch)
        # An ordinary delete first: readers of the branch see the rows no more, even if the run is killed before it rewrites files.
        if work.rows:
            reload(searching.table).delete(self.row_filter.expression, branch=branch)
            # The delete may have written files of its kind again or added deletion vectors, so the work is planned anew.
            work = self._work(searching, branch)

        if self.is_blind:
            blank_rows(reload(searching.table), work, self.row_filter, searching.held)
        elif work.rewrite or work.dropped:
            self._rewrite(reload(searching.table), work)

        fresh = reload(searching.table)
        head = fresh.metadata.refs[branch].snapshot_id
        # Rewriting leaves the old files in the head's manifests as deleted, with their DEKs and bounds.
        if names_any(fresh, head, searching.held):
            replace_head(fresh, branch, head)
        return reload(searching.table).metadata.refs[branch].snapshot_id

    def _erase_tag(self, searching: Searching, tag: str) -> int:
        branch, tagged = self._working_branch(searching.table, tag)
        head = self._erase_branch(searching, branch)
        fresh = reload(searching.table)
        now = fresh.metadata.refs.get(tag)
        # Rewriting takes its time. The rows that somebody else has tagged meanwhile are not exchanged for those of before.
        if now is None or now.snapshot_id != tagged:
            fresh.manage_snapshots().remove_branch(branch).commit()
            raise CommitFailedException(f"{name_of(fresh)}: others moved or removed the tag {tag} while its rows were erased: call again")
        # A tag that is created anew would lose its own max-ref-age-ms.
        max_age = now.max_ref_age_ms
        # In one commit: a run that is killed leaves the tag where it was, or the tag moved and no working branch.
        with fresh.manage_snapshots() as management:
            management.create_tag(head, tag, max_age).remove_branch(branch)
        return head

    def _working_branch(self, table: EncryptedTable, tag: str) -> tuple[str, int]:
        """Return the branch on which a tag's rows are erased, that of a run that was killed or a new one, and the tagged snapshot's id."""
        fresh, branch = reload(table), f"{WORKING_BRANCH}{tag}"
        tagged, begun = fresh.metadata.refs[tag].snapshot_id, fresh.metadata.refs.get(branch)
        if begun is not None:
            # A run that was killed has begun the branch. Its commits count only if they follow the snapshot that the tag names now.
            before = ancestors_of(fresh.metadata.snapshot_by_id(begun.snapshot_id), fresh.metadata)
            follows = tagged in {snapshot.snapshot_id for snapshot in before}
            # Others may have written to a branch of this name, and the tag would get their rows.
            if follows and self._others(fresh, branch) == self._others(fresh, tag):
                return branch, tagged
            # It is begun anew, as where the tag was moved since.
            fresh.manage_snapshots().remove_branch(branch).commit()
            fresh = reload(table)

        fresh.manage_snapshots().create_branch(tagged, branch).commit()

        return branch, tagged

    def _others(self, table: EncryptedTable, ref: str) -> int:
        """Return how many rows of a branch or tag stay."""
        return table.scan().use_ref(ref).count() - self.row_filter.scan(table, ref).count()

    def _work(self, searching: Searching, branch: str) -> RefWork:
        return RefWork.of(reload(searching.table), branch, self.row_filter, searching.findings)

    def _rewrite(self, table: EncryptedTable, work: RefWork) -> None:
        # A file rolls over only at twice its size, so the remaining rows of a file become one file.
        size = target_file_size(table.metadata.properties)
        groups = [FileGroup((task,), 1, 2 * max(size, int(task.file.file_size_in_bytes))) for task in work.rewrite]
        snapshot = table.metadata.snapshot_by_id(work.snapshot_id)
        compaction = Compaction(table, work.name, snapshot, work.tasks, groups=groups, unused_deletes=work.dropped)
        compaction.run(self.runner, self.progress)


def has_hidden_columns(table: EncryptedTable) -> bool:
    """Whether a table has protected columns that the caller may not read, so that rows are blanked and not removed.

    Raises:
        ColumnKeyDeniedError: it has, and its deletes write files again, which takes the keys.
    """
    metadata = table.metadata
    policy = policy_of(metadata)
    keys = column_keys(metadata, table.io)
    if not unreadable(keys, policy.columns):
        return False

    if not marks_rows(metadata.properties, "delete"):
        # Copy-on-write deletes decode whole rows to write them again, and without its key a column's values cannot be decoded.
        keys.check_readable(tuple(policy.columns))
    return True


def blank_rows(table: EncryptedTable, work: RefWork, row_filter: ErasureFilter, held: Collection[str]) -> None:
    """Put files in the place of those that a branch has, without anything that the caller can take out of the rows of a filter.

    Args:
        table: as the catalog has it now; the rows are deleted on the branch.
        work: what is to be done on the branch.
        row_filter: the filter.
        held: locations of the files that hold such rows.

    Raises:
        FormatError: a file cannot be written so.
        CommitFailedException: other writers committed first, several times in a row.
    """
    # Delete files that hold such values are not replaced here: the search at the end reports those that are left.
    tasks = [task for task in work.rewrite if task.file.file_path in held]
    if not tasks:
        return

    written: list[EncryptedDataFile] = []
    # A generator: by the time that something fails, it lists what was written until then.
    with removing_on_error(table.io, written):
        for task in tasks:
            written.append(_blanked(table, work.name, task, row_filter))
    swaps = {task.file.file_path: new for task, new in zip(tasks, written, strict=True)}

    try:
        commit_replacement(table, work.name, EncryptedFileSwap, swaps=swaps)
    except NOT_COMMITTED:
        delete_files(table.io, written)
        raise


def _blanked(table: EncryptedTable, branch: str, task: EncryptedFileScanTask, row_filter: ErasureFilter) -> EncryptedDataFile:
    # Without its deletes: a row that a deletion vector hides is still stored, and has to be blanked too.
    stored = EncryptedFileScanTask(task.file, set(), data_sequence_number=task.data_sequence_number)
    positions = row_filter.scan(table, branch).matching_positions(stored)
    return blanked_file(table, task.file, positions.to_pylist())
