"""Planning a scan: which files a query reads, with what keys, and what is known of them beforehand.

    plan ──▶ files that may match, with sizes and row counts           when Spark optimizes the query
    prune ─▶ those of them that are left                               when a join's other side is known (runtime filters)
    open_files ──▶ keys and deletes of the files left                  when its tasks are made

Responses:

plan        {plan, stored: Spark's JSON of the table's columns that are read, under the names to read them by (see shared/schema.py),
             steady: names of the columns that Parquet may be filtered by, options: of Spark's Parquet reader, rows,
             stored_bytes: of each of the table's columns that are read, how many bytes it takes up in the files,
             split, vectorized (read_settings.py), distinct: [{column, count}], metrics: numbers by name, grouping or null, and of each
             file by number:
             locations, paths (locations as Hadoop takes them), lengths, records, first_row_ids, sequences, specs,
             partitions (partition_values.py, where asked for),
             deletes: whether some of its rows are deleted, portable: why Python reads it, else null}

prune       {files: [number]}

open_files  {} and the files' content (shared/keys.py), which holds keys

A condition on a protected column that the user may not read is refused: Spark would evaluate it on masks. So are changes of rows by what
masks show, and changes read of masks, which do not show what changed. Spark tells of the conditions that it can push down; those that it
evaluates by itself are looked for in its plan (conditions.py).

A file that Spark's own Parquet reader would not give the same rows of is portable: `portable.py` reads it, in a Python process of the
executor. Spark refuses nothing here, and no file is ever read as if a column that it lacks were null.

A limit comes only with predicates that partitions answer: Spark takes it back where rows are filtered afterwards. Files are planned until
the rows of those without deletes suffice. Of a table whose rows are restricted no count says how many may be read.

Metrics are what Spark's UI shows of planning: Iceberg's, under Iceberg's names (java/ScanMetrics.java describes them), numbers of files and
manifests and sizes of files, never a value of a row. Iceberg counts deletion vectors apart and does not show them; here they are position
deletes, which they are by the specification.

Grouping puts files in groups of like partition values: tasks that each read one group spare a join or an aggregation on these values the
shuffle.

    transforms   the partition fields that all files of the scan have and whose columns it reads, as Spark's transforms (catalogs.py)
    type         Spark's JSON of a struct of their values
    groups       how many combinations of values there are
    keys         of each file its values (partition_values.py); files of one group are next to each other

Spark's documentation calls this storage-partitioned joins. It is on where the session has Iceberg's setting
spark.sql.iceberg.planning.preserve-data-grouping=true, because many small partitions make many small tasks.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final, cast

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import BucketTransform, VoidTransform
from pyiceberg.types import DoubleType, FloatType, IcebergType, ListType, MapType, NestedField, StructType, UUIDType
from pyiceberg.utils.concurrent import ExecutorFactory

from tablecrypt.engines.protected_columns import protected_among
from tablecrypt.errors import FormatError
from tablecrypt.files.encrypting_file_io import read_restrictions_of, refuse_restricted
from tablecrypt.files.locations import with_scheme
from tablecrypt.manifests.records import EncryptedDataFile, key_metadata_of
from tablecrypt.spark.shared.schema import schema_json, stored_names
from tablecrypt.spark.shared.sources import PACKAGE
from tablecrypt.spark.shared.support import unsupported_projection, unsupported_task, value_it_may_lack
from tablecrypt.spark.shared.task_keys import PlannedFile, encode_planned_files
from tablecrypt.spark.sql.catalogs import described_partitioning
from tablecrypt.spark.sql.messages import OptionsRequest, Request, Response, operation
from tablecrypt.spark.sql.planner import LoadedTable, Planner
from tablecrypt.spark.sql.scans.changes import change_tasks
from tablecrypt.spark.sql.scans.filters import FilterRequest, Predicate, looked_at, pruning_filter
from tablecrypt.spark.sql.scans.partition_terms import partition_filters
from tablecrypt.spark.sql.scans.partition_values import PartitionStruct, json_value
from tablecrypt.spark.sql.scans.python_reads import portable_tasks
from tablecrypt.spark.sql.scans.read_settings import ReadSettings
from tablecrypt.spark.sql.scans.whole_partitions import of_whole_partitions
from tablecrypt.spark.tables import readable_columns
from tablecrypt.table.deletes import DeleteReader
from tablecrypt.table.planning import EncryptedFileScanTask, PlanCounts, ScanPlanner
from tablecrypt.table.protection.visible_columns import ERROR, MASK
from tablecrypt.table.restrictions.read_restrictions import Restrictions, restrictions_of, sees_masked
from tablecrypt.table.table import EncryptedTable

READ_OPTIONS: Final = {
    "parquet.crypto.factory.class": f"{PACKAGE}.ReadKeys",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.read.ignoreMissing": "false",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    # Iceberg's dates and times are of the proleptic Gregorian calendar.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
"""Options of Spark's Parquet reader for every read, whatever the session says."""
FILE_COLUMN: Final = "_file"
PARTITION_COLUMN: Final = "_partition"


