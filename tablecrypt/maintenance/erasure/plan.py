"""What an erasure has to change, worked out from the state of the table alone, so that a run that was killed is continued by the next.

suspects    snapshots that name a file with such rows or values, as live or as deleted; expired ones of which not all is stored too
of a ref    data files that hold such rows, and those to which delete files with such values apply, are written again
            delete files with such values that apply to nothing are dropped
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import ancestors_of

from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance._shred_find import OlderFiles, inspect_older
from tablecrypt.maintenance.erasure.result import ErasedRef
from tablecrypt.maintenance.erasure.row_filter import WHOLE_TABLE, ErasureFilter
from tablecrypt.maintenance.erasure.search import ENDED_BY_REWRITING, FileSearch, Findings, Holds, NamedFiles, named_files
from tablecrypt.maintenance.operation import Counted
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import live_files, name_of

WORKING_BRANCH: Final = "tablecrypt-erasing-"
"""A branch with a tag's name after this: the tag's rows, until the tag moves to them."""
_WAP_ID: Final = "wap.id"
_PUBLISHED_WAP_ID: Final = "published-wap-id"


@dataclass(frozen=True)
class Searching:
    """A table as it was searched.

    Attributes:
        table: as it was loaded.
        older: what its older metadata files hold.
        named: what its snapshots name.
        findings: what its data and delete files hold.
    """

    table: EncryptedTable
    older: OlderFiles
    named: NamedFiles
    findings: Findings

    @classmethod
    def of(cls, table: EncryptedTable, row_filter: ErasureFilter, is_blind: bool, counted: Counted) -> Searching:
        """Read all that a table's keys open; `is_blind` is as for `FileSearch`."""
        older = inspect_older(table)
        named = named_files(table, older)
        return cls(table, older, named, FileSearch(table, row_filter, is_blind).look(list(named.files.values()), counted))

    def again(self, table: EncryptedTable) -> Searching:
        """Return the same of a table that was changed since: what its snapshots name now, and what was found in files before."""
        older = inspect_older(table, self.older)
        return Searching(table, older, named_files(table, older), self.findings)

    @property
    def held(self) -> frozenset[str]:
        """Locations of files that hold such rows or values, or held them perhaps and are not stored any more."""
        # Missing files too: the manifest that names one holds its DEK and bounds, and a copy of the file may exist elsewhere.
        return self.findings.holding(*ENDED_BY_REWRITING, Holds.MISSING)

    @property
    def suspects(self) -> frozenset[int]:
        """Ids of the snapshots, expired ones too, that something of such rows is in or below."""
        # What lies below a manifest that is not stored any more is unknown, so the snapshot goes and is not called clean.
        return frozenset(self.named.naming(self.held) | self.named.out_of_reach)

    @property
    def current_ids(self) -> frozenset[int]:
        """Ids of the snapshots of the current metadata."""
        return frozenset(snapshot.snapshot_id for snapshot in self.table.metadata.snapshots)

    def check_staged(self) -> None:
        """Refuse to drop rows that were staged and never published.

        Raises:
            ConfigurationError: a staged snapshot would go.
        """
        metadata = self.table.metadata
        # An ancestor of a head is history, which an erasure removes. Only a snapshot beside all branches can be staged work.
        led_to = {
            each.snapshot_id for ref in metadata.refs.values() for each in ancestors_of(metadata.snapshot_by_id(ref.snapshot_id), metadata)
        }
        summaries = {each.snapshot_id: each.summary.additional_properties for each in metadata.snapshots if each.summary is not None}
        published = {summary[_PUBLISHED_WAP_ID] for summary in summaries.values() if _PUBLISHED_WAP_ID in summary}

        for snapshot_id in sorted(self.suspects & self.current_ids - led_to):
            wap_id = summaries.get(snapshot_id, {}).get(_WAP_ID)
            if wap_id is not None and wap_id not in published:
                raise ConfigurationError(
                    f"{name_of(self.table)}: snapshot {snapshot_id} is staged (wap.id), not published, and holds such rows: "
                    "publish or expire it first. Nothing was changed"
                )


