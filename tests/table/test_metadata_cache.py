"""Metadata that was parsed before is given again only for the same bytes, and is what these bytes say."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType

from tablecrypt._parsed_json import ParsedJson
from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.maintenance import rewrap
from tablecrypt.table.metadata import MOST_KEPT_BYTES, PARSED, EncryptedTableMetadata, MetadataCache, MetadataFile
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.observed_calls import observed
from tests.support.protected_tables import Clients, protected_table
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog, metadata_path, new_table, path_of

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "text": ["a", "b", "c"], "small": pa.array([1, 2, 3], pa.int32())})
UPDATED = pa.table({"id": pa.array([2, 9], pa.int64()), "text": ["x", "y"], "small": pa.array([4, 5], pa.int32())})
CHANGES: dict[str, Callable[[Table], object]] = {
    "append": lambda table: table.append(ROWS),
    "delete": lambda table: table.delete("id = 1"),
    "overwrite": lambda table: table.overwrite(ROWS),
    "upsert": lambda table: table.upsert(UPDATED, join_cols=["id"]),
    "snapshot properties": lambda table: table.append(ROWS, snapshot_properties={"by": "a test \u00fc \U0001f511", "quoted": '"\\'}),
    "properties": lambda table: table.transaction().set_properties({"a": "b", "write.delete.mode": "merge-on-read"}).commit_transaction(),
    "deletion vector": lambda table: table.delete("id = 3"),
    "removed property": lambda table: table.transaction().remove_properties("a").commit_transaction(),
    "columns": lambda table: (
        table.update_schema().add_column("more", DoubleType(), doc="a column").add_column("n", LongType(), default_value=7).commit()
    ),
    "types": lambda table: table.update_schema().update_column("small", LongType()).rename_column("text", "words").commit(),
    "partitions": lambda table: table.update_spec().add_field("id", BucketTransform(4), "b").commit(),
    "order": lambda table: table.update_sort_order().asc("id", IdentityTransform(), NullOrder.NULLS_LAST).commit(),
    "branch and tag": lambda table: (
        table.manage_snapshots()
        .create_branch(table.snapshots()[0].snapshot_id, "audit", max_ref_age_ms=10**9, min_snapshots_to_keep=2)
        .create_tag(table.snapshots()[1].snapshot_id, "t")
        .commit()
    ),
    "branch write": lambda table: table.append(table.scan().to_arrow(), branch="audit"),
    "rollback": lambda table: table.manage_snapshots().rollback_to_snapshot(table.snapshots()[2].snapshot_id).commit(),
    "rewrapped keys": rewrap,
    "expiry": lambda table: table.maintenance.expire_snapshots().by_id(table.snapshots()[3].snapshot_id).commit(),
}


SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "text", StringType(), doc="a text"), NestedField(3, "small", IntegerType())
)
NEW_TABLES: dict[str, dict[str, Any]] = {
    "of Arrow's columns": {"schema": ROWS.schema, "properties": {"encryption.key-id": MASTER_KEY}},
    "with properties": {"schema": SCHEMA, "properties": {"encryption.key-id": MASTER_KEY, "owner": "\u00fc \U0001f511"}},
    "partitioned and sorted": {
        "schema": SCHEMA,
        "properties": {"encryption.key-id": MASTER_KEY},
        "partition_spec": PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "b")),
        "sort_order": SortOrder(SortField(1, IdentityTransform(), null_order=NullOrder.NULLS_LAST)),
    },
}


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    PARSED.clear()
    yield
    PARSED.clear()


@pytest.fixture
def catalog(warehouse: Path, aws: AwsServer) -> EncryptedSqlCatalog:
    return encrypted_sql_catalog(warehouse, aws)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return new_table(catalog, appends=[ROWS])


def file_of(table: Table) -> MetadataFile:
    return MetadataFile(table.metadata_location, metadata_path(table).read_bytes())


def parsed(file: MetadataFile) -> EncryptedTableMetadata:
    found = file.parse()
    assert isinstance(found, EncryptedTableMetadata)
    return found


def check_kept(table: Table, name: str) -> None:
    """That what is kept of a table's metadata file is what the file says."""
    file = file_of(table)
    kept = PARSED.get(file.digest)
    assert isinstance(kept, EncryptedTableMetadata), f"{name}: nothing was kept"
    PARSED.clear()
    said = parsed(file)
    assert kept == said, name
    assert kept.model_dump_json() == said.model_dump_json() == file.content.decode(), name
    assert type(kept.properties) is dict
    for ours, read in ((one._binding, other._binding) for one, other in zip(kept.snapshots, said.snapshots, strict=True)):
        of_metadata = {"name_of": None, "fields_of": None}
        assert vars(ours.ring) | of_metadata == vars(read.ring) | of_metadata, name
        assert ours.layout is not None
        assert read.layout is not None
        assert vars(ours.layout.table) == vars(read.layout.table), name
        by_identity = {"table": None, "_by_schema": None}
        assert vars(ours.layout) | by_identity == vars(read.layout) | by_identity, name
        assert ours.header is None


def test_what_a_commit_keeps_is_what_its_file_says(catalog: Catalog, table: Table) -> None:
    """Whatever changed: the next commit starts from the one or from the other, as the cache has it."""
    for name, change in CHANGES.items():
        change(table)
        check_kept(table, name)
        table = catalog.load_table("db.t")


