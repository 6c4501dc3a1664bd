"""DELETE, UPDATE and MERGE: which rows go, and what takes their place.

    merge-on-read   tasks report positions of deleted rows, and files with new versions    ─▶ deletion vectors and files, one snapshot
    copy-on-write   tasks write again all rows of the files that have such rows          ─▶ these files in place of those, one snapshot
    no job at all   the condition matches whole files: partitions and bounds show it      ─▶ one snapshot without these files

write.delete.mode, write.update.mode and write.merge.mode say which; write.{delete,update,merge}.isolation-level what others may do in the
meantime: nothing that the rows that were read depend on (serializable), or add rows (snapshot). The plans of the rows that were read say
what these are. So each change is checked against the very files and condition that Spark worked with.

Raises:
    ConfigurationError: a mode, an isolation level or a condition that is not served.
    FormatError: tasks delete rows of files that the query did not read, or that these do not have.
    ValidationException: others changed rows that this change is about. Nothing is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

from pyiceberg.expressions import AlwaysFalse, BooleanExpression, Or
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyroaring import BitMap64

from tablecrypt.engines.changes import marked_files
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.encrypting_file_io import refuse_restricted
from tablecrypt.keys.column_keys import told_until
from tablecrypt.spark.merge import COUNTED, summary_name
from tablecrypt.spark.sql.messages import Response, TableRequest, operation
from tablecrypt.spark.sql.scans.filters import FilterRequest, Predicate, exact_filter, pruning_filter
from tablecrypt.spark.sql.scans.whole_partitions import partition_tests
from tablecrypt.spark.sql.writes.write_audit_publish import with_branch
from tablecrypt.spark.sql.writes.write_options import written_by
from tablecrypt.spark.tables import readable_columns
from tablecrypt.spark.write import WriteOptions, commit_change
from tablecrypt.table._pyiceberg.whole_files import WholeFiles
from tablecrypt.table.filters import with_sql_null_semantics
from tablecrypt.table.protection.visible_columns import ERROR
from tablecrypt.table.row_changes import RowChange, marks_rows

if TYPE_CHECKING:
    from tablecrypt.spark.sql.planner import LoadedTable, Planner
    from tablecrypt.spark.sql.scans.plan import ScanPlan

_COMMANDS: Final = ("delete", "update", "merge")
_COUNTS: Final = {f"numTargetRows{counted.title().replace('-', '')}": summary_name(counted) for counted in COUNTED}
"""What Spark counts in a MERGE since 4.1, by the methods of its MergeSummary, and how Iceberg names it in a snapshot's summary."""


class RowChangeRequest(TableRequest):
    """A command that changes rows."""

    command: str


@operation
def row_change(planner: Planner, request: RowChangeRequest) -> Response:
    """Say how a command changes rows: by a delta, or by groups of rows, the files."""
    loaded, command = planner.tables[request.table], request.command
    if command not in _COMMANDS:
        raise FormatError(f"a change by {command!r} is not known")
    loaded.check_writable()
    # Rows that the server's filter hides would be lost when their files are written again.
    refuse_restricted(loaded.located.table.io, command.upper())
    return Response({"delta": _is_delta(loaded, command)})


@dataclass(frozen=True)
class ReadFiles:
    """What a command's rows came from: the plan of a scan, and the numbers of its files that were read."""

    plan: ScanPlan
    numbers: Sequence[int]


class NamedScan(TypedDict):
    """A scan as a commit names it: the plan's handle, and the numbers of the files that were read."""

    plan: str
    files: list[int]


def merge_counts(counts: Mapping[str, int]) -> dict[str, str]:
    """Return what Spark counted in a MERGE, for the snapshot's summary; nothing of what it did not count."""
    return {_COUNTS[name]: str(value) for name, value in counts.items() if name in _COUNTS and value >= 0}


def scans_of(planner: Planner, named: Sequence[NamedScan] | None) -> list[ReadFiles]:
    """Return the scans that a commit names. FormatError where it names none."""
    # Without them a change would drop no file, and its rows would be there twice.
    if named is None:
        raise FormatError("a commit does not say which files its rows came from")
    return [ReadFiles(planner.plans[scan["plan"]], scan["files"]) for scan in named]


