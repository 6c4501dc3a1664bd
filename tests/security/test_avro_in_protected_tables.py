"""Avro data files, which other engines write, have no column under a key of its own: protection writes their rows again as Parquet.

The analyst has the table's key, and no column's.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final, cast

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.typedef import Record

from tablecrypt.errors import ColumnKeyDeniedError, ConfigurationError
from tablecrypt.maintenance import FindingKind, audit, reencrypt, share, shred, verify
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table.snapshots import CommitOptions
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.transaction import EncryptedTransaction
from tests.support.manifests import encrypt_file
from tests.support.plaintext import CANARY
from tests.support.protected_tables import COLUMN_KEY, TABLE_KEY, Clients, declare, loaded, opened_by_table_key
from tests.support.tables import path_of

ROWS: Final = pa.table({"id": pa.array([1, 2], pa.int64()), "text": [CANARY, CANARY]})
AVRO: Final[dict[str, Any]] = {
    "type": "record",
    "name": "table",
    "fields": [
        {"name": "id", "type": ["null", "long"], "default": None, "field-id": 1},
        {"name": "text", "type": ["null", "string"], "default": None, "field-id": 2},
    ],
}
UNNUMBERED: Final = {**AVRO, "fields": [{name: said for name, said in each.items() if name != "field-id"} for each in AVRO["fields"]]}


@pytest.fixture(params=[AVRO, UNNUMBERED], ids=["with field ids", "by the name mapping"])
def table(both: Clients, request: pytest.FixtureRequest) -> EncryptedTable:
    """A table with a Parquet file and an Avro file, of which a column is declared after that."""
    both.payroll.create_table("db.people", ROWS.schema, properties={"encryption.key-id": TABLE_KEY})
    table = loaded(both.payroll)
    with table.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": table.schema().name_mapping.model_dump_json()})
    table.append(ROWS)
    _append_avro(table, [{"id": 3, "text": CANARY}, {"id": 4, "text": None}], request.param)
    declare(table, f"{COLUMN_KEY}: text")

    return loaded(both.payroll)


def _append_avro(table: EncryptedTable, records: list[dict[str, Any]], schema: dict[str, Any]) -> None:
    plain = io.BytesIO()
    fastavro.writer(plain, schema, records, metadata=None)
    location = f"{table.location()}/data/of-another-engine.avro"
    key_metadata = encrypt_file(table.io, location, plain.getvalue())
    file = EncryptedDataFile.from_args(
        _table_format_version=3,
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.AVRO,
        partition=Record(),
        record_count=len(records),
        file_size_in_bytes=path_of(location).stat().st_size,
        key_metadata=key_metadata.encode(),
    )
    with table.transaction() as transaction:
        cast("EncryptedTransaction", transaction).append_producer(CommitOptions()).commit_files([file])


def _rows(table: EncryptedTable) -> list[dict[str, Any]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: int(row["id"]))


def _exposing(table: EncryptedTable) -> list[str]:
    return [finding.message for finding in audit(table).findings if finding.kind == FindingKind.COLUMN_EXPOSED]


def test_an_audit_and_a_share_know_that_the_file_shows_the_column(table: EncryptedTable, tmp_path: Path) -> None:
    assert len(_exposing(table)) == 1
    assert _exposing(table)[0].startswith("2 files hold it under the table's key")
    assert "of-another-engine.avro" in _exposing(table)[0]
    with pytest.raises(ConfigurationError, match=r"2 files of 2 .* hold a protected column in the clear"):
        share(table, COLUMN_KEY, f"file://{tmp_path}/share")


def test_readers_without_the_columns_key_see_no_value_of_it(both: Clients, table: EncryptedTable) -> None:
    declare(table, f"{COLUMN_KEY}: text")
    assert [row["text"] for row in _rows(loaded(both.payroll))] == [CANARY, CANARY, CANARY, None]
    assert [row["text"] for row in _rows(loaded(both.analyst))] == [None] * 4


@pytest.mark.parametrize("out_of_line", [True, False])
def test_reencrypt_writes_its_rows_again_as_parquet(both: Clients, table: EncryptedTable, out_of_line: bool) -> None:
    before = _rows(table)
    assert reencrypt(table, out_of_line=out_of_line).in_line == 2
    shred(table.refresh(), all_but_heads=True, replace_heads=True)
    reencrypt(table.refresh())

    table = loaded(both.payroll)
    assert _rows(table) == before
    assert [row["text"] for row in _rows(loaded(both.analyst))] == [None] * 4
    assert {task.file.file_format for task in table.scan().plan_files()} == {FileFormat.PARQUET}
    assert not [stored for stored in opened_by_table_key(table) if CANARY.encode() in stored]
    assert _exposing(table) == []
    assert verify(table).bad == ()


def test_who_may_not_use_the_columns_key_writes_nothing(both: Clients, table: EncryptedTable) -> None:
    seen = loaded(both.analyst)
    with pytest.raises(ColumnKeyDeniedError):
        reencrypt(seen)

    assert loaded(both.payroll).metadata_location == table.metadata_location
