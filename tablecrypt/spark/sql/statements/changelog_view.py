"""create_changelog_view: what changed between two snapshots, row by row, as a temporary view.

A row that no commit touches keeps its `_row_id` and `_last_updated_sequence_number`, in whichever file it lies. So what a snapshot changed
is what its parent has and it lacks by these two (DELETE), and the reverse (INSERT); rows that were only moved to new files do not show. The
view reads snapshots through the catalog when it is queried; no row is stored.

    columns of the view      those of the table today, _change_type, _change_ordinal, _commit_snapshot_id
    identifier_columns       a DELETE and an INSERT of one snapshot that agree in these are UPDATE_BEFORE and UPDATE_AFTER
    net_changes              of the changes to one row id only what a reader of both ends sees
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot

from tablecrypt.errors import ConfigurationError
from tablecrypt.spark.shared.written_columns import quoted
from tablecrypt.spark.sql.calls import Call, Row, columns
from tablecrypt.spark.sql.partition_fields import find_column
from tablecrypt.spark.sql.scans.change_rows import CHANGE_FIELDS
from tablecrypt.spark.sql.scans.changes import SnapshotChange, snapshot_range
from tablecrypt.spark.sql.statements.operations import procedure
from tablecrypt.table.table import EncryptedTable

_ADDED: Final = tuple(field.name for field in CHANGE_FIELDS)
_LINEAGE: Final = "_row_id AS r__, _last_updated_sequence_number AS s__"


@procedure(columns(changelog_view=pa.string()), only_reads=True)
def create_changelog_view(
    call: Call,
    table: EncryptedTable,
    changelog_view: str = "",
    options: Mapping[str, str] | None = None,
    compute_updates: bool = False,
    identifier_columns: Sequence[str] = (),
    net_changes: bool = False,
) -> Iterator[Row]:
    """Create a temporary view of the changes between two snapshots."""
    identifier = call.identifier()
    view = changelog_view or f"{identifier[-1]}_changes"
    identifiers = _identifiers(table, identifier_columns, compute_updates)
    if net_changes and identifiers:
        raise ConfigurationError("net_changes shows no updates: leave identifier_columns and compute_updates out")

    name = ".".join(map(quoted, (call.catalog_name, *identifier)))
    changes = _Changes(table, name)
    query = changes.query(snapshot_range(table, options or {}))
    query = changes.net(query) if net_changes else changes.with_updates(query, identifiers) if identifiers else changes.only_shown(query)
    call.statements.append(f"CREATE OR REPLACE TEMPORARY VIEW {quoted(view)} AS {query}")
    yield {"changelog_view": view}


def _identifiers(table: EncryptedTable, wanted: Sequence[str], compute_updates: bool) -> list[str]:
    if not wanted and compute_updates:
        wanted = sorted(table.schema().identifier_field_names())
        if not wanted:
            raise ConfigurationError("compute_updates needs identifier_columns, for the table has no identifier fields")
    return [find_column(table.schema(), (each,)).name for each in wanted]


class _Changes:
    """The queries that a view is made of."""

    def __init__(self, table: EncryptedTable, name: str) -> None:
        self._table = table
        self._name = name
        self._columns = [quoted(field.name) for field in table.schema().fields]
        self._shown = ", ".join([*self._columns, *_ADDED])

    def query(self, snapshots: Sequence[SnapshotChange]) -> str:
        """All changes, with row ids."""
        # No row, but today's types: what older snapshots have of a column is cast to them.
        nothing = f"SELECT {', '.join(self._columns)}, '' AS {_ADDED[0]}, 0 AS {_ADDED[1]}, 0L AS {_ADDED[2]}, 0L AS r__ FROM {self._name}"
        parts = [f"{nothing} WHERE false"]
        for ordinal, (parent, snapshot) in enumerate(snapshots):
            added = f"{ordinal} AS {_ADDED[1]}, {snapshot.snapshot_id}L AS {_ADDED[2]}"
            if parent is not None:
                parts.append(self._only_in(parent, snapshot, f"'DELETE' AS {_ADDED[0]}, {added}"))
            parts.append(self._only_in(snapshot, parent, f"'INSERT' AS {_ADDED[0]}, {added}"))

        return " UNION ALL ".join(parts)

    def only_shown(self, query: str) -> str:
        """The changes without row ids."""
        return f"SELECT {self._shown} FROM ({query})"

    def with_updates(self, query: str, identifiers: Sequence[str]) -> str:
        """A DELETE and an INSERT of one snapshot with the same identifiers become an update."""
        change = _ADDED[0]
        window = f"OVER (PARTITION BY {_ADDED[1]}, {', '.join(map(quoted, identifiers))})"
        both = f"bool_or({change} = 'DELETE') {window} AND bool_or({change} = 'INSERT') {window}"
        update = f"CASE WHEN NOT ({both}) THEN {change} WHEN {change} = 'DELETE' THEN 'UPDATE_BEFORE' ELSE 'UPDATE_AFTER' END"
        return f"SELECT {', '.join(self._columns)}, {update} AS {change}, {', '.join(_ADDED[1:])} FROM ({query})"

    def net(self, query: str) -> str:
        """Of each row its first change if that is a DELETE, and its last if that is an INSERT."""
        change, ordinal = _ADDED[:2]
        order = f"PARTITION BY r__ ORDER BY {ordinal}"
        first = f"row_number() OVER ({order}, {change}) AS first__"
        # By kind within a snapshot: an update is a DELETE before an INSERT, in the order of these two words.
        last = f"row_number() OVER ({order} DESC, {change} DESC) AS last__"
        ends = f"({change} = 'DELETE' AND first__ = 1) OR ({change} = 'INSERT' AND last__ = 1)"
        return f"SELECT {self._shown} FROM (SELECT *, {first}, {last} FROM ({query})) WHERE {ends}"

    def _only_in(self, snapshot: Snapshot, other: Snapshot | None, added: str) -> str:
        rows = f"SELECT {self._selected(snapshot)}, {_LINEAGE} FROM {self._at(snapshot)}"
        query = f"SELECT {', '.join(self._columns)}, {added}, a.r__ FROM ({rows}) a"
        if other is None:
            return query
        return f"{query} LEFT ANTI JOIN (SELECT {_LINEAGE} FROM {self._at(other)}) b ON a.r__ = b.r__ AND a.s__ = b.s__"

    def _at(self, snapshot: Snapshot) -> str:
        return f"{self._name} VERSION AS OF {snapshot.snapshot_id}"

    def _selected(self, snapshot: Snapshot) -> str:
        """Today's columns under the names that they had then."""
        then = self._table.metadata.schema_by_id(snapshot.schema_id) if snapshot.schema_id is not None else None
        return ", ".join(self._column(then or self._table.schema()))

    def _column(self, then: Schema) -> Iterator[str]:
        for field in self._table.schema().fields:
            former = then.find_column_name(field.field_id)
            # The snapshot is read with the columns of its time, in which the default is not known.
            if former is None and field.initial_default is not None:
                raise ConfigurationError(f"the range begins before {field.name} was added with a default, which the view would not show")
            yield f"{'NULL' if former is None else quoted(former)} AS {quoted(field.name)}"


PROCEDURES: Final = (create_changelog_view,)
