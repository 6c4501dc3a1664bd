"""Engines that take PyIceberg's Table and open its files by themselves: Polars. No byte of plaintext is left by any of its ways.

What each engine asks a table for is in tablecrypt/table/foreign_engines.py. The folder is looked at for every file, also those that no
snapshot names.
"""

from __future__ import annotations

import copy
import importlib.util
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import polars as pl
import pyarrow as pa
import pytest
from polars.exceptions import ComputeError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.utils.properties import property_as_bool

from tablecrypt.errors import FormatError, PlaintextRefusedError, TamperedFileError
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY, findings
from tests.support.tables import ENCRYPTED, MASTER_KEY, encrypted_sql_catalog, flip, new_table

pytestmark = pytest.mark.filterwarnings("ignore:Iceberg scan planning with the polars_iceberg plugin")

ROWS = pa.table({"id": pa.array(range(10), pa.int64()), "name": [f"{CANARY} {number % 3}" for number in range(10)]})
FRAME = pl.DataFrame(ROWS)
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
BY_ID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))


@pytest.fixture
def catalog(tmp_path: Path, aws: AwsServer) -> EncryptedSqlCatalog:
    return encrypted_sql_catalog(tmp_path, aws, {"encryption.default-key-id": MASTER_KEY, "encryption.required": "true"})


@pytest.fixture
def table(catalog: EncryptedSqlCatalog) -> Table:
    return new_table(catalog, schema=SCHEMA, appends=[ROWS], properties={"write.delete.mode": "merge-on-read"})


def plaintext_in(folder: Path) -> list[str]:
    return [str(found) for path in folder.rglob("*") if path.is_file() for found in findings(str(path), path.read_bytes())]


def stored(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("catalog.db")}


SINKS: dict[str, Callable[[Table], object]] = {
    "append": lambda table: FRAME.lazy().sink_iceberg(table, mode="append"),
    "overwrite": lambda table: FRAME.lazy().sink_iceberg(table, mode="overwrite"),
    "overwrite some": lambda table: FRAME.lazy().sink_iceberg(table, mode="overwrite", overwrite_filter="id > 3"),
    "evolve": lambda table: FRAME.with_columns(new=pl.lit(CANARY)).lazy().sink_iceberg(table, mode="append", schema_mode="merge"),
    "by name": lambda table: FRAME.lazy().sink_iceberg("db.t", mode="append", catalog=table.catalog),
    "by name, create": lambda table: FRAME.lazy().sink_iceberg("db.t", mode="append", catalog=table.catalog, create_if_not_exists=True),
    "a new table": lambda table: FRAME.lazy().sink_iceberg("db.new", mode="append", catalog=table.catalog, create_if_not_exists=True),
}


@pytest.mark.parametrize("sink", SINKS.values(), ids=list(SINKS))
def test_polars_sinks_are_refused_before_a_byte_is_written(table: Table, tmp_path: Path, sink: Callable[[Table], object]) -> None:
    before = stored(tmp_path)

    with pytest.raises(PlaintextRefusedError, match=r"the table is encrypted.*table\.append\(rows\)"):
        sink(table)

    left = {path for path in stored(tmp_path) - before if path.suffix != ".json"}
    assert (left, plaintext_in(tmp_path)) == (set(), [])
    assert table.catalog.load_table("db.t").scan().to_arrow() == ROWS


@pytest.mark.parametrize(
    "properties", [{"write.data.path": "{}/elsewhere"}, {"write.object-storage.enabled": "true"}], ids=["data path", "object storage"]
)
def test_no_layout_of_a_table_gives_a_sink_a_place(catalog: EncryptedSqlCatalog, tmp_path: Path, properties: dict[str, str]) -> None:
    placed = {name: value.format(f"file://{tmp_path}") for name, value in properties.items()}
    for name, spec in (("db.flat", PartitionSpec()), ("db.parted", BY_ID)):
        table = new_table(catalog, name, SCHEMA, appends=[ROWS], partitioned_by=spec, properties=placed)
        with pytest.raises(PlaintextRefusedError):
            FRAME.lazy().sink_iceberg(table, mode="append")
        FRAME.write_iceberg(table, mode="append")
        assert table.scan().count() == 20
    assert plaintext_in(tmp_path) == []


def test_write_iceberg_and_delete_iceberg_go_through_the_table(table: Table, tmp_path: Path) -> None:
    FRAME.write_iceberg(table, mode="append")
    assert table.scan().count() == 20
    FRAME.write_iceberg(table, mode="overwrite")
    pl.delete_iceberg(table, pl.col("id") > 4)

    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 4]
    assert plaintext_in(tmp_path) == []


def test_scan_iceberg_reads_the_rows_that_the_table_has(table: Table) -> None:
    first = table.current_snapshot()
    assert first is not None
    table.delete("id < 3")
    table.append(ROWS.slice(0, 1))

    sources: tuple[Callable[..., pl.LazyFrame], ...] = (
        partial(pl.scan_iceberg, table),
        partial(pl.scan_iceberg, "db.t", catalog=table.catalog),
    )
    for source in sources:
        assert source().collect().sort("id").to_arrow()["id"].to_pylist() == [0, 3, 4, 5, 6, 7, 8, 9]
        assert source().filter(pl.col("id") > 7).select("name").collect().height == 2
        assert source().filter(pl.col("name") == f"{CANARY} 2").collect()["id"].sort().to_list() == [5, 8]
        assert source().select(pl.len()).collect().item() == 8
        assert source().head(2).collect().height == 2
        assert source(snapshot_id=first.snapshot_id).collect().height == 10
        assert source(from_snapshot_id_exclusive=first.snapshot_id).collect()["id"].to_list() == [0]
        assert source(reader_override="pyiceberg").collect().height == 8


