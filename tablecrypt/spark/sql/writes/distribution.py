"""How Spark distributes and sorts rows before they are written.

    distribution   none    rows stay in the tasks they are in
                   hash    rows of one table partition come into one task; Spark splits a task that would get too many
                   range   rows are sorted across all tasks: by table partition, then by the table's sort order
    ordering       within a task: by table partition, then by the table's sort order, so that a task has one file open at a time;
                   none for a table without a sort order, or where the write is not to follow the table's layout: then the writer
                   brings rows of a partition together by itself

write.distribution-mode says which; by default range for a table with a sort order, hash for one with partitions, none for others. As
Iceberg's own Spark writer does, row-level changes go by write.{delete,update,merge}.distribution-mode, by default hash (a copy-on-write
MERGE into a table without partitions: what holds for other writes):

    copy-on-write, delete and update    hash: the rows of one data file come into one task; range, without partitions and a sort order:
                                        the rows of a range of data files
    merge-on-read, update and merge     hash: new rows by table partition, deleted ones by data file
    merge-on-read, delete               deleted rows by data file, only where hash or range is asked for: they write no data files

With write.spark.fanout.enabled=false rows are ordered by partition all the same, where the write follows the table's layout.
write.spark.advisory-partition-size-bytes says how many bytes of rows Spark should give one task. The write's options, or else the session's
settings (options.py), come before these properties.

Iceberg table spec, "Sorting".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, UUIDType

from tablecrypt.iceberg_properties import ADVISORY_BYTES, DISTRIBUTION, DISTRIBUTIONS, FANOUT
from tablecrypt.keys.nested_columns import path_through_structs
from tablecrypt.spark.shared.written_columns import stored_fields
from tablecrypt.spark.sql.catalogs import described_partitioning, described_transform
from tablecrypt.spark.sql.messages import Response, operation
from tablecrypt.spark.sql.writes.source_columns import SourceColumns
from tablecrypt.spark.sql.writes.write_options import SqlWriteOptions, WriteRequest, in_asked_spec

if TYPE_CHECKING:
    from tablecrypt.spark.sql.planner import Planner

NONE: Final = "none"
HASH: Final = "hash"
RANGE: Final = "range"
_FILE: Final[Mapping[str, Any]] = {"column": ["_file"], "name": "identity", "parameter": 0}


@dataclass(frozen=True)
class WriteKind:
    """What is written: the rows of a query, or those of a command.

    Attributes:
        command: delete, update or merge; None for the rows of a query.
        is_delta: whether the command's deleted rows are position-deleted.
        has_rows: False where rows are only deleted.
    """

    command: str | None
    is_delta: bool
    has_rows: bool

    @property
    def goes_by_file(self) -> bool:
        """Whether rows know the data file that they are from: all but those of queries and of copy-on-write merges."""
        return self.command is not None and (self.is_delta or self.command != "merge")


class WriteLayout(WriteRequest):
    """A write whose rows Spark is to lay out.

    Attributes:
        rows: False where rows are only deleted.
    """

    rows: bool


@operation
def write_layout(planner: Planner, request: WriteLayout) -> Response:
    """Return the distribution, the ordering and the advisory size of a write."""
    metadata = planner.tables[request.table].located.table.metadata
    kind = WriteKind(request.command, request.mode == "delta", request.rows)
    options = SqlWriteOptions.of(request)
    return Response(layout_of(in_asked_spec(metadata, options, request.mode), options, kind, SourceColumns.of(request)))


def layout_of(
    metadata: TableMetadata, options: SqlWriteOptions, kind: WriteKind, source_columns: SourceColumns | None = None
) -> dict[str, Any]:
    """Return the fields of the response. ConfigurationError for an unknown mode, or a size that is not a number.

    Args:
        source_columns: the columns of the rows where they are not the table's; a column that they lack has one value in all of them.
    """
    schema, spec = metadata.schema(), metadata.spec()
    sources = [schema.find_type(field.source_id) for field in stored_fields(spec)]
    fields = [_computed(field, source) for field, source in zip(described_partitioning(spec, schema), sources, strict=True)]
    partition = [_sorted(field) for field in fields if source_columns is None or source_columns.has(tuple(field["column"]))]
    described = described_order(metadata) if options.uses_layout else []
    order = [field for field in described if source_columns is None or source_columns.has(tuple(field["column"]))]
    properties = options.over(metadata.properties)
    groups = kind.has_rows and bool(partition) and not order and (not options.uses_layout or FANOUT.is_true(properties))
    asked = options.properties.get(DISTRIBUTION.name)
    if asked is not None and kind.command is not None:
        # An option of the write comes before the table's property of the command, too.
        properties[DISTRIBUTIONS[kind.command].name] = asked
    distribution = _distribution(properties, kind, bool(partition), bool(order)) if options.uses_layout else NONE
    taken = [field["column"] for field in partition if field["name"] == "identity"]
    # A column that rows are partitioned by is sorted already.
    ordering = partition + [field for field in order if not (field["name"] == "identity" and field["column"] in taken)]
    ranges = ordering or ([_sorted(_FILE)] if kind.goes_by_file else [])
    # Marked rows have no order to be ranged by.
    if distribution == RANGE and not kind.has_rows:
        distribution = HASH
    if distribution == RANGE and not ranges:
        distribution = NONE
    return {
        "distribution": distribution,
        "clustering": _clustering(kind, partition) if distribution == HASH else [],
        "ranges": ranges if distribution == RANGE else [],
        "ordering": ordering if kind.has_rows and not groups else [],
        "groups": groups,
        "advisory_bytes": 0 if distribution == NONE else ADVISORY_BYTES.whole_number(properties),
    }


def sort_order_of(metadata: TableMetadata, options: SqlWriteOptions, source_columns: SourceColumns | None) -> int | None:
    """Return the id of the table's sort order where `layout_of` has rows sorted by all of it; None for a table without one."""
    if not options.uses_layout:
        return None

    order = described_order(metadata)
    # A file claims the order only if its rows have all of it: readers may rely on that.
    is_whole = bool(order) and len(order) == len(metadata.sort_order().fields)
    return (
        metadata.default_sort_order_id
        if is_whole and all(source_columns is None or source_columns.has(tuple(each["column"])) for each in order)
        else None
    )


