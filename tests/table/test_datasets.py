"""A scan as an Arrow dataset: in every engine the rows that the scan gives, whatever the engine filters and however its files are stored.

The adversary writes storage; the careless user filters NaN and nulls, reads tables with a history, and pickles what he holds.
"""

from __future__ import annotations

import datetime as dt
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType

from tablecrypt.errors import ConfigurationError, TamperedFileError
from tablecrypt.manifests.records import key_metadata_of
from tablecrypt.table.datasets.engine_read import FILES_OPEN
from tablecrypt.table.table import EncryptedTable
from tests.support.compare import assert_same_rows
from tests.support.mutations import flipped
from tests.support.noting_io import NOTING_IO, opened_files
from tests.support.plaintext import CANARY
from tests.support.plaintext_scan import unwatch
from tests.support.tables import ENCRYPTED, data_paths, folder_of, memory_catalog, new_table, put_back
from tests.support.uniform_files import downgraded

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "small", IntegerType()),
    NestedField(3, "ratio", DoubleType()),
    NestedField(4, "team", StringType()),
)
BY_TEAM = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "team"))
OF_7 = {**ENCRYPTED, "write.parquet.row-group-limit": "7", "write.delete.mode": "merge-on-read"}
RATIOS = (1.0, float("nan"), 1.0, None, 2.5, -0.0)
NULL = pa.scalar(None, pa.bool_())


def rows(first: int, count: int = 20) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array([None if each % 11 == 0 else each for each in ids], pa.int64()),
            "small": pa.array([each % 6 for each in ids], pa.int32()),
            "ratio": pa.array([RATIOS[each % len(RATIOS)] for each in ids], pa.float64()),
            "team": pa.array([f"{CANARY} {each % 3}" if each % 5 else None for each in ids], pa.string()),
        }
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> EncryptedTable:
    """Files of every kind: as the table is now, with deletes, from before a rename, a promotion and a new column, without NaN or nulls."""
    table = memory_catalog(tmp_path_factory.mktemp("datasets")).create_table("db.t", SCHEMA, partition_spec=BY_TEAM, properties=OF_7)
    table.append(rows(0))
    table.append(rows(100))
    table.delete("id in (3, 101, 102)")
    with table.update_schema() as update:
        update.update_column("small", LongType())
        update.rename_column("small", "number")
        update.add_column("added", StringType())
    names = ["id", "number", "ratio", "team"]
    table.append(rows(200).rename_columns(names))
    table.append(rows(300, 40).rename_columns(names).append_column("added", pa.array([f"x{each}" for each in range(40)])))
    table.delete("id = 201")
    return cast("EncryptedTable", table.refresh())


@pytest.fixture(scope="module")
def expected(table: EncryptedTable) -> pa.Table:
    return table.scan().to_arrow_batch_reader().read_all()


def same(found: pa.Table, wanted: pa.Table) -> bool:
    """Whether two tables hold the same rows in the same order; NaN equals NaN, which it does not in Arrow."""
    return bool(found.schema.equals(wanted.schema)) and str(found.to_pylist()) == str(wanted.to_pylist())


def test_the_table_has_files_that_arrow_reads_and_files_that_it_does_not(table: EncryptedTable) -> None:
    """Otherwise the tests below would be about one kind."""
    tasks = list(table.scan().tasks())
    assert 2 <= sum(1 for task in tasks if task.delete_files) < len(tasks)
    assert len(tasks) > 8


def test_a_dataset_has_the_rows_of_the_scan(table: EncryptedTable, expected: pa.Table) -> None:
    dataset = table.scan().to_arrow_dataset()
    assert dataset.schema == expected.schema.remove_metadata()
    assert same(dataset.to_table(), expected)
    assert same(dataset.to_table(), expected), "it can be read again"
    assert dataset.count_rows() == expected.num_rows
    assert same(dataset.head(5), expected.slice(0, 5))
    assert same(dataset.take([7, 1]), expected.take([7, 1]))
    assert same(pa.table(table.scan()), expected)
    assert_same_rows(pa.concat_tables(each.to_table() for each in dataset.get_fragments()), expected)
    assert dataset.to_table(columns={"twice": pc.field("id") * 2}).column("twice").equals(pc.multiply(expected.column("id"), 2))
    assert dataset.to_table(columns=[]).num_rows == expected.num_rows


LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "id": st.sampled_from([None, 0, 3, 7, 105, 201, 250, 999]),
    "number": st.sampled_from([None, 0, 2, 5, 7]),
    "ratio": st.sampled_from([None, 1.0, 2.5, 0.0, float("nan")]),
    "team": st.sampled_from([None, f"{CANARY} 1", "a", "z"]),
    "added": st.sampled_from([None, "x3", "x9"]),
}
TYPES = {"id": pa.int64(), "number": pa.int64(), "ratio": pa.float64(), "team": pa.large_string(), "added": pa.large_string()}
COMPARISONS: list[Callable[[Any, Any], pc.Expression]] = [
    lambda field, value: field == value,
    lambda field, value: field != value,
    lambda field, value: field < value,
    lambda field, value: field <= value,
    lambda field, value: field > value,
    lambda field, value: field >= value,
    lambda field, value: value > field,
]


@st.composite
def predicates(draw: st.DrawFn) -> pc.Expression:
    name = draw(st.sampled_from(sorted(LITERALS)))
    field, kind = pc.field(name), draw(st.integers(0, 9))
    if kind == 0:
        return field.is_null()
    if kind == 1:
        return field.is_valid()
    if kind == 2:
        return field.is_nan() if name == "ratio" else field.is_null(nan_is_null=True)
    values = pa.array(draw(st.lists(LITERALS[name], max_size=3)), TYPES[name])
    if kind == 3:
        return field.isin(values)
    if kind == 4:
        return pc.if_else(field.is_valid(), field.isin(values), NULL)
    if kind == 5:
        return pc.equal(field.cast(pa.large_string()), pc.scalar("7"))
    return draw(st.sampled_from(COMPARISONS))(field, pc.scalar(pa.scalar(draw(LITERALS[name]), TYPES[name])))


EXPRESSIONS = st.recursive(
    predicates(),
    lambda inner: st.one_of(
        st.builds(lambda one, other: one & other, inner, inner),
        st.builds(lambda one, other: one | other, inner, inner),
        st.builds(lambda one: ~one, inner),
    ),
    max_leaves=5,
)


@given(EXPRESSIONS, st.lists(st.sampled_from(sorted(LITERALS)), unique=True))
def test_any_filter_and_columns_give_what_arrow_gives_of_all_rows(
    table: EncryptedTable, expected: pa.Table, expression: pc.Expression, columns: list[str]
) -> None:
    """Arrow's rows in memory have no statistics, files and manifests, so nothing can be ruled out there by mistake."""
    found = table.scan().to_arrow_dataset().to_table(columns=columns, filter=expression)
    assert same(found, ds.dataset(expected).to_table(columns=columns, filter=expression)), str(expression)


@settings(max_examples=40)
@given(EXPRESSIONS)
def test_the_scans_own_filter_and_that_of_the_engine_both_hold(table: EncryptedTable, expression: pc.Expression) -> None:
    scan = table.scan("number >= 2 and id < 320", selected_fields=("id", "ratio", "team", "added"))
    try:
        wanted = scan.to_arrow_batch_reader().read_all()
        kept = ds.dataset(wanted).to_table(filter=expression)
    except pa.ArrowInvalid:
        with pytest.raises(ConfigurationError, match="do not fit the columns"):
            scan.to_arrow_dataset().to_table(filter=expression)
        return
    assert same(scan.to_arrow_dataset().to_table(filter=expression), kept), str(expression)
    assert same(scan.to_arrow_dataset().filter(expression).to_table(), kept)


@pytest.mark.parametrize(
    ("column", "value", "other"),
    [
        ("ratio", pa.scalar(0.1, pa.float32()), 0.1),
        ("ratio", pa.scalar(0.1, pa.float32()), Decimal("0.1")),
        ("price", pa.scalar(Decimal("1.56")), 1.564),
        ("price", pa.scalar(Decimal("1.56")), 1.555),
        ("day", pa.scalar(dt.date(2024, 1, 1)), dt.datetime(2024, 1, 1, 12)),
    ],
)
def test_a_filter_by_what_its_column_cannot_hold_rules_out_no_file_with_rows(
    tmp_path: Path, column: str, value: pa.Scalar, other: object
) -> None:
    rows = pa.table({column: pa.array([value.as_py()], value.type)})
    dataset = new_table(memory_catalog(tmp_path), appends=[rows]).scan().to_arrow_dataset()
    for compare in (pc.less, pc.less_equal, pc.greater, pc.greater_equal, pc.equal, pc.not_equal):
        for expression in (compare(pc.field(column), pc.scalar(other)), compare(pc.scalar(other), pc.field(column))):
            assert dataset.count_rows(filter=expression) == ds.dataset(rows).count_rows(filter=expression)


SQL = [
    "id > 105",
    "ratio > 1.0",
    "ratio <> 1.0",
    "isnan(ratio)",
    "number in (1, 2)",
    "added = 'x3' or id is null",
    "team like '% 1'",
    "true",
]


