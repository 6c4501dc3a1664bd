"""CALL prod.system.…: which procedures there are, and calling one.

Iceberg's procedures have Iceberg's names, parameters and result columns; where Iceberg's work is done here by another operation, they call
that. Those that an encrypted table cannot have are refused with the reason. Procedures on keys are this package's own.

A procedure that reads or writes data files runs them on the cluster's executors where the driver gives its process a way to start Spark
jobs, and in threads of this process otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from tablecrypt.errors import ConfigurationError
from tablecrypt.setting_kinds import OWN_NAMES_ALIKE, did_you_mean
from tablecrypt.spark.shared.written_columns import quoted
from tablecrypt.spark.sql import file_procedures, key_procedures, snapshot_procedures
from tablecrypt.spark.sql.calls import Call, Procedure, RowCopy, name_parts, table_of
from tablecrypt.spark.sql.catalogs import catalog_of, spark_json
from tablecrypt.spark.sql.job_session import Gateway, runner_of
from tablecrypt.spark.sql.local_rows import arrow_stream
from tablecrypt.spark.sql.messages import CatalogRequest, NamedRequest, NamespaceRequest, Response, SessionRequest, operation
from tablecrypt.spark.sql.parameters import Parameter
from tablecrypt.spark.sql.planner import OpenCatalog, Planner
from tablecrypt.spark.sql.scans.filters import Predicate
from tablecrypt.spark.sql.statements import add_files, alter_table, changelog_view, undelete_column
from tablecrypt.spark.sql.statements.variables import MEANING, find_variable
from tablecrypt.spark.sql.writes.write_options import written_by
from tablecrypt.table._pyiceberg.transactions import WRITTEN_BY

_DECLARED: Final = (
    *snapshot_procedures.PROCEDURES,
    *file_procedures.PROCEDURES,
    *key_procedures.PROCEDURES,
    *undelete_column.PROCEDURES,
    *alter_table.PROCEDURES,
    *changelog_view.PROCEDURES,
    *add_files.PROCEDURES,
)
PROCEDURES: Final[Mapping[str, Procedure]] = {each.name: each for each in sorted(_DECLARED, key=lambda each: each.name)}
REFUSED: Final[Mapping[str, str]] = {
    "compute_partition_stats": "a file of partition statistics would hold facts about the data, and Iceberg has no place for its key",
    "compute_table_stats": "a statistics file would hold facts about the data, and Iceberg Java drops its key-metadata at the next commit",
    "rewrite_table_path": "paths are part of what an encrypted table authenticates: relocate copies the table to another location",
}
"""Procedures of Iceberg that an encrypted table does not have, and why."""
_SYSTEM: Final = "system"


@operation
def list_procedures(planner: Planner, request: NamespaceRequest) -> Response:
    """List the procedures of a namespace: all of them in `system`, none elsewhere."""
    is_system = [part.lower() for part in request.namespace] == [_SYSTEM]
    return Response({"procedures": list(PROCEDURES) if is_system else []})


@operation
def load_procedure(planner: Planner, request: NamedRequest) -> Response:
    """Describe a procedure, or say why no procedure has that name. Spark shows the reason of a refusal here, but not that of an error."""
    *namespace, name = (part.lower() for part in request.identifier)
    if namespace != [_SYSTEM]:
        place = f"{catalog_of(planner, request).name}.{_SYSTEM}.{name}(…)"
        return _refusal(name, f"procedures are in the namespace {_SYSTEM}: CALL {place}")
    if name in REFUSED:
        return _refusal(name, f"{name} is not supported: {REFUSED[name]}")

    try:
        procedure = _named(name)
    except ConfigurationError as unknown:
        return _refusal(name, str(unknown))

    return Response(
        {
            "name": name,
            "description": f"{procedure.description} Arguments: {', '.join(_shown(each) for each in procedure.parameters)}.",
            "parameters": [_described(each) for each in procedure.parameters],
            "runs_jobs": procedure.runs_jobs,
            "copies": procedure.copies,
            "copies_tables": procedure.copies_tables,
        }
    )


def _refusal(name: str, reason: str) -> Response:
    return Response({"name": name, "description": reason, "parameters": [], "refused": reason})


class CallProcedure(CatalogRequest, SessionRequest):
    """A call of a procedure.

    Attributes:
        arguments: those that are given, by name.
        current_namespace: the session's, where it is in this catalog.
        where: the argument of that name, as Spark understands it.
        gateway: by which Spark jobs can be started, where the driver wants some.
    """

    name: str
    arguments: Mapping[str, Any]
    case_sensitive: bool
    current_namespace: str | None = None
    where: list[Predicate] | None = None
    gateway: Gateway | None = None


@operation
def call_procedure(planner: Planner, request: CallProcedure) -> Response:
    """Call a procedure and return its rows as an Arrow stream.

    Raises:
        ConfigurationError: arguments that cannot be used; and what the procedure itself raises.
    """
    opened = catalog_of(planner, request)
    name, procedure = request.name, _named(request.name)
    # An argument `workers` asks for threads of this process, and starts no Spark jobs.
    with runner_of(None if "workers" in request.arguments else request.gateway) as runner, _as_spark(request):
        call = replace(_call(opened, request), runner=runner)
        # Taken within the block: a procedure is a generator that still works while rows are taken, with the runner.
        rows = list(procedure.run(call))

    copies = [_described_copy(planner, opened.name, each) for each in call.copies]
    for sql in (*call.statements, *(text for each in copies for text in (each["into"], *each["columns"], each["condition"]))):
        # Whoever writes the metadata names the columns, and the rows of a copy are read by others than who calls this.
        if (found := find_variable(sql)) is not None:
            raise ConfigurationError(f"a name that {name} needs has {found}, {MEANING}: rename the column or table")

    described: dict[str, Any] = {"name": f"{opened.name}.{_SYSTEM}.{name}", "statements": call.statements, "copies": copies}
    if not procedure.only_reads:
        described["changed"] = [opened.name, *(call.copies[0].target if call.copies else call.identifier())]
    return Response(described, arrow_stream(table_of(rows, procedure.columns)))


@operation
def condition_columns(planner: Planner, request: CallProcedure) -> Response:
    """Return the columns that the argument `where` of a call may name."""
    return Response({"schema": spark_json(_call(catalog_of(planner, request), request).table().schema())})


def _call(opened: OpenCatalog, request: CallProcedure) -> Call:
    current = name_parts(request.current_namespace) if request.current_namespace else ()
    return Call(opened.catalog, opened.name, current, request.arguments, request.where, request.case_sensitive)


@contextmanager
def _as_spark(request: SessionRequest) -> Iterator[None]:
    """Have snapshots that are made meanwhile say which application of Spark made them."""
    token = WRITTEN_BY.set(written_by(request))
    try:
        yield
    finally:
        WRITTEN_BY.reset(token)


def _described_copy(planner: Planner, catalog_name: str, copied: RowCopy) -> dict[str, Any]:
    described: dict[str, Any] = {
        "copy": planner.copies.add(copied.copy),
        "into": ".".join(map(quoted, (catalog_name, *copied.target))),
        "columns": copied.columns,
        "condition": copied.condition,
    }
    if copied.made is not None:
        described["made"] = vars(copied.made)
    if copied.renamed is not None:
        described["renamed"] = vars(copied.renamed)
    return described


def _named(name: str) -> Procedure:
    if name not in PROCEDURES:
        advice = did_you_mean(name, PROCEDURES, OWN_NAMES_ALIKE) or f": there are {', '.join(PROCEDURES)}"
        raise ConfigurationError(f"there is no procedure {name}{advice}")
    return PROCEDURES[name]


def _shown(parameter: Parameter) -> str:
    """Spark's DESCRIBE PROCEDURE shows the description alone."""
    return f"{parameter.name} {parameter.type}{' (required)' if parameter.is_required else ''}"


def _described(parameter: Parameter) -> dict[str, Any]:
    return {"name": parameter.name, "type": parameter.type, "required": parameter.is_required}
