"""Where a table's layout shows values of protected columns: orders of rows, and partitions and deletes from before they were protected.

    the order of rows          tells which of two values is larger, to everybody who sees the other columns
    a partition's value        is in names of folders, entries of manifests and summaries of manifest lists, under the table's key or none
    an equality delete         holds values under the table's key, and no reader applies it: else whoever commits could try values out

Rule 1 of policy.py keeps both of the first out of the current layout. An earlier spec stays in the metadata, where it shows no value; what
shows values are the files that were written under it, with the manifests that name these. A column by which rows are deleted now is not
declared at all, so that no declaration makes rows unreadable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import VoidTransform

from tablecrypt.errors import ConfigurationError
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.table.protection.policy import policy_of, protected_name
from tablecrypt.table.table_files import live_files


def check_sort_columns(metadata: TableMetadata, columns: Iterable[str]) -> None:
    """Check names that rows are to be sorted by. They are compared without case, as Spark compares them; unknown names are passed over.

    Raises:
        ConfigurationError: one is a protected column, lies in one, or has one within it.
    """
    policy, schema = policy_of(metadata), metadata.schema()
    if not policy:
        return

    ids = {str(schema.find_column_name(field_id)).lower(): field_id for field_id in schema.field_ids}

    for column in columns:
        field_id = ids.get(column.lower())
        if field_id is not None and (name := protected_name(policy, schema, field_id)) is not None:
            # Whoever sees the other columns, and no value of this one, would see which of two values is larger.
            raise ConfigurationError(
                f"rows cannot be sorted by column {column!r}: their order would rank the values of the protected column {name!r}. "
                "Sort by another column"
            )


def check_deletes(metadata: TableMetadata, io: FileIO, after: Mapping[str, Any]) -> None:
    """Check that no branch has rows deleted by the values of a column that is about to be protected.

    Args:
        metadata: the table's.
        io: the table's. It is asked only where a branch has equality deletes, as its summary tells.
        after: the table's properties with the declaration.

    Raises:
        ConfigurationError: a branch has such deletes.
        KmsError, TamperedFileError: its manifests cannot be read.
    """
    before = ColumnPolicy.from_properties(metadata.properties).columns
    declared = ColumnPolicy.of(each for each in ColumnPolicy.from_properties(after).columns.values() if each.field_id not in before)
    if not declared:
        return

    for branch, ref in metadata.refs.items():
        head = metadata.snapshot_by_id(ref.snapshot_id)
        if ref.snapshot_ref_type != SnapshotRefType.BRANCH or head is None or not _may_delete_by_value(head):
            continue

        by_value = (file for file in live_files(head, io, ManifestContent.DELETES) if file.content == DataFileContent.EQUALITY_DELETES)
        for file in by_value:
            if (name := deleted_by(declared, metadata.schemas, file.equality_ids or ())) is not None:
                raise ConfigurationError(
                    f"column {name!r} cannot be protected yet: another engine has deleted rows of branch {branch!r} by its values, and "
                    "such deletes of a protected column are not read. Apply them first: compact the branch with apply_deletes"
                )


def deleted_by(policy: ColumnPolicy, schemas: Iterable[Schema], equality_ids: Iterable[int]) -> str | None:
    """Return the name of the protected column whose values an equality delete holds; None for none.

    Args:
        policy: the protected columns.
        schemas: of the table, the oldest first.
        equality_ids: the field ids of the columns that the delete compares.
    """
    # A column that was dropped has a name in earlier schemas alone.
    by_age = list(schemas)[::-1]
    named = (protected_name(policy, schema, field_id) for field_id in sorted(equality_ids) for schema in by_age)
    return next((name for name in named if name is not None), None)


def _may_delete_by_value(snapshot: Snapshot) -> bool:
    # A summary may say nothing of it.
    return snapshot.summary is None or snapshot.summary.additional_properties.get("total-equality-deletes") != "0"


@dataclass(frozen=True)
class ShownPartitions:
    """The partition specs of a table whose values are, or are made of, those of protected columns.

    Attributes:
        columns: the name of a protected column that shows, by the id of the spec.
        folders: names of folders below the table's that hold files of these specs begin with one of these.
    """

    columns: dict[int, str]
    folders: dict[str, str]

    @classmethod
    def of(cls, metadata: TableMetadata) -> ShownPartitions:
        """Find them. A column that was dropped counts as long as the properties protect it: its values are in old files still.

        Raises:
            ConfigurationError: the properties cannot be used.
        """
        policy = ColumnPolicy.from_properties(metadata.properties)
        columns: dict[int, str] = {}
        folders: dict[str, str] = {}
        for spec_id, spec in metadata.specs().items() if policy.columns else ():
            for field_name, column in _shown(spec, policy, metadata.schemas):
                columns.setdefault(spec_id, column)
                folders[f"{quote_plus(field_name, safe='')}="] = column

        # A field of a spec that shows nothing may have the same name: its folders tell nothing then.
        for field in (field for spec_id, spec in metadata.specs().items() if spec_id not in columns for field in spec.fields):
            folders.pop(f"{quote_plus(field.name, safe='')}=", None)
        return cls(columns, folders)

    def __bool__(self) -> bool:
        return bool(self.columns)

    def column(self, spec_id: int | None, location: str) -> str | None:
        """Return the protected column that a file's partition or folder shows; None where neither does."""
        if spec_id in self.columns:
            return self.columns[spec_id]
        # A file that was written again beside another lies in that one's folder, whatever its spec is.
        for part in location.split("/")[:-1] if self.folders else ():
            if (begins := part.partition("=")[0] + "=") in self.folders:
                return self.folders[begins]
        return None


def _shown(spec: PartitionSpec, policy: ColumnPolicy, schemas: Iterable[Schema]) -> Iterable[tuple[str, str]]:
    """Yield the name of each field of a spec that shows a protected column, and the column's."""
    by_age = list(schemas)[::-1]
    for field in spec.fields:
        # A field that was removed from a spec of format version 1 became void, and its values null.
        if isinstance(field.transform, VoidTransform):
            continue
        named = (protected_name(policy, schema, field.source_id) for schema in by_age)
        if (column := next((name for name in named if name is not None), None)) is not None:
            yield field.name, column
