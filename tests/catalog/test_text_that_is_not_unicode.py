"""Half a surrogate pair, as Python has for a byte that is not UTF-8, is refused before anything is written, wherever it is given."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.spark.write import WriteOptions, delete_where
from tablecrypt.table.metadata import write_metadata_file
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog, encrypted
from tablecrypt_catalog.encrypting_catalog import EncryptingCatalog
from tests.support.command import new_database
from tests.support.restricting_server import RestrictingServer
from tests.support.tables import ENCRYPTED, memory_kms, new_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HALF = "a\ud800"
KMS = memory_kms(__name__)
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "part": ["a", "a", "b"]})
REFUSED = "half of a surrogate pair"


@pytest.fixture(params=["SQL", "memory", "REST"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EncryptingCatalog]:
    places = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    kind: type[SqlCatalog] = encrypted(InMemoryCatalog) if request.param == "memory" else EncryptedSqlCatalog  # type: ignore[assignment]
    behind = kind("behind", **places, **KMS)
    behind.create_namespace("db")
    if request.param != "REST":
        yield cast("EncryptingCatalog", behind)
        return
    with RestrictingServer(behind) as server:
        yield server.client(**KMS)


@pytest.fixture
def table(catalog: EncryptingCatalog) -> EncryptedTable:
    new_table(catalog, appends=[ROWS])
    return cast("EncryptedTable", catalog.load_table("db.t"))


def _files(folder: Path) -> set[Path]:
    return {each for each in folder.rglob("*") if each.is_file() and not each.name.startswith("catalog.db")}


def _add_identity(table: EncryptedTable) -> None:
    with table.update_spec() as update:
        update.add_identity("part")


def _set_and_append(table: EncryptedTable) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"note": HALF})
        transaction.append(ROWS)


CHANGES: dict[str, Callable[[EncryptedTable], object]] = {
    "value of a property": lambda table: table.transaction().set_properties({"comment": HALF}).commit_transaction(),
    "name of a property": lambda table: table.transaction().set_properties({HALF: "x"}).commit_transaction(),
    "property before rows": _set_and_append,
    "append": lambda table: table.append(ROWS, snapshot_properties={"job": HALF}),
    "name of a snapshot property": lambda table: table.append(ROWS, snapshot_properties={HALF: "x"}),
    "overwrite": lambda table: table.overwrite(ROWS, snapshot_properties={"job": HALF}),
    "partitions": lambda table: table.dynamic_partition_overwrite(ROWS, snapshot_properties={"job": HALF}),
    "delete": lambda table: table.delete("id = 1", snapshot_properties={"job": HALF}),
    "upsert": lambda table: table.upsert(ROWS.slice(0, 1), ["id"], snapshot_properties={"job": HALF}),
    "branch of an append": lambda table: table.append(ROWS, branch=HALF),
    "branch": lambda table: table.manage_snapshots().create_branch(table.metadata.current_snapshot_id or 0, HALF).commit(),
    "tag": lambda table: table.manage_snapshots().create_tag(table.metadata.current_snapshot_id or 0, HALF).commit(),
    "column": lambda table: table.update_schema().add_column(HALF, StringType()).commit(),
    "comment of a column": lambda table: table.update_schema().add_column("new", StringType(), doc=HALF).commit(),
    "default of a column": lambda table: table.update_schema().add_column("new", StringType(), default_value=HALF).commit(),
    "partition field": lambda table: table.update_spec().add_field("id", "bucket[4]", HALF).commit(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_refused_and_nothing_is_written(table: EncryptedTable, tmp_path: Path, change: str) -> None:
    if change == "partitions":
        _add_identity(table)
        table.refresh()
    before, pointer = _files(tmp_path), table.metadata_location

    with pytest.raises(ConfigurationError, match=REFUSED) as error:
        CHANGES[change](table)

    assert str(error.value).isprintable()
    assert (_files(tmp_path), table.refresh().metadata_location) == (before, pointer)


SCHEMA = Schema(NestedField(1, "id", LongType()))
CREATIONS: dict[str, Callable[[EncryptingCatalog, dict[str, str]], object]] = {
    "property": lambda catalog, own: catalog.create_table("db.new", SCHEMA, properties={**own, "comment": HALF}),
    "name of a property": lambda catalog, own: catalog.create_table("db.new", SCHEMA, properties={**own, HALF: "x"}),
    "table": lambda catalog, own: catalog.create_table(("db", HALF), SCHEMA, properties=own),
    "location": lambda catalog, own: catalog.create_table("db.new", SCHEMA, f"file:///{HALF}", properties=own),
    "column": lambda catalog, own: catalog.create_table("db.new", Schema(NestedField(1, HALF, LongType())), properties=own),
    "comment": lambda catalog, own: catalog.create_table("db.new", Schema(NestedField(1, "id", LongType(), doc=HALF)), properties=own),
    "transaction": lambda catalog, own: catalog.create_table_transaction("db.new", SCHEMA, properties={**own, "comment": HALF}),
}


@pytest.mark.parametrize("own", [ENCRYPTED, {}], ids=["encrypted", "plain"])
@pytest.mark.parametrize("creation", CREATIONS)
def test_a_creation_is_refused_and_nothing_is_written(
    catalog: EncryptingCatalog, tmp_path: Path, creation: str, own: dict[str, str]
) -> None:
    with pytest.raises(ConfigurationError, match=REFUSED):
        CREATIONS[creation](catalog, own)
    assert _files(tmp_path) == set()


NAMES: dict[str, Callable[[EncryptingCatalog], object]] = {
    "namespace": lambda catalog: catalog.create_namespace(HALF),
    "property of a namespace": lambda catalog: catalog.create_namespace("other", {"owner": HALF}),
    "name of a property": lambda catalog: catalog.create_namespace("other", {HALF: "x"}),
    "change of a namespace": lambda catalog: catalog.update_namespace_properties("db", updates={"owner": HALF}),
    "new name of a table": lambda catalog: catalog.rename_table("db.t", ("db", HALF)),
    "registration": lambda catalog: catalog.register_table(("db", HALF), "file:///a.metadata.json"),
    "location of a registration": lambda catalog: catalog.register_table("db.other", f"file:///{HALF}.metadata.json"),
}


@pytest.mark.parametrize("name", NAMES)
def test_names_and_namespaces_are_refused(catalog: EncryptingCatalog, name: str) -> None:
    with pytest.raises(ConfigurationError, match=REFUSED):
        NAMES[name](catalog)


@pytest.mark.parametrize("catalog", ["SQL", "REST"], indirect=True)
def test_a_plain_table_takes_none_either(catalog: EncryptingCatalog) -> None:
    table = catalog.create_table("db.plain", SCHEMA)
    with pytest.raises(ConfigurationError, match=REFUSED):
        table.transaction().set_properties({"comment": HALF}).commit_transaction()


def test_spark_refuses_it_before_it_starts_a_job() -> None:
    for options in ({"snapshot_properties": {"job": HALF}}, {"branch": HALF}):
        with pytest.raises(ConfigurationError, match=REFUSED):
            WriteOptions(**options)
    with pytest.raises(ConfigurationError, match=REFUSED):
        delete_where(cast("SparkSession", None), "c.db.t", "id = 1", snapshot_properties={"job": HALF})


def test_the_command_refuses_a_byte_that_is_not_utf_8_in_one_line(tmp_path: Path) -> None:
    new_database(tmp_path / "catalog.db")
    given: list[str | bytes] = [
        "--property",
        "type=tablecrypt",
        "--property",
        f"uri=sqlite:///{tmp_path}/catalog.db",
        "--property",
        b"kms.local.key-file=/a\xff",
    ]
    command = [sys.executable, "-m", "tablecrypt.cli", *given, "audit"]
    environment = {**os.environ, "PYICEBERG_HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert REFUSED in done.stderr


def test_whole_characters_are_taken(table: EncryptedTable) -> None:
    table.append(ROWS, snapshot_properties={"job": "\N{GRINNING FACE}"})
    table.transaction().set_properties({"comment": "\N{GRINNING FACE}"}).commit_transaction()
    assert table.refresh().metadata.properties["comment"] == "\N{GRINNING FACE}"


@pytest.mark.parametrize("catalog", ["SQL"], indirect=True)
def test_metadata_that_could_not_be_written_is_a_format_error_and_leaves_no_file(table: EncryptedTable, tmp_path: Path) -> None:
    metadata = table.metadata.model_copy(update={"properties": {**table.metadata.properties, "comment": HALF}})
    location = f"file://{tmp_path}/new.metadata.json"
    with pytest.raises(FormatError, match=r"new\.metadata\.json: a property or a comment holds text that UTF-8 cannot"):
        write_metadata_file(metadata, load_file_io({}, location), location)
    assert not (tmp_path / "new.metadata.json").exists()