@dataclass(frozen=True)
class ScanPlan:
    """The files of one scan, by number.

    `row_filter` is the part of the condition by which files were skipped, bound to the table's current schema; `projected` holds the
    table's columns that are read, in the order in which they were asked for. Of protected columns, `readable` holds the field ids of
    those whose values are shown.
    """

    loaded: LoadedTable
    row_filter: BooleanExpression
    projected: Schema
    tasks: Sequence[EncryptedFileScanTask]
    readable: frozenset[int] = frozenset()

    def named(self, predicates: Iterable[Predicate]) -> set[int]:
        """Return the numbers of the files that a filter which Spark found while the query ran may match."""
        metadata = self.loaded.located.table.metadata
        kept = set(range(len(self.tasks)))
        by_values: list[Predicate] = []

        for predicate in predicates:
            locations = _locations(predicate)
            if locations is None:
                by_values.append(predicate)
            else:
                kept = {number for number in kept if self.tasks[number].file.file_path in locations}

        matching = _matching(self.loaded, self.tasks, pruning_filter(by_values, self.loaded.schema, metadata.schema()))

        return {number for number in kept if matching[number]}


class PlanRequest(OptionsRequest, FilterRequest):
    """A scan to plan.

    Attributes:
        columns: Spark's JSON of those that are wanted.
        answered: those of the predicates that Spark does not evaluate on rows (whole_partitions.py).
        limit: how many rows are enough.
        grouped: whether files may come partition by partition.
        row_level: whether the rows are read to be deleted, updated or merged.
    """

    columns: str
    answered: list[Predicate]
    limit: int | None
    grouped: bool
    row_level: bool


@operation
def plan(planner: Planner, request: PlanRequest) -> Response:
    """Plan a scan."""
    loaded = planner.tables[request.table]
    row_filter = row_filter_of(loaded, request)
    # Changes and a program's files do not come from planning one snapshot, which is all that these metrics describe.
    counts = None if loaded.changes is not None or loaded.selection.tasks is not None else PlanCounts()
    tasks = of_whole_partitions(planned_tasks(loaded, row_filter, request.filter, counts), request.answered, loaded)
    # Rows that Python filters out do not count for the limit, and neither do rows of a file that did not change.
    if request.limit is not None and loaded.changes is None and not is_filtered(loaded):
        tasks = _limited(tasks, request.limit)
    return planned(planner, loaded, request, row_filter, tasks, counts)


