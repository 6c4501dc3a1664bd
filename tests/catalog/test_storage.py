"""The same table on every store and through both of PyIceberg's FileIO implementations."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.plaintext import CANARY
from tests.support.tables import encrypted_sql_catalog, new_table

pytestmark = pytest.mark.slow

ROWS = pa.table({"id": pa.array(range(2000), pa.int64()), "text": [f"{CANARY} {number}" * 20 for number in range(2000)]})
FILE_IOS = {"arrow": "pyiceberg.io.pyarrow.PyArrowFileIO", "fsspec": "pyiceberg.io.fsspec.FsspecFileIO"}


@pytest.mark.parametrize("file_io", FILE_IOS)
@pytest.mark.parametrize("store", ["file", "s3"])
def test_a_table_lives_its_life_on_every_store(aws: AwsServer, warehouse: Path, file_io: str, store: str) -> None:
    place = f"file://{warehouse}/tables" if store == "file" else f"s3://{aws.bucket(f'storage-{file_io}')}/tables"
    catalog = encrypted_sql_catalog(warehouse, aws, {"py-io-impl": FILE_IOS[file_io], "warehouse": place})
    table = new_table(catalog, appends=[ROWS], properties={"write.delete.mode": "merge-on-read"})
    table.delete("id < 10")
    table.upsert(pa.table({"id": [50, 5000], "text": [CANARY, CANARY]}), join_cols=["id"])
    again = encrypted_sql_catalog(warehouse, aws, {"py-io-impl": FILE_IOS[file_io]}).load_table("db.t")
    assert again.scan().count() == again.scan().to_arrow().num_rows == 1991
    assert_same_rows(again.scan(row_filter="id >= 100 and id < 2000").to_arrow(), ROWS.slice(100))
    assert again.scan(row_filter=f"text = '{CANARY}'").to_arrow().num_rows == 2
    catalog.purge_table("db.t")
    assert not catalog.table_exists("db.t")


@pytest.mark.parametrize("writer", FILE_IOS)
def test_what_one_file_io_wrote_the_other_reads(aws: AwsServer, warehouse: Path, writer: str) -> None:
    reader = next(name for name in FILE_IOS if name != writer)
    place = f"s3://{aws.bucket(f'crossed-{writer}')}/tables"
    written = encrypted_sql_catalog(warehouse, aws, {"py-io-impl": FILE_IOS[writer], "warehouse": place})
    new_table(written, appends=[ROWS])
    read = encrypted_sql_catalog(warehouse, aws, {"py-io-impl": FILE_IOS[reader]}).load_table("db.t")
    assert_same_rows(read.scan().to_arrow(), ROWS)