def test_scan_iceberg_says_why_its_own_reader_cannot(table: Table) -> None:
    with pytest.raises(ComputeError, match="encrypted Parquet"):
        pl.scan_iceberg(table, reader_override="native").collect()


def test_scan_iceberg_shows_no_row_of_a_changed_file(table: Table, tmp_path: Path) -> None:
    (file,) = (path for path in stored(tmp_path) if path.suffix == ".parquet")
    flip(file, 40)

    with pytest.raises(TamperedFileError):
        pl.scan_iceberg(table).collect()


def test_the_tables_of_a_plain_catalog_are_polars_as_before(unwatched_warehouse: Path) -> None:
    plain = SqlCatalog("plain", uri=f"sqlite:///{unwatched_warehouse}/catalog.db", warehouse=f"file://{unwatched_warehouse}")
    plain.create_namespace("db")
    table = plain.create_table("db.t", SCHEMA)

    FRAME.lazy().sink_iceberg(table, mode="append")

    assert pl.scan_iceberg(table).collect().height == 10


def all_of(table: Table) -> Iterator[Table]:
    """A table, and those that are as careful: its copies, and the same loaded again."""
    catalog = pickle.loads(pickle.dumps(table.catalog))
    yield from (table, copy.copy(table), table.refresh(), catalog.load_table(table.name()), table.transaction()._table)


@pytest.mark.parametrize("path", ["", "file://{}/elsewhere"])
def test_properties_are_what_the_table_says(catalog: EncryptedSqlCatalog, tmp_path: Path, path: str) -> None:
    """A program, a notebook and PyIceberg's own code get an answer, whichever way they ask."""
    said = {"write.data.path": path.format(tmp_path)} if path else {}
    table = catalog.create_table("db.asked", SCHEMA, properties={**ENCRYPTED, **said})
    data = said.get("write.data.path", f"{table.location()}/data")
    for each in all_of(table):
        assert each.properties == dict(each.metadata.properties) == {**each.metadata.properties}
        assert each.properties.get("write.data.path") == each.metadata.properties.get("write.data.path") == said.get("write.data.path")
        assert each.metadata.properties.get("write.data.path", data) == data
        assert load_location_provider(each.location(), each.metadata.properties).new_data_location("f") == f"{data}/f"
        assert each.location_provider().new_data_location("f") == f"{data}/f"
        assert each.io.properties.get("s3.endpoint") == each.io.properties["s3.endpoint"] == dict(each.io.properties)["s3.endpoint"]
        assert property_as_bool(each.metadata.properties, "write.object-storage.enabled", False) is False
    table.append(ROWS)
    assert "PropertiesForOthers" not in table.metadata.model_dump_json()


def test_pyicebergs_own_writer_is_refused_by_the_file_io(table: Table, tmp_path: Path) -> None:
    before = stored(tmp_path)
    with pytest.raises(PlaintextRefusedError, match="write to it through its own methods"):
        list(_dataframe_to_data_files(table.metadata, ROWS, table.io))
    assert (stored(tmp_path), plaintext_in(tmp_path)) == (before, [])


ENGINE = """
import pyarrow.parquet
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table.locations import load_location_provider

def by_property(table, rows):
    where = table.metadata.properties.get("write.data.path", table.location()) + "/x.parquet"
    pyarrow.parquet.write_table(rows, where.removeprefix("file://"))

def by_location_provider(table, rows):
    where = load_location_provider(table.location(), table.metadata.properties).new_data_location("x.parquet")
    pyarrow.parquet.write_table(rows, where.removeprefix("file://"))

def by_pyicebergs_writer(table, rows):
    list(_dataframe_to_data_files(table.metadata, rows, load_file_io({}, table.location())))

def by_storage(table, rows):
    return table.io.properties.get("s3.endpoint")

def through_the_table(table, rows):
    table.append(rows)
    table.transaction().set_properties({"write.data.path": table.location() + "/moved"}).commit_transaction()
    return table.scan().count()
"""


@pytest.fixture(params=["site-packages/someengine.py", "dist-packages/someengine.py", "opt/python/polars.py"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """An engine as one is installed: of a name that nobody knows, or one that is known in an image without site-packages."""
    path = tmp_path_factory.mktemp("installed") / request.param
    path.parent.mkdir(parents=True)
    path.write_text(ENGINE)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_engine_that_opens_files_by_itself_gets_no_answer(table: Table, tmp_path: Path, engine: ModuleType) -> None:
    before = stored(tmp_path)
    for each in all_of(table):
        for way in (engine.by_property, engine.by_location_provider, engine.by_pyicebergs_writer):
            with pytest.raises(PlaintextRefusedError, match=r"table\.append\(rows\)"):
                way(each, ROWS)
        with pytest.raises(FormatError, match=r"table\.append\(rows\)"):
            engine.by_storage(each, ROWS)
    assert (stored(tmp_path), plaintext_in(tmp_path)) == (before, [])

    assert engine.through_the_table(table, ROWS) == 20
    assert table.properties["write.data.path"].endswith("/moved")
    assert plaintext_in(tmp_path) == []