def changed_rows(
    loaded: LoadedTable, command: str, scans: Sequence[ReadFiles], files: list[DataFile], deleted: Mapping[str, BitMap64]
) -> RowChange:
    """Return the change that a command's tasks report.

    Args:
        command: delete, update or merge.
        files: with new and rewritten rows.
        deleted: positions of deleted rows by data file; empty for copy-on-write.
    """
    # The conditions of the scans: by these files were skipped, so they say on which rows the result depends.
    change = RowChange(reduce(Or, (scan.plan.row_filter for scan in scans), cast("BooleanExpression", AlwaysFalse())), is_merge=True)
    if _is_delta(loaded, command):
        change.position_deleted = marked_files({task.file.file_path: task for scan in scans for task in scan.plan.tasks}, deleted)
        change.added = files
    # A copy-on-write job has written the rows that stay, so a position beside them is a forged or mistaken one.
    elif deleted:
        raise FormatError(f"{loaded.located.name}: tasks of a copy-on-write change report deleted rows")
    else:
        change.dropped = [scan.plan.tasks[number].file for scan in scans for number in scan.numbers]
        change.rewritten = files

    return change


def _is_delta(loaded: LoadedTable, command: str) -> bool:
    return marks_rows(loaded.located.table.metadata.properties, command)


@operation
def can_delete_where(planner: Planner, request: FilterRequest) -> Response:
    """Say whether a condition matches whole files, so that no row has to be read."""
    try:
        whole_files(planner.tables[request.table], request.filter)
    # No error here: Spark asks before it plans a job, which deletes row by row.
    except ConfigurationError:
        return Response({"whole": False})
    return Response({"whole": True})


@operation
def delete_where(planner: Planner, request: FilterRequest) -> None:
    """Delete the files that a condition matches whole. TRUNCATE is this with no condition."""
    loaded = planner.tables[request.table]
    loaded.check_writable()
    refuse_restricted(loaded.located.table.io, "DELETE")
    loaded = with_branch(loaded)
    change = whole_files(loaded, request.filter)
    summary = {**written_by(request), **loaded.audit_first.summary}
    commit_change(loaded.located, change, WriteOptions(branch=loaded.target, snapshot_properties=summary))


def whole_files(loaded: LoadedTable, predicates: Sequence[Mapping[str, Any]]) -> RowChange:
    """Return the removal of the files in which every row matches all of the predicates.

    Raises:
        ConfigurationError: some files may have rows that match and others that do not, or a predicate has no exact translation.
    """
    located = loaded.located
    metadata = located.table.metadata
    schema = metadata.schema()
    # A pruning filter will not do: files go as a whole, unread, so it must match no row more than Spark's condition.
    asked = exact_filter(predicates, schema)
    if asked is None:
        return _whole_partitions(loaded, predicates)

    sure = with_sql_null_semantics(asked, schema)
    tasks = list(located.scan(sure, loaded.branch).plan_files())
    # Which files go would tell what a protected column has in them.
    readable_columns(located.table, Schema(), extract_field_ids(bind(schema, sure, case_sensitive=True)), ERROR)
    whole = WholeFiles(schema, sure, told_until=told_until(metadata.properties, schema))
    partly = next((task.file.file_path for task in tasks if not whole.has(task)), None)
    if partly is not None:
        raise ConfigurationError(f"{partly}: the condition may match some of its rows and not others: use DELETE, UPDATE or MERGE")

    return RowChange(conflicts_with=sure, dropped=[task.file for task in tasks])


def _whole_partitions(loaded: LoadedTable, predicates: Sequence[Predicate]) -> RowChange:
    """Return the removal of the files of which all predicates are true, some of them on partition functions."""
    located, metadata = loaded.located, loaded.located.table.metadata
    tests = [partition_tests(predicate, metadata.schema(), metadata) for predicate in predicates]
    # A part of the condition that is left out would let more files go.
    if any(each is None for each in tests):
        raise ConfigurationError(f"{located.name}: the condition is not one on partitions: use DELETE, UPDATE or MERGE")

    # What others add meanwhile may match, whatever the part of the condition that is none on a function says.
    sure = pruning_filter(predicates, metadata.schema(), metadata.schema())
    tasks = located.scan(sure, loaded.branch).plan_files()
    whole = [task.file for task in tasks if all(each[task.file.spec_id](task.file.partition) for each in tests if each is not None)]

    return RowChange(conflicts_with=sure, dropped=whole)