@pytest.mark.parametrize("where", [*SQL, "not (number > 2)", "id between 100 and 204", "ratio is not distinct from 'nan'"])
def test_duckdb_finds_what_it_finds_in_memory(table: EncryptedTable, expected: pa.Table, where: str) -> None:
    with duckdb.connect() as connection:
        table.scan().to_duckdb("ours", connection)
        connection.register("memory", expected)
        query = "SELECT *, count(*) OVER () FROM {} WHERE {} ORDER BY ALL"
        found, wanted = (connection.execute(query.format(name, where)).fetchall() for name in ("ours", "memory"))
        assert str(found) == str(wanted)
        assert wanted


NUMBER = pl.col("number")
POLARS = {
    "a number": pl.col("id") > 105,
    "NaN is the greatest": pl.col("ratio") > 1.0,
    "NaN equals NaN": pl.col("ratio").is_in([float("nan"), 2.5]),
    "not equal": pl.col("ratio") != 1.0,
    "not": ~(pl.col("ratio") > 1.0),
    "of some": NUMBER.is_in([1, 2]),
    "nulls": pl.col("added").is_null() & (pl.col("id") < 110),
    "text": (pl.col("added") == "x3") | pl.col("team").str.ends_with(" 1"),
    "between columns": pl.col("id") > NUMBER * 50,
    "missing": pl.col("id").ne_missing(7),
}


@pytest.mark.parametrize("predicate", POLARS.values(), ids=POLARS.keys())
def test_polars_finds_what_it_finds_in_memory(table: EncryptedTable, expected: pa.Table, predicate: pl.Expr) -> None:
    frame = cast("pl.DataFrame", pl.from_arrow(expected))
    assert table.to_polars().filter(predicate).collect().equals(frame.filter(predicate))
    assert table.to_polars().filter(predicate).select("team", "id").collect().equals(frame.filter(predicate).select("team", "id"))
    assert table.to_polars().head(30).filter(predicate).collect().equals(frame.head(30).filter(predicate))
    assert table.to_polars().filter(predicate).head(3).collect().equals(frame.filter(predicate).head(3))


def test_datafusion_finds_the_rows(table: EncryptedTable, expected: pa.Table) -> None:
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext()
    context.register_dataset("ours", table.scan().to_arrow_dataset())
    (found,) = context.sql("SELECT count(*) AS n, sum(id) AS total FROM ours WHERE number > 2 AND team IS NOT NULL").to_pylist()
    kept = expected.filter((pc.field("number") > 2) & pc.field("team").is_valid())
    assert found == {"n": kept.num_rows, "total": pc.sum(kept.column("id")).as_py()}


def test_row_ids_limits_and_older_snapshots_are_the_scans(table: EncryptedTable) -> None:
    lineage = table.scan(selected_fields=("id", "_row_id", "_last_updated_sequence_number"))
    assert same(lineage.to_arrow_dataset().to_table(), lineage.to_arrow_batch_reader().read_all())
    limited = table.scan(limit=25)
    few = limited.to_arrow_dataset().to_table(filter=pc.field("number") > 2)
    assert same(few, limited.to_arrow_batch_reader().read_all().filter(pc.field("number") > 2))
    with pytest.raises(ConfigurationError, match="no fragments"):
        next(limited.to_arrow_dataset().get_fragments())
    before = table.scan(snapshot_id=table.metadata.snapshots[1].snapshot_id)
    old = before.to_arrow_dataset().to_table(columns=["small", "id"], filter=pc.field("small") > 2)
    assert same(old, before.to_arrow_batch_reader().read_all().select(["small", "id"]).filter(pc.field("small") > 2))
    appended = table.incremental_append_scan(from_snapshot_id_exclusive=None)
    assert same(appended.to_arrow_dataset().to_table(), appended.to_arrow_batch_reader().read_all())


@pytest.fixture(scope="module")
def module_files(tmp_path_factory: pytest.TempPathFactory) -> EncryptedTable:
    folder = tmp_path_factory.mktemp("many-files")
    unwatch(folder)
    table = memory_catalog(folder, {"py-io-impl": NOTING_IO}).create_table("db.many", SCHEMA, properties=OF_7)
    for each in range(FILES_OPEN + 3):
        table.append(rows(each * 100))
    return cast("EncryptedTable", table)


@pytest.fixture
def many_files(module_files: EncryptedTable) -> Iterator[EncryptedTable]:
    """More files than are open at once; what a test changes of them is put back."""
    with put_back(folder_of(module_files)):
        yield module_files


