"""Loading what a name in SQL means: a table, a table at a branch, tag or snapshot, or one of its metadata tables.

    db.orders                             the table
    db.orders.branch_x, .tag_x            the table at a branch, which can be written to, or at a tag
    db.orders.snapshot_id_123             the table at a snapshot
    db.orders.at_timestamp_1600000000000  the table as it was then, in milliseconds since 1970
    db.orders.files                       a metadata table
    db.orders.changes                     what snapshots inserted and deleted (scans/changes.py)

A table that has such a name of its own comes first. VERSION AS OF takes a snapshot id, or the name of a branch or tag; TIMESTAMP
AS OF takes the snapshot that was current then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.typedef import Identifier

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.sql.catalogs import catalog_of, described
from tablecrypt.spark.sql.local_rows import local_rows
from tablecrypt.spark.sql.messages import NamedRequest, OptionsRequest, Response, operation
from tablecrypt.spark.sql.metadata_tables import NAMES, metadata_table
from tablecrypt.spark.sql.planner import LoadedTable, OpenCatalog, Planner, Selection
from tablecrypt.spark.sql.scans.changes import RANGE_OPTIONS, snapshot_range
from tablecrypt.spark.sql.statements.iceberg_settings import VIEW_BINDING, IcebergSettings
from tablecrypt.spark.sql.views import described_view, find_view
from tablecrypt.spark.sql.writes.write_audit_publish import AuditFirst
from tablecrypt.spark.tables import LocatedTable, load_encrypted_table
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import name_of

_SELECTOR: Final = re.compile("(branch|tag|snapshot_id|at_timestamp)_(.+)", re.DOTALL)
_NUMBER: Final = re.compile("-?[0-9]{1,19}")
CHANGES: Final = "changes"
_MICROSECONDS: Final = 1000
"""In a millisecond."""


@dataclass(frozen=True)
class Version:
    """Which rows of a table are meant, and where writes go.

    Attributes:
        snapshot_id: the snapshot that is read; None for a table without snapshots.
        branch: where writes go.
        is_writable: False for a snapshot or tag.
    """

    snapshot_id: int | None
    branch: str = MAIN_BRANCH
    is_writable: bool = False


class LoadTable(NamedRequest):
    """A table, or what else its name may mean.

    Attributes:
        version: VERSION AS OF.
        timestamp: TIMESTAMP AS OF, in microseconds since 1970.
    """

    version: str | None = None
    timestamp: int | None = None


@operation
def load_table(planner: Planner, request: LoadTable) -> Response:
    """Load a table. Raises as `load_named`."""
    return load_named(planner, request, request.version, request.timestamp)


def load_named(planner: Planner, request: NamedRequest, version: str | None = None, timestamp: int | None = None) -> Response:
    """Load a table, the rows of a metadata table, or a view, at a version or timestamp as of `LoadTable`.

    Raises:
        NoSuchTableError: it does not exist, or it has no such branch, tag or metadata table.
        ConfigurationError: it is not encrypted, or has no such snapshot.
        KeyIdChangedError, FormatError: it is a view that may not be read, or cannot be.
    """
    opened, session = catalog_of(planner, request), IcebergSettings.of(request)
    try:
        located, selector = find_table(opened, request.identifier)
    except NoSuchTableError:
        # After the table: a view, which nothing authenticates, must not take the place of a table of its name.
        view = find_view(opened.catalog, request.identifier)
        if view is None:
            raise
        if version is not None or timestamp is not None:
            raise ConfigurationError(
                f"{'.'.join(request.identifier)} is a view, which has no versions: leave out VERSION or TIMESTAMP AS OF"
            ) from None
        binding = session.values.get(VIEW_BINDING, "COMPENSATION").upper()
        return Response({"view": {**described_view(opened, view), "binding": binding}})

    table, wanted = located.table, _as_of(located.table, version, timestamp)
    audit_first = AuditFirst.of(request, table.metadata)
    if selector is None and wanted is None:
        return loaded_table(planner, opened, located, _branch(table, audit_first.branch_in(table.metadata)), audit_first)
    if selector is None and wanted is not None:
        return loaded_table(planner, opened, located, wanted, audit_first.for_named_version)
    if selector == CHANGES:
        return _loaded_changes(planner, opened, located, is_versioned=wanted is not None)
    if selector in NAMES:
        rows = metadata_table(table, selector, wanted.snapshot_id if wanted else None)
        return local_rows(f"{opened.name}.{located.name}.{selector}", rows)
    if wanted is not None:
        raise ConfigurationError(f"{'.'.join(request.identifier)} names a version already: leave out VERSION or TIMESTAMP AS OF")

    return loaded_table(planner, opened, located, _selected(table, str(selector)), audit_first.for_named_version)


@operation
def load_version(planner: Planner, request: OptionsRequest) -> Response:
    """Load the version of a table that options of a read ask for: spark.read.option("snapshot-id", 123).table("prod.db.orders").

    The options are snapshot-id, as-of-timestamp, branch or tag; or start-snapshot-id and end-snapshot-id, for the rows that appends added
    behind the one snapshot and up to the other.

    Raises:
        ConfigurationError: there is no such version, it had other columns than the table has now, or two are asked for.
    """
    loaded, options = planner.tables[request.table], request.options
    name = loaded.located.name
    if loaded.changes is not None:
        return Response(described(planner, replace(loaded, changes=snapshot_range(loaded.located.table, options))))
    if _START in options and options.keys() <= {_START, _END}:
        return Response(described(planner, _appended(loaded, options)))
    if len(options) != 1:
        raise ConfigurationError(f"{name}: more than one version is requested: {', '.join(sorted(options))}")

    ((option, value),) = options.items()
    if option in _REFUSED_OPTIONS:
        raise ConfigurationError(f"the read option {option} is not supported: {_REFUSED_OPTIONS[option]}")
    if option in _NUMBERED_OPTIONS and not _NUMBER.fullmatch(value):
        raise ConfigurationError(f"the read option {option} is {value!r}: a whole number is needed")

    try:
        version = _OPTIONS[option](loaded.located.table, value)
    except NoSuchTableError as error:
        raise ConfigurationError(str(error)) from None

    if not loaded.is_writable or loaded.branch not in (MAIN_BRANCH, loaded.audit_first.branch):
        # Iceberg's format("iceberg") puts the branch or tag of an option into the name as well.
        if (version.snapshot_id, version.branch, version.is_writable) != (loaded.snapshot_id, loaded.branch, loaded.is_writable):
            raise ConfigurationError(f"{name}: more than one version is requested: that of its name, and {option} {value}")
        return Response(described(planner, loaded))

    audit_first = loaded.audit_first.for_named_version
    wanted = replace(
        loaded,
        located=loaded.located.at(version.snapshot_id, is_writable=version.is_writable),
        branch=version.branch,
        snapshot_id=version.snapshot_id,
        is_writable=version.is_writable,
        audit_first=audit_first,
    )
    # Spark gives options after it has resolved the query's columns against the first schema.
    if wanted.schema.fields != loaded.schema.fields:
        raise ConfigurationError(f"{name} had other columns in that version: read it with VERSION AS OF or TIMESTAMP AS OF")

    return Response(described(planner, wanted))


def _appended(loaded: LoadedTable, options: Mapping[str, str]) -> LoadedTable:
    """Return a table to read the rows of that appends added behind one snapshot and up to another, by default the current one."""
    located = loaded.located
    if not loaded.is_writable or loaded.branch not in (MAIN_BRANCH, loaded.audit_first.branch):
        raise ConfigurationError(f"{located.name}: more than one version is requested: that of its name, and {_START} {options[_START]}")

    head = located.table.metadata.snapshot_by_name(loaded.branch)
    ends = [options.get(name, str(head.snapshot_id if head is not None else "")) for name in (_START, _END)]
    for snapshot_id in ends:
        if not _NUMBER.fullmatch(snapshot_id):
            raise ConfigurationError(f"{located.name}: {_START} and {_END} are ids of snapshots, and {snapshot_id!r} is none")
        _snapshot(located.table, snapshot_id)

    start, end = map(int, ends)
    scan = located.table.incremental_append_scan(from_snapshot_id_exclusive=start, to_snapshot_id_inclusive=end)
    try:
        tasks = scan.tasks() if start != end else []
    except ValueError as error:
        raise ConfigurationError(f"{located.name}: {error}") from error

    return replace(loaded, snapshot_id=end, is_writable=False, selection=Selection(loaded.schema, tasks))


def loaded_table(planner: Planner, opened: OpenCatalog, located: LocatedTable, version: Version, audit_first: AuditFirst) -> Response:
    """Return the response of which Java makes a SqlTable."""
    at_version = located.at(version.snapshot_id, is_writable=version.is_writable)
    loaded = LoadedTable(at_version, opened.name, version.branch, version.snapshot_id, version.is_writable, audit_first=audit_first)
    return Response(described(planner, loaded))


def _loaded_changes(planner: Planner, opened: OpenCatalog, located: LocatedTable, *, is_versioned: bool) -> Response:
    if is_versioned:
        raise ConfigurationError(f"{CHANGES} needs a range of snapshots: give the read options {', '.join(RANGE_OPTIONS)}")
    changes = snapshot_range(located.table, {})
    return Response(described(planner, LoadedTable(located, opened.name, MAIN_BRANCH, None, is_writable=False, changes=changes)))


def find_table(opened: OpenCatalog, identifier: Identifier) -> tuple[LocatedTable, str | None]:
    """Return the table that a name means, and what the name says behind that of the table: a metadata table's name in small letters.

    Raises:
        NoSuchTableError: it does not exist.
        ConfigurationError: it is not encrypted.
    """
    name = ".".join(identifier)
    # PyIceberg takes a name apart at its dots, and would find another table.
    if any("." in part for part in identifier):
        raise NoSuchTableError(f"Table does not exist: {name}; no part of a name has a dot in it")

    try:
        return _located(opened, identifier), None
    except NoSuchTableError:
        selector, metadata_name = identifier[-1], identifier[-1].lower()
        is_metadata = metadata_name in (*NAMES, CHANGES)
        if len(identifier) == 1 or not (is_metadata or _SELECTOR.fullmatch(selector)):
            raise

    return _located(opened, identifier[:-1]), metadata_name if is_metadata else selector


def _located(opened: OpenCatalog, identifier: Identifier) -> LocatedTable:
    if len(identifier) == 1:
        raise NoSuchTableError(f"Table does not exist: {identifier[0]}; tables lie in a namespace")
    name = ".".join(identifier)
    return LocatedTable(opened.catalog, name, load_encrypted_table(opened.catalog, name))


def _as_of(table: EncryptedTable, version: str | None, timestamp: int | None) -> Version | None:
    """Return what VERSION or TIMESTAMP AS OF asks for."""
    if version is not None:
        return _snapshot(table, version) if _NUMBER.fullmatch(version) else _named(table, version)
    return None if timestamp is None else _moment(table, timestamp // _MICROSECONDS)


def _named(table: EncryptedTable, name: str) -> Version:
    ref = table.metadata.refs.get(name)
    if ref is None:
        raise ConfigurationError(f"{name_of(table)} has no snapshot, branch or tag {name!r}")
    is_branch = ref.snapshot_ref_type == SnapshotRefType.BRANCH
    return Version(ref.snapshot_id, name if is_branch else MAIN_BRANCH, is_writable=is_branch)


def _snapshot(table: EncryptedTable, snapshot_id: str) -> Version:
    if table.metadata.snapshot_by_id(int(snapshot_id)) is None:
        raise ConfigurationError(f"{name_of(table)} has no snapshot {snapshot_id}; it may have been expired")
    return Version(int(snapshot_id))


def _moment(table: EncryptedTable, milliseconds: int) -> Version:
    snapshot = table.snapshot_as_of_timestamp(milliseconds)
    if snapshot is None:
        raise ConfigurationError(f"{name_of(table)} had no snapshot yet at that time ({milliseconds} ms since 1970)")
    return _snapshot(table, str(snapshot.snapshot_id))


def _branch(table: EncryptedTable, name: str) -> Version:
    if name == MAIN_BRANCH:
        return Version(table.metadata.current_snapshot_id, is_writable=True)
    return _ref(table, name, SnapshotRefType.BRANCH)


def _tag(table: EncryptedTable, name: str) -> Version:
    return _ref(table, name, SnapshotRefType.TAG)


def _ref(table: EncryptedTable, name: str, kind: SnapshotRefType) -> Version:
    ref = table.metadata.refs.get(name)
    if ref is None or ref.snapshot_ref_type != kind:
        raise NoSuchTableError(f"{name_of(table)} has no {kind.value} {name!r}")
    return _named(table, name)


def _selected(table: EncryptedTable, selector: str) -> Version:
    match = _SELECTOR.fullmatch(selector)
    if match is None or (match[1] in _NUMBERED and not _NUMBER.fullmatch(match[2])):
        raise NoSuchTableError(f"{name_of(table)} has no {selector}")
    return _SELECTORS[match[1]](table, match[2])


def is_branch(table: EncryptedTable, selector: str) -> bool:
    """Whether what a name says behind that of the table is a branch that the table has."""
    match = _SELECTOR.fullmatch(selector)
    ref = table.metadata.refs.get(match[2]) if match is not None and match[1] == "branch" else None
    return ref is not None and ref.snapshot_ref_type == SnapshotRefType.BRANCH


_SELECTORS: Final[Mapping[str, Callable[[EncryptedTable, str], Version]]] = {
    "branch": _branch,
    "tag": _tag,
    "snapshot_id": _snapshot,
    "at_timestamp": lambda table, milliseconds: _moment(table, int(milliseconds)),
}
_NUMBERED: Final = ("snapshot_id", "at_timestamp")
_OPTIONS: Final[Mapping[str, Callable[[EncryptedTable, str], Version]]] = {
    "branch": _branch,
    "tag": _tag,
    "snapshot-id": _snapshot,
    "as-of-timestamp": _SELECTORS["at_timestamp"],
}
VERSION_OPTIONS: Final = (*_OPTIONS, *RANGE_OPTIONS)
_NUMBERED_OPTIONS: Final = ("snapshot-id", "as-of-timestamp")
_START: Final = "start-snapshot-id"
_END: Final = "end-snapshot-id"
_REFUSED_OPTIONS: Final = {
    **dict.fromkeys(RANGE_OPTIONS, "read .changes of the table with it, or the table as a stream"),
    _END: f"without {_START}: give both, or {_START} alone",
}