@pytest.mark.parametrize("name", NEW_TABLES)
def test_what_a_creation_keeps_is_what_its_file_says(catalog: Catalog, name: str) -> None:
    catalog.create_namespace_if_not_exists("db")
    created = catalog.create_table("db.new", **NEW_TABLES[name])
    check_kept(created, name)
    created.append(ROWS)
    check_kept(created, name)
    assert catalog.load_table("db.new").scan().to_arrow().num_rows == ROWS.num_rows


def test_what_the_creation_of_a_table_with_protected_columns_keeps_is_what_its_file_says(both: Clients) -> None:
    check_kept(protected_table(both.payroll, **{"encryption.column-keys": "pii: ssn", "encryption.column-mask.ssn": "hash"}), "created")


def test_a_commit_on_a_loaded_or_new_table_parses_no_file_again(catalog: Catalog, table: Table) -> None:
    loaded = catalog.load_table("db.t")
    parsed: list[object] = []
    with observed(ParsedJson.__init__, parsed.append):
        new_table(catalog, "db.new", appends=[ROWS])
        for _ in range(3):
            loaded.append(ROWS)
            assert catalog.load_table("db.t").metadata_location == loaded.metadata_location
        assert not parsed
        PARSED.clear()
        loaded.append(ROWS)
    assert parsed


def test_an_edited_file_is_parsed_and_checked_whatever_is_kept_of_the_old_one(catalog: Catalog, table: Table) -> None:
    file = file_of(table)
    assert PARSED.get(file.digest) is not None
    path = path_of(file.location)
    path.write_bytes(file.content.replace(b'"last-column-id":', b'"last-column-id":9,"last-column-id":', 1))
    with pytest.raises(FormatError, match="occurs twice"):
        catalog.load_table("db.t")
    path.write_bytes(file.content.replace(b'"last-column-id":3', b'"last-column-id":4', 1))
    with pytest.raises(TamperedFileError):
        catalog.load_table("db.t")
    path.write_bytes(file.content)
    assert catalog.load_table("db.t").scan().to_arrow().num_rows == 3


def test_what_one_caller_changes_no_other_sees(table: Table) -> None:
    file = file_of(table)
    one = parsed(file)
    one.properties["encryption.key-id"] = "another"
    one.snapshots.clear()
    one.refs.clear()
    one.encryption_keys.clear()
    other = parsed(file)
    assert other.properties["encryption.key-id"] == MASTER_KEY
    assert (len(other.snapshots), list(other.refs), len(other.encryption_keys)) == (1, ["main"], 2)


def test_the_summary_of_a_snapshot_cannot_be_changed_in_memory(catalog: Catalog, table: Table) -> None:
    """What a careless reader notes there would be in every later load of the process, and in the next commit's file."""
    for each in (table, catalog.load_table("db.t"), pickle.loads(pickle.dumps(table)), copy.deepcopy(catalog.load_table("db.t"))):
        snapshot = each.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        before = dict(snapshot.summary.additional_properties)
        assert before["total-records"] == "3"
        with pytest.raises(TypeError, match="does not change"):
            snapshot.summary["total-records"] = "7"
        for change in ("update", "popitem", "clear"):
            with pytest.raises(TypeError, match="does not change"):
                getattr(snapshot.summary.additional_properties, change)()
        assert dict(snapshot.summary.additional_properties) == before


def test_a_plain_table_and_refused_metadata_are_not_kept(catalog: Catalog, table: Table, tmp_path: Path) -> None:
    catalog.create_table("db.plain", ROWS.schema, location=f"file://{tmp_path}/plain").append(ROWS)
    plain_file = file_of(catalog.load_table("db.plain"))
    assert PARSED.get(plain_file.digest) is None
    document = json.loads(file_of(table).content)
    stray = MetadataFile("file:///x.metadata.json", json.dumps({**document, "of-the-future": 1}).encode())
    for _ in range(2):
        with pytest.raises(FormatError, match="of-the-future"):
            stray.parse()


@pytest.mark.parametrize("runs", [True, False], ids=["runs", "was turned off"])
def test_after_a_parse_that_succeeds_or_fails_the_garbage_collector_is_as_before(table: Table, runs: bool) -> None:
    if not runs:
        gc.disable()
    try:
        file_of(table).parse()
        after = gc.isenabled()
        with pytest.raises(FormatError):
            MetadataFile("file:///x.metadata.json", b"[]").parse()
        assert (after, gc.isenabled()) == (runs, runs)
    finally:
        gc.enable()


def test_the_longest_unused_goes_where_more_is_kept_than_there_may_be(table: Table) -> None:
    cache, metadata = MetadataCache(), table.metadata
    third = MOST_KEPT_BYTES // 3
    for digest in ("a", "b", "c"):
        cache.put(digest, metadata, third)
    assert cache.get("a") is not None
    cache.put("d", metadata, third)
    assert [cache.get(digest) is None for digest in "abcd"] == [False, True, False, False]
    cache.put("e", metadata, MOST_KEPT_BYTES + 1)
    assert cache.get("e") is None
    cache.put("a", metadata, 10)
    assert cache.size == 2 * third + 10


def test_a_forked_child_starts_with_nothing_and_can_read(table: Table) -> None:
    file = file_of(table)
    with PARSED._lock:
        child = os.fork()
        if not child:
            os._exit(0 if PARSED.get(file.digest) is None and file.parse() is not None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
