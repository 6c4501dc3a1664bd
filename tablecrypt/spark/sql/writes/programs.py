"""A program's write of a DataFrame (`tcs.write_table`) as a statement of the connector, which the program itself plans and commits.

    program    the table's columns of the DataFrame ─▶ AppendData on the connector's table, in the DataFrame's own session
               ◀─ write_layout, begin_write, file_location, commit_write: java/ProgramPlanner.java asks the program, through Py4J
               ─▶ the files of the attempts that won, for the one commit of write.py
    executor   as for every other write of the connector (commits.py)

Where a statement of SQL asks the planner's process, this one asks the program: its catalog, credentials and configuration hold, its errors
are raised as they are, and no process has to start. The table is in no catalog of the session, and no setting of the session is read or
changed for it. Nothing secret crosses Py4J in the clear, whose commands may be in debug logs: see sql/programs/responses.py. Tasks' results
are encrypted to the write's public key.

Rows of a partitioned table are sorted by partition within each task, so a task has one file open at a time.

Raises ConfigurationError where path="jvm" was asked for and does not support the write. What fails on an executor fails the statement with
Spark's error, and no file is left.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from pyiceberg.manifest import DataFile

from tablecrypt.errors import FormatError
from tablecrypt.spark.distribution import Distribution, check_distribution, check_sort_columns
from tablecrypt.spark.shared.install import JvmSide, jvm_side, length_in_hadoop
from tablecrypt.spark.shared.parquet_settings import unsupported_codec
from tablecrypt.spark.shared.support import (
    check_messages,
    check_supported,
    if_supported,
    unsupported_rows,
    unsupported_session,
    unsupported_store,
)
from tablecrypt.spark.shared.written_columns import table_columns
from tablecrypt.spark.sql.catalogs import described
from tablecrypt.spark.sql.messages import Response, SentRequest
from tablecrypt.spark.sql.planner import LoadedTable, Planner
from tablecrypt.spark.sql.programs.responses import responding, this_python
from tablecrypt.spark.sql.writes.commits import CommitWrite, abort_write, begin_write, commit_write, ended_write, file_location
from tablecrypt.spark.sql.writes.distribution import WriteLayout, layout_asked_for, write_layout
from tablecrypt.spark.tables import LocatedTable
from tablecrypt.table.table_files import removing_on_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_IN_THE_CLEAR: Final = (
    "rows would be committed that anyone who reaches the driver may have sent: set spark.authenticate and spark.network.crypto.enabled"
)


@dataclass(frozen=True)
class PlannedWrite:
    """Rows that have the table's columns, and how they are laid out."""

    rows: DataFrame
    located: LocatedTable
    side: JvmSide
    by_partition: bool
    sort_by: tuple[str, ...]


def planned_write(
    df: DataFrame, located: LocatedTable, distribute_by: Distribution | None, sort_by: Sequence[str] | None, *, forced: bool
) -> PlannedWrite | None:
    """Return how rows will be written; None if the Python path has to write them.

    Args:
        df: rows that fit the table.
        located: the table.
        distribute_by: see spark/distribution.py.
        sort_by: columns of `df`, likewise.
        forced: raise instead of returning None, and go on, with a warning, where Spark's messages are not authenticated and encrypted.

    Raises:
        ConfigurationError: `forced`, and the write is not supported; or a layout that cannot be.
    """
    return if_supported(lambda: _planned(df, located, distribute_by, sort_by, forced), located.name, "written", forced=forced)


def _planned(
    df: DataFrame, located: LocatedTable, distribute_by: Distribution | None, sort_by: Sequence[str] | None, forced: bool
) -> PlannedWrite:
    spark, table = df.sparkSession, located.table
    check_supported(unsupported_session(spark))
    check_messages(spark, located, _IN_THE_CLEAR, forced=forced)
    check_supported(unsupported_rows(df.schema, located))
    check_supported(unsupported_codec(table.metadata.properties))
    side = jvm_side(spark)
    check_supported(unsupported_store(located, lambda location: length_in_hadoop(spark, side, location)))
    check_sort_columns(list(sort_by or ()), df.columns)
    check_distribution(distribute_by, table.spec())
    rows = df.select(table_columns(df, table.schema()))

    return PlannedWrite(rows, located, side, distribute_by is not None, tuple(sort_by or ()))


def write_planned(write: PlannedWrite) -> list[DataFile]:
    """Write the rows, and return the manifest entries of the files. If anything fails, no file is left.

    Raises:
        AuthenticationError: a result was changed on its way.
        FormatError: a result does not hold what it should.
        ConfigurationError: Hadoop put the files elsewhere than PyIceberg looks for them.
    """
    return written_by(Statement(write))


def written_by(statement: Statement) -> list[DataFile]:
    """Run a write's statement; results and errors are those of `write_planned`."""
    write, rows = statement.write, cast("Any", statement.write.rows)
    with removing_on_error(write.located.table.io, statement.files):
        try:
            with responding(write.side, statement.respond) as program:
                program.append(rows._jdf, json.dumps(statement.table))
        except Exception:
            if statement.refusal is not None:
                # The program's own error, and not Spark's, in which it is a text among stack traces.
                raise statement.refusal from None
            raise
        finally:
            # A statement that fails in Spark may ask neither for a commit nor for an abort.
            statement.planner.abandon_writes()

    return statement.files


class Statement:
    """What responds to the statement of one write.

    Attributes:
        write: what is written.
        table: what the connector's table is made of.
        files: those of the attempts that won, once the statement has run.
        refusal: why it failed where its own plan or end is the reason, and no task.
    """

    def __init__(self, write: PlannedWrite) -> None:
        located = write.located
        self.planner = Planner()
        self.files: list[DataFile] = []
        self.refusal: Exception | None = None
        # Which branch the rows are for, the one commit of write.py says.
        loaded = LoadedTable(located, "", "main", None, is_writable=True)
        self.table = {**described(self.planner, loaded), **this_python(), "name": located.name}
        self.write = write
        # The program responds to some of a write's requests otherwise than the planner.
        layout, end = replace(write_layout, run=self._layout), replace(commit_write, run=self._end)
        self._operations = {each.name: each for each in (layout, begin_write, file_location, end, abort_write)}

    def respond(self, sent: SentRequest) -> Response:
        """Return the response to one request. FormatError for one that no write has."""
        if sent.operation not in self._operations:
            raise FormatError(f"a write asks for {sent.operation!r}")

        try:
            return self._operations[sent.operation].respond(self.planner, sent)
        except Exception as error:
            # What tasks ask for: its error is the task's, and Spark's error names it.
            if sent.operation != file_location.name:
                # The first one: Spark aborts the write after an error, and the abort may fail too.
                self.refusal = self.refusal or error
            raise

    def _layout(self, planner: Planner, request: WriteLayout) -> Response:
        metadata = self.write.located.table.metadata
        return Response(layout_asked_for(metadata, by_partition=self.write.by_partition, sort_by=self.write.sort_by))

    def _end(self, planner: Planner, request: CommitWrite) -> Response:
        _, files, _ = ended_write(planner, request)
        # Only the attempts that won: files of the others are deleted by now.
        self.files += files
        return Response({"files": len(files)})
