"""Migration on S3: through both FileIOs, in Glue, and in a bucket that keeps earlier versions of what is deleted."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tablecrypt.maintenance import migrate
from tablecrypt.table.table import EncryptedTable
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.glue import encrypted_glue_catalog
from tests.support.tables import MASTER_KEY, ROWS, data_files, encrypted_sql_catalog

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("file_io", ["pyiceberg.io.pyarrow.PyArrowFileIO", "pyiceberg.io.fsspec.FsspecFileIO"])
def test_through_both_file_ios(aws: AwsServer, warehouse: Path, file_io: str) -> None:
    bucket = aws.bucket(f"migrate-{uuid.uuid4().hex[:8]}")
    catalog = encrypted_sql_catalog(warehouse, aws, {"py-io-impl": file_io, "warehouse": f"s3://{bucket}/tables"})
    plain = catalog.create_table("db.t", ROWS.schema)
    plain.append(ROWS)
    result = migrate(plain, MASTER_KEY)
    assert_same_rows(catalog.load_table("db.t").scan().to_arrow(), ROWS)
    assert {each.what for each in result.left} == {"metadata from before it was encrypted"}


def test_in_glue(aws: AwsServer) -> None:
    bucket = aws.bucket(f"migrate-{uuid.uuid4().hex[:8]}")
    catalog = encrypted_glue_catalog(aws, bucket)
    database = f"db_{uuid.uuid4().hex[:8]}"
    catalog.create_namespace(database)
    plain = catalog.create_table(f"{database}.t", ROWS.schema)
    plain.append(ROWS)
    migrate(plain, MASTER_KEY)
    table = catalog.load_table(f"{database}.t")
    assert isinstance(table, EncryptedTable)
    table.append(ROWS)
    assert catalog.load_table(f"{database}.t").scan().count() == 6


def test_versions_that_a_bucket_keeps_are_listed(aws: AwsServer, warehouse: Path) -> None:
    bucket = aws.bucket(f"migrate-{uuid.uuid4().hex[:8]}")
    aws.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    catalog = encrypted_sql_catalog(warehouse, aws, {"warehouse": f"s3://{bucket}/tables"})
    plain = catalog.create_table("db.t", ROWS.schema)
    plain.append(ROWS)
    [data_file] = data_files(plain)
    result = migrate(plain, MASTER_KEY)
    [kept] = [each for each in result.left if each.location == data_file.file_path]
    assert kept.size == data_file.file_size_in_bytes
    assert kept.what.startswith("version ")