def planned(
    planner: Planner,
    loaded: LoadedTable,
    request: PlanRequest,
    row_filter: BooleanExpression,
    tasks: list[EncryptedFileScanTask],
    counts: PlanCounts | None = None,
) -> Response:
    """Keep the plan of a request's columns in these files, and return what Spark knows of it.

    Args:
        counts: what planning looked at, where one snapshot was planned.

    Raises:
        ColumnKeyDeniedError: values of a protected column are needed that this user may not see.
    """
    wanted = _json(request.columns)
    metadata = loaded.located.table.metadata
    projected = _projected(loaded.schema, wanted)
    readable = _readable(loaded, request, projected)
    settings = ReadSettings.of(request, metadata.properties)
    is_restricted = read_restrictions_of(loaded.located.table.io) is not None
    # Where the catalog's server masks columns, rows of one partition need not be alike, nor those of two differ.
    may_group = request.grouped and settings.groups and loaded.changes is None and not is_restricted
    columns = {field.name for field in projected.fields} if may_group else set()
    grouping = Grouping.of(tasks, metadata, loaded.schema, columns)
    tasks = tasks if grouping is None else grouping.in_groups(tasks)
    made = ScanPlan(loaded, row_filter, projected, tasks, readable)
    # The token is random, so that no file has such a name for another column: Spark finds these by field id alone.
    names = stored_names(projected.fields, metadata.schemas, f"tc{secrets.token_hex(6)}")
    reason = _unsupported(loaded, projected)

    return Response(
        {
            "plan": planner.plans.add(made),
            "stored": schema_json(projected.fields, names),
            "steady": [
                field.name for field in projected.fields if names[field.field_id] == field.name and not _is_compared_otherwise(field)
            ],
            "rows": sum(task.file.record_count for task in tasks),
            "stored_bytes": _stored_bytes(tasks, projected),
            "options": READ_OPTIONS,
            "grouping": None if grouping is None else grouping.described(tasks),
            "distinct": _distinct_counts(loaded, projected) if settings.reports_statistics else [],
            "split": settings.split,
            "vectorized": settings.is_vectorized,
            "metrics": planning_metrics(tasks, counts),
            **_columns_of(tasks),
            "locations": _locations_told(tasks, loaded.located.table, wanted),
            # Where Python reads all files, it applies their deletes, and Spark needs no positions.
            "deletes": [reason is None and bool(task.delete_files) for task in tasks],
            "partitions": _partitions(tasks, loaded.located.table, wanted),
            "portable": [reason or _unsupported_file(task, projected, metadata) for task in tasks],
        }
    )


def row_filter_of(loaded: LoadedTable, request: PlanRequest) -> BooleanExpression:
    """Return what of a request's condition, and of what was chosen, may rule out files; with the names of the table's current schema."""
    asked = pruning_filter(request.filter, loaded.schema, loaded.located.table.metadata.schema())
    return And(asked, loaded.selection.row_filter)


def is_filtered(loaded: LoadedTable) -> bool:
    """Whether Python filters the rows that are read: then no count of a file's rows says how many those are."""
    return not isinstance(loaded.selection.row_filter, AlwaysTrue) or read_restrictions_of(loaded.located.table.io) is not None


class Prune(Request):
    """Predicates that Spark found while the query ran, on the files of a plan."""

    plan: str
    filter: list[Predicate]


@operation
def prune(planner: Planner, request: Prune) -> Response:
    """Return the files that a filter which Spark found while the query ran leaves."""
    known = planner.plans[request.plan]
    predicates = [_in_names_of(known.loaded.schema, predicate) for predicate in request.filter]
    return Response({"files": sorted(known.named(predicates))})


class OpenFiles(Request):
    """The files of a plan.

    Attributes:
        portable: numbers of those that Python reads.
        with_deleted: whether position-deleted rows are wanted too.
    """

    plan: str
    portable: list[int]
    with_deleted: bool


@operation
def open_files(planner: Planner, request: OpenFiles) -> Response:
    """Return the files' keys and deletes, and for those that Python reads the whole task."""
    known = planner.plans[request.plan]
    table = known.loaded.located.table
    portable, with_deleted = set(request.portable), request.with_deleted
    asked = {number: known.tasks[number] for number in portable}
    tasks = portable_tasks(known.loaded, known.projected, known.readable, asked, with_deleted=with_deleted)
    deletes = DeleteReader(table.io, table.metadata)

    def opened(number: int) -> PlannedFile:
        task = known.tasks[number]
        # Python applies deletes while it reads; Spark's reader gets the positions, and so does a query that asks for _deleted.
        positions = deletes.deletes_of(task).positions if with_deleted or number not in portable else None
        live = positions if positions is not None and len(positions) else None
        path = with_scheme(task.file.file_path)
        return PlannedFile(path, task.file.file_size_in_bytes, key_metadata_of(task.file), live, tasks.get(number, b""))

    # Threads, since each file with deletes takes a request to the store.
    files = list(ExecutorFactory.get_or_create().map(opened, range(len(known.tasks))))

    return Response({}, encode_planned_files(files))


