"""What an audit says of values of protected columns outside of the columns: in partitions of earlier specs, and in equality deletes.

    the spec of a data or delete file has a field of the column       its value is in the file's entry, and mostly in its name
    the spec of a manifest has one                                    a summary in the manifest list, and entries of deleted files, have it
    a folder of the file is named by such a field                     the name shows the value, whatever the file's spec is
    an equality delete file deletes by the column                     it holds values under the table's key

Messages name no file: its name would repeat the value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from pyiceberg.table.metadata import TableMetadata

from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.maintenance._audit.findings import Finding, FindingKind
from tablecrypt.maintenance.reachable import FileKind, ReachableFile
from tablecrypt.printable import counted
from tablecrypt.table.protection.exposed_values import ShownPartitions, deleted_by


def partition_findings(metadata: TableMetadata, files: Iterable[ReachableFile]) -> Iterator[Finding]:
    """Yield which protected columns show outside of their files' columns. Pure.

    Args:
        metadata: the table's, with usable properties.
        files: that its snapshots lead to.
    """
    shown, policy = ShownPartitions.of(metadata), ColumnPolicy.from_properties(metadata.properties)
    by_column: defaultdict[str, list[ReachableFile]] = defaultdict(list)
    by_value: defaultdict[str, list[ReachableFile]] = defaultdict(list)

    for file in files:
        if (column := shown.column(file.spec_id, file.location)) is not None:
            by_column[column].append(file)
        if (column := deleted_by(policy, metadata.schemas, file.equality_ids)) is not None:
            by_value[column].append(file)

    for column, showing in sorted(by_column.items()):
        yield Finding(FindingKind.COLUMN_IN_PARTITIONS, column, _message(metadata, showing))

    for column, deletes in sorted(by_value.items()):
        held = counted(len(deletes), "equality delete file holds", "equality delete files hold")
        message = (
            f"{held} its values under the table's key, and rows that they apply to are not read: roll the branch back to the snapshot "
            "before, delete the rows through tablecrypt, then shred the snapshots with these files"
        )
        yield Finding(FindingKind.COLUMN_IN_PARTITIONS, column, message)


def _message(metadata: TableMetadata, showing: Iterable[ReachableFile]) -> str:
    manifests = [file for file in showing if file.kind == FileKind.MANIFEST]
    files = [file for file in showing if file.kind != FileKind.MANIFEST]
    snapshots = frozenset[int]().union(*(file.snapshots for file in manifests))
    refs = sorted(f"{ref.snapshot_ref_type.value} {name}" for name, ref in metadata.refs.items() if ref.snapshot_id in snapshots)
    others = len(snapshots - {ref.snapshot_id for ref in metadata.refs.values()})
    kept_by = [*refs, *([counted(others, "snapshot without a name", "snapshots without a name")] if others else [])]

    return (
        f"{counted(len(files), 'data or delete file', 'data and delete files')} and {counted(len(manifests), 'manifest', 'manifests')} "
        f"of partition specs from before show it; they belong to {', '.join(kept_by) or 'current specs'}"
    )
