"""What a table must hold after each statement, said without Iceberg: rows, row ids and sequence numbers of each branch and snapshot.

Rows hold their values by a column's key, as data files hold them by field id, so that columns may be renamed, dropped and added. A row is
known by its `id`, which no two rows of a branch share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from tests.spark.sql.conditions import Condition, Row
from tests.spark.sql.values import Column, comparable

MAIN: Final = "main"
ROW_ID: Final = "_row_id"
SEQUENCE_NUMBER: Final = "_last_updated_sequence_number"
Lineage = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class State:
    """The rows of a snapshot by `id`, their row id and sequence number, and the columns that the snapshot was written with."""

    rows: Mapping[int, Row]
    lineage: Mapping[int, tuple[int, int]]
    columns: tuple[Column, ...]


@dataclass
class TableModel:
    """The table as the statements so far leave it. `columns[0]` is `id`."""

    columns: list[Column]
    branches: dict[str, dict[int, Row]] = field(default_factory=lambda: {MAIN: {}})
    lineage: dict[str, Lineage] = field(default_factory=lambda: {MAIN: {}})
    snapshots: dict[int, State] = field(default_factory=dict)
    used_row_ids: set[int] = field(default_factory=set)
    next_id: int = 0
    next_key: int = 1000

    def column(self, key: int) -> Column:
        return next(column for column in self.columns if column.key == key)

    def has(self, key: int) -> bool:
        return any(column.key == key for column in self.columns)

    def replace_column(self, key: int, **changes: Any) -> None:
        self.columns = [replace(column, **changes) if column.key == key else column for column in self.columns]

    def new_key(self) -> int:
        self.next_key += 1
        return self.next_key

    def new_rows(self, random: Random, count: int) -> list[Row]:
        """Rows with ids that no row had; at times a column holds one value in all of them, or nulls alone."""
        uniform: Row = {}
        if random.random() < 0.3:
            column = random.choice(self.columns[1:])
            uniform[column.key] = None if random.random() < 0.5 and not column.required else column.draw(random)
        rows = []
        for _ in range(count):
            row = {column.key: column.draw(random) for column in self.columns} | uniform
            row[self.columns[0].key] = self.next_id
            self.next_id += 1
            rows.append(row)
        return rows

    def add(self, branch: str, rows: Iterable[Row]) -> None:
        self.branches[branch] |= {row[self.columns[0].key]: row for row in rows}

    def keep(self, branch: str, removed: Condition) -> None:
        """Remove the rows that satisfy the condition."""
        self.branches[branch] = {key: row for key, row in self.branches[branch].items() if not removed.holds(row)}

    def shown(self, rows: Mapping[int, Row], columns: Iterable[Column]) -> dict[int, dict[str, Any]]:
        """The rows under the columns' names, as a scan gives them."""
        columns = tuple(columns)
        return {
            key: {column.name: comparable(column.shown(row.get(column.key, column.default))) for column in columns}
            for key, row in rows.items()
        }

    def check(self, branch: str, found: list[dict[str, Any]], changed: set[int], last_sequence_number: int) -> None:
        """Compare a scan with lineage to the branch: rows, then what happened to row ids and sequence numbers; remember the latter."""
        rows, lineage = without_lineage(found, self.columns[0].name)
        assert rows == self.shown(self.branches[branch], self.columns), difference(rows, self.shown(self.branches[branch], self.columns))
        assert len({row_id for row_id, _ in lineage.values()}) == len(lineage), "two rows share a row id"
        before = self.lineage[branch]
        for key, (row_id, sequence_number) in lineage.items():
            if key not in before:
                assert row_id not in self.used_row_ids, f"new row {key} has row id {row_id}, which another row had"
            else:
                assert row_id == before[key][0], f"row {key} had row id {before[key][0]} and has {row_id}"
            wanted = last_sequence_number if key in changed or key not in before else before[key][1]
            assert sequence_number == wanted, f"row {key} has sequence number {sequence_number}, not {wanted}"
        self.lineage[branch] = lineage
        self.used_row_ids |= {row_id for row_id, _ in lineage.values()}

    def remember(self, branch: str, snapshot_id: int) -> None:
        """The branch's state is this snapshot's, if the snapshot is new."""
        state = State(dict(self.branches[branch]), dict(self.lineage[branch]), tuple(self.columns))
        self.snapshots.setdefault(snapshot_id, state)

    def go_to(self, branch: str, snapshot_id: int) -> None:
        """The branch's rows are the snapshot's again."""
        state = self.snapshots[snapshot_id]
        self.branches[branch], self.lineage[branch] = dict(state.rows), dict(state.lineage)


def without_lineage(found: list[dict[str, Any]], key: str) -> tuple[dict[int, dict[str, Any]], Lineage]:
    """Rows and lineage by the value of the column `key`, which must be unique."""
    rows, lineage = {}, {}
    for row in found:
        values = {name: comparable(value) for name, value in row.items() if name not in (ROW_ID, SEQUENCE_NUMBER)}
        assert row[key] not in rows, f"row {row[key]} is there twice"
        rows[row[key]] = values
        lineage[row[key]] = (row[ROW_ID], row[SEQUENCE_NUMBER])
    return rows, lineage


def difference(found: Mapping[int, Any], expected: Mapping[int, Any]) -> str:
    """What is missing, what is too many, and the first rows that differ."""
    missing, surplus = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    unequal = [
        f"\n  found    {found[key]}\n  expected {expected[key]}"
        for key in sorted(found.keys() & expected.keys())
        if found[key] != expected[key]
    ]
    return f"missing rows {missing[:9]}, surplus rows {surplus[:9]}, {len(unequal)} rows differ{''.join(unequal[:3])}"