def planned_tasks(
    loaded: LoadedTable, row_filter: BooleanExpression, predicates: Sequence[Predicate], counts: PlanCounts | None = None
) -> list[EncryptedFileScanTask]:
    """Return the tasks of all files of the snapshot that is read that may match, bound to the table's current schema.

    Args:
        loaded: the table.
        row_filter: what the predicates say of columns.
        predicates: the query's; what they say of partition functions counts where a snapshot is read and not changes.
        counts: takes what planning looks at, likewise.
    """
    if loaded.changes is not None:
        return change_tasks(loaded.located.table, loaded.changes, row_filter)

    tasks = loaded.selection.tasks
    if tasks is not None:
        return [task for task, matches in zip(tasks, _matching(loaded, tasks, row_filter), strict=True) if matches]
    if loaded.snapshot_id is None:
        return []

    table = loaded.located.table
    scan = table.scan(row_filter=row_filter).update(snapshot_id=loaded.snapshot_id, as_now=True)
    # Where the catalog's server masks columns, no partition says what a row will look like.
    of_partitions = {} if read_restrictions_of(table.io) is not None else partition_filters(predicates, loaded.schema, table.metadata)

    return scan.counted_tasks(counts or PlanCounts(), of_partitions)


def _matching(loaded: LoadedTable, tasks: Sequence[EncryptedFileScanTask], row_filter: BooleanExpression) -> list[bool]:
    """Say of each task that was planned whether its file may hold matching rows."""
    table = loaded.located.table
    return ScanPlanner(table.metadata, table.io, row_filter).may_match(tasks)


def _limited(tasks: list[EncryptedFileScanTask], limit: int) -> list[EncryptedFileScanTask]:
    """Return as many files without deletes as hold the rows of a limit; all files where those do not suffice."""
    taken: list[EncryptedFileScanTask] = []
    rows = 0
    # How many rows deletes leave is known only when they are read.
    for task in (each for each in tasks if not each.delete_files):
        if rows >= limit:
            return taken
        taken.append(task)
        rows += task.file.record_count

    return taken if rows >= limit else tasks


def _columns_of(tasks: Sequence[EncryptedFileScanTask]) -> dict[str, list[Any]]:
    return {
        "paths": [with_scheme(task.file.file_path) for task in tasks],
        "lengths": [task.file.file_size_in_bytes for task in tasks],
        "records": [task.file.record_count for task in tasks],
        "first_row_ids": [EncryptedDataFile.of(task.file).first_row_id for task in tasks],
        "sequences": [task.data_sequence_number for task in tasks],
        "specs": [task.file.spec_id for task in tasks],
    }


def _locations_told(tasks: Sequence[EncryptedFileScanTask], table: EncryptedTable, wanted: Mapping[str, Any]) -> list[str]:
    """Return the locations of files as rows tell them: without folders, where those name true values of a masked column."""
    locations = [task.file.file_path for task in tasks]
    restrictions = read_restrictions_of(table.io)
    if restrictions is None or not _partitions_by_masked(restrictions_of(restrictions), table.metadata):
        return locations

    if any(field["name"] == FILE_COLUMN for field in wanted["fields"]):
        refuse_restricted(table.io, f"reading {FILE_COLUMN}")
    return [location.rpartition("/")[2] for location in locations]


def _partitions_by_masked(restrictions: Restrictions, metadata: TableMetadata) -> bool:
    sources = {field.source_id for spec in metadata.partition_specs for field in spec.fields}
    return any(sees_masked(restrictions, sources, schema) for schema in metadata.schemas)


def _stored_bytes(tasks: Sequence[EncryptedFileScanTask], projected: Schema) -> list[int]:
    """Return how many bytes each column takes up in those files whose statistics say so."""
    known = [sizes for task in tasks if (sizes := task.file.column_sizes)]
    ids = [Schema(field).field_ids for field in projected.fields]
    return [sum(sizes.get(field_id, 0) for sizes in known for field_id in each) for each in ids]


