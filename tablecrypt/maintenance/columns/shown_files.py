"""Files that show a protected column whatever is done to their columns, written again as Parquet under the table's current partition spec.

    by their partitions     their spec is from before the column was protected: a copy beside each, under fresh keys, would keep the
                            partition's value in its folder, its manifest entry and the manifest list
    by their format         Avro has no column under a key of its own, so that all of a file opens with the file's DEK
    by their deletes        another engine's delete file that applies to them holds values of it beside what readers compare

So their rows are read and written anew, as a compaction does: into the partitions and folders of the current spec, without the rows that
deletes apply to, with `_row_id` and `_last_updated_sequence_number` in the files.

    rewrite     new files in place of the old ones, one snapshot of operation "replace"; delete files that nothing needs any more go too.
                So do files under any spec whose deletion vectors lie beside those of old files: the footer there names these
    clean       the manifests of that snapshot name the old files as deleted, with their partitions: one of the same files takes its place

Shredding every snapshot but the heads then leaves no name, entry or summary with a value. The clean-up is also done where the rewriting was
interrupted before it, or where others have removed the last such file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent

from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.maintenance._shred import replace_head
from tablecrypt.maintenance.columns.footers import columns_of_deletes, may_have_hidden_columns, name_mapping_of
from tablecrypt.maintenance.compaction import Compaction, scan_tasks, unused_deletes
from tablecrypt.maintenance.compaction_plan import CompactionRules, plan_groups
from tablecrypt.maintenance.operation import ProgressListener
from tablecrypt.maintenance.runner import Runner
from tablecrypt.manifests.records import is_deletion_vector, key_metadata_of
from tablecrypt.table.deletes import data_files_named_in
from tablecrypt.table.parquet_options import target_file_size
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.protection.exposed_values import ShownPartitions, deleted_by
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import live_files


@dataclass(frozen=True)
class ShownFiles:
    """Files of one branch whose partitions show a protected column, or whose format or deletes do.

    Attributes:
        table, branch: whose they are.
        shown: the specs that do.
        locations: of the data files that are to be written again.
        deletes: of the delete files that hold a protected column, which go where no data file needs them any more.
    """

    table: EncryptedTable
    branch: str
    shown: ShownPartitions
    locations: frozenset[str]
    deletes: frozenset[str]

    @classmethod
    def among(cls, table: EncryptedTable, branch: str, files: Mapping[str, DataFile]) -> ShownFiles:
        """Choose the data files among some of a branch, by their locations.

        Raises:
            TamperedFileError, FormatError: a delete file is not what was written.
        """
        shown = ShownPartitions.of(table.metadata)
        policy = ColumnPolicy.from_properties(table.metadata.properties)
        data = {location: file for location, file in files.items() if file.content == DataFileContent.DATA}
        by_partition = {location for location, file in data.items() if shown.column(file.spec_id, location) is not None}
        by_format = {location for location, file in data.items() if policy.columns and not may_have_hidden_columns(file)}
        deletes = _deletes_that_hold(policy, table, branch)
        tasks = scan_tasks(table, branch) if deletes else []
        by_delete = {task.file.file_path for task in tasks if any(file.file_path in deletes for file in task.delete_files)}
        return cls(table, branch, shown, frozenset(by_partition | by_format | (by_delete & data.keys())), deletes)

    def rewrite(self, data_key_length: int | None, runner: Runner, progress: ProgressListener) -> int | None:
        """Write the files again, commit, and return the branch's new head; None where there was nothing to do. The table is refreshed.

        Raises:
            ValidationException: others removed a file, or rows of one, meanwhile. Nothing was committed, and nothing is left.
            CommitFailedException: other writers committed first, several times in a row. Likewise.
            TamperedFileError, KeyNotFoundError, KmsError: a file does not open. Likewise.
        """
        if not (self.shown or self.locations or self.deletes) or self.branch not in self.table.metadata.refs:
            return None

        compaction = self._planned(data_key_length)
        if compaction.groups:
            compaction.run(runner, progress)
        else:
            # Delete files of such a spec may be left, although no data file is.
            compaction.finish()

        self.table.refresh()

        return self._clean() or next(iter(compaction.result(dry_run=False).snapshot_ids), None)

    def _planned(self, data_key_length: int | None) -> Compaction:
        table, metadata = self.table, self.table.metadata
        snapshot = metadata.snapshot_by_name(self.branch)
        tasks = scan_tasks(table, self.branch)
        naming = self._vectors_that_name(tasks)
        selected = [
            task for task in tasks if task.file.file_path in self.locations or any(file.file_path in naming for file in task.delete_files)
        ]
        rules = CompactionRules(target_file_size(metadata.properties), rewrite_all=True)
        unused = {file for file in unused_deletes(table, snapshot, tasks) if self._shows(file)}
        groups = plan_groups(selected, rules, self.shown.columns)
        planned = Compaction(table, self.branch, snapshot, tasks, selected, groups, frozenset(unused))
        planned.data_key_length = data_key_length

        return planned

    def _shows(self, delete: DataFile) -> bool:
        return delete.file_path in self.deletes or self.shown.column(delete.spec_id, delete.file_path) is not None

    def _vectors_that_name(self, tasks: Iterable[EncryptedFileScanTask]) -> set[str]:
        """Return the files of deletion vectors whose footers name a data file with a value: that file, another one's vector may keep."""
        # Vectors share Puffin files: each is read once.
        vectors = {file.file_path: file for task in tasks for file in task.delete_files if is_deletion_vector(file)}
        found: set[str] = set()
        # Only the names of folders can show a value in a footer, and without such folders no footer is read.
        for location, file in vectors.items() if self.shown.folders else ():
            with self.table.io.decrypting_input(location, key_metadata_of(file)).open() as puffin:
                named = data_files_named_in(puffin.read(), location)
            if any(self.shown.column(None, each) is not None for each in named):
                found.add(location)

        return found

    def _clean(self) -> int | None:
        """Put a snapshot in the place of the head if that names files of these specs as deleted, and return it."""
        head = self.table.metadata.snapshot_by_name(self.branch)
        manifests = [] if head is None else head.manifests(self.table.io)
        if head is None or not any(self._names_deleted(manifest.partition_spec_id, manifest.deleted_files_count) for manifest in manifests):
            return None

        replace_head(self.table, self.branch, head.snapshot_id)
        self.table.refresh()
        replaced = self.table.metadata.snapshot_by_name(self.branch)

        return None if replaced is None else replaced.snapshot_id

    def _names_deleted(self, spec_id: int, deleted: int | None) -> bool:
        # A count may be missing: then there may be some.
        return spec_id in self.shown.columns and deleted != 0


def _deletes_that_hold(policy: ColumnPolicy, table: EncryptedTable, branch: str) -> frozenset[str]:
    """Return where the delete files of a branch are that hold a protected column, those apart that compare one: no reader applies these."""
    if not policy.columns:
        return frozenset()

    mapping, schemas = name_mapping_of(table.metadata), table.metadata.schemas
    files = live_files(table.metadata.snapshot_by_name(branch), table.io, ManifestContent.DELETES)
    applied = (file for file in files if not is_deletion_vector(file) and deleted_by(policy, schemas, file.equality_ids or ()) is None)

    return frozenset(
        file.file_path
        for file in applied
        if not policy.columns.keys().isdisjoint(
            columns_of_deletes(table.io, file.file_path, file.file_format.value, key_metadata_of(file), mapping)
        )
    )