def layout_asked_for(metadata: TableMetadata, *, by_partition: bool, sort_by: Sequence[str]) -> dict[str, Any]:
    """Return the fields of the response where a program says how rows are laid out, and not the table.

    Args:
        metadata: of the table.
        by_partition: whether one task gets all rows of a table partition; otherwise rows stay in the tasks they are in.
        sort_by: columns to order each task's rows by, within a table partition.
    """
    partition = [_sorted(field) for field in described_partitioning(metadata.spec(), metadata.schema())]
    order = [_sorted({"column": [name], "name": "identity", "parameter": 0}) for name in sort_by]
    return {
        "distribution": HASH if by_partition else NONE,
        "clustering": partition if by_partition else [],
        "ranges": [],
        "ordering": partition + order,
        "groups": False,
        "advisory_bytes": 0,
        "strict": by_partition,
    }


def described_order(metadata: TableMetadata) -> list[dict[str, Any]]:
    """Return the fields of the table's sort order: as of a partition, with the direction and where nulls go."""
    schema = metadata.schema()
    return [
        _computed(described_transform(field.transform, schema, field.source_id), schema.find_type(field.source_id))
        | {"ascending": field.direction == SortDirection.ASC, "nulls_first": field.null_order == NullOrder.NULLS_FIRST}
        for field in metadata.sort_order().fields
        if path_through_structs(schema, field.source_id) is not None and not isinstance(field.transform, VoidTransform)
    ]


def _computed(field: dict[str, Any], source: IcebergType) -> dict[str, Any]:
    """Return a transform as Spark is to compute it: of a uuid it has the text, whose bucket is another."""
    return {**field, "name": "uuid_bucket"} if isinstance(source, UUIDType) and field["name"] == "bucket" else field


def _sorted(field: Mapping[str, Any]) -> dict[str, Any]:
    return {**field, "ascending": True, "nulls_first": True}


def _distribution(properties: Mapping[str, str], kind: WriteKind, is_partitioned: bool, is_sorted: bool) -> str:
    of_rows = DISTRIBUTION.chosen(properties) or (RANGE if is_sorted else HASH if is_partitioned else NONE)
    if kind.command is None:
        asked = of_rows
    else:
        own = DISTRIBUTIONS[kind.command].chosen(properties)
        follows = kind.command == "merge" and not kind.is_delta and not is_partitioned
        asked = own or (of_rows if follows else HASH if kind.has_rows else NONE)

    clusters_by_file = not kind.has_rows or (kind.command in ("delete", "update") and not kind.is_delta)
    return NONE if asked == HASH and not is_partitioned and not clusters_by_file else asked


def _clustering(kind: WriteKind, partition: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    if kind.command is None or (kind.command == "merge" and not kind.is_delta):
        return [*partition]
    return [_FILE, *partition] if kind.is_delta and kind.has_rows else [_FILE]
