"""add_files: the rows of files that Spark reads, in an encrypted table.

Iceberg's procedure lets a table name files that are there. An encrypted table names none that is plaintext, so here Spark reads the source
and writes its rows as it writes any others, in one commit. The source stays as it is, in plaintext where it is that.

    Java       the source's columns ──▶ add_files ──▶ a query of the table's columns, and a marker for the snapshot
    Java       appends what the query gives ──▶ copied_rows ──▶ what Iceberg's procedure returns

A column that the source lacks has its initial default, or null, as in files that were written before the column was added.

Raises:
    ConfigurationError: the source has a column that the table lacks, or lacks one that must not be null; or the filter names none of its
        columns. Types that do not fit Spark itself refuses.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyiceberg.types import NestedField

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.spark.jvm.columns import quoted
from tablecrypt.spark.sql.calls import TABLE, Call, Parameter, Procedure, Row, columns, name_parts, table_of
from tablecrypt.spark.sql.catalogs import catalog_of
from tablecrypt.spark.sql.local_rows import arrow_stream
from tablecrypt.spark.sql.messages import Request, Response
from tablecrypt.spark.sql.planner import Planner
from tablecrypt.spark.sql.writes.defaults import default_metadata

_MARKER: Final = "tablecrypt.spark.copied-rows"
"""In the summary of the snapshot, by which the call finds it again."""
_RESULT: Final = columns(added_files_count=pa.int64(), changed_partition_count=pa.int64())


def _add_files(call: Call) -> Iterator[Row]:
    if call.flag("check_duplicate_files"):
        call.refuse("rows are copied without a record of their files: add each source once", "check_duplicate_files")
    table, source = call.encrypted_table(), ".".join(map(quoted, name_parts(call.text("source_table"))))
    given = _columns_by_name(call.text("source_schema"))
    own = {field.name.lower() for field in table.schema().fields}
    if unknown := [name for key, name in given.items() if key not in own]:
        raise ConfigurationError(f"{'.'.join(table.name())} has no column {', '.join(unknown)}, which {source} has: add it first")
    selected = ", ".join(_selected(field, given) for field in table.schema().fields)
    into = ".".join(map(quoted, (call.catalog_name, *call.identifier())))
    query = f"SELECT {selected} FROM {source}{_where(call.mapping('partition_filter'), given, source)}"
    call.copies.append({"query": query, "into": into, "property": f"snapshot-property.{_MARKER}", "marker": str(uuid.uuid4())})
    yield from ()


def copied_rows(planner: Planner, request: Request) -> Response:
    """Return the rows of a call whose query has been appended: how many files and partitions it came to."""
    opened = catalog_of(planner, request)
    marker, table = request.text("marker"), opened.catalog.load_table(name_parts(request.text("into"))[1:])
    summaries = [snapshot.summary for snapshot in table.metadata.snapshots if snapshot.summary is not None]
    made = next((each for each in reversed(summaries) if each.get(_MARKER) == marker), None)
    counts = {
        "added_files_count": _count(made, "added-data-files"),
        "changed_partition_count": _count(made, "changed-partition-count"),
    }
    return Response({"name": f"{opened.name}.system.add_files"}, arrow_stream(table_of([counts], _RESULT)))


def _count(summary: Any, name: str) -> int:
    # A source without rows is no snapshot.
    return int(summary.get(name, 0)) if summary is not None else 0


def _columns_by_name(schema: str) -> dict[str, str]:
    """Return the names of a source's columns by their names in small letters, from Spark's JSON."""
    try:
        names = [str(field["name"]) for field in json.loads(schema)["fields"]]
    except (ValueError, LookupError, TypeError) as error:
        raise FormatError("the columns of the source are not a Spark schema") from error
    return {name.lower(): name for name in names}


def _selected(field: NestedField, given: Mapping[str, str]) -> str:
    name = given.get(field.name.lower())
    if name is not None:
        return f"{quoted(name)} AS {quoted(field.name)}"
    if field.initial_default is not None:
        default = default_metadata(field.model_copy(update={"write_default": field.initial_default})).get("CURRENT_DEFAULT")
        if default is None:
            raise ConfigurationError(f"the source has no column {field.name}, whose default Spark cannot write")
        return f"{default} AS {quoted(field.name)}"
    if field.required:
        raise ConfigurationError(f"the source has no column {field.name}, which must not be null")
    return f"NULL AS {quoted(field.name)}"


def _where(partition_filter: Mapping[str, str], given: Mapping[str, str], source: str) -> str:
    conditions = []
    for name, value in partition_filter.items():
        if name.lower() not in given:
            raise ConfigurationError(f"partition_filter names {name}, and {source} has {', '.join(given.values())}")
        # Whatever a literal's escapes mean in this session, a text from hexadecimal digits is this one.
        conditions.append(f"CAST({quoted(given[name.lower()])} AS STRING) = CAST(X'{value.encode().hex()}' AS STRING)")
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


PROCEDURES: Final[Mapping[str, Procedure]] = {
    "add_files": Procedure(
        "Copy the rows of a table, or of files under a path, encrypted. The source stays as it is.",
        (
            TABLE,
            Parameter("source_table", "STRING", is_required=True),
            Parameter("partition_filter", "MAP<STRING, STRING>"),
            Parameter("check_duplicate_files", "BOOLEAN"),
            Parameter("parallelism", "INT"),
        ),
        _RESULT,
        _add_files,
        copies=True,
    )
}
OPERATIONS: Final = {"copied_rows": copied_rows}
