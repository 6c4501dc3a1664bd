"""Schemas and partition specs that nothing needs go with expired snapshots, where that is asked for, and keys never go by it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, StringType

from tablecrypt import maintenance
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance.expiry import expire_snapshots, removal_of_unused
from tablecrypt.maintenance.reachable import FileKind
from tablecrypt.properties import COLUMN_KEYS
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edited
from tests.support.tables import encrypted_table, memory_catalog, memory_kms, metadata_of, metadata_path, new_table, unpinned_catalog

LATER = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
COLUMNS = pa.schema([("id", pa.int64()), ("note", pa.string())])


def rows(*numbers: int, **more: list[str]) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "note": [f"n{each}" for each in numbers], **more})


@pytest.fixture
def table(warehouse: Path) -> Table:
    return new_table(memory_catalog(warehouse), schema=COLUMNS, appends=[rows(1)])


def key_ids(table: Table) -> set[str]:
    return {key.key_id for key in metadata_of(table.refresh()).encryption_keys}


def schemas_and_specs(table: Table) -> tuple[list[int], list[int]]:
    metadata = table.refresh().metadata
    return [each.schema_id for each in metadata.schemas], [each.spec_id for each in metadata.partition_specs]


def test_statistics_that_others_wrote_go_with_their_snapshot(unwatched_warehouse: Path, aws: AwsServer) -> None:
    table = new_table(unpinned_catalog(unwatched_warehouse, aws), schema=COLUMNS, appends=[rows(1), rows(2), rows(3)])
    first, second, last = (each.snapshot_id for each in table.refresh().metadata.snapshots)
    folder = metadata_path(table).parent
    paths = {name: folder / name for name in ("1.stats", "2.stats", "partition-stats-1.parquet")}
    for path in paths.values():
        path.write_bytes(b"PFA1")

    def named(snapshot_id: int, path: Path) -> dict[str, Any]:
        scheme = "" if path.name == "1.stats" else "file://"
        return {"snapshot-id": snapshot_id, "statistics-path": f"{scheme}{path}", "file-size-in-bytes": 4}

    def change(content: dict[str, Any]) -> None:
        puffin = {"file-footer-size-in-bytes": 1, "blob-metadata": []}
        content["statistics"] = [named(first, paths["1.stats"]) | puffin, named(last, paths["2.stats"]) | puffin]
        content["partition-statistics"] = [named(first, paths["partition-stats-1.parquet"]), named(second, metadata_path(table))]

    known = set(folder.glob("*.metadata.json"))
    expired = expire_snapshots(edited(table, change), LATER, delete_below=[table.location()])

    gone = {Path(location).name for location, kind in expired.deleted.items() if kind == FileKind.STATISTICS}
    assert gone == {"1.stats", "partition-stats-1.parquet"}
    assert {name for name, path in paths.items() if path.exists()} == {"2.stats"}
    assert known <= set(folder.glob("*.metadata.json"))


def test_a_schema_goes_where_another_knows_all_of_its_columns(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("more", StringType())
    table.append(rows(2, more=["m"]))
    expire_snapshots(table, LATER)
    assert schemas_and_specs(table) == ([0, 1], [0])
    keys = key_ids(table)

    expire_snapshots(table, LATER, clean_metadata=True)

    assert schemas_and_specs(table) == ([1], [0])
    assert key_ids(table) == keys
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    assert maintenance.verify(table).is_good


@pytest.mark.parametrize("change", ["drop", "rename", "widen"])
def test_a_schema_stays_that_alone_knows_what_a_column_was(warehouse: Path, change: str) -> None:
    columns = pa.schema([*COLUMNS, ("number", pa.int32())])
    first = rows(1).append_column("number", pa.array([7], pa.int32()))
    table = new_table(memory_catalog(warehouse), schema=columns, appends=[first])
    with table.update_schema() as update:
        if change == "drop":
            update.delete_column("number")
        elif change == "rename":
            update.rename_column("number", "other")
        else:
            update.update_column("number", LongType())
    with table.update_schema() as update:
        update.add_column("more", StringType())
    table.append(rows(2, more=["m"]))

    expire_snapshots(table, LATER, clean_metadata=True)

    assert schemas_and_specs(table) == ([0, 2], [0])
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]


def test_a_spec_goes_with_the_last_manifest_of_it(table: Table) -> None:
    with table.update_spec() as update:
        update.add_field("note", IdentityTransform(), "by_note")
    table.append(rows(2))
    expire_snapshots(table, LATER, clean_metadata=True)
    assert schemas_and_specs(table) == ([0], [0, 1])

    maintenance.compact(table, rewrite_all=True)
    table.refresh().append(rows(4))
    expire_snapshots(table, LATER, clean_metadata=True)

    assert schemas_and_specs(table) == ([0], [1])
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 4]
    with table.update_spec() as update:
        update.remove_field("by_note")
    table.refresh().append(rows(3))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4] and maintenance.verify(table).is_good


def test_entries_of_column_keys_stay_with_the_schemas_of_their_columns(warehouse: Path) -> None:
    memory_kms(warehouse, "alias/notes")
    catalog = memory_catalog(warehouse)
    table = new_table(catalog, schema=COLUMNS, appends=[rows(1)], properties={COLUMN_KEYS.name: "alias/notes: note"})
    with table.update_schema() as update:
        update.add_column("more", StringType())
    table.append(rows(2, more=["m"]))
    before = key_ids(table)
    listed = key_ids(_plainly_expired(table))

    expire_snapshots(table, LATER, clean_metadata=True)

    assert key_ids(table) == listed <= before
    assert sorted(table.scan().to_arrow()["note"].to_pylist()) == ["n1", "n2"]
    assert maintenance.verify(table).is_good


def _plainly_expired(table: Table) -> Table:
    expire_snapshots(table, LATER)
    return table.refresh()


def test_nothing_goes_where_gc_is_disabled_or_a_schema_may_have_come_to_be_used_meanwhile(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("more", StringType())
    table.append(rows(2, more=["m"]))
    expire_snapshots(table, LATER)
    planned = encrypted_table(table.refresh())
    removal = removal_of_unused(planned.metadata, planned.io)
    table.catalog.load_table("db.t").append(rows(9, more=["m"]))

    transaction = planned.transaction()
    transaction.apply(*removal)
    with pytest.raises(CommitFailedException, match="branch main has changed"):
        transaction.commit_transaction()

    table.refresh().transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    with pytest.raises(ConfigurationError, match="GC is disabled"):
        expire_snapshots(table, LATER, clean_metadata=True)
    assert schemas_and_specs(table) == ([0, 1], [0])
