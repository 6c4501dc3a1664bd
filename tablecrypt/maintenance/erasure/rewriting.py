"""Erasing rows on branches and tags: afterwards no manifest of a head names a file that held such rows.

    branch   delete the rows ─▶ write the files again that still store them, drop delete files ─▶ clean the head's manifests
    tag      the same on a working branch that begins at the tag's snapshot; then the tag moves to that branch's head, and the branch goes,
             in one commit

Each commit leaves a table that is right; a run that was killed in between is continued from what is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table.snapshots import ancestors_of

from tablecrypt.maintenance._shred import replace_head
from tablecrypt.maintenance._tables import reload
from tablecrypt.maintenance.compaction import Compaction
from tablecrypt.maintenance.compaction_plan import FileGroup
from tablecrypt.maintenance.erasure.blanking import blank_rows
from tablecrypt.maintenance.erasure.plan import WORKING_BRANCH, RefWork, Searching
from tablecrypt.maintenance.erasure.row_filter import ErasureFilter
from tablecrypt.maintenance.erasure.search import names_any
from tablecrypt.maintenance.progress import ProgressListener
from tablecrypt.maintenance.runner import Runner
from tablecrypt.table.parquet_options import target_file_size
from tablecrypt.table.table import EncryptedTable


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
        branch = _working_branch(searching.table, tag)
        head = self._erase_branch(searching, branch)
        fresh = reload(searching.table)
        # A tag that is created anew would lose its own max-ref-age-ms.
        max_age = fresh.metadata.refs[tag].max_ref_age_ms
        # In one commit: a run that is killed leaves the tag where it was, or the tag moved and no working branch.
        with fresh.manage_snapshots() as management:
            management.create_tag(head, tag, max_age).remove_branch(branch)
        return head

    def _work(self, searching: Searching, branch: str) -> RefWork:
        return RefWork.of(reload(searching.table), branch, self.row_filter, searching.findings)

    def _rewrite(self, table: EncryptedTable, work: RefWork) -> None:
        # A file rolls over only at twice its size, so the remaining rows of a file become one file.
        size = target_file_size(table.metadata.properties)
        groups = [FileGroup((task,), 1, 2 * max(size, int(task.file.file_size_in_bytes))) for task in work.rewrite]
        snapshot = table.metadata.snapshot_by_id(work.snapshot_id)
        compaction = Compaction(table, work.name, snapshot, work.tasks, groups=groups, unused_deletes=work.dropped)
        compaction.run(self.runner, self.progress)


def _working_branch(table: EncryptedTable, tag: str) -> str:
    """Return the branch on which a tag's rows are erased: that of a run that was killed, or a new one."""
    fresh, branch = reload(table), f"{WORKING_BRANCH}{tag}"
    tagged, begun = fresh.metadata.refs[tag].snapshot_id, fresh.metadata.refs.get(branch)
    if begun is not None:
        # A run that was killed has begun the branch. Its commits count only if they follow the snapshot that the tag names now.
        before = ancestors_of(fresh.metadata.snapshot_by_id(begun.snapshot_id), fresh.metadata)
        if tagged in {snapshot.snapshot_id for snapshot in before}:
            return branch
        # The tag was moved since.
        fresh.manage_snapshots().remove_branch(branch).commit()
        fresh = reload(table)

    fresh.manage_snapshots().create_branch(tagged, branch).commit()

    return branch
