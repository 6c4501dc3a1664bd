"""Streams that read: spark.readStream.table("prod.db.orders").

    stream_start   ─▶ the offset before the first row, or where stream-from-timestamp says
    stream_latest  ─▶ the offset up to which the next micro-batch goes
    stream_end     ─▶ the offset of the newest snapshot
    plan_appends   ─▶ the plan of what was appended after one offset, up to another (scans/plan.py)

    offset = {"table-uuid": the table's, "snapshot-id": the last snapshot that was read, -1 before the first,
              "files": how many of the files that it added were read, where not all}

Options have Iceberg's names: stream-from-timestamp (milliseconds since 1970), streaming-skip-delete-snapshots,
streaming-skip-overwrite-snapshots, streaming-max-files-per-micro-batch, streaming-max-rows-per-micro-batch. A micro-batch holds one file at
least (sql/streams/history.py).

Each request loads the table again. A stream reads the columns that the table had when its query was started.

Raises ConfigurationError: a snapshot or tag was named, which does not grow; the table's columns were changed; what history.py says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.setting_kinds import check_option_names, truth, whole_number
from tablecrypt.spark.source.source_options import EARLIEST, LATEST
from tablecrypt.spark.sql.messages import OptionsRequest, Response, operation
from tablecrypt.spark.sql.planner import LoadedTable, Planner
from tablecrypt.spark.sql.scans.plan import PlanRequest, planned, row_filter_of
from tablecrypt.spark.sql.scans.whole_partitions import of_whole_partitions
from tablecrypt.spark.sql.statements.iceberg_settings import refuse_encryption
from tablecrypt.spark.sql.streams.history import (
    BEFORE_THE_FIRST,
    Position,
    StreamRules,
    check_appended,
    check_begins_with_the_first,
    history,
    next_position,
    unread,
)
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.table import check_branch

_FROM_TIMESTAMP: Final = "stream-from-timestamp"
_SKIP_DELETES: Final = "streaming-skip-delete-snapshots"
_SKIP_OVERWRITES: Final = "streaming-skip-overwrite-snapshots"
_MAX_FILES: Final = "streaming-max-files-per-micro-batch"
_MAX_ROWS: Final = "streaming-max-rows-per-micro-batch"
_OPTIONS: Final = (_FROM_TIMESTAMP, _SKIP_DELETES, _SKIP_OVERWRITES, _MAX_FILES, _MAX_ROWS)
_OF_FORMAT: Final = {
    "starting": _FROM_TIMESTAMP,
    "max-snapshots-per-batch": _MAX_FILES,
    "max-files-per-batch": _MAX_FILES,
    "skip-overwrite-snapshots": _SKIP_OVERWRITES,
    "skip-delete-snapshots": _SKIP_DELETES,
}
"""Options that streams of format("tablecrypt") have, each with the one that comes nearest here."""


@operation
def stream_start(planner: Planner, request: OptionsRequest) -> Response:
    """Return where a new query begins."""
    loaded = _loaded_now(planner.tables[request.table])
    if loaded.source is not None:
        return Response(_offset(loaded, _start_asked_for(loaded, loaded.source.starting)))

    since = _number(_options(request), _FROM_TIMESTAMP)
    if since is None:
        check_begins_with_the_first(loaded.located, loaded.branch)
        return Response(_offset(loaded, Position()))

    position = Position()
    for snapshot in history(loaded.located, loaded.branch, BEFORE_THE_FIRST):
        if snapshot.timestamp_ms < since:
            position = Position(snapshot.snapshot_id)
    return Response(_offset(loaded, position))


def _start_asked_for(loaded: LoadedTable, starting: str) -> Position:
    if starting == LATEST:
        return _head(loaded)
    if starting == EARLIEST:
        check_begins_with_the_first(loaded.located, loaded.branch)
        return Position()
    history(loaded.located, loaded.branch, int(starting))
    return Position(int(starting))


class StreamLatest(OptionsRequest):
    """The offset that was read last, and at most how far the next micro-batch goes: without limits of its size where it is unlimited."""

    after: Mapping[str, Any]
    until: Mapping[str, Any] | None
    unlimited: bool


@operation
def stream_latest(planner: Planner, request: StreamLatest) -> Response:
    """Return how far the next micro-batch goes."""
    loaded = _loaded_now(planner.tables[request.table])
    after = _position(loaded, request.after)
    until = None if request.until is None else _position(loaded, request.until)
    rules = _rules(loaded, request)
    # Trigger.AvailableNow first asks for the end of all that there is, and then for batches up to it.
    if request.unlimited:
        rules = replace(rules, max_files=None, max_rows=None)
    if until in (after, Position()):
        return Response(_offset(loaded, after))

    parts = unread(loaded.located, loaded.branch, after, until)

    return Response(_offset(loaded, next_position(loaded.located.table, parts, after, rules)))


@operation
def stream_end(planner: Planner, request: OptionsRequest) -> Response:
    """Return the offset of the newest snapshot, where a query ends that reads what is there when it starts."""
    loaded = _loaded_now(planner.tables[request.table])
    return Response(_offset(loaded, _head(loaded)))


class PlanAppends(PlanRequest):
    """A micro-batch: what was appended after one offset, up to another."""

    after: Mapping[str, Any]
    until: Mapping[str, Any]


@operation
def plan_appends(planner: Planner, request: PlanAppends) -> Response:
    """Plan one micro-batch."""
    loaded = _loaded_now(planner.tables[request.table])
    after, until = (_position(loaded, offset) for offset in (request.after, request.until))
    tasks: list[EncryptedFileScanTask] = []
    rules = _rules(loaded, request)
    for part in unread(loaded.located, loaded.branch, after, until) if after != until else ():
        # Checked again: Spark may plan a batch of an older checkpoint, whose offsets this process has not made.
        check_appended(part.snapshot, rules)
        tasks += part.tasks(loaded.located.table) if rules.reads(part.snapshot) else ()

    tasks = of_whole_partitions(tasks, request.answered, loaded)

    return planned(planner, loaded, request, row_filter_of(loaded, request), tasks)


def _loaded_now(loaded: LoadedTable) -> LoadedTable:
    name = loaded.located.name
    if not loaded.is_writable:
        raise ConfigurationError(f"{name} is read at a snapshot or tag, which gets no new rows: stream from the table or a branch")

    check_branch(loaded.located.table, loaded.branch)
    table = loaded.located.reloaded()
    # A table that was dropped and made again has other snapshots: the checkpoint's say nothing about it.
    if table.metadata.table_uuid != loaded.located.table.metadata.table_uuid:
        raise ConfigurationError(f"{name} is not the table that this query began with: start it with a new checkpoint")
    # Spark has planned the query for the columns that it began with.
    if table.metadata.current_schema_id != loaded.located.table.metadata.current_schema_id:
        raise ConfigurationError(f"{name}: its columns were changed: start the query again, and it continues where it stopped")

    return replace(loaded, located=replace(loaded.located, table=table))


def _head(loaded: LoadedTable) -> Position:
    head = loaded.located.table.metadata.snapshot_by_name(loaded.branch)
    return Position() if head is None else Position(head.snapshot_id)


def _offset(loaded: LoadedTable, position: Position) -> dict[str, Any]:
    offset = {"table-uuid": str(loaded.located.table.metadata.table_uuid), "snapshot-id": position.snapshot_id}
    return {"offset": offset if position.files is None else {**offset, "files": position.files}}


def _position(loaded: LoadedTable, offset: Mapping[str, Any]) -> Position:
    snapshot_id, files = offset.get("snapshot-id"), offset.get("files")
    is_known = {"table-uuid", "snapshot-id"} <= set(offset) <= {"table-uuid", "snapshot-id", "files"}
    if not is_known or type(snapshot_id) is not int or ("files" in offset and (type(files) is not int or files < 1)):
        raise FormatError("the checkpoint has an offset that does not belong to a stream of this catalog: begin with a new checkpoint")
    # A checkpoint outlives the query, and may be one of a table that had this name before.
    if offset["table-uuid"] != str(loaded.located.table.metadata.table_uuid):
        raise ConfigurationError(f"{loaded.located.name} is not the table that this query began with: start it with a new checkpoint")

    return Position(snapshot_id, files)


def _rules(loaded: LoadedTable, request: OptionsRequest) -> StreamRules:
    if loaded.source is not None:
        return loaded.source.rules

    options = _options(request)
    return StreamRules(
        skip_deletes=_flag(options, _SKIP_DELETES),
        skip_overwrites=_flag(options, _SKIP_OVERWRITES),
        max_files=_number(options, _MAX_FILES),
        max_rows=_number(options, _MAX_ROWS),
        since=_number(options, _FROM_TIMESTAMP),
        deletes_option=_SKIP_DELETES,
        overwrites_option=_SKIP_OVERWRITES,
    )


def _options(request: OptionsRequest) -> Mapping[str, Any]:
    refuse_encryption(request.options)
    options = {name.lower(): value for name, value in request.options.items()}
    for name in _OF_FORMAT.keys() & options.keys():
        raise ConfigurationError(f"the read option {name!r} belongs to format('tablecrypt'): streams of a catalog have {_OF_FORMAT[name]}")
    check_option_names(options, _OPTIONS, "the read option")
    return options


def _flag(options: Mapping[str, Any], name: str) -> bool:
    return name in options and truth(name, options[name])


def _number(options: Mapping[str, Any], name: str) -> int | None:
    return whole_number(name, options[name], least=1) if name in options else None