def _distinct_counts(loaded: LoadedTable, projected: Schema) -> list[dict[str, Any]]:
    """Return how many values of a column differ, if the snapshot's statistics say so."""
    names = {field.field_id: field.name for field in projected.fields}
    blobs = [
        blob
        for statistics in loaded.located.table.metadata.statistics
        if statistics.snapshot_id == loaded.snapshot_id
        for blob in statistics.blob_metadata
    ]
    counts = {blob.fields[0]: (blob.properties or {}).get("ndv", "") for blob in blobs if len(blob.fields) == 1}
    return [{"column": names[each], "count": int(count)} for each, count in counts.items() if each in names and count.isdecimal()]


def _partitions(tasks: Sequence[EncryptedFileScanTask], table: EncryptedTable, wanted: Mapping[str, Any]) -> list[list[Any]] | None:
    """Return the partition values of files that a plan wants; None where it wants none."""
    struct = next((field["type"] for field in wanted["fields"] if field["name"] == PARTITION_COLUMN), None)
    if struct is None or "fields" not in struct:
        return None
    # They may be true values of a masked column.
    refuse_restricted(table.io, f"reading {PARTITION_COLUMN}")
    names, partitions = [field["name"] for field in struct["fields"]], PartitionStruct(table.metadata)
    return [partitions.values(task.file, names) for task in tasks]


def _unsupported(loaded: LoadedTable, projected: Schema) -> str | None:
    """Return why Spark's Parquet reader serves none of the files; None if it may."""
    # Spark's own reader would show what the server hides.
    if read_restrictions_of(loaded.located.table.io) is not None:
        return "the catalog's server restricts which rows and values may be read, which Python applies"
    if loaded.changes is not None:
        return "Python works out which of its rows changed"
    if is_filtered(loaded):
        return "Python applies the option filter"

    metadata = loaded.located.table.metadata

    return protected_among(metadata, projected) or unsupported_projection(metadata, projected)


def _readable(loaded: LoadedTable, request: PlanRequest, projected: Schema) -> frozenset[int]:
    """Return the field ids of the protected columns whose values a scan shows."""
    table = loaded.located.table
    # A row that is rewritten from masks would lose its values, and masks do not show what changed.
    needs_values = loaded.changes is not None or request.row_level
    masked = ERROR if needs_values else table.scan(masked=loaded.selection.masked).masked or MASK
    filtered = extract_field_ids(bind(table.schema(), loaded.selection.row_filter, case_sensitive=True))
    # The columns of conditions as well: a filter on masks gives wrong rows without an error.
    return readable_columns(table, projected, filtered | looked_at(request.filter, loaded.schema), masked)


def _unsupported_file(task: EncryptedFileScanTask, projected: Schema, metadata: TableMetadata) -> str | None:
    if reason := unsupported_task(task):
        return reason
    # Spark's reader makes a column that a file lacks null, whatever its default is.
    lacking = value_it_may_lack(task.file, projected, metadata)
    return None if lacking is None else f"it may lack the column {lacking}, which is not null then"


def _locations(predicate: Predicate) -> set[str] | None:
    """Return the locations of files that a predicate names; None for one on other columns."""
    arguments = predicate.get("args", ())
    # Runtime filters on the file's name come from MERGE and DELETE, which then read only the files that they rewrite.
    if predicate.get("op") not in ("IN", "=") or not arguments or arguments[0].get("column") != [FILE_COLUMN]:
        return None
    return {str(each["value"]) for each in arguments[1:] if each.get("value") is not None}


def _in_names_of(schema: Schema, predicate: Predicate) -> Predicate:
    """Return a predicate with the schema's names of its columns: Spark finds filters under the names that the query has, in any case.

    Where several columns have a name but for its case, the name has to be exact.
    """
    if predicate.get("column"):
        name, *inside = predicate["column"]
        names = {field.name for field in schema.fields}
        alike = [each for each in names if each.casefold() == name.casefold()]
        return {**predicate, "column": [alike[0] if len(alike) == 1 else name, *inside]}
    return {**predicate, "args": [_in_names_of(schema, each) for each in predicate["args"]]} if "args" in predicate else predicate


