"""A data file whose plaintext says AES_GCM_CTR_V1: readers of the table refuse it, looks at it notice it, no operation copies it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, LongType, NestedField

from tablecrypt.errors import TamperedFileError
from tablecrypt.maintenance import FindingKind, audit, compact, reencrypt, verify
from tests.support.aws import AwsServer
from tests.support.plaintext_scan import unwatch
from tests.support.tables import MASTER_KEY, encrypted_sql_catalog, folder_of, path_of, put_back

pytestmark = pytest.mark.slow

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "ratio", DoubleType(), required=True))


@pytest.fixture(scope="module")
def module_table(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Table:
    folder = tmp_path_factory.mktemp("downgraded")
    unwatch(folder)
    properties = {"encryption.key-id": MASTER_KEY, "write.parquet.compression-codec": "uncompressed", "write.parquet.dict-size-bytes": "1"}
    table = encrypted_sql_catalog(folder, aws).create_table("db.rows", SCHEMA, properties=properties)
    for first in (0, 100):
        rows = {"id": range(first, first + 50), "ratio": [each / 7 for each in range(50)]}
        table.append(pa.table(rows, schema=SCHEMA.as_arrow()))
    return table


@pytest.fixture
def table(module_table: Table) -> Iterator[Table]:
    """A table of which storage changed one file, at one byte, with the KMS, the catalog and the file's length as they were."""
    with put_back(folder_of(module_table)):
        path = downgraded_file(module_table)
        content = path.read_bytes()
        start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        assert content[start : start + 2] == b"\x1c\x1c"
        path.write_bytes(content[: start + 1] + b"\x2c" + content[start + 2 :])
        yield module_table.catalog.load_table("db.rows")


def downgraded_file(table: Table) -> Path:
    return path_of(sorted(task.file.file_path for task in table.scan().plan_files())[0])


READERS: dict[str, Callable[[Table], Any]] = {
    "Arrow": lambda table: table.scan().to_arrow(),
    "stream": lambda table: table.scan().to_arrow_batch_reader().read_all(),
    "filter": lambda table: table.scan("ratio > 0.1").to_arrow(),
    "count": lambda table: table.scan("ratio > 0.1").count(),
    "Polars": lambda table: table.to_polars().collect(),
    "DuckDB": lambda table: table.scan().to_duckdb("rows").execute("select sum(ratio) from rows").fetchall(),
    "pandas": lambda table: table.scan().to_pandas(),
    "delete": lambda table: table.delete("ratio > 0.1"),
    "compact": lambda table: compact(table, min_input_files=2),
    "reencrypt": reencrypt,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_every_reader_refuses_it(table: Table, read: Callable[[Table], Any]) -> None:
    before = table.metadata_location
    with pytest.raises(Exception, match="AES_GCM_CTR_V1") as refused:
        read(table)
    # Polars puts errors of a source into one of its own.
    assert isinstance(refused.value, TamperedFileError) or "TamperedFileError" in f"{refused.value!r}{refused.value}"
    assert str(downgraded_file(table)) in str(refused.value)
    assert table.catalog.load_table("db.rows").metadata_location == before


@pytest.mark.parametrize("quick", [False, True])
def test_verifying_names_it(table: Table, quick: bool) -> None:
    (bad,) = verify(table, quick=quick).bad
    assert path_of(bad.location) == downgraded_file(table)
    assert "AES_GCM_CTR_V1" in bad.problems[0].message


def test_an_audit_names_it(table: Table) -> None:
    (finding,) = [each for each in audit(table).findings if each.kind == FindingKind.WRONG_FOOTER]
    assert path_of(finding.where) == downgraded_file(table)
    assert "AES_GCM_CTR_V1" in finding.message


def test_an_untouched_table_passes(module_table: Table) -> None:
    assert verify(module_table, quick=True).is_good
    assert not [each for each in audit(module_table).findings if each.kind == FindingKind.WRONG_FOOTER]
    assert module_table.scan().to_arrow().num_rows == 100
