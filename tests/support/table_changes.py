"""Every kind of change to a table, made here and made by Iceberg Java: what other engines must read alike afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType

from tests.support.plaintext import CANARY
from tests.support.tables import BY_TEAM

TEAMS = ("a", "b", "c")


def rows(first: int, count: int, note: str = CANARY) -> pa.Table:
    keys = range(first, first + count)
    return pa.table({"id": pa.array(keys, pa.int64()), "team": [TEAMS[key % 3] for key in keys], "note": [f"{note} {key}" for key in keys]})


def values(first: int, count: int, note: str = CANARY) -> str:
    return ", ".join(f"({key}, '{TEAMS[key % 3]}', '{note} {key}')" for key in range(first, first + count))


@dataclass(frozen=True)
class Change:
    """One kind of change: made here on a table, and made by Java in SQL on `{table}`."""

    name: str
    here: Callable[[Table], None]
    java: tuple[str, ...]
    properties: dict[str, str] = field(default_factory=dict)
    partitions: PartitionSpec = field(default_factory=PartitionSpec)


def _overwrite(table: Table) -> None:
    table.overwrite(rows(50, 3), overwrite_filter="id < 6")
    table.overwrite(rows(100, 5))


def _upsert(table: Table) -> None:
    table.upsert(pa.concat_tables([rows(3, 4, "changed"), rows(700, 2)]), join_cols=["id"])


def _branch(table: Table) -> None:
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "here").commit()
    table.append(rows(800, 3), branch="here")


def _tag(table: Table) -> None:
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_tag(head.snapshot_id, f"here_{len(table.snapshots())}").commit()
    table.append(rows(850, 1))


def _evolve(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("extra", StringType())
        update.rename_column("note", "remark")
        update.move_first("team")
    with table.update_spec() as spec:
        spec.add_field("id", BucketTransform(2), "id_bucket")
    table.append(rows(900, 4).rename_columns(["id", "team", "remark"]))


def _expire(table: Table) -> None:
    table.append(rows(950, 2))
    head = table.current_snapshot()
    assert head is not None
    older = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.snapshot_id != head.snapshot_id]
    table.maintenance.expire_snapshots().by_ids(older).commit()


MERGE = (
    f"MERGE INTO {{table}} t USING (SELECT * FROM VALUES {values(5, 4, 'merged')}, {values(750, 2)} AS s(id, team, note)) s "
    "ON t.id = s.id WHEN MATCHED THEN UPDATE SET note = s.note WHEN NOT MATCHED THEN INSERT *"
)
MODES = {
    mode: {"write.delete.mode": mode, "write.update.mode": mode, "write.merge.mode": mode} for mode in ("copy-on-write", "merge-on-read")
}
APPEND_IN_JAVA = f"INSERT INTO {{table}} VALUES {values(400, 7)}"
CHANGES = [
    Change("append", lambda table: table.append(rows(100, 5)), (APPEND_IN_JAVA,)),
    Change("overwrite", _overwrite, (f"INSERT OVERWRITE {{table}} VALUES {values(400, 7)}",)),
    *(
        Change(f"delete {mode}", lambda table: table.delete("id >= 2 and id < 4"), ("DELETE FROM {table} WHERE id IN (1, 8)",), properties)
        for mode, properties in MODES.items()
    ),
    *(Change(f"upsert {mode}", _upsert, (MERGE,), properties) for mode, properties in MODES.items()),
    Change(
        "dynamic overwrite",
        lambda table: table.dynamic_partition_overwrite(rows(100, 1)),
        (f"INSERT OVERWRITE {{table}} VALUES {values(401, 1)}",),
        partitions=BY_TEAM,
    ),
    Change(
        "evolution",
        _evolve,
        (
            "ALTER TABLE {table} ADD COLUMN java_extra_{number} bigint",
            "ALTER TABLE {table} ADD PARTITION FIELD truncate({number}, team)",
            "INSERT INTO {table} (id, team) VALUES (450, 'a'), (451, NULL)",
        ),
    ),
    Change(
        "branch",
        _branch,
        ("ALTER TABLE {table} CREATE BRANCH java_{number}", f"INSERT INTO {{table}}.branch_java_{{number}} VALUES {values(420, 3)}"),
    ),
    Change("tag", _tag, ("ALTER TABLE {table} CREATE TAG java_{number}", APPEND_IN_JAVA)),
    Change(
        "expire",
        _expire,
        (APPEND_IN_JAVA, "CALL h.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '2100-01-01', retain_last => 1)"),
    ),
    *(
        Change(f"key length {length}", lambda table: table.append(rows(100, 5)), (APPEND_IN_JAVA,), {"encryption.data-key-length": length})
        for length in ("16", "24", "32")
    ),
]
