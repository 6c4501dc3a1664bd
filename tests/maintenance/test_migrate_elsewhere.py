"""Migration where others keep a table's files or metadata: on S3 through both FileIOs, in a bucket that keeps earlier versions of what is
deleted, in Glue, on Iceberg's REST server, and in a Hive metastore."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from tablecrypt.maintenance import migrate, reencrypt
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.glue import encrypted_glue_catalog
from tests.support.hive import HiveMetastore, encrypted_hive_catalog
from tests.support.rest_server import RestServer, encrypted_rest_catalog, new_namespace
from tests.support.tables import MASTER_KEY, ROWS, data_files, encrypted_sql_catalog


@pytest.fixture
def bucket(aws: AwsServer) -> str:
    return aws.bucket(f"migrate-{uuid.uuid4().hex[:8]}")


@pytest.mark.slow
@pytest.mark.parametrize("file_io", ["pyiceberg.io.pyarrow.PyArrowFileIO", "pyiceberg.io.fsspec.FsspecFileIO"])
def test_through_both_file_ios(aws: AwsServer, warehouse: Path, bucket: str, file_io: str) -> None:
    catalog = encrypted_sql_catalog(warehouse, aws, {"py-io-impl": file_io, "warehouse": f"s3://{bucket}/tables"})
    plain = catalog.create_table("db.t", ROWS.schema)
    plain.append(ROWS)
    result = migrate(plain, MASTER_KEY)
    assert_same_rows(catalog.load_table("db.t").scan().to_arrow(), ROWS)
    assert {each.what for each in result.left} == {"metadata from before it was encrypted"}


@pytest.mark.slow
def test_versions_that_a_bucket_keeps_are_listed(aws: AwsServer, warehouse: Path, bucket: str) -> None:
    aws.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    catalog = encrypted_sql_catalog(warehouse, aws, {"warehouse": f"s3://{bucket}/tables"})
    plain = catalog.create_table("db.t", ROWS.schema)
    plain.append(ROWS)
    [data_file] = data_files(plain)
    result = migrate(plain, MASTER_KEY)
    [kept] = [each for each in result.left if each.location == data_file.file_path]
    assert kept.size == data_file.file_size_in_bytes
    assert kept.what.startswith("version ")


def assert_becomes_encrypted(catalog: Catalog, name: str) -> None:
    plain = catalog.create_table(name, ROWS.schema, properties={"owner": "us"})
    plain.append(ROWS)
    plain.append(ROWS)
    plain.delete("id = 3")
    before = plain.scan().to_arrow()
    result = migrate(plain, MASTER_KEY, delete_below=[plain.location()])
    table = catalog.load_table(name)
    assert isinstance(table, EncryptedTable)
    assert_same_rows(table.scan().to_arrow(), before)
    assert (table.metadata.table_uuid, table.properties["owner"]) == (plain.metadata.table_uuid, "us")
    assert [snapshot.snapshot_id for snapshot in table.snapshots()] == [result.snapshot_id]
    unnamed = [each.location for each in result.left if each.what != "metadata from before it was encrypted"]
    assert all(location.endswith(".crc") for location in unnamed), unnamed  # checksums that Java's file system keeps of metadata files
    table.append(ROWS)
    reencrypt(table)
    assert catalog.load_table(name).scan().count() == 7


@pytest.mark.slow
def test_in_glue(aws: AwsServer, bucket: str) -> None:
    catalog, database = encrypted_glue_catalog(aws, bucket), f"db_{uuid.uuid4().hex[:8]}"
    catalog.create_namespace(database)
    assert_becomes_encrypted(catalog, f"{database}.t")


@pytest.mark.java
def test_on_a_rest_server(rest_server: RestServer, aws: AwsServer) -> None:
    assert_becomes_encrypted(encrypted_rest_catalog(rest_server.uri, aws), f"{new_namespace(rest_server)}.t")


@pytest.mark.java
def test_in_a_hive_metastore(hive_metastore: HiveMetastore, warehouse: Path, aws: AwsServer) -> None:
    catalog, database = encrypted_hive_catalog(hive_metastore, warehouse, aws), f"db_{uuid.uuid4().hex[:8]}"
    catalog.create_namespace(database, {"location": f"file://{warehouse}/{database}"})
    assert_becomes_encrypted(catalog, f"{database}.t")
