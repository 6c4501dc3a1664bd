"""One table that Iceberg Java and this side hold in turn: each registers the metadata file that the other left."""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.table import Table

from tests.support.compare import assert_same_rows
from tests.support.java import LINEAGE_COLUMNS, JavaOracle


class Sides:
    """`table` is what this side sees of it; `name`, with its namespace, is unique in Java's catalog."""

    def __init__(self, java: JavaOracle, table: Table, name: str) -> None:
        self.table = table
        self._java = java
        self._name = name
        self._turn = 0

    def change_in_java(self, change: Callable[[JavaOracle, str, int], None]) -> None:
        """Let `change` do something in Java, given the table's name there and how often Java had it, and take over what it left."""
        self._turn += 1
        self._java.register(self._name, self.table.metadata_location)
        change(self._java, self._name, self._turn)
        location = self._java.metadata_location(self._name)
        self._java.unregister(self._name)
        # A catalog that has a table twice deletes none of its files.
        self.table.catalog.drop_table(self.table.name())
        self.table = self.table.catalog.register_table(f"{self._name}_{self._turn}", location)

    def assert_equal(self, *, every_snapshot: bool = False) -> None:
        """The newest snapshot reads equal on both sides, with its row lineage, or each of them does."""
        self._java.register(self._name, self.table.metadata_location)
        try:
            for snapshot in self.table.snapshots() if every_snapshot else ():
                ours = self.table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
                assert_same_rows(self._java.rows(self._name, snapshot.snapshot_id), ours)
            names = tuple(field.name for field in self.table.schema().fields)
            ours = self.table.scan(selected_fields=(*names, *LINEAGE_COLUMNS)).to_arrow()
            assert_same_rows(self._java.rows(self._name, lineage=True), ours)
        finally:
            self._java.unregister(self._name)