def read_files(read: Callable[[], Any]) -> set[str]:
    """The data files that were opened meanwhile."""
    with opened_files() as opened:
        read()
    return {each for each in opened if each.endswith(".parquet")}


def test_the_filter_of_an_engine_rules_out_files(many_files: EncryptedTable) -> None:
    reads: list[Callable[[], Any]] = [
        lambda: many_files.scan().to_arrow_dataset().to_table(filter=(pc.field("id") > 505) & (pc.field("id") <= 510)),
        lambda: many_files.scan().to_duckdb("t").execute("SELECT sum(small) FROM t WHERE id BETWEEN 506 AND 510").fetchall(),
        lambda: many_files.to_polars().filter(pl.col("id").is_between(506, 510)).select("small").collect(),
    ]
    for read in reads:
        assert len(read_files(read)) == 1
    assert len(read_files(lambda: many_files.scan().to_arrow_dataset().count_rows())) == FILES_OPEN + 3


def test_what_an_engine_will_filter_itself_rules_out_row_groups_and_no_rows_of_the_others(many_files: EncryptedTable) -> None:
    """Row groups of 500 to 506, 507 to 513 and 514 to 519. Two have a null, and Arrow rules out none that has."""
    dataset = many_files.scan().to_arrow_dataset()
    kept = EqualTo("id", 502)  # type: ignore[call-arg]
    read = dataset.scanner(["id"], kept_by_engine=kept).to_table()["id"].to_pylist()
    assert [each for each in read if each is not None] == [*range(500, 506), 514, 515, 516, 518, 519]
    assert dataset.scanner(["small"], kept_by_engine=kept).count_rows() == 13


def by_datafusion(table: EncryptedTable) -> Any:
    context = pytest.importorskip("datafusion").SessionContext()
    context.register_dataset("t", table.scan().to_arrow_dataset())
    return context.sql("SELECT sum(ratio), max(team), sum(id), sum(small) FROM t").to_pylist()


ENGINES: dict[str, Callable[[EncryptedTable], Any]] = {
    "Arrow": lambda table: table.scan().to_arrow_dataset().to_table(),
    "Arrow's stream": lambda table: pa.table(table.scan()),
    "a fragment": lambda table: [each.to_table() for each in table.scan().to_arrow_dataset().get_fragments()],
    "Polars": lambda table: table.to_polars().filter(pl.col("small") >= 0).collect(),
    "Polars on the dataset": lambda table: pl.scan_pyarrow_dataset(table.scan().to_arrow_dataset()).collect(),
    "DuckDB": lambda table: table.scan().to_duckdb("t").execute("SELECT sum(ratio), max(team), sum(id), sum(small) FROM t").fetchall(),
    "DataFusion": by_datafusion,
}


