"""Whatever a user does to an encrypted table, its rows are those of a plain PyIceberg table that the same was done to."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tests.support.compare import assert_same_rows
from tests.support.plaintext import CANARY
from tests.support.tables import ENCRYPTED, memory_catalog

pytestmark = pytest.mark.slow

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "group", StringType()),
    NestedField(3, "value", LongType()),
    NestedField(4, "text", StringType()),
)
BY_GROUP = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "group"))
GROUPS = ["a", "b", None]

Operation = Callable[[Table], object]


def rows(keys: list[int], value: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "group": pa.array([GROUPS[key % 3] for key in keys], pa.string()),
            "value": pa.array([None if key % 5 == 0 else value for key in keys], pa.int64()),
            "text": pa.array([f"{CANARY} {key}" for key in keys], pa.string()),
        }
    )


keys = st.lists(st.integers(0, 20), min_size=0, max_size=6, unique=True)
filters = st.one_of(
    st.integers(0, 20).map(lambda key: f"id = {key}"),
    st.integers(0, 20).map(lambda key: f"id < {key}"),
    # PyIceberg keeps a row that one side of an `or` matches where the other side is null: test_delete_filter.py has such rows.
    st.sampled_from(["group = 'a'", "group is null", "value is null", "value > 3 and id > 4", "id in (1, 2, 3) or id > 15"]),
)
operations: st.SearchStrategy[Operation] = st.one_of(
    st.builds(lambda k, v: lambda table: table.append(rows(k, v)), keys, st.integers(0, 9)),
    st.builds(lambda f: lambda table: table.delete(f), filters),
    st.builds(lambda k, v, f: lambda table: table.overwrite(rows(k, v), overwrite_filter=f), keys, st.integers(0, 9), filters),
    st.builds(lambda k, v: lambda table: table.overwrite(rows(k, v)), keys, st.integers(0, 9)),
    st.builds(lambda k, v: lambda table: upsert_where_keys_are_unique(table, rows(k, v)), keys.filter(bool), st.integers(0, 9)),
    st.builds(lambda k, v, f: lambda table: together(table, rows(k, v), f), keys, st.integers(0, 9), filters),
)


def upsert_where_keys_are_unique(table: Table, new: pa.Table) -> None:
    ids = table.scan(selected_fields=("id",)).to_arrow().column("id").to_pylist()
    if len(ids) == len(set(ids)):
        table.upsert(new, join_cols=["id"])


def together(table: Table, new: pa.Table, row_filter: str) -> None:
    with table.transaction() as transaction:
        transaction.append(new)
        transaction.delete(row_filter)
        transaction.append(new)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Callable[[PartitionSpec], tuple[Table, Table]]:
    folder: Path = tmp_path_factory.mktemp("actions")
    encrypted = memory_catalog(folder / "encrypted")
    plain = InMemoryCatalog("plain", warehouse=f"file://{folder}/plain")
    plain.create_namespace("db")
    made = iter(range(10**6))

    def make(spec: PartitionSpec) -> tuple[Table, Table]:
        name = f"db.t{next(made)}"
        return (
            encrypted.create_table(name, SCHEMA, partition_spec=spec, properties=ENCRYPTED),
            plain.create_table(name, SCHEMA, partition_spec=spec),
        )

    return make


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=st.lists(operations, min_size=1, max_size=6), row_filter=filters, is_partitioned=st.booleans())
def test_rows_filters_projections_and_counts_equal_those_of_a_plain_table(
    tables: Callable[[PartitionSpec], tuple[Table, Table]], steps: list[Operation], row_filter: str, is_partitioned: bool
) -> None:
    encrypted, plain = tables(BY_GROUP if is_partitioned else PartitionSpec())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in steps:
            step(plain)
            step(encrypted)
    assert_same_rows(encrypted.scan().to_arrow(), plain.scan().to_arrow())
    selected = ("text", "id")
    ours = encrypted.scan(row_filter=row_filter, selected_fields=selected)
    theirs = plain.scan(row_filter=row_filter, selected_fields=selected)
    assert_same_rows(ours.to_arrow(), theirs.to_arrow())
    assert ours.count() == theirs.count()
    assert_same_rows(ours.to_arrow_batch_reader().read_all(), theirs.to_arrow())
    ids = encrypted.scan(selected_fields=("_row_id",)).to_arrow().column("_row_id").to_pylist()
    assert None not in ids
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("is_partitioned", [False, True])
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda table: table.append(rows([7], 1)), ["append"]),
        (lambda table: table.delete("id = 1"), ["overwrite"]),
        (lambda table: table.delete("id < 10"), ["delete"]),
        (lambda table: table.overwrite(rows([7], 1)), ["delete", "append"]),
        (lambda table: table.overwrite(rows([7], 1), overwrite_filter="id = 1"), ["overwrite", "append"]),
        (lambda table: upsert_where_keys_are_unique(table, rows([1, 9], 1)), ["overwrite", "append", "append"]),
    ],
    ids=["append", "delete rows", "delete files", "overwrite", "overwrite rows", "upsert"],
)
def test_snapshots_are_of_the_same_operations(
    tables: Callable[[PartitionSpec], tuple[Table, Table]], step: Operation, expected: list[str], is_partitioned: bool
) -> None:
    for table in tables(BY_GROUP if is_partitioned else PartitionSpec()):
        table.append(rows([1, 2, 4, 5], 0))
        step(table)
        found = [snapshot.summary.operation.value for snapshot in table.snapshots() if snapshot.summary]
        assert found == ["append", *expected]


def test_frames_of_pandas_and_polars_have_the_rows(tables: Callable[[PartitionSpec], tuple[Table, Table]]) -> None:
    table, _ = tables(BY_GROUP)
    written = rows([1, 2, 3, 4], 7)
    table.append(written)
    scan = table.scan()
    assert_same_rows(pa.Table.from_pandas(scan.to_pandas(), schema=written.schema, preserve_index=False), written)
    assert_same_rows(scan.to_polars().to_arrow(), written)
    assert_same_rows(table.to_polars().collect().to_arrow(), written)


def test_a_record_batch_reader_streams_into_one_snapshot(tables: Callable[[PartitionSpec], tuple[Table, Table]]) -> None:
    table, _ = tables(PartitionSpec())
    written = rows(list(range(21)), 3)
    table.append(pa.RecordBatchReader.from_batches(written.schema, written.to_batches(max_chunksize=4)))
    assert len(table.snapshots()) == 1
    assert_same_rows(table.scan().to_arrow(), written)


MISUSES: dict[str, Operation] = {
    "upsert without keys": lambda table: table.upsert(rows([1], 1)),
    "upsert without an option": lambda table: table.upsert(
        rows([1], 1), ["id"], when_matched_update_all=False, when_not_matched_insert_all=False
    ),
    "upsert of a key twice": lambda table: table.upsert(pa.concat_tables([rows([1], 1), rows([1], 2)]), ["id"]),
    "upsert by a column that the rows lack": lambda table: table.upsert(
        rows([1], 1).rename_columns(["no", "group", "value", "text"]), ["id"]
    ),
    "upsert of another column": lambda table: table.upsert(rows([1], 1).append_column("more", pa.array([1])), ["id"]),
    "append of another type": lambda table: table.append(rows([1], 1).set_column(0, "id", pa.array(["a"]))),
    "dynamic overwrite without partitions": lambda table: table.dynamic_partition_overwrite(rows([1], 1)),
    "delete by an unknown column": lambda table: table.delete("unknown = 1"),
    "scan by an unknown column": lambda table: table.scan("unknown = 1").to_arrow(),
    "scan of an unknown column": lambda table: table.scan(selected_fields=("unknown",)).to_arrow(),
    "scan of an unknown snapshot": lambda table: table.scan(snapshot_id=1).to_arrow(),
    "a branch from an unknown snapshot": lambda table: table.manage_snapshots().create_branch(1, "b").commit(),
    "a rollback to an unknown snapshot": lambda table: table.manage_snapshots().rollback_to_snapshot(1).commit(),
    "a column twice": lambda table: table.update_schema().add_column("id", LongType()).commit(),
    "a partition field twice": lambda table: table.update_spec().add_identity("id").add_identity("id"),
    "partitioning by an unknown column": lambda table: table.update_spec().add_identity("unknown").commit(),
    "files twice": lambda table: table.add_files(["a.parquet", "a.parquet"]),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_raises_the_error_of_a_plain_table(tables: Callable[[PartitionSpec], tuple[Table, Table]], misuse: str) -> None:
    messages = []
    for table in tables(PartitionSpec()):
        table.append(rows([1, 2, 3], 7))
        before = table.metadata_location
        with pytest.raises(Exception) as raised:  # noqa: PT011  whatever the plain table raises
            MISUSES[misuse](table)
        messages.append((raised.type, str(raised.value).replace(".".join(table.name()), "TABLE")))
        assert table.refresh().metadata_location == before
    assert messages[0] == messages[1]
