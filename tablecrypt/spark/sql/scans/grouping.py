"""Files in groups of like partition values: tasks that each read one group spare a join or an aggregation on these values the shuffle.

    transforms   the partition fields that all files of the scan have and whose columns it reads, as Spark's transforms (catalogs.py)
    type         Spark's JSON of a struct of their values
    groups       how many combinations of values there are
    keys         of each file its values (partition_values.py); files of one group are next to each other

Spark's documentation calls this storage-partitioned joins. It is on where the session has Iceberg's setting
spark.sql.iceberg.planning.preserve-data-grouping=true, because many small partitions make many small tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import BucketTransform, VoidTransform
from pyiceberg.types import NestedField, UUIDType

from tablecrypt.spark.shared.schema import schema_json
from tablecrypt.spark.sql.catalogs import described_partitioning
from tablecrypt.spark.sql.scans.partition_values import json_value
from tablecrypt.table.planning import EncryptedFileScanTask


def _is_computed_alike(field: PartitionField, schema: Schema) -> bool:
    """Whether Spark works out the same values of the other side of a join. Of a uuid it has the text, whose bucket is another."""
    of_text = isinstance(field.transform, BucketTransform) and isinstance(schema.find_type(field.source_id), UUIDType)
    return not (isinstance(field.transform, VoidTransform) or of_text)


@dataclass(frozen=True)
class Grouping:
    """The partition fields by which the files of a scan are grouped."""

    fields: Sequence[PartitionField]
    metadata: TableMetadata
    schema: Schema

    @classmethod
    def of(cls, tasks: Sequence[EncryptedFileScanTask], metadata: TableMetadata, schema: Schema, columns: Set[str]) -> Grouping | None:
        """Return the grouping of a scan's files; None where they have no partition field in common.

        Args:
            tasks: the files.
            metadata: of their table.
            schema: the one that is read.
            columns: the columns that are read. Spark groups by columns that it knows.
        """
        specs = [metadata.specs()[spec_id] for spec_id in {task.file.spec_id for task in tasks}]
        shared = set.intersection(*({field.field_id for field in spec.fields} for spec in specs)) if specs else set()
        names = {field.field_id: field.name for field in schema.fields}
        fields = [field for field in (specs[0].fields if specs else ()) if field.field_id in shared]
        read = [field for field in fields if names.get(field.source_id) in columns and _is_computed_alike(field, schema)]
        return cls(read, metadata, schema) if read else None

    def in_groups(self, tasks: Iterable[EncryptedFileScanTask]) -> list[EncryptedFileScanTask]:
        """Return the tasks with those of one group next to each other."""
        # By JSON, since values may be null and of types that do not compare.
        return sorted(tasks, key=lambda task: json.dumps(self._key(task.file)))

    def described(self, tasks: Sequence[EncryptedFileScanTask]) -> Mapping[str, Any]:
        """Return what Java knows of the grouping, as drawn above."""
        keys = [self._key(task.file) for task in tasks]
        return {
            "transforms": described_partitioning(PartitionSpec(*self.fields), self.schema),
            "type": schema_json(self._struct),
            "groups": len({json.dumps(key) for key in keys}),
            "keys": keys,
        }

    @property
    def _struct(self) -> list[NestedField]:
        types = {field.field_id: field.transform.result_type(self.schema.find_type(field.source_id)) for field in self.fields}
        return [NestedField(field.field_id, field.name, types[field.field_id]) for field in self.fields]

    def _key(self, file: DataFile) -> list[Any]:
        positions = {field.field_id: at for at, field in enumerate(self.metadata.specs()[file.spec_id].fields)}
        return [json_value(file.partition[positions[field.field_id]], field) for field in self._struct]