ATTACKS: dict[str, Callable[[bytes, bytes], bytes]] = {
    "flipped": lambda data, other: flipped(data, len(data) // 4),
    "downgraded": lambda data, other: downgraded(data),
    "swapped": lambda data, other: other,
    "cut": lambda data, other: data[:-1],
    "plain head": lambda data, other: b"PAR1" + data[4:],
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
def test_every_engine_refuses_a_changed_file_by_name(
    many_files: EncryptedTable, engine: Callable[[EncryptedTable], Any], attack: str
) -> None:
    engine(many_files)
    *others, victim = data_paths(many_files)
    victim.write_bytes(ATTACKS[attack](victim.read_bytes(), others[0].read_bytes()))
    with pytest.raises(Exception, match=r"\.parquet") as refused:
        engine(many_files)
    assert isinstance(refused.value, TamperedFileError) or "TamperedFileError" in str(refused.value), refused.value
    assert victim.name in str(refused.value)


def test_no_key_leaves_the_process(many_files: EncryptedTable) -> None:
    dataset = many_files.scan().to_arrow_dataset()
    dataset.to_table()
    fragment = next(dataset.get_fragments())
    keys = [key_metadata_of(task.file).encryption_key.reveal() for task in many_files.scan().tasks()]
    for held in (dataset, fragment, dataset.scanner(), many_files.to_polars()):
        shown = f"{held!r} {held}"
        assert not any(key.hex() in shown or repr(key)[2:-1] in shown for key in keys)
    for held in (dataset, fragment):
        with pytest.raises(TypeError, match="keys stay in this process"):
            pickle.dumps(held)


def test_arrows_own_plans_over_a_dataset_are_an_error_and_not_empty(many_files: EncryptedTable) -> None:
    dataset = many_files.scan().to_arrow_dataset()
    plans: list[Callable[[], Any]] = [
        lambda: ds.Scanner.from_dataset(dataset).to_table(),
        lambda: ds.dataset([dataset]).to_table(),
        lambda: dataset.sort_by("id").to_table(),
        lambda: dataset.join(ds.dataset(rows(0)), "id").to_table(),
    ]
    for plan in plans:
        with pytest.raises((OSError, ConfigurationError), match=r"not read by Arrow's own plans|columns of its scan"):
            plan()
    with pytest.raises(ConfigurationError, match="columns of its scan"):
        dataset.replace_schema(dataset.schema)


def test_a_column_that_the_scan_does_not_have_is_refused(table: EncryptedTable) -> None:
    dataset = table.scan(selected_fields=("id",)).to_arrow_dataset()
    for options in ({"columns": ["team"]}, {"filter": pc.field("team") == "a"}, {"filter": pc.field("id") == "a"}):
        with pytest.raises(ConfigurationError, match="do not fit the columns of the scan"):
            dataset.scanner(**options)


def test_a_reader_that_is_given_up_leaves_no_file_open(many_files: EncryptedTable) -> None:
    batches = many_files.scan().to_arrow_dataset().to_batches()
    assert len(next(batches))
    batches.close()
    assert many_files.scan().to_duckdb("t").execute("SELECT id FROM t LIMIT 1").fetchall()


def test_duckdb_writes_no_temporary_file(unwatched_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would write the rows in the clear. Whoever gives a connection of his own has chosen for himself."""
    monkeypatch.chdir(tmp_path)
    table = new_table(memory_catalog(unwatched_warehouse), "db.spilled", SCHEMA, appends=[rows(0, 500_000)])
    given = duckdb.connect()
    for connection, spills in ((table.scan().to_duckdb("t"), False), (table.scan().to_duckdb("t", given), True)):
        connection.execute("SET memory_limit = '40MB'")
        connection.execute("SET threads = 1")
        ordered = "SELECT a.*, repeat(a.team, 3) AS more FROM t AS a ORDER BY ratio, more, id"
        if spills:
            connection.execute(ordered).fetchone()
        else:
            with pytest.raises(duckdb.OutOfMemoryException):
                connection.execute(ordered).fetchone()
        assert bool(list(tmp_path.rglob("*"))) == spills
        connection.close()


GIVEN_UP = """
import sys, duckdb, polars as pl, pyarrow as pa
from tablecrypt import load_catalog
from tablecrypt.kms.memory import MemoryKeyManagementClient
MemoryKeyManagementClient().create_key("master")
catalog = load_catalog("prod", **{"type": "tablecrypt", "uri": f"sqlite:///{sys.argv[1]}/c.db", "warehouse": f"file://{sys.argv[1]}/w",
    "encryption.kms-type": "memory", "py-io-impl": sys.argv[2]})
catalog.create_namespace("db")
rows = pa.table({"id": range(300_000), "text": [f"{each * 7919 % 1000003}-{each}" for each in range(300_000)]})
table = catalog.create_table("db.t", rows.schema, properties={"encryption.key-id": "master", "write.parquet.row-group-limit": "30000"})
for _ in range(4):
    table.append(rows)
assert all(task.file.file_size_in_bytes > 1024 * 1024 for task in table.scan().tasks())
connection = table.scan().to_duckdb("t")
batches = table.scan().to_arrow_dataset().to_batches()
stream = pa.RecordBatchReader.from_stream(table.scan())
print(len(connection.execute("SELECT text FROM t LIMIT 3").fetchall()), table.to_polars().head(2).collect().height,
      len(next(batches)) > 0, stream.read_next_batch().num_rows > 0, flush=True)
"""
"""Readers of four kinds that are given up before they have read all, in a process that ends then."""


@pytest.mark.slow
@pytest.mark.parametrize("file_io", ["pyiceberg.io.pyarrow.PyArrowFileIO", "pyiceberg.io.fsspec.FsspecFileIO"])
def test_a_process_ends_as_it_should_with_reads_under_way(unwatched_warehouse: Path, file_io: str) -> None:
    """Arrow's threads may be reading a file of Python's at that moment."""
    command = [sys.executable, "-c", GIVEN_UP, str(unwatched_warehouse), file_io]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env={"PYTHONPATH": ":".join(sys.path)})
    assert (done.returncode, done.stdout) == (0, "3 2 True True\n"), done.stderr[-2000:]


def test_a_table_without_columns_is_refused_to_duckdb_by_a_word_of_our_own(warehouse: Path) -> None:
    table = cast("EncryptedTable", memory_catalog(warehouse).create_table("db.empty", Schema(), properties=ENCRYPTED))
    with pytest.raises(ConfigurationError, match="DuckDB reads at least one column"):
        table.scan().to_duckdb("t")
