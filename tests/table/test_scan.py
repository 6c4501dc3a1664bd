"""Scans of encrypted tables: the same rows as PyIceberg's scan of a plain table, by every way to ask for them."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType

from tablecrypt.errors import ConfigurationError
from tablecrypt.table.lineage import LINEAGE_FIELDS, with_lineage
from tablecrypt.table.scan import EncryptedDataScan, EncryptedIncrementalAppendScan
from tablecrypt.table.table import EncryptedTable
from tests.support.compare import assert_same_rows
from tests.support.plaintext import CANARY
from tests.support.plaintext_scan import watch
from tests.support.tables import BY_TEAM, memory_catalog, new_table, rows_of_file

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "team", StringType()),
    NestedField(3, "pair", StructType(NestedField(4, "left", IntegerType()), NestedField(5, "right", StringType()))),
    NestedField(6, "many", ListType(7, LongType(), element_required=False)),
)
ROW_GROUPS_OF_7 = {"write.parquet.row-group-limit": "7"}


def rows(ids: range) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "team": pa.array([None if each % 5 == 0 else f"{CANARY} {each % 3}" for each in ids], pa.string()),
            "pair": pa.array(
                [None if each % 7 == 0 else {"left": each, "right": CANARY} for each in ids],
                pa.struct([("left", pa.int32()), ("right", pa.string())]),
            ),
            "many": pa.array([None if each % 4 == 0 else [each, None] for each in ids], pa.list_(pa.int64())),
        }
    )


@pytest.fixture(scope="module", params=[PartitionSpec(), BY_TEAM], ids=["unpartitioned", "by team"])
def tables(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[EncryptedTable, Table]:
    """An encrypted table and a plain one with the same three appends, a delete and a schema change between them. Tests only read them."""
    warehouse = tmp_path_factory.mktemp("warehouse")
    watch(warehouse)
    plain_catalog = InMemoryCatalog("plain", warehouse=f"file://{tmp_path_factory.mktemp('plain')}")
    plain_catalog.create_namespace("db")
    encrypted = create(memory_catalog(warehouse), "db.t", SCHEMA, request.param, ROW_GROUPS_OF_7)
    plain = plain_catalog.create_table("db.t", SCHEMA, partition_spec=request.param, properties=ROW_GROUPS_OF_7)
    for table in (encrypted, plain):
        table.append(rows(range(40)))
        table.append(rows(range(100, 130)))
        table.delete("id in (3, 101, 102)")
        with table.update_schema() as update:
            update.rename_column("id", "number")
            update.add_column("added", StringType())
        table.append(rows(range(200, 210)).rename_columns(["number", "team", "pair", "many"]))
    return encrypted, plain


def create(catalog: Catalog, name: str, schema: Schema, spec: PartitionSpec, properties: dict[str, str]) -> EncryptedTable:
    return new_table(catalog, name, schema, partitioned_by=spec, properties=properties)


FILTERS = [
    "number < 10",
    "number >= 35 and number < 105",
    f"team = '{CANARY} 1'",
    "team is null",
    "team is not null and number > 200",
    "pair.left = 8",
    "pair is null",
    "added is null",
    "added = 'x'",
    "number in (1, 2, 300)",
    "number not in (1, 2, 300)",
    f"team like '{CANARY}%'",
    "number = -1",
]


@pytest.mark.parametrize("row_filter", FILTERS)
def test_a_filter_finds_the_rows_that_pyiceberg_finds(tables: tuple[EncryptedTable, Table], row_filter: str) -> None:
    encrypted, plain = (table.scan(row_filter=row_filter) for table in tables)
    assert_same_rows(encrypted.to_arrow(), plain.to_arrow())
    assert encrypted.count() == plain.to_arrow().num_rows


@pytest.mark.parametrize(
    "selected", [("number",), ("team", "number"), ("pair.right",), ("added",), ("added", "many"), ("many", "pair", "team", "number")]
)
def test_a_projection_has_the_columns_and_types_that_pyiceberg_gives(
    tables: tuple[EncryptedTable, Table], selected: tuple[str, ...]
) -> None:
    encrypted, plain = (table.scan(selected_fields=selected, row_filter="number > 20").to_arrow() for table in tables)
    assert encrypted.schema == plain.schema
    assert_same_rows(encrypted, plain)


def test_every_way_to_ask_gives_the_same_rows(tables: tuple[EncryptedTable, Table]) -> None:
    encrypted, plain = tables
    expected = plain.scan().to_arrow()
    assert_same_rows(encrypted.scan().to_arrow(), expected)
    assert_same_rows(encrypted.scan().to_arrow_batch_reader().read_all(), expected)
    assert len(encrypted.scan().to_pandas()) == encrypted.scan().to_polars().height == expected.num_rows
    counted = encrypted.scan().to_duckdb("t").execute("select count(*), sum(number) from t").fetchone()
    assert counted == (expected.num_rows, sum(expected.column("number").to_pylist()))
    assert encrypted.scan().count() == plain.scan().count() == expected.num_rows


def test_the_batch_reader_has_pyicebergs_schema(tables: tuple[EncryptedTable, Table]) -> None:
    encrypted, plain = (table.scan().to_arrow_batch_reader().schema for table in tables)
    assert encrypted.equals(plain, check_metadata=True)


@pytest.mark.parametrize("limit", [0, 1, 7, 30, 39, 1000])
def test_a_limit_is_kept(tables: tuple[EncryptedTable, Table], limit: int) -> None:
    encrypted, _ = tables
    total = encrypted.scan().count()
    assert encrypted.scan(limit=limit).to_arrow().num_rows == min(limit, total)
    assert encrypted.scan(limit=limit).to_arrow_batch_reader().read_all().num_rows == min(limit, total)
    assert encrypted.scan("number > 30", limit=limit).to_arrow().num_rows == min(limit, encrypted.scan("number > 30").count())


def test_older_snapshots_are_read_in_their_own_schema(tables: tuple[EncryptedTable, Table]) -> None:
    encrypted, plain = tables
    for ours, theirs in zip(encrypted.snapshots(), plain.snapshots(), strict=True):
        assert_same_rows(encrypted.scan(snapshot_id=ours.snapshot_id).to_arrow(), plain.scan(snapshot_id=theirs.snapshot_id).to_arrow())


def test_case_may_be_ignored(tables: tuple[EncryptedTable, Table]) -> None:
    encrypted, plain = (
        table.scan(row_filter="NUMBER < 10", selected_fields=("TEAM",), case_sensitive=False).to_arrow() for table in tables
    )
    assert_same_rows(encrypted, plain)


@pytest.mark.parametrize("field", LINEAGE_FIELDS, ids=lambda field: field.name)
@pytest.mark.parametrize("spelled", [str, str.upper])
def test_a_column_with_a_name_of_row_lineage_is_what_the_name_means(
    catalog: Catalog, field: NestedField, spelled: Callable[[str], str]
) -> None:
    table = new_table(catalog, schema=pa.schema([("id", pa.int64()), (field.name, pa.string())]))
    table.append(pa.table({"id": [1, 2], field.name: ["a", "b"]}))
    before = table.metadata.current_snapshot_id
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column(field.name)

    then, now = (
        table.scan(snapshot_id=at, selected_fields=("id", spelled(field.name)), case_sensitive=spelled is str) for at in (before, None)
    )
    assert [then.to_arrow()[field.name].to_pylist(), then.to_arrow_dataset().to_table()[field.name].to_pylist()] == [["a", "b"]] * 2
    assert pa.types.is_int64(now.to_arrow().schema.field(field.name).type)
    assert now.to_arrow()[field.name].null_count == 0


def test_dictionary_columns_are_dictionaries(tables: tuple[EncryptedTable, Table]) -> None:
    encrypted, plain = tables
    for table in (encrypted.scan().to_arrow(("team",)), encrypted.scan().to_arrow_batch_reader(("team",)).read_all()):
        assert pa.types.is_dictionary(table.schema.field("team").type)
        assert_same_rows(table, plain.scan().to_arrow())


def test_files_come_in_the_order_of_their_manifests(catalog: Catalog) -> None:
    table = create(catalog, "db.t", SCHEMA, PartitionSpec(), {})
    for start in range(0, 200, 10):
        table.append(rows(range(start, start + 10)))
    streamed = table.scan().to_arrow_batch_reader().read_all().column("id").to_pylist()
    assert streamed == table.scan().to_arrow().column("id").to_pylist()


def test_an_empty_table_has_columns_and_no_rows(catalog: Catalog) -> None:
    table = create(catalog, "db.t", SCHEMA, PartitionSpec(), {})
    assert table.scan().to_arrow().schema.names == ["id", "team", "pair", "many"]
    assert (table.scan().count(), table.scan().to_arrow_batch_reader().read_all().num_rows) == (0, 0)


def lineage(table: Table, **scan: Any) -> dict[int, tuple[int, int]]:
    found = table.scan(selected_fields=("id", "_row_id", "_last_updated_sequence_number"), **scan).to_arrow()
    return {number: (row, sequence) for number, row, sequence in zip(*(column.to_pylist() for column in found.columns), strict=True)}


def test_row_ids_are_unique_and_kept_by_a_rewrite(catalog: Catalog) -> None:
    table = create(catalog, "db.t", SCHEMA, PartitionSpec(), ROW_GROUPS_OF_7)
    table.append(rows(range(20)))
    table.append(rows(range(20, 40)))
    before = lineage(table)
    assert sorted(row for row, _ in before.values()) == list(range(40))
    table.delete("id = 5 or id = 25")
    assert lineage(table) == {number: each for number, each in before.items() if number not in (5, 25)}


def test_row_ids_do_not_depend_on_filter_or_limit(catalog: Catalog) -> None:
    table = create(catalog, "db.t", SCHEMA, PartitionSpec(), ROW_GROUPS_OF_7)
    table.append(rows(range(40)))
    every = lineage(table)
    assert lineage(table, row_filter="id > 30") == {number: each for number, each in every.items() if number > 30}
    assert lineage(table, limit=5).items() <= every.items()


def test_lineage_columns_are_selected_by_name_alone(catalog: Catalog) -> None:
    table = create(catalog, "db.t", SCHEMA, PartitionSpec(), {})
    table.append(rows(range(3)))
    assert table.scan(selected_fields=("_row_id",)).to_arrow().to_pydict() == {"_row_id": [0, 1, 2]}
    assert table.scan(selected_fields=("*", "_row_id")).to_arrow().schema.names[-2:] == ["many", "_row_id"]
    assert "_row_id" not in table.scan().to_arrow().schema.names


def test_a_rewrite_gets_every_column_and_lineage(catalog: Catalog) -> None:
    table = create(catalog, "db.t", SCHEMA, PartitionSpec(), {})
    table.append(rows(range(10)))
    scan = table.scan("id = 3", selected_fields=("team",))
    (task,) = scan.plan_files()
    names = ["id", "team", "pair", "many", "_row_id", "_last_updated_sequence_number"]
    staying = rows_of_file(table, task, 3, 7)
    assert (staying.schema.names, staying["id"].to_pylist()) == (names, [0, 1, 2, 4, 5, 6, 8, 9])
    (matching,) = scan.reader_of(with_lineage(table.schema())).batches(task)
    assert (matching.schema.names, matching.num_rows) == (names, 1)


def test_a_widened_column_reads_older_files(catalog: Catalog) -> None:
    table = create(catalog, "db.t", Schema(NestedField(1, "id", IntegerType())), PartitionSpec(), {})
    table.append(pa.table({"id": pa.array([1, 2], pa.int32())}))
    with table.update_schema() as update:
        update.update_column("id", LongType())
    table.append(pa.table({"id": pa.array([2**40], pa.int64())}))
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [1, 2, 2**40]
    assert table.scan("id > 1").count() == 2


def test_the_appends_between_two_snapshots_are_read(catalog: Catalog) -> None:
    table = create(catalog, "db.t", SCHEMA, PartitionSpec(), {})
    for start in (0, 10, 20):
        table.append(rows(range(start, start + 10)))
    table.delete("id = 25")
    first = table.snapshots()[0].snapshot_id
    scan = EncryptedIncrementalAppendScan(table.metadata, table.io, selected_fields=("id",))
    assert sorted(scan.to_arrow().column("id").to_pylist()) == list(range(30))
    later = scan.from_snapshot_id_exclusive(first)
    assert sorted(later.to_arrow().column("id").to_pylist()) == list(range(10, 30))
    assert sorted(later.filter("id < 15").to_arrow_batch_reader().read_all().column("id").to_pylist()) == list(range(10, 15))


def test_a_catalog_server_is_never_asked_to_plan(catalog: Catalog) -> None:
    table = create(catalog, "db.t", SCHEMA, PartitionSpec(), {})
    table.append(rows(range(3)))

    class Server:
        def supports_server_side_planning(self) -> bool:
            raise AssertionError("asked")

    scan = EncryptedDataScan(table.metadata, table.io, catalog=cast("Catalog", Server()), table_identifier=("db", "t"))
    assert scan.to_arrow().num_rows == scan.count() == 3


def test_a_plain_file_io_is_refused(catalog: Catalog) -> None:
    table = create(catalog, "db.t", SCHEMA, PartitionSpec(), {})
    with pytest.raises(ConfigurationError, match="EncryptingFileIO"):
        EncryptedDataScan(table.metadata, PyArrowFileIO()).to_arrow()


def prefetching() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "tablecrypt-prefetch"}


@pytest.mark.parametrize("stop", [lambda reader: reader.close(), lambda reader: None], ids=["closed", "forgotten"])
def test_a_reader_that_is_not_finished_leaves_no_thread(catalog: Catalog, stop: Callable[[pa.RecordBatchReader], None]) -> None:
    table = create(catalog, "db.t", SCHEMA, PartitionSpec(), ROW_GROUPS_OF_7)
    # Ten files, each of more row groups than wait at once: no thread can be done before the first row group is taken.
    for start in range(0, 1000, 100):
        table.append(rows(range(start, start + 100)))
    before = prefetching()
    reader = table.scan().to_arrow_batch_reader()
    reader.read_next_batch()
    threads = prefetching() - before
    assert threads
    stop(reader)
    del reader
    gc.collect()
    for thread in threads:
        thread.join(60)
    assert not prefetching() & threads


def test_tables_can_be_written_while_one_is_streamed(catalog: Catalog) -> None:
    source, target = (create(catalog, f"db.{name}", SCHEMA, PartitionSpec(), ROW_GROUPS_OF_7) for name in ("source", "target"))
    for start in range(0, 100, 20):
        source.append(rows(range(start, start + 20)))
    for batch in itertools.islice(source.scan().to_arrow_batch_reader(), 8):
        target.append(pa.Table.from_batches([batch]))
    assert target.scan().count() > 0


def test_a_scan_is_narrowed_like_pyicebergs(tables: tuple[EncryptedTable, Table]) -> None:
    encrypted, plain = (table.scan().select("number", "team").filter(EqualTo(term="number", value=8)).to_arrow() for table in tables)
    assert_same_rows(encrypted, plain)
