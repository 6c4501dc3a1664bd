"""The interoperability matrix: every kind of change, made by Java and read here, made here and read by Java, and made by both in turn.

Rows, row ids and sequence numbers of the newest state, and rows of every snapshot, must be the same for both readers after every change.
docs/interop.md shows the matrix.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.java import JavaOracle
from tests.support.java_sides import Sides
from tests.support.table_changes import CHANGES, Change, rows
from tests.support.tables import MASTER_KEY, TEAM_SCHEMA

pytestmark = pytest.mark.java


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_changes_on_each_side_and_in_turn_read_the_same_on_both(java: JavaOracle, catalog: EncryptedSqlCatalog, change: Change) -> None:
    def in_java(java: JavaOracle, name: str, turn: int) -> None:
        for statement in change.java:
            java.sql(statement.format(table=f"h.{name}", name=name, number=turn))

    name = f"db.matrix_{change.name.replace(' ', '_').replace('-', '_')}"
    java.sql("SET spark.sql.sources.partitionOverwriteMode=dynamic")
    properties = {"encryption.key-id": MASTER_KEY, **change.properties}
    table = catalog.create_table(name, TEAM_SCHEMA, partition_spec=change.partitions, properties=properties)
    table.append(rows(0, 12))
    sides = Sides(java, table, name)

    sides.change_in_java(in_java)
    sides.assert_equal()
    change.here(sides.table)
    sides.assert_equal()
    sides.change_in_java(in_java)
    sides.table.append(pa.table({"id": pa.array([5000], pa.int64()), "team": ["a"]}))
    sides.assert_equal(every_snapshot=True)
