"""erase: one person's rows leave every branch, tag and snapshot, and nothing that any key still opens holds them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tablecrypt.maintenance import erase
from tests.support.aws import AwsServer
from tests.support.catalogs import MASTER_KEY, encrypted_sql_catalog
from tests.support.maintained_table import folder_of
from tests.support.plaintext import CANARY
from tests.support.stored_text import readable_text

SCHEMA: Final = Schema(
    NestedField(1, "customer_id", LongType()), NestedField(2, "region", StringType()), NestedField(3, "email", StringType())
)
PERSON: Final = 7
FILTER: Final = f"customer_id = {PERSON}"
SECRET: Final = f"{PERSON:03}@{CANARY}"


def rows(first: int, last: int, region: str = "north") -> pa.Table:
    ids = list(range(first, last))
    return pa.table(
        {"customer_id": ids, "region": [region] * len(ids), "email": [f"{each:03}@{CANARY}" for each in ids]}, schema=SCHEMA.as_arrow()
    )


def people(catalog: Catalog, partition_spec: PartitionSpec | None = None, **properties: str) -> Table:
    """Three appends, of which the second holds the person; then an append after it."""
    options = {} if partition_spec is None else {"partition_spec": partition_spec}
    table = catalog.create_table("db.people", SCHEMA, properties={"encryption.key-id": MASTER_KEY, **properties}, **options)
    table.append(rows(100, 120))
    table.append(rows(0, 20))
    table.append(rows(200, 220))
    return table


def check_nothing_is_left(table: Table, secret: str = SECRET) -> None:
    fresh = table.catalog.load_table(table.name())
    assert not [text for text in readable_text(fresh, folder_of(fresh)) if secret in text]


@pytest.fixture
def catalog(tmp_path: Path, aws: AwsServer) -> Catalog:
    return encrypted_sql_catalog(tmp_path, aws)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("deleted_before", [False, True])
def test_one_person_is_erased_and_everybody_else_stays(catalog: Catalog, mode: str, deleted_before: bool) -> None:
    table = people(catalog, **{"write.delete.mode": mode})
    everybody = sorted(table.scan().to_arrow()["customer_id"].to_pylist())
    first = table.snapshots()[0].snapshot_id
    if deleted_before:
        table.delete(FILTER)
    assert any(SECRET in text for text in readable_text(table, folder_of(table)))

    erased = erase(table, FILTER)

    assert erased.is_complete, erased
    assert erased.shape == "customer_id = ?"
    assert sorted(table.refresh().scan().to_arrow()["customer_id"].to_pylist()) == [each for each in everybody if each != PERSON]
    assert table.scan(snapshot_id=first).count() == 20
    check_nothing_is_left(table)
    [ref] = erased.refs
    assert (ref.name, ref.kind, ref.rows + ref.hidden_rows) == ("main", "branch", 0 if deleted_before and mode == "copy-on-write" else 1)


def test_a_second_run_finds_nothing_and_writes_nothing(catalog: Catalog) -> None:
    table = people(catalog, **{"write.delete.mode": "merge-on-read"})
    assert erase(table, FILTER).is_complete
    before = {path: path.stat().st_mtime_ns for path in folder_of(table).rglob("*")}
    again = erase(table, FILTER)
    assert again.is_complete
    assert again.found_nothing
    assert again.before == again.after
    assert {path: path.stat().st_mtime_ns for path in folder_of(table).rglob("*")} == before


def test_branches_and_tags_lose_the_person_and_keep_the_others(catalog: Catalog) -> None:
    table = people(catalog)
    second = table.snapshots()[1].snapshot_id
    table.manage_snapshots().create_branch(second, "side").create_tag(second, "audit-2024", max_ref_age_ms=10**12).commit()
    table.append(rows(300, 310), branch="side")

    erased = erase(table, FILTER)

    assert erased.is_complete, erased
    assert {(ref.name, ref.kind, ref.rows) for ref in erased.refs} == {
        ("main", "branch", 1),
        ("side", "branch", 1),
        ("audit-2024", "tag", 1),
    }
    refs = table.refresh().metadata.refs
    assert refs.keys() == {"main", "side", "audit-2024"}
    assert refs["audit-2024"].max_ref_age_ms == 10**12
    counts = {name: table.scan().use_ref(name).count() for name in refs}
    assert counts == {"main": 59, "side": 49, "audit-2024": 39}
    check_nothing_is_left(table)


def test_partition_folders_and_summaries_go_too(catalog: Catalog) -> None:
    by_customer = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "customer_id"))
    table = people(catalog, by_customer, **{"write.summary.partition-limit": "100"})
    assert any(f"customer_id={PERSON}" in str(path) for path in folder_of(table).rglob("*"))
    assert erase(table, FILTER).is_complete
    assert table.refresh().scan().count() == 59
    check_nothing_is_left(table)
    check_nothing_is_left(table, f"customer_id={PERSON}:")
    check_nothing_is_left(table, f"customer_id={PERSON}/")
    check_nothing_is_left(table, f'customer_id={PERSON}"')
    assert not [path for path in folder_of(table).rglob("*") if path.name == f"customer_id={PERSON}"]


def test_a_dry_run_counts_and_changes_nothing(catalog: Catalog, tmp_path: Path) -> None:
    table = people(catalog)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()}
    foretold = erase(table, FILTER, dry_run=True)
    assert before == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()}
    assert foretold.dry_run
    assert not foretold.is_complete
    [ref] = foretold.refs
    assert (ref.rows, ref.rewritten_files) == (1, 1)
    assert foretold.snapshots == tuple(sorted(each.snapshot_id for each in table.snapshots()[1:]))
    done = erase(table, FILTER)
    assert set(foretold.snapshots) <= set(done.snapshots)
    assert set(foretold.deleted) <= set(done.deleted)
