"""The catalogs beside what test_contract.py holds of all: plain clients and engines, what is shown of keys, calls of the KMS."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.dynamodb import DynamoDbCatalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.types import StringType

from tablecrypt.errors import ConfigurationError, TablecryptError
from tablecrypt.kms.factory import shared_kms
from tablecrypt.kms.local_file import create_key_file
from tablecrypt_catalog import EncryptedInMemoryCatalog, EncryptedRestCatalog, EncryptedSqlCatalog, encrypted
from tests.support.aws import AwsServer
from tests.support.plaintext import CANARY
from tests.support.tables import ENCRYPTED, ROWS, encrypted_sql_catalog, new_table, path_of, unpinned_catalog


def test_a_table_without_key_id_is_plain_pyicebergs(catalog: EncryptedSqlCatalog, unwatched_warehouse: Path) -> None:
    table = catalog.create_table("db.plain", ROWS.schema, location=f"file://{unwatched_warehouse}/plain")
    table.append(ROWS)
    assert type(table) is Table
    assert table.format_version == 2
    assert type(catalog.load_table("db.plain")) is Table
    location = table.current_snapshot().manifest_list  # type: ignore[union-attr]
    assert path_of(location).read_bytes()[:4] == b"Obj\x01"


def test_a_plain_client_gets_no_row(catalog: EncryptedSqlCatalog, warehouse: Path) -> None:
    new_table(catalog, appends=[ROWS])
    plain = SqlCatalog("prod", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}/warehouse")
    with pytest.raises(ValueError, match="Avro"):
        plain.load_table("db.t").scan().to_arrow()


def test_a_rewrite_after_a_rename_keeps_the_renamed_columns_values(catalog: EncryptedSqlCatalog) -> None:
    table = new_table(catalog, appends=[ROWS])
    with table.update_schema() as update:
        update.rename_column("text", "words")
        update.add_column("note", StringType())
    table.delete("id = 2")
    assert table.scan().to_arrow().sort_by("id").to_pydict() == {"id": [1, 3], "words": [CANARY, ""], "note": [None, None]}


def test_one_unwrap_serves_a_process_however_many_files_it_reads(warehouse: Path, aws: AwsServer) -> None:
    writer = encrypted_sql_catalog(warehouse, aws)
    new_table(writer, appends=[ROWS] * 5, properties={"encryption.key-id": aws.new_key()})
    reader_properties = {"encryption.kms.cache-ttl-ms": "1234567"}
    reader = encrypted_sql_catalog(warehouse, aws, reader_properties)
    kms = shared_kms(reader.properties)
    before = kms.calls
    for _ in range(3):
        assert reader.load_table("db.t").scan().to_arrow().num_rows == 5 * ROWS.num_rows
    assert kms.calls - before == {"unwrap_key": 1}


class SendingTwice(SqlCatalog):
    """As a class whose client sends a commit again when its answer is lost: the first lands, and the second is refused."""

    again: str = ""

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> Any:
        """Commit, twice where `again` says so: by the client, which is refused, or by this class."""
        done = super().commit_table(table, requirements, updates)
        if self.again == "client":
            raise CommitFailedException("the conditional check failed")
        return super().commit_table(table, requirements, updates) if self.again == "class" else done


def catalog_of(kind: type[SqlCatalog], folder: Path, aws: AwsServer) -> Any:
    return encrypted(kind)("prod", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/w", **aws.kms_properties)


@pytest.mark.parametrize("again", ["client", "class"])
def test_of_a_commit_that_landed_and_was_called_refused_the_metadata_stays(unwatched_warehouse: Path, aws: AwsServer, again: str) -> None:
    mine = catalog_of(SendingTwice, unwatched_warehouse, aws)
    mine.create_namespace("db")
    table = new_table(mine, appends=[ROWS])
    mine.again = again
    table.append(ROWS)

    assert catalog_of(SqlCatalog, unwatched_warehouse, aws).load_table("db.t").scan().to_arrow().num_rows == 2 * len(ROWS)


def test_a_change_that_landed_and_was_called_refused_is_no_failure(unwatched_warehouse: Path, aws: AwsServer) -> None:
    """Others have built on it by then: its metadata is not the current one any more."""

    class Overtaken(SendingTwice):
        def commit_table(self, table: Table, requirements: Any, updates: Any) -> Any:
            try:
                return super().commit_table(table, requirements, updates)
            finally:
                if self.again:
                    catalog_of(SqlCatalog, unwatched_warehouse, aws).load_table("db.t").append(ROWS)

    mine = catalog_of(Overtaken, unwatched_warehouse, aws)
    mine.create_namespace("db")
    table = new_table(mine, appends=[ROWS])
    mine.again = "client"
    table.transaction().set_properties(owner="somebody").commit_transaction()

    found = catalog_of(SqlCatalog, unwatched_warehouse, aws).load_table("db.t")
    assert found.properties["owner"] == "somebody"
    assert found.scan().to_arrow().num_rows == 2 * len(ROWS)


def test_metastore_catalog_classes_alone_can_be_made_to_encrypt() -> None:
    assert issubclass(encrypted(SqlCatalog), SqlCatalog)
    with pytest.raises(ConfigurationError, match="RestCatalog"):
        encrypted(RestCatalog)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (DynamoDbCatalog, "DynamoDbCatalog makes tables and commits nothing to them"),
        (encrypted(InMemoryCatalog), "EncryptedInMemoryCatalog has encrypted tables already"),
        (EncryptedRestCatalog, "EncryptedRestCatalog has encrypted tables already"),
        (GlueCatalog, "GlueCatalog: use tablecrypt_catalog.EncryptedGlueCatalog, or derive"),
        (type("Ours", (HiveCatalog,), {}), "Ours: use tablecrypt_catalog.EncryptedHiveCatalog, or derive"),
        ("SqlCatalog", "takes a catalog class, such as .*, and not 'SqlCatalog'"),
    ],
)
def test_classes_whose_tables_could_not_be_used_are_refused_when_they_are_named(kind: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        encrypted(kind)


def test_the_in_memory_catalog_encrypts_in_s3(aws: AwsServer) -> None:
    bucket = aws.bucket("in-memory-catalog")
    catalog = load_catalog(
        "memory",
        **{
            "py-catalog-impl": "tablecrypt_catalog.EncryptedInMemoryCatalog",
            "warehouse": f"s3://{bucket}/warehouse",
            **aws.kms_properties,
            **aws.s3_properties,
        },
    )
    assert isinstance(catalog, EncryptedInMemoryCatalog)
    catalog.create_namespace("db")
    table = new_table(catalog, appends=[ROWS])
    table.upsert(pa.table({"id": [3, 4], "text": ["new", "newer"]}), join_cols=["id"])
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [1, 2, 3, 4]


def test_engines_that_open_files_themselves_are_refused_with_the_way_to_go(catalog: EncryptedSqlCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema, properties=ENCRYPTED)
    for use in (table.to_daft, table.to_bodo, table.__datafusion_table_provider__):
        with pytest.raises(Exception, match="to_arrow"):
            use()


@pytest.mark.parametrize("location", ["", " ", "{folder}", "file://{folder}", "s3://", "{folder}/master.keys"])
@pytest.mark.parametrize("kind", ["SQL", "memory"])
def test_what_is_no_metadata_file_is_registered_by_no_catalog_and_shown_to_nobody(
    unwatched_warehouse: Path, aws: AwsServer, kind: str, location: str
) -> None:
    folder = unwatched_warehouse
    catalog = encrypted_sql_catalog(folder, aws) if kind == "SQL" else unpinned_catalog(folder, aws)
    create_key_file(folder / "master.keys", "orders")
    key = json.loads((folder / "master.keys").read_text())["keys"]["orders"]["1"]

    with pytest.raises(TablecryptError) as refused:
        catalog.register_table("db.t", location.format(folder=folder))

    assert key not in "".join(traceback.format_exception(refused.value))
    assert "\n" not in str(refused.value)
    assert catalog.list_tables("db") == []


@pytest.mark.parametrize("kind", ["SQL", "memory"])
def test_a_metadata_file_that_is_not_there_is_registered_by_no_catalog(warehouse: Path, aws: AwsServer, kind: str) -> None:
    catalog = encrypted_sql_catalog(warehouse, aws) if kind == "SQL" else unpinned_catalog(warehouse, aws)
    with pytest.raises(FileNotFoundError, match=r"db\.t: its metadata file is not in storage.*register the newest one"):
        catalog.register_table("db.t", f"{warehouse}/none.metadata.json")
    assert catalog.list_tables("db") == []


@pytest.mark.parametrize("schema", [pa.schema([("", pa.int64())]), pa.schema([("a", pa.list_(pa.struct([("", pa.int64())])))])])
def test_a_column_without_a_name_is_refused_before_there_is_a_table(catalog: EncryptedSqlCatalog, schema: pa.Schema) -> None:
    for create in (catalog.create_table, catalog.create_table_transaction):
        with pytest.raises(ConfigurationError, match="a column with an empty name"):
            create("db.t", schema, properties=ENCRYPTED)
    assert catalog.list_tables("db") == []


@pytest.mark.parametrize("kind", [pa.struct([]), pa.list_(pa.struct([("c", pa.struct([]))]))], ids=str)
def test_a_struct_without_fields_is_refused_before_rows_are_written_to_it(catalog: EncryptedSqlCatalog, kind: pa.DataType) -> None:
    for create in (catalog.create_table, catalog.create_table_transaction):
        with pytest.raises(ConfigurationError, match=r"the struct 'a\S*' has no fields"):
            create("db.t", pa.schema([("id", pa.int64()), ("a", kind)]), properties=ENCRYPTED)
    assert catalog.list_tables("db") == []

    table = new_table(catalog, "db.t", pa.schema([("id", pa.int64()), ("a", pa.struct([("b", pa.int64())]))]))
    with pytest.raises(ConfigurationError, match="the struct 'a' has no fields"), table.update_schema() as update:
        update.delete_column(("a", "b"))
    with table.update_schema() as update:
        update.delete_column(("a", "b")).add_column(("a", "c"), StringType())


def test_no_column_gets_an_empty_name(catalog: EncryptedSqlCatalog) -> None:
    table = new_table(catalog, appends=[ROWS])

    with pytest.raises(ConfigurationError, match="a column with an empty name"), table.update_schema() as update:
        update.add_column("", StringType())
    with pytest.raises(ConfigurationError, match="a column with an empty name"), table.update_schema() as update:
        update.rename_column("text", "")
    with pytest.raises(ConfigurationError, match="a column with an empty name"), table.update_schema() as update:
        update.union_by_name(pa.schema([("", pa.int64())]))

    table.refresh().append(ROWS)
    assert table.scan().count() == 2 * ROWS.num_rows


@pytest.mark.parametrize(
    "limits",
    [{"max_ref_age_ms": 2**63}, {"max_snapshot_age_ms": 2**63}, {"min_snapshots_to_keep": 2**31}],
    ids=lambda limits: next(iter(limits)),
)
def test_a_branch_gets_no_limit_with_which_nobody_could_open_the_table(catalog: EncryptedSqlCatalog, limits: dict[str, int]) -> None:
    table = new_table(catalog, appends=[ROWS])
    before = table.metadata_location
    snapshot = table.metadata.current_snapshot_id
    assert snapshot is not None

    with pytest.raises(ConfigurationError, match=f"db.t, kept: {next(iter(limits))} would be"):
        table.manage_snapshots().create_branch(snapshot, "kept", **limits).commit()
    assert catalog.load_table("db.t").metadata_location == before

    table.manage_snapshots().create_branch(snapshot, "kept", **{name: most - 1 for name, most in limits.items()}).commit()
    assert catalog.load_table("db.t").scan(snapshot_id=catalog.load_table("db.t").metadata.refs["kept"].snapshot_id).count() == len(ROWS)
