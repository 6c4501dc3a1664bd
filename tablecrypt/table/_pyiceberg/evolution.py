"""Partition evolution of PyIceberg: what a change of the spec does is theirs, which id a field of it gets can be ours.

UpdateSpec: _partition_field, _transaction
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.transforms import Transform

__all__ = ["UpdateSpecSeam"]


class UpdateSpecSeam(UpdateSpec):
    """A change of the partition spec that may give a field an id other than the next new one."""

    @abstractmethod
    def earlier_field(self, source_id: int, transform: Transform[Any, Any], name: str | None) -> PartitionField | None:
        """Return the field to use in place of a new one; None for a new one."""

    @property
    def specs(self) -> Iterable[PartitionSpec]:
        """All specs of the table, those that the transaction has staged among them."""
        return self._transaction.table_metadata.specs().values()

    def _partition_field(self, transform_key: tuple[int, Transform[Any, Any]], name: str | None) -> PartitionField:
        return self.earlier_field(*transform_key, name) or super()._partition_field(transform_key, name)