@dataclass(frozen=True)
class RefWork:
    """What is to be changed on one branch or tag.

    Attributes:
        name, kind, snapshot_id: of the branch or tag.
        tasks: all its scan tasks.
        rewrite: those of them whose files are written again.
        dropped: delete files with such values that apply to no data file.
        rows: how many rows match and can be read.
        hidden_rows: how many stored rows match and are deleted already.
    """

    name: str
    kind: str
    snapshot_id: int
    tasks: list[EncryptedFileScanTask] = field(default_factory=list)
    rewrite: list[EncryptedFileScanTask] = field(default_factory=list)
    dropped: frozenset[DataFile] = frozenset()
    rows: int = 0
    hidden_rows: int = 0

    @classmethod
    def of(cls, table: EncryptedTable, name: str, row_filter: ErasureFilter, findings: Findings) -> RefWork:
        """Work out what is to be changed on a ref of a table."""
        ref = table.metadata.refs[name]
        scan = row_filter.scan(table, name)
        # Files without rows too: they are stored, and planning leaves them out by default.
        every = table.scan(options={"include_empty_files": "true"}).use_ref(name)
        tasks = every.plan_files()
        # No missing files: only those that no live entry names count as missing, and a branch has live ones alone.
        held = findings.holding(*ENDED_BY_REWRITING)
        with_rows = [task for task in tasks if task.file.file_path in held]
        stored = sum(findings.inspected[task.file.file_path].matching for task in with_rows)
        rows = sum(len(scan.matching_positions(task)) for task in with_rows)
        # An equality delete by other columns may be what deletes such rows: it counts where it applies to a file that holds some.
        values = findings.holding(Holds.ROWS) | {
            file.file_path for task in with_rows for file in task.delete_files if _holds(findings, file, Holds.UNDECIDED)
        }
        rewrite = [task for task in tasks if task.file.file_path in held or any(file.file_path in values for file in task.delete_files)]
        kind = "tag" if ref.snapshot_ref_type == SnapshotRefType.TAG else "branch"
        applied = {file.file_path for task in tasks for file in task.delete_files}
        dangling = frozenset(
            file
            for file in live_files(table.metadata.snapshot_by_id(ref.snapshot_id), table.io, ManifestContent.DELETES)
            if file.file_path not in applied and _holds(findings, file, Holds.ROWS, Holds.UNDECIDED)
        )

        return cls(name, kind, ref.snapshot_id, tasks, rewrite, dangling, rows, stored - rows)

    def erased(self, snapshot_after: int) -> ErasedRef:
        """Return what the result says of it."""
        return ErasedRef(
            name=self.name,
            kind=self.kind,
            rows=self.rows,
            hidden_rows=self.hidden_rows,
            rewritten_files=len(self.rewrite),
            rewritten_bytes=sum(int(task.file.file_size_in_bytes) for task in self.rewrite),
            snapshot_before=self.snapshot_id,
            snapshot_after=snapshot_after,
        )


def works(searching: Searching, row_filter: ErasureFilter) -> list[RefWork]:
    """Return what is to be changed on each branch and tag that needs it.

    Raises:
        ConfigurationError: the filter matches every row of the table.
    """
    table, suspects = searching.table, searching.suspects
    found = []
    for name, ref in sorted(table.metadata.refs.items()):
        if is_working_branch(table, name):
            continue
        work = RefWork.of(table, name, row_filter, searching.findings)
        # A head that names such a file only as deleted has nothing to rewrite, and its manifests still have to be cleaned.
        if ref.snapshot_id in suspects or work.rewrite or work.dropped:
            found.append(work)

    _check_some_stay(table, found)

    return found


def _check_some_stay(table: EncryptedTable, works: Iterable[RefWork]) -> None:
    """Refuse a filter that matches every row of the main branch: it is more likely wrong than meant."""
    main = next((work for work in works if work.name == MAIN_BRANCH and work.rows), None)
    if main is not None and main.rows == table.scan().count():
        raise ConfigurationError(f"{name_of(table)}: the filter matches all of its {main.rows:,} rows: {WHOLE_TABLE}. Nothing was changed")


def is_working_branch(table: EncryptedTable, name: str) -> bool:
    """Whether a branch is one on which a tag's rows are erased."""
    refs = table.metadata.refs
    # The rest has to be the name of a tag: a user's branch may begin with the same words, and its rows must not go with it.
    tag = refs.get(name.removeprefix(WORKING_BRANCH))
    return (
        name.startswith(WORKING_BRANCH)
        and refs[name].snapshot_ref_type == SnapshotRefType.BRANCH
        and tag is not None
        and tag.snapshot_ref_type == SnapshotRefType.TAG
    )


def _holds(findings: Findings, file: DataFile, *kinds: Holds) -> bool:
    inspected = findings.inspected.get(file.file_path)
    return inspected is not None and inspected.holds in kinds