def _json(text: str) -> Mapping[str, Any]:
    try:
        wanted = json.loads(text)
        if all(isinstance(field["name"], str) and "type" in field for field in wanted["fields"]):
            return cast("Mapping[str, Any]", wanted)
    except (ValueError, LookupError, TypeError) as error:
        raise FormatError("the columns of a scan are not a Spark schema") from error
    raise FormatError("the columns of a scan are not a Spark schema")


def _projected(schema: Schema, wanted: Mapping[str, Any]) -> Schema:
    """Return the part of a schema that Spark wants, in its order; metadata columns are no part of it."""
    return Schema(*_fields(schema.fields, wanted))


def _fields(fields: Sequence[NestedField], wanted: Mapping[str, Any]) -> Iterator[NestedField]:
    by_name = {field.name: field for field in fields}
    for each in wanted["fields"]:
        field = by_name.get(each["name"])
        if field is not None:
            yield field.model_copy(update={"field_type": _part(field.field_type, each["type"])})


def _part(iceberg: IcebergType, wanted: Any) -> IcebergType:
    """Return the part of a type that Spark wants: it leaves out fields of structs that the query does not look at."""
    if isinstance(iceberg, StructType):
        return StructType(*_fields(iceberg.fields, wanted))
    if isinstance(iceberg, ListType):
        element = _part(iceberg.element_type, wanted["elementType"])
        return ListType(iceberg.element_id, element, element_required=iceberg.element_required)
    if isinstance(iceberg, MapType):
        value = _part(iceberg.value_type, wanted["valueType"])
        key = _part(iceberg.key_type, wanted["keyType"])
        return MapType(iceberg.key_id, key, iceberg.value_id, value, value_required=iceberg.value_required)

    return iceberg


def _is_compared_otherwise(field: NestedField) -> bool:
    """Whether Parquet's readers would lose rows of a column by their own filters.

    Arrow leaves NaN, which Spark puts above all numbers, out of a row group's least and greatest value.
    """
    schema = Schema(field)
    return any(isinstance(schema.find_type(field_id), (DoubleType, FloatType)) for field_id in schema.field_ids)


def planning_metrics(tasks: Sequence[EncryptedFileScanTask], counts: PlanCounts | None) -> dict[str, int]:
    """Return the metrics of a plan by name.

    Args:
        tasks: the files that are read.
        counts: what planning looked at; None where rows of a range of snapshots are read, each of which was planned by itself.
    """
    deletes = [EncryptedDataFile.of(file) for task in tasks for file in task.delete_files]
    metrics = {
        "resultDataFiles": len(tasks),
        "totalDataFileSize": sum(task.file.file_size_in_bytes for task in tasks),
        "resultDeleteFiles": len(deletes),
        "totalDeleteFileSize": sum(_size(file) for file in deletes),
    }
    return metrics if counts is None else metrics | _counted(tasks, counts)


def _counted(tasks: Sequence[EncryptedFileScanTask], counts: PlanCounts) -> dict[str, int]:
    return {
        # Iceberg's name lacks the last letter.
        "totalDataManifest": counts.data_manifests,
        "scannedDataManifests": counts.read_data_manifests,
        "skippedDataManifests": counts.data_manifests - counts.read_data_manifests,
        "skippedDataFiles": counts.listed_data_files - len(tasks),
        "totalDeleteManifests": counts.delete_manifests,
        "scannedDeleteManifests": counts.read_delete_manifests,
        "skippedDeleteManifests": counts.delete_manifests - counts.read_delete_manifests,
        "equalityDeleteFiles": counts.equality_delete_files,
        "positionalDeleteFiles": counts.position_delete_files,
        "indexedDeleteFiles": counts.equality_delete_files + counts.position_delete_files,
        "skippedDeleteFiles": 0,
    }


def _size(file: EncryptedDataFile) -> int:
    """Return a delete file's stored bytes; those of a deletion vector alone, not of the file that holds it among others."""
    return int(file.file_size_in_bytes if file.content_size_in_bytes is None else file.content_size_in_bytes)


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
