"""Which data files have matching rows only, as their partitions and column statistics show: a delete drops them without reading a row.

_StrictMetricsEvaluator, _StrictMetricsEvaluationVisitor     what bounds and counts prove

PyIceberg's evaluator knows top-level columns only, and takes a file that does not say how many nulls or NaNs a column has for one without.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import TypeVar

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import _StrictMetricsEvaluationVisitor, _StrictMetricsEvaluator, visit
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.types import DoubleType, FloatType, NestedField

from tablecrypt.keys.column_keys import not_told
from tablecrypt.manifests.records import EncryptedDataFile

Task = TypeVar("Task", bound=FileScanTask)


class WholeFiles:
    """Tells files whose rows all match a filter.

    Args:
        schema: the table's.
        row_filter: unbound; not true of nulls and NaNs that it does not ask for, as `with_sql_null_semantics` makes it.
        told_until: of protected columns, the data sequence number up to which entries tell of them.
    """

    def __init__(
        self,
        schema: Schema,
        row_filter: BooleanExpression,
        case_sensitive: bool = True,
        *,
        told_until: Mapping[int, int | None],
    ) -> None:
        self._schema = schema
        self._told_until = told_until
        self._bound = _StrictMetricsEvaluator(schema, row_filter, case_sensitive).expr

    def has(self, task: FileScanTask) -> bool:
        """Whether every row of a planned file matches."""
        if isinstance(task.residual, AlwaysTrue):
            return True

        try:
            return visit(self._bound, _Proof(self._schema, self._as_told(task)))
        except (ValueError, struct.error):
            # A bound that is not stored as its type says, as after a promotion that PyIceberg does not know, proves nothing.
            return False

    def _as_told(self, task: FileScanTask) -> DataFile:
        if not self._told_until:
            return task.file
        # PyIceberg's own tasks do not know it.
        number = getattr(task, "data_sequence_number", None)
        return EncryptedDataFile.of(task.file).without_statistics_of(not_told(self._told_until, number))

    def split(self, tasks: Iterable[Task]) -> tuple[list[DataFile], list[Task]]:
        """Return the files whose rows all match, and the tasks whose files have to be read."""
        whole, rest = list[DataFile](), list[Task]()
        for task in tasks:
            if self.has(task):
                whole.append(task.file)
            else:
                rest.append(task)

        return whole, rest


class _Proof(_StrictMetricsEvaluationVisitor):
    def __init__(self, schema: Schema, file: DataFile) -> None:
        super().__init__(schema.as_struct(), file)
        self._schema = schema

    def _get_field(self, field_id: int) -> NestedField:
        return self._schema.find_field(field_id)

    def _can_contain_nulls(self, field_id: int) -> bool:
        # A count that is missing may be any number: only a counted 0 proves that there is no null.
        return self.null_counts.get(field_id) != 0

    def _can_contain_nans(self, field_id: int) -> bool:
        is_floating = isinstance(self._get_field(field_id).field_type, (FloatType, DoubleType))
        return is_floating and self.nan_counts.get(field_id) != 0
