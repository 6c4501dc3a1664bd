"""Rows of a large file lie in several row groups, so that a filter on a sorted column leaves most of them unread."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.parquet.uniform import UniformParquetFile
from tablecrypt.table import data_file_writer
from tablecrypt.table.table_files import key_metadata_of
from tablecrypt_catalog import EncryptedInMemoryCatalog


@pytest.mark.parametrize(("limit", "groups"), [(1_000_000, [2500] * 4), (1000, [1000] * 10)])
def test_row_groups_are_of_one_size_and_within_the_limit(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, limit: int, groups: list[int]
) -> None:
    monkeypatch.setattr(data_file_writer, "ROW_GROUP_BYTES", 20_000)
    MemoryKeyManagementClient({"kms.memory.name": f"row-groups-{limit}"}).create_key("master")
    folder = tmp_path_factory.mktemp("row-groups")
    catalog = EncryptedInMemoryCatalog(
        "row-groups", warehouse=f"file://{folder}", **{"encryption.kms-type": "memory", "kms.memory.name": f"row-groups-{limit}"}
    )
    catalog.create_namespace("db")
    rows = pa.table({"id": pa.array(range(10_000), pa.int64())})
    properties = {"encryption.key-id": "master", "write.parquet.row-group-limit": str(limit)}
    table = catalog.create_table("db.t", rows.schema, properties=properties)
    table.append(rows)
    (task,) = table.scan().plan_files()
    with pa.OSFile(task.file.file_path.removeprefix("file://")) as source:
        footer = UniformParquetFile(source, key_metadata_of(task.file), task.file.file_path).footer()
        assert [footer.row_group(number).num_rows for number in range(footer.num_row_groups)] == groups
    assert table.scan("id = 7777").to_arrow() == rows.slice(7777, 1).cast(table.scan().to_arrow().schema)
