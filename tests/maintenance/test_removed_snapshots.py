"""Whatever removes a snapshot removes what the metadata says of it: a file that was deleted is named no more."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tablecrypt.maintenance import erase, rescue, shred
from tablecrypt.maintenance.expiry import expire_snapshots
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edited
from tests.support.interrupted_catalog import INTERRUPTED, at_commits, once
from tests.support.tables import encrypted_sql_catalog, metadata_of, metadata_path, new_table, unpinned_catalog

LATER = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)

OPERATIONS: dict[str, Callable[[Table], object]] = {
    "expire_snapshots": lambda table: expire_snapshots(table, LATER, delete_below=[table.location()]),
    "PyIceberg's expiry": lambda table: table.maintenance.expire_snapshots().older_than(dt.datetime(2100, 1, 1)).commit(),
    "shred": lambda table: shred(table, [table.snapshots()[0].snapshot_id], delete_below=[table.location()]),
    "erase": lambda table: erase(table, "id = 1", delete_below=[table.location()]),
    "rescue": lambda table: rescue(table, expire_lost=True),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_statistics_of_partitions_stay_in_the_metadata_without_their_snapshot(
    unwatched_warehouse: Path, aws: AwsServer, operation: str
) -> None:
    made = new_table(unpinned_catalog(unwatched_warehouse, aws), appends=[pa.table({"id": [number]}) for number in (1, 2, 3)])
    first = metadata_of(made.refresh()).snapshots[0]
    path = metadata_path(made).parent / "partition-stats-1.parquet"
    path.write_bytes(b"PAR1")

    def edit(content: dict[str, Any]) -> None:
        content["partition-statistics"] = [{"snapshot-id": first.snapshot_id, "statistics-path": f"file://{path}", "file-size-in-bytes": 4}]
        if operation == "rescue":
            # A key that is nowhere: older metadata files are gone as well.
            content["encryption-keys"] = [each for each in content["encryption-keys"] if each["key-id"] != first.key_id]
            content["metadata-log"] = []

    table = edited(made, edit)
    if operation == "rescue":
        for older in set(path.parent.glob("*.metadata.json")) - {metadata_path(table)}:
            older.unlink()
    OPERATIONS[operation](table)

    after = metadata_of(table.refresh())
    assert first.snapshot_id not in {each.snapshot_id for each in after.snapshots}
    assert after.partition_statistics == []


def test_snapshots_that_others_expire_meanwhile_are_no_error_of_an_expiry(warehouse: Path, aws: AwsServer) -> None:
    catalog = encrypted_sql_catalog(warehouse, aws, INTERRUPTED)
    table = new_table(catalog, appends=[pa.table({"id": [number]}) for number in (1, 2, 3)])
    first = table.snapshots()[0].snapshot_id

    def expired_by_another() -> None:
        encrypted_sql_catalog(warehouse, aws).load_table("db.t").maintenance.expire_snapshots().by_id(first).commit()

    with at_commits(before=once(expired_by_another)):
        assert first not in expire_snapshots(table, LATER, delete_below=[table.location()]).snapshots
    assert len(table.refresh().snapshots()) == 1
