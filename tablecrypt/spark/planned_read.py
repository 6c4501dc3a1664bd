"""What a read of a table is, however its files are read: the table, the columns and the filter, and one snapshot's tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE

from tablecrypt.spark.tables import LocatedTable
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.scan import EncryptedDataScan, EncryptedIncrementalAppendScan


@dataclass(frozen=True)
class PlannedRead:
    """A read of one snapshot. `projected` holds the columns in the order in which they were asked for."""

    located: LocatedTable
    projected: Schema
    row_filter: BooleanExpression
    tasks: list[EncryptedFileScanTask]

    @classmethod
    def of(
        cls,
        identifier: str,
        columns: Sequence[str] | None,
        row_filter: str | BooleanExpression | None,
        snapshot_id: int | None,
        catalog_properties: Mapping[str, str] | None,
    ) -> PlannedRead:
        """Load the table and plan; arguments and errors are those of `read_table`."""
        located = LocatedTable.of(identifier, catalog_properties)
        scan = located.table.scan(row_filter=row_filter or ALWAYS_TRUE, selected_fields=tuple(columns or ("*",)), snapshot_id=snapshot_id)
        return cls.of_scan(located, scan, columns)

    @classmethod
    def of_scan(
        cls, located: LocatedTable, scan: EncryptedDataScan | EncryptedIncrementalAppendScan, columns: Sequence[str] | None
    ) -> PlannedRead:
        """Plan a scan of the located table whose selected fields are `columns`."""
        tasks = cast("list[EncryptedFileScanTask]", list(scan.plan_files()))
        return cls(located, ordered_projection(scan, columns), scan.row_filter, tasks)


def ordered_projection(scan: EncryptedDataScan | EncryptedIncrementalAppendScan, columns: Sequence[str] | None) -> Schema:
    """Return the scan's columns in the order in which they were asked for; PyIceberg keeps the table's order."""
    projected = scan.projection()
    if columns is None:
        return projected
    asked = [name.partition(".")[0] for name in columns]
    order = {name: position for position, name in reversed(list(enumerate(asked)))}
    fields = sorted(projected.fields, key=lambda field: order.get(field.name, len(order)))
    return Schema(*fields, schema_id=projected.schema_id)
