"""Where a table's layout shows values of protected columns: orders of rows, and partition specs from before the columns were protected.

    the order of rows          tells which of two values is larger, to everybody who sees the other columns
    a partition's value        is in names of folders, entries of manifests and summaries of manifest lists, under the table's key or none

Rule 1 of policy.py keeps both out of the current layout. An earlier spec stays in the metadata, where it shows no value; what shows values
are the files that were written under it, with the manifests that name these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote_plus

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform

from tablecrypt.errors import ConfigurationError
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.table.protection.policy import policy_of, protected_name


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
